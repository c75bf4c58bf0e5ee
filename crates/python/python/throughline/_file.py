"""Files of a volume as Python's own kinds of files."""

from __future__ import annotations

import io
import os
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from . import _throughline
    from ._volume import Volume

#: The buffer of a file that is opened without `buffering`, in bytes.
BUFFER_SIZE = 128 << 10

_ACCESS = {"r": "rb", "w": "wb", "x": "xb", "a": "ab"}


class RawFile(io.RawIOBase):
    """An open file of a volume, without a buffer of Python's: what `Volume.open(path, "rb", 0)` returns, and
    what is below the buffered files that it returns (their `raw`).

    A write has been accepted by the volume when it returns: every reader sees it. It survives a crash after
    `fsync`, and after `Volume.sync` or `Volume.close`.
    """

    def __init__(self, native: _throughline.File, volume: Volume, name: str, mode: str) -> None:
        """Use `Volume.open`."""
        super().__init__()
        self._native = native
        self._mode = mode
        #: The volume that it is in.
        self.volume = volume
        #: The path that it was opened by.
        self.name = name

    @property
    def mode(self) -> str:
        """As of `io.FileIO`."""
        plus = "+" if "+" in self._mode else ""
        return _ACCESS[self._mode[0]] + plus

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<throughline.RawFile name={self.name!r} mode={self.mode!r}{state}>"

    def _check(self, wanted: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not wanted:
            raise io.UnsupportedOperation(what)

    def readable(self) -> bool:
        """Whether it was opened for reading."""
        return "r" in self._mode or "+" in self._mode

    def writable(self) -> bool:
        """Whether it was opened for writing."""
        return "r" not in self._mode or "+" in self._mode

    def seekable(self) -> bool:
        """It is."""
        return True

    def fileno(self) -> int:
        """It has none: the kernel does not know of it."""
        raise io.UnsupportedOperation("a file in an image has no file descriptor")

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fills a buffer from the position on. Less than its length is read only at the end of the file."""
        self._check(self.readable(), "read")
        return self._native.readinto(memoryview(buffer).cast("B"))

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes from the position on; all that is left if `size` is negative."""
        self._check(self.readable(), "read")
        if size < 0:
            return self.readall()
        return self._native.read(size)

    def readall(self) -> bytes:
        """All that is left."""
        self._check(self.readable(), "read")
        parts = []
        # One part, unless the file grows meanwhile.
        while part := self._native.read(1 << 62):
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes at the position, or at the end if it was opened for appending. Less than all is written
        only if an error followed, which the next call raises."""
        self._check(self.writable(), "write")
        return self._native.write(data if isinstance(data, bytes) else memoryview(data).cast("B"))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Moves the position. `os.SEEK_DATA` and `os.SEEK_HOLE` find what is allocated, and what is not."""
        self._check(True, "seek")
        return self._native.seek(offset, whence)

    def tell(self) -> int:
        """The position."""
        self._check(True, "seek")
        return self._native.tell()

    def truncate(self, size: int | None = None, /) -> int:
        """Sets the length, by default to the position."""
        self._check(self.writable(), "truncate")
        size = self.tell() if size is None else size
        if size < 0:
            raise ValueError("negative size")
        self._native.truncate(size)
        return size

    def fsync(self, *, data_only: bool = False) -> None:
        """Returns when data, size and name survive a crash, as `os.fsync`; or as `os.fdatasync`. What is in a
        buffer of Python's above this file is not written by it: see `Volume.fsync`."""
        self._check(True, "fsync")
        self._native.fsync(data_only)

    def stat(self) -> os.stat_result:
        """Its metadata, as `os.fstat`."""
        self._check(True, "stat")
        return self.volume._stat_result(self._native.stat())

    def close(self) -> None:
        """Closes it. Loses nothing: what was written is the volume's."""
        if not self.closed:
            try:
                super().close()
            finally:
                self._native.close()

    def __reduce__(self) -> Any:
        raise TypeError("an open file of a volume cannot be pickled")


def native_options(mode: str, *, direct: bool, sync: bool, permissions: int) -> dict[str, bool | int]:
    """The native options of a mode of `open`, without `b` and `t`."""
    kind, plus = mode[0], "+" in mode
    return {
        "read": kind == "r" or plus,
        "write": kind != "r" or plus,
        "create": kind in "wa",
        "create_new": kind == "x",
        "truncate": kind == "w",
        "append": kind == "a",
        "direct": direct,
        "sync": sync,
        "permissions": permissions,
    }


def parsed_mode(mode: str) -> tuple[str, bool]:
    """A mode of `open` without `b` and `t`, and whether it is of text; `ValueError` for another one."""
    letters = set(mode)
    kinds = letters & set("rwxa")
    if letters - set("rwxabt+") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if {"b", "t"} <= letters:
        raise ValueError("can't have text and binary mode at once")
    if len(kinds) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    return kinds.pop() + ("+" if "+" in letters else ""), "b" not in letters


def buffered(
    raw: RawFile,
    is_text: bool,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> IO[Any]:
    """The file as `open` would return it."""
    if not is_text and (encoding, errors, newline) != (None, None, None):
        raise ValueError("binary mode takes no encoding, errors or newline")
    line_buffering = is_text and buffering == 1
    if buffering == 0:
        if is_text:
            raise ValueError("can't have unbuffered text I/O")
        return raw  # type: ignore[return-value]
    size = BUFFER_SIZE if buffering in (-1, 1) else buffering
    if size < 0:
        raise ValueError("invalid buffering size")
    binary: io.BufferedReader | io.BufferedWriter | io.BufferedRandom
    if raw.readable() and raw.writable():
        binary = io.BufferedRandom(raw, size)
    elif raw.writable():
        binary = io.BufferedWriter(raw, size)
    else:
        binary = io.BufferedReader(raw, size)
    if not is_text:
        return binary
    return io.TextIOWrapper(binary, encoding, errors, newline, line_buffering)
