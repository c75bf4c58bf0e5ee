"""`Volume`: an open image, with the calls of `os` and `open` by path."""

from __future__ import annotations

import atexit
import errno
import io
import itertools
import os
import stat
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, overload

from . import _throughline
from ._file import RawFile, buffered, native_options, parsed_mode
from ._stat import native_time, stat_result

if TYPE_CHECKING:
    from _typeshed import (
        OpenBinaryMode,
        OpenBinaryModeReading,
        OpenBinaryModeUpdating,
        OpenBinaryModeWriting,
        OpenTextMode,
        ReadableBuffer,
    )

    from ._path import Path

#: A path on the host.
HostPath: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]
#: A path in a volume, from its root, with or without a slash at its start.
VolumePath: TypeAlias = str | bytes | os.PathLike[str]

#: A directory of a walk: its path, and the names of directories and others in it.
_Level: TypeAlias = tuple[str, list[str], list[str]]

# Far from the device numbers of the kernel.
_devices = itertools.count(1 << 40)
_open_volumes: weakref.WeakSet[Volume] = weakref.WeakSet()


class _Closable(Protocol):
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...


class DirEntry:
    """A name in a directory, as `os.DirEntry`; from `Volume.scandir`."""

    def __init__(self, volume: Volume, path: str, name: str, ino: int, bits: int) -> None:
        """Use `Volume.scandir`."""
        self._volume = volume
        self._ino = ino
        self._type = bits
        #: The name.
        self.name = name
        #: The path of the directory, as it was given, and the name.
        self.path = path

    def __repr__(self) -> str:
        return f"<throughline.DirEntry {self.name!r}>"

    def inode(self) -> int:
        """The number of its inode."""
        return self._ino

    def is_symlink(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self._type)

    def _is(self, test: Callable[[int], bool], follow_symlinks: bool) -> bool:
        if not (follow_symlinks and self.is_symlink()):
            return test(self._type)
        try:
            return test(self._volume.stat(self.path).st_mode)
        except FileNotFoundError:
            return False

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a directory, or a link to one."""
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self._is(stat.S_ISREG, follow_symlinks)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Its metadata."""
        return self._volume.stat(self.path, follow_symlinks=follow_symlinks)


class ScandirIterator:
    """The names of a directory, as of `os.scandir`. They are read as they are needed. After an `OSError` for
    damage (`EUCLEAN`), the names that can still be read follow."""

    _BATCH = 1024

    def __init__(self, volume: Volume, native: _throughline.Listing, path: str) -> None:
        """Use `Volume.scandir`."""
        self._volume = volume
        self._native = native
        self._prefix = path if path.endswith("/") or not path else path + "/"
        self._batch: Iterator[tuple[bytes, int, int]] = iter(())
        #: Whether it is closed, or at its end.
        self.closed = False

    def __iter__(self) -> ScandirIterator:
        return self

    def __next__(self) -> DirEntry:
        found = next(self._batch, None)
        if found is None and not self.closed:
            self._batch = iter(self._native.batch(self._BATCH))
            found = next(self._batch, None)
        if found is None:
            self.close()
            raise StopIteration
        name = os.fsdecode(found[0])
        return DirEntry(self._volume, self._prefix + name, name, found[1], found[2])

    def __enter__(self) -> ScandirIterator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the directory."""
        self.closed = True
        self._batch = iter(())
        self._native.close()


def host_path(path: HostPath) -> bytes:
    """The bytes of a path on the host."""
    return os.fsencode(path)


class Volume:
    """An open ext2, ext3 or ext4 volume: the calls of `os` and `open`, with paths from its root.

    >>> with throughline.Volume("disk.img", "r+") as volume:
    ...     volume.makedirs("/etc", exist_ok=True)
    ...     with volume.open("/etc/motd", "w") as file:
    ...         file.write("hello\\n")

    `mode` is "r", to read, or "r+", to read and write. An image is open either for any number of readers, or
    for one writer, over all processes. `close` makes all durable; before it, and before `sync`, what was
    written may be in the memory of this process only, and is lost if it is killed. A volume that is open
    when the interpreter ends is closed. A process that was forked cannot use the volumes of its parent; it
    can open them again.

    Any number of threads may use a volume and its files.

    - `partition`: in a disk with partitions, a number, label or UUID. By default, the only one with a
      volume.
    - `offset`: where the volume begins, in bytes, where no table of partitions says it.
    - `format`: "raw", "qcow2", "vmdk" or "vhdx", instead of by content. The last two are only read. An image
      whose beginning a stranger may have written, such as a guest, should be named as "raw".
    - `backing`: files that a qcow2 image may name as its backing files, or directories of such files.
    - `overlay`: a qcow2 image that takes all changes instead of the image itself; made if need be.
    - `journal`: the device or file of an external journal.
    - `cache_size`: memory for cached data, in bytes; by default a quarter of what the process may have.
    - `replay`: if false, the journal of an image that is only read is ignored.
    - `durable_within`: seconds after which every change is durable without a call of `sync`.
    - `sync`: every change is durable when its call returns.
    - `discard`: freed blocks are discarded: the image file gets holes.
    - `umask`: permission bits that new files and directories do not get. The umask of the process has no
      effect."""

    def __init__(
        self,
        image: HostPath,
        mode: Literal["r", "r+"] = "r",
        *,
        partition: str | int | None = None,
        offset: int = 0,
        format: str | None = None,
        backing: Sequence[HostPath] = (),
        overlay: HostPath | None = None,
        journal: HostPath | None = None,
        cache_size: int | None = None,
        replay: bool = True,
        durable_within: float | None = None,
        sync: bool = False,
        discard: bool = False,
        umask: int = 0o022,
    ) -> None:
        if mode not in ("r", "r+"):
            raise ValueError(f"invalid mode: {mode!r}; a volume is opened with 'r' or 'r+'")
        options = {
            "write": mode == "r+",
            "partition": None if partition is None else str(partition),
            "offset": offset,
            "format": format,
            "backing": [host_path(path) for path in backing],
            "overlay": None if overlay is None else host_path(overlay),
            "journal": None if journal is None else host_path(journal),
            "cache_bytes": cache_size,
            "replay": replay,
            "durable_within": durable_within,
            "synchronous": sync,
            "discard": discard,
            "umask": umask & 0o777,
        }
        self._native = _throughline.Volume(host_path(image), options)
        self._device = next(_devices)
        self._lock = threading.Lock()
        # What is to be closed before the volume, by the order in which it was opened.
        self._children: weakref.WeakValueDictionary[int, _Closable] = weakref.WeakValueDictionary()
        self._counter = itertools.count()
        #: The path of the image, as it was given.
        self.name = os.fsdecode(image)
        #: The mode, as it was given.
        self.mode = mode
        self._block_size = self._native.statvfs()[0]
        _open_volumes.add(self)

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<throughline.Volume name={self.name!r} mode={self.mode!r}{state}>"

    def __enter__(self) -> Volume:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        native = getattr(self, "_native", None)
        if native is not None and not native.closed:
            warnings.warn(f"unclosed volume {self!r}", ResourceWarning, source=self, stacklevel=2)
            self.close()

    def __reduce__(self) -> Any:
        raise TypeError("an open volume cannot be pickled")

    @property
    def closed(self) -> bool:
        """Whether it is closed. In a forked process, the volumes of its parent are."""
        return self._native.closed

    def close(self) -> None:
        """Closes the files that are still open, writes all to the device, and marks the volume clean. Calls
        of other threads are waited for. An error says that something is not durable; the volume is closed
        anyway."""
        if self._native.closed:
            return
        failed: Exception | None = None
        with self._lock:
            children = list(self._children.values())
        # What wraps another file is the newer one, and is closed before it.
        for child in reversed(children):
            try:
                child.close()
            except Exception as error:
                failed = failed or error
        self._native.close()
        if failed is not None:
            raise failed

    # The volume.

    @property
    def read_only(self) -> bool:
        """Whether it cannot be written to, whatever `mode` is: see `read_only_reason`."""
        return self._native.read_only()[0]

    @property
    def read_only_reason(self) -> str | None:
        """Why it cannot be written to although `mode` is "r+": a feature, or recorded damage."""
        return self._native.read_only()[1]

    @property
    def format(self) -> str:
        """ "ext2", "ext3" or "ext4"."""
        return self._native.describe()[0]

    @property
    def label(self) -> str:
        """The label; empty if there is none."""
        return self._native.describe()[1]

    @property
    def uuid(self) -> str:
        """The UUID."""
        return self._native.describe()[2]

    @property
    def features(self) -> list[str]:
        """The names of its features, as dumpe2fs(8) prints them."""
        return self._native.describe()[3]

    def statvfs(self) -> os.statvfs_result:
        """Its space, as `os.statvfs`."""
        size, blocks, free, available, inodes, free_inodes, fsid, longest = self._native.statvfs()
        flag = os.ST_RDONLY if self.read_only else 0
        counts = (size, size, blocks, free, available, inodes, free_inodes, free_inodes)
        return os.statvfs_result((*counts, flag, longest), {"f_fsid": fsid})

    def sync(self) -> None:
        """Returns when all that was changed before survives a crash. What is in buffers of Python's open
        files counts as not written: flush or close them first."""
        self._native.sync()

    def fsync(self, file: IO[Any] | RawFile, *, data_only: bool = False) -> None:
        """Flushes a file that `open` returned, and returns when its data survives a crash, as `os.fsync`;
        with `data_only`, as `os.fdatasync`."""
        file.flush()
        raw: Any = file
        for below in ("buffer", "raw"):
            raw = getattr(raw, below, raw)
        if not isinstance(raw, RawFile) or raw.volume is not self:
            raise ValueError("not a file of this volume")
        raw.fsync(data_only=data_only)

    def fsync_directory(self, path: VolumePath) -> None:
        """Returns when the names in a directory survive a crash."""
        self._native.sync_directory(self._at(path))

    # Files.

    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenTextMode = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        direct: bool = False,
        sync: bool = False,
        permissions: int = 0o666,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenBinaryMode,
        buffering: Literal[0],
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        direct: bool = False,
        sync: bool = False,
        permissions: int = 0o666,
    ) -> RawFile: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenBinaryModeUpdating,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        direct: bool = False,
        sync: bool = False,
        permissions: int = 0o666,
    ) -> io.BufferedRandom: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenBinaryModeWriting,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        direct: bool = False,
        sync: bool = False,
        permissions: int = 0o666,
    ) -> io.BufferedWriter: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: OpenBinaryModeReading,
        buffering: Literal[-1, 1] = -1,
        encoding: None = None,
        errors: None = None,
        newline: None = None,
        *,
        direct: bool = False,
        sync: bool = False,
        permissions: int = 0o666,
    ) -> io.BufferedReader: ...
    @overload
    def open(
        self,
        path: VolumePath,
        mode: str,
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        direct: bool = False,
        sync: bool = False,
        permissions: int = 0o666,
    ) -> Any: ...
    def open(
        self,
        path: VolumePath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        *,
        direct: bool = False,
        sync: bool = False,
        permissions: int = 0o666,
    ) -> Any:
        """Opens a file, as the function `open` does, with the same modes and the same kinds of files; they
        have no `fileno`. `direct` bypasses the volume's cache. With `sync`, what is written is durable when
        the write returns (that of the raw file: `flush` writes what is in Python's buffer). `permissions`
        are those of a new file, before the volume's `umask`.

        Files that are open when the volume is closed are closed first."""
        mode, is_text = parsed_mode(mode)
        native = self._native.open(
            self._at(path),
            native_options(mode, direct=direct, sync=sync, permissions=permissions),
        )
        raw = RawFile(native, self, self._name(path), mode)
        try:
            if mode.startswith("a"):
                raw.seek(0, os.SEEK_END)
            file = buffered(raw, is_text, buffering, encoding, errors, newline)
        except BaseException:
            raw.close()
            raise
        self._opened(file)
        return file

    def truncate(self, path: VolumePath, length: int) -> None:
        """Sets the length of a file."""
        with self.open(path, "r+b", 0) as file:
            file.truncate(length)

    def copy(self, src: VolumePath, dst: VolumePath) -> None:
        """Copies the contents and the permissions of a file to another one of this volume, which is made or
        replaced."""
        self._native.copy(self._at(src), self._at(dst))

    # Names.

    def path(self, *segments: str) -> Path:
        """A path of this volume, with the methods of `pathlib.Path`."""
        from ._path import Path

        return Path(*segments, volume=self)

    def listdir(self, path: VolumePath = "/") -> list[str]:
        """The names in a directory, without `.` and `..`."""
        with self.scandir(path) as entries:
            return [entry.name for entry in entries]

    def scandir(self, path: VolumePath = "/") -> ScandirIterator:
        """The names in a directory with their types, as `os.scandir`."""
        entries = ScandirIterator(self, self._native.scandir(self._at(path)), self._name(path))
        self._opened(entries)
        return entries

    def walk(
        self,
        top: VolumePath = "/",
        topdown: bool = True,
        onerror: Callable[[OSError], object] | None = None,
        followlinks: bool = False,
    ) -> Iterator[_Level]:
        """A directory and all below it, as `os.walk`. A directory that is found again below itself is
        damage, and is not entered: `onerror` gets an error for it."""
        stack: list[_Level | str] = [self._name(top)]
        seen = {self.stat(top).st_ino} if self.exists(top) else set()
        while stack:
            item = stack.pop()
            if not isinstance(item, str):
                yield item
                continue
            try:
                level, below = self._level(item, seen, onerror, followlinks)
            except OSError as error:
                if onerror is not None:
                    onerror(error)
                continue
            if topdown:
                yield level
                # The caller may have left some out.
                below = [path for path in below if path.rpartition("/")[2] in level[1]]
            else:
                stack.append(level)
            stack.extend(reversed(below))

    def _level(
        self,
        at: str,
        seen: set[int],
        onerror: Callable[[OSError], object] | None,
        followlinks: bool,
    ) -> tuple[_Level, list[str]]:
        """A directory of a walk, and the paths of those below it that are to be entered."""
        level: _Level = (at, [], [])
        below = []
        with self.scandir(at) as entries:
            for entry in entries:
                if not entry.is_dir():
                    level[2].append(entry.name)
                    continue
                level[1].append(entry.name)
                if entry.is_symlink():
                    below += [entry.path] if followlinks else []
                elif entry.inode() not in seen:
                    seen.add(entry.inode())
                    below.append(entry.path)
                elif not followlinks and onerror is not None:
                    text = "the directory is found a second time below its own tree"
                    onerror(OSError(errno.EUCLEAN, text, entry.path))
        return level, below

    def mkdir(self, path: VolumePath, mode: int = 0o777) -> None:
        """Makes a directory. The volume's `umask` applies to its permissions."""
        self._native.mkdir(self._at(path), mode)

    def makedirs(self, path: VolumePath, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Makes a directory and its missing parents."""
        at = self._name(path)
        head = at.rstrip("/").rpartition("/")[0]
        if head and not self.exists(head):
            self.makedirs(head, exist_ok=True)
        try:
            self.mkdir(at, mode)
        except FileExistsError:
            if not exist_ok or not self.isdir(at):
                raise

    def remove(self, path: VolumePath) -> None:
        """Removes the name of anything but a directory."""
        self._native.unlink(self._at(path))

    unlink = remove

    def rmdir(self, path: VolumePath) -> None:
        """Removes an empty directory."""
        self._native.rmdir(self._at(path))

    def rmtree(self, path: VolumePath) -> None:
        """Removes a directory and all below it. Symbolic links are removed, not followed."""
        self._native.rmtree(self._at(path))

    def rename(self, src: VolumePath, dst: VolumePath, *, keep: bool = False) -> None:
        """Renames, atomically, also over a crash; a file or an empty directory at the new name is replaced.
        With `keep`, that is `FileExistsError`."""
        self._native.rename(self._at(src), self._at(dst), keep)

    def replace(self, src: VolumePath, dst: VolumePath) -> None:
        """As `rename`."""
        self.rename(src, dst)

    def link(self, src: VolumePath, dst: VolumePath) -> None:
        """Makes a hard link. A symbolic link is linked itself, not what it leads to."""
        self._native.link(self._at(src), self._at(dst))

    def symlink(self, src: str | bytes | os.PathLike[str], dst: VolumePath) -> None:
        """Makes the symbolic link `dst` with the target `src`."""
        target = str(src) if self._is_path(src) else src
        self._native.symlink(os.fsencode(target), self._at(dst))

    def readlink(self, path: VolumePath) -> str:
        """The target of a symbolic link."""
        return os.fsdecode(self._native.readlink(self._at(path)))

    # Metadata.

    def stat(self, path: VolumePath, *, follow_symlinks: bool = True) -> os.stat_result:
        """The metadata of what is at a path. `st_dev` is a number of this volume."""
        return self._stat_result(self._native.stat(self._at(path), follow_symlinks))

    def lstat(self, path: VolumePath) -> os.stat_result:
        """As `stat`, of a symbolic link itself."""
        return self.stat(path, follow_symlinks=False)

    def birthtime(self, path: VolumePath, *, follow_symlinks: bool = True) -> float | None:
        """When it was created, in seconds since 1970; `None` if the volume does not store it."""
        created = self._native.stat(self._at(path), follow_symlinks)[5]
        return None if created is None else created[0] + created[1] / 1e9

    def _tests(self, path: VolumePath, test: Callable[[int], bool], follow: bool = True) -> bool:
        try:
            return test(self.stat(path, follow_symlinks=follow).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno == errno.ELOOP:
                return False
            raise

    def exists(self, path: VolumePath) -> bool:
        """Whether something is at a path; a broken symbolic link is nothing."""
        return self._tests(path, lambda _: True)

    def lexists(self, path: VolumePath) -> bool:
        """Whether something is at a path; also a broken symbolic link."""
        return self._tests(path, lambda _: True, follow=False)

    def isdir(self, path: VolumePath) -> bool:
        """Whether it is a directory, or a link to one."""
        return self._tests(path, stat.S_ISDIR)

    def isfile(self, path: VolumePath) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self._tests(path, stat.S_ISREG)

    def islink(self, path: VolumePath) -> bool:
        """Whether it is a symbolic link."""
        return self._tests(path, stat.S_ISLNK, follow=False)

    def chmod(self, path: VolumePath, mode: int, *, follow_symlinks: bool = True) -> None:
        """Sets the permissions. Those of a symbolic link cannot be set."""
        self._set(path, follow_symlinks, permissions=mode & 0o7777)

    def chown(self, path: VolumePath, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """Sets user and group; -1 leaves one as it is."""
        ids = {"uid": uid, "gid": gid}
        given = {name: value for name, value in ids.items() if value != -1}
        self._set(path, follow_symlinks, **given)

    def utime(
        self,
        path: VolumePath,
        times: tuple[float, float] | None = None,
        *,
        ns: tuple[int, int] | None = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets the times of the last read and of the last write, as `os.utime`: by default to now."""
        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        if times is not None:
            ns = (int(times[0] * 1e9), int(times[1] * 1e9))
        if ns is None:
            self._set(path, follow_symlinks, now=True)
            return
        accessed, modified = (native_time(time) for time in ns)
        self._set(path, follow_symlinks, accessed=accessed, modified=modified)

    def getxattr(self, path: VolumePath, attribute: str | bytes, *, follow_symlinks: bool = True) -> bytes:
        """The value of an extended attribute."""
        at = self._at(path)
        value = self._native.getxattr(at, os.fsencode(attribute), follow_symlinks)
        if value is None:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA), os.fsdecode(at))
        return value

    def listxattr(self, path: VolumePath, *, follow_symlinks: bool = True) -> list[str]:
        """The names of the extended attributes."""
        names = self._native.listxattr(self._at(path), follow_symlinks)
        return [os.fsdecode(name) for name in names]

    def setxattr(
        self,
        path: VolumePath,
        attribute: str | bytes,
        value: ReadableBuffer,
        flags: int = 0,
        *,
        follow_symlinks: bool = True,
    ) -> None:
        """Sets an extended attribute; `flags`: `os.XATTR_CREATE` or `os.XATTR_REPLACE`."""
        name = os.fsencode(attribute)
        self._native.setxattr(self._at(path), name, bytes(value), flags, follow_symlinks)

    def removexattr(self, path: VolumePath, attribute: str | bytes, *, follow_symlinks: bool = True) -> None:
        """Removes an extended attribute."""
        self._native.removexattr(self._at(path), os.fsencode(attribute), follow_symlinks)

    # What the methods have in common.

    def _opened(self, child: _Closable) -> None:
        with self._lock:
            self._children[next(self._counter)] = child

    def _has_open_files(self) -> bool:
        with self._lock:
            return any(not child.closed for child in self._children.values())

    def _stat_result(self, native: _throughline._Stat) -> os.stat_result:
        return stat_result(native, self._device, self._block_size)

    def _set(self, path: VolumePath, follow: bool, **given: object) -> None:
        names = ("permissions", "uid", "gid", "accessed", "modified")
        wanted: dict[str, object] = {**dict.fromkeys(names), "now": False, **given}
        self._native.set(self._at(path), follow, wanted)

    @staticmethod
    def _is_path(path: object) -> bool:
        from ._path import Path

        return isinstance(path, Path)

    def _name(self, path: VolumePath) -> str:
        return os.fsdecode(self._at(path))

    def _at(self, path: VolumePath) -> bytes:
        if self._is_path(path):
            if path.volume is not self:  # type: ignore[union-attr]
                raise OSError(errno.EXDEV, "a path of another volume", str(path))
            path = str(path)
        at = os.fsencode(path)
        if b"\0" in at:
            raise ValueError("embedded null byte")
        return at


def _close_all() -> None:
    """What is open when the interpreter ends is closed."""
    failed: Exception | None = None
    for volume in list(_open_volumes):
        try:
            volume.close()
        except Exception as error:
            failed = error
    if failed is not None:
        raise failed


atexit.register(_close_all)
os.register_at_fork(after_in_child=_throughline.forked)
