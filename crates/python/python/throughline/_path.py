"""`Path`: a path of a volume, with the methods of `pathlib.Path`."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import PurePath, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, overload

if TYPE_CHECKING:
    import io

    from _typeshed import (
        OpenBinaryMode,
        OpenBinaryModeReading,
        OpenBinaryModeUpdating,
        OpenBinaryModeWriting,
        OpenTextMode,
        ReadableBuffer,
    )

    from ._file import RawFile
    from ._volume import Volume

#: Symbolic links that are followed in one path, as the kernel does.
_LINKS_MAX = 40


class Path(PurePosixPath):
    """A path of a volume, from its root: what `Volume.path` returns.

    It has the methods of `pathlib.Path`. It is not a path on the host: `open` and the functions of `os`
    refuse it. Paths of different volumes are never equal."""

    __slots__ = ("_volume",)

    _volume: Volume

    def __new__(cls, *segments: str | os.PathLike[str], volume: Volume) -> Self:
        """A path of `volume`."""
        if sys.version_info >= (3, 12):
            path = super().__new__(cls)
        else:
            path = super().__new__(cls, *segments)
        path._volume = volume
        return path

    def __init__(self, *segments: str | os.PathLike[str], volume: Volume) -> None:
        """A path of `volume`."""
        if sys.version_info >= (3, 12):
            super().__init__(*segments)

    # Paths that are derived: of the same volume.

    def with_segments(self, *segments: str | os.PathLike[str]) -> Self:
        """A path of the same volume."""
        return type(self)(*segments, volume=self._volume)

    def _of(self, path: PurePosixPath) -> Self:
        """The same path, of this volume: before Python 3.12, a derived path does not have it."""
        return self.with_segments(str(path))

    @property
    def _pure(self) -> PurePosixPath:
        return PurePosixPath(str(self))

    @property
    def volume(self) -> Volume:
        """The volume that it is in."""
        return self._volume

    @property
    def parent(self) -> Self:
        """The path of the directory that it is in."""
        return self._of(self._pure.parent)

    @property
    def parents(self) -> tuple[Self, ...]:
        """Its parents, the nearest first."""
        return tuple(self._of(path) for path in self._pure.parents)

    def __truediv__(self, other: str | os.PathLike[str]) -> Self:
        try:
            return self.joinpath(other)
        except TypeError:
            return NotImplemented

    def __rtruediv__(self, other: str | os.PathLike[str]) -> Self:
        try:
            return self.with_segments(other, str(self))
        except TypeError:
            return NotImplemented

    def joinpath(self, *other: str | os.PathLike[str]) -> Self:
        """The path with more segments."""
        segments = [str(one) if isinstance(one, Path) else one for one in other]
        return self._of(self._pure.joinpath(*segments))

    def with_name(self, name: str) -> Self:
        """The path with another last name."""
        return self._of(self._pure.with_name(name))

    def with_stem(self, stem: str) -> Self:
        """The path with another last name, but for its suffix."""
        return self._of(self._pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> Self:
        """The path with another suffix."""
        return self._of(self._pure.with_suffix(suffix))

    def relative_to(  # type: ignore[override]
        self, other: str | os.PathLike[str], /, **options: Any
    ) -> PurePosixPath:
        """The rest of the path below another one. It belongs to no volume: paths of volumes are from the
        root."""
        base = str(other) if isinstance(other, Path) else other
        return self._pure.relative_to(base, **options)

    def as_uri(self) -> str:
        """The URL for `fsspec`."""
        image = os.path.abspath(self._volume.name)
        return f"throughline://{image}:{self.absolute()}"

    def __fspath__(self) -> NoReturn:
        raise TypeError(f"{self!r} is in a volume, not on the host: use its own methods")

    def __repr__(self) -> str:
        return f"throughline.Path({str(self)!r}, volume={self._volume!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Path):
            # Nor is it equal to a path of no volume, which would find itself equal.
            return False if isinstance(other, PurePath) else NotImplemented
        return self._volume is other._volume and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((id(self._volume), str(self)))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a path of an open volume cannot be pickled")

    # What is there.

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Its metadata."""
        return self._volume.stat(str(self), follow_symlinks=follow_symlinks)

    def lstat(self) -> os.stat_result:
        """Its metadata; that of a symbolic link itself."""
        return self.stat(follow_symlinks=False)

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether something is there."""
        volume = self._volume
        return volume.exists(str(self)) if follow_symlinks else volume.lexists(str(self))

    def is_dir(self) -> bool:
        """Whether it is a directory, or a link to one."""
        return self._volume.isdir(str(self))

    def is_file(self) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self._volume.isfile(str(self))

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return self._volume.islink(str(self))

    def _is(self, test: Callable[[int], bool]) -> bool:
        return self._volume._tests(str(self), test)

    def is_fifo(self) -> bool:
        """Whether it is a named pipe."""
        return self._is(stat.S_ISFIFO)

    def is_socket(self) -> bool:
        """Whether it is a socket."""
        return self._is(stat.S_ISSOCK)

    def is_block_device(self) -> bool:
        """Whether it is a block device."""
        return self._is(stat.S_ISBLK)

    def is_char_device(self) -> bool:
        """Whether it is a character device."""
        return self._is(stat.S_ISCHR)

    def samefile(self, other: str | Path) -> bool:
        """Whether both lead to the same file."""
        there = other.stat() if isinstance(other, Path) else self._volume.stat(other)
        return os.path.samestat(self.stat(), there)

    def iterdir(self) -> Iterator[Self]:
        """What is in the directory."""
        for name in self._volume.listdir(str(self)):
            yield self / name

    def walk(
        self,
        top_down: bool = True,
        on_error: Callable[[OSError], object] | None = None,
        follow_symlinks: bool = False,
    ) -> Iterator[tuple[Self, list[str], list[str]]]:
        """The directory and all below it."""
        walk = self._volume.walk(str(self), top_down, on_error, follow_symlinks)
        for at, directories, others in walk:
            yield self.with_segments(at), directories, others

    def glob(self, pattern: str) -> Iterator[Self]:
        """The paths below it that match: `*`, `?` and `[...]` within a name, `**` for directories at any
        depth. Symbolic links are not followed by `**`."""
        if not pattern:
            raise ValueError(f"unacceptable pattern: {pattern!r}")
        if pattern.startswith("/"):
            raise NotImplementedError("non-relative patterns are unsupported")
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        seen = set()
        for path in self._glob(parts):
            if path not in seen:
                seen.add(path)
                yield path

    def rglob(self, pattern: str) -> Iterator[Self]:
        """As `glob`, at any depth."""
        return self.glob(f"**/{pattern}")

    def _glob(self, parts: list[str]) -> Iterator[Self]:
        if not parts:
            yield self
            return
        part, rest = parts[0], parts[1:]
        if part == "**":
            for at, _, _ in self.walk():
                if rest:
                    yield from at._glob(rest)
                else:
                    yield at
        elif part == ".." or not re.search(r"[*?\[]", part):
            below = self / part
            if below.exists(follow_symlinks=False):
                yield from below._glob(rest)
        elif self.is_dir():
            matches = _matcher(part)
            for name in sorted(self._volume.listdir(str(self))):
                below = self / name
                if matches(name) and (not rest or below.is_dir()):
                    yield from below._glob(rest)

    def resolve(self, strict: bool = False) -> Self:
        """The absolute path without symbolic links and `..`."""
        left = list(reversed(self._pure.parts))
        at = PurePosixPath("/")
        links = 0
        while left:
            part = left.pop()
            if part in ("/", ".."):
                at = PurePosixPath("/") if part == "/" else at.parent
                continue
            here = at / part
            try:
                is_link = stat.S_ISLNK(self._volume.lstat(str(here)).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                if strict:
                    raise
                is_link = False
            if not is_link:
                at = here
                continue
            links += 1
            if links > _LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self))
            left += reversed(PurePosixPath(self._volume.readlink(str(here))).parts)
        return self._of(at)

    def absolute(self) -> Self:
        """The path from the root."""
        return self.with_segments("/", str(self))

    def readlink(self) -> Self:
        """The target of the symbolic link."""
        return self.with_segments(self._volume.readlink(str(self)))

    # Changes.

    @overload
    def open(
        self,
        mode: OpenTextMode = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(
        self,
        mode: OpenBinaryMode,
        buffering: Literal[0],
        encoding: None = None,
        errors: None = None,
        newline: None = None,
    ) -> RawFile: ...
    @overload
    def open(
        self,
        mode: OpenBinaryModeUpdating,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
    ) -> io.BufferedRandom: ...
    @overload
    def open(
        self,
        mode: OpenBinaryModeWriting,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
    ) -> io.BufferedWriter: ...
    @overload
    def open(
        self,
        mode: OpenBinaryModeReading,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
    ) -> io.BufferedReader: ...
    @overload
    def open(
        self,
        mode: str,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any: ...
    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """Opens the file, as `Volume.open`."""
        return self._volume.open(str(self), mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        """The contents of the file."""
        with self.open("rb", 0) as file:
            return file.readall()

    def read_text(
        self, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        """The contents of the file, as text."""
        with self.open("r", -1, encoding, errors, newline) as file:
            return file.read()

    def write_bytes(self, data: ReadableBuffer) -> int:
        """Writes the whole file; it is made, or replaced."""
        view = memoryview(data)
        with self.open("wb") as file:
            return file.write(view)

    def write_text(
        self,
        data: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        """Writes the whole file, as text."""
        with self.open("w", -1, encoding, errors, newline) as file:
            return file.write(data)

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        """Makes an empty file, or sets the times of what is there to now."""
        if exist_ok and self.exists():
            self._volume.utime(str(self))
            return
        kind = "ab" if exist_ok else "xb"
        self._volume.open(str(self), kind, 0, permissions=mode).close()

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory."""
        try:
            self._volume.mkdir(str(self), mode)
        except FileNotFoundError:
            if not parents or self.parent == self:
                raise
            self.parent.mkdir(parents=True, exist_ok=True)
            self.mkdir(mode, parents=False, exist_ok=exist_ok)
        except FileExistsError:
            if not exist_ok or not self.is_dir():
                raise

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the name of anything but a directory."""
        try:
            self._volume.unlink(str(self))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rmdir(self) -> None:
        """Removes the empty directory."""
        self._volume.rmdir(str(self))

    def _there(self, target: str | Path) -> Self:
        """A target as a path of this volume; `OSError` (`EXDEV`) for one of another volume."""
        if isinstance(target, Path):
            self._volume._at(target)
            target = str(target)
        return self.with_segments(target)

    def rename(self, target: str | Path) -> Self:
        """Renames it, atomically; a file at the target is replaced. Returns the new path."""
        there = self._there(target)
        self._volume.rename(str(self), str(there))
        return there

    def replace(self, target: str | Path) -> Self:
        """As `rename`."""
        return self.rename(target)

    def symlink_to(self, target: str | os.PathLike[str], target_is_directory: bool = False) -> None:
        """Makes it a symbolic link to a target."""
        self._volume.symlink(target, str(self))

    def hardlink_to(self, target: str | Path) -> None:
        """Makes it a hard link to a file."""
        self._volume.link(str(self._there(target)), str(self))

    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        """Sets the permissions."""
        self._volume.chmod(str(self), mode, follow_symlinks=follow_symlinks)


def _matcher(pattern: str) -> Callable[[str], object]:
    return re.compile(fnmatch.translate(pattern)).match
