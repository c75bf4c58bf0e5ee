"""An `fsspec` file system: files in images by URL, for pandas, pyarrow, dask and others.

>>> import fsspec
>>> with fsspec.open("throughline://disk.img:/a.csv", "w") as file:
...     file.write("x,y\\n1,2\\n")
>>> pandas.read_csv("throughline://disk.img:/a.csv")
>>> fs = fsspec.filesystem("throughline", image="disk.img", mode="r+")

`throughline://IMAGE:/path` is the path in the image; `throughline:///tmp/disk.img:/path` that in an image
with an absolute path. Where several `:/` could separate both, the first counts that follows the name of a
file; where there is none, the first. `IMAGE@2` is the second partition of a disk, as on the command line. In
a chained URL, the image comes last: `throughline:///path::file:///tmp/disk.img`, or
`throughline:///path::simplecache::https://host/disk.img`, of which a copy is read.

All file systems of one process share the open volume of an image. It is opened when it is first used: for
reading, until something is to be changed; then it is closed and opened again for writing, unless `mode` is
"r". With files open for reading, that is refused (`EBUSY`); `mode="r+"` opens it for writing at once.

What is written is in the volume when its file is closed, and every reader in this process sees it. It is
durable, and other processes can open the image, after `close` of the file system, or when the interpreter
ends; `sync` makes it durable, too. Until then, it is lost if the process is killed."""

from __future__ import annotations

import datetime
import errno
import io
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import fsspec
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

from . import _throughline
from ._file import BUFFER_SIZE, RawFile
from ._volume import DirEntry, Volume

_SCHEME = "throughline://"


class _Shared:
    """The open volume of an image, in this process."""

    def __init__(self, image: str, options: dict[str, Any]) -> None:
        self._image = image
        self._options = options
        self._volume: Volume | None = None
        self._users = 0
        self._idle = threading.Condition()

    @contextmanager
    def using(self, mode: str | None, write: bool) -> Iterator[Volume]:
        """The volume, for one call. It is not closed meanwhile."""
        with self._idle:
            volume = self._opened(mode, write)
            self._users += 1
        try:
            yield volume
        finally:
            with self._idle:
                self._users -= 1
                self._idle.notify_all()

    def _opened(self, mode: str | None, write: bool) -> Volume:
        wanted = "r+" if mode == "r+" or (write and mode is None) else "r"
        if self._volume is None or self._volume.closed:
            self._volume = self._open(wanted)
        elif wanted == "r+" and self._volume.mode == "r":
            if self._volume._has_open_files():
                text = "files of the image are open for reading; mode='r+' opens it for writing at once"
                raise OSError(errno.EBUSY, text, self._image)
            self._close()
            self._volume = self._open(wanted)
        return self._volume

    def _open(self, mode: Any) -> Volume:
        return Volume(self._image, mode, **self._options)

    def _close(self) -> None:
        self._idle.wait_for(lambda: self._users == 0)
        volume, self._volume = self._volume, None
        if volume is not None:
            volume.close()

    def close(self) -> None:
        with self._idle:
            self._close()


_shared: dict[tuple[Any, ...], _Shared] = {}
_shared_lock = threading.Lock()


def _forget() -> None:
    """A forked process opens the images again."""
    global _shared, _shared_lock
    _shared = {}
    _shared_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _is_object(image: str) -> bool:
    return _throughline.scheme_length(os.fsencode(image)) > 0


def _is_image(name: str) -> bool:
    return _is_object(name) or (os.path.exists(name) and not os.path.isdir(name))


def _image_and_partition(name: str) -> tuple[str, str | None]:
    """`IMAGE@PARTITION`. A file whose whole name that is comes first."""
    if os.path.lexists(name):
        return name, None
    image, at, partition = name.rpartition("@")
    if at and partition and "/" not in partition and _is_image(image):
        return image, partition
    return name, None


def _split(url: str) -> tuple[str | None, str]:
    """Image and path of a URL, or of what is left of it; the image is `None` if it has none."""
    if not url.startswith(_SCHEME):
        return None, url
    rest = url[len(_SCHEME) :]
    begin = _throughline.scheme_length(os.fsencode(rest))
    places = [at for at in range(begin, len(rest)) if rest.startswith(":/", at)]
    for at in places:
        image = _image_and_partition(rest[:at])[0]
        if _is_image(image):
            return rest[:at], rest[at + 1 :]
    if places:
        return rest[: places[0]], rest[places[0] + 1 :]
    if rest.startswith("/") and not _is_image(rest):
        return None, rest
    return (rest, "/") if rest else (None, "/")


class _Uncommitted(io.BufferedWriter):
    """A file that gets its name when a transaction ends."""

    def __init__(self, raw: RawFile, size: int, keep: bool, path: str) -> None:
        super().__init__(raw, size)
        self._file = raw
        self._keep = keep
        self.path = path

    def commit(self) -> None:
        """Gives it its name."""
        self.close()
        self._file.volume.rename(self._file.name, self.path, keep=self._keep)

    def discard(self) -> None:
        """Removes it."""
        self.close()
        self._file.volume.unlink(self._file.name)


class ThroughlineFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The files of an ext2, ext3 or ext4 image; see the module.

    `image` is a path on the host, and `mode` is "r", "r+", or `None`: for reading until something is to be
    changed. With `auto_mkdir`, directories of files that are written are made. The other options are those
    of `throughline.Volume`."""

    protocol = "throughline"
    root_marker = "/"

    def __init__(
        self,
        image: str | os.PathLike[str] | None = None,
        mode: str | None = None,
        *,
        auto_mkdir: bool = False,
        fo: str | None = None,
        target_protocol: str | None = None,
        target_options: dict[str, Any] | None = None,
        partition: str | int | None = None,
        offset: int = 0,
        format: str | None = None,
        backing: Any = (),
        overlay: Any = None,
        journal: Any = None,
        cache_size: int | None = None,
        durable_within: float | None = None,
        umask: int = 0o022,
        **storage_options: Any,
    ) -> None:
        super().__init__(**storage_options)
        if mode not in (None, "r", "r+"):
            raise ValueError(f"invalid mode: {mode!r}")
        if fo is not None and image is None:
            image, is_copy = self._target(fo, target_protocol, target_options or {})
            mode = "r" if is_copy else mode
        elif fo is not None:
            raise ValueError("the URL names two images: one before ':/', and one after '::'")
        if image is None:
            raise ValueError("no image: write throughline://IMAGE:/path")
        name, in_name = _image_and_partition(os.fspath(image))
        self.image = name if _is_object(name) else os.path.abspath(name)
        self.mode = mode
        self.auto_mkdir = auto_mkdir
        if isinstance(backing, (str, bytes, os.PathLike)):
            backing = [backing]
        self._options = {
            "partition": partition if in_name is None else in_name,
            "offset": offset,
            "format": format,
            "backing": tuple(backing),
            "overlay": overlay,
            "journal": journal,
            "cache_size": cache_size,
            "durable_within": durable_within,
            "umask": umask,
        }

    def _target(self, url: str, protocol: str | None, options: dict[str, Any]) -> tuple[str, bool]:
        """The image of a chained URL as a file of the host, and whether it is a copy."""
        opened = fsspec.open(url, protocol=protocol, **options)
        if not getattr(opened.fs, "local_file", False):
            chain = f"throughline:///path::simplecache::{protocol}://..."
            raise ValueError(f"an image by {protocol} is read from a copy: write {chain}")
        # A copy in a temporary directory is there as long as its file system is.
        self._copy = opened.fs
        with opened as file:
            return os.path.abspath(file.name), protocol not in (None, "file", "local")

    # URLs.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        inside = _split(stringify_path(path))[1].rstrip("/")
        return inside if inside.startswith("/") else f"/{inside}"

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        image = _split(path)[0]
        if image is None:
            return {}
        return {"image": image if _is_object(image) else os.path.abspath(image)}

    def unstrip_protocol(self, name: str) -> str:
        """The URL of a path."""
        partition = self._options["partition"]
        at = "" if partition is None else f"@{partition}"
        return f"{_SCHEME}{self.image}{at}:{self._strip_protocol(name)}"

    @classmethod
    def _parent(cls, path: str) -> str:
        return str(cls._strip_protocol(path)).rpartition("/")[0] or "/"

    # The volume.

    def _using(self, write: bool = False) -> Any:
        with _shared_lock:
            key = (self.image, *self._options.values())
            shared = _shared.setdefault(key, _Shared(self.image, self._options))
        return shared.using(self.mode, write)

    @property
    def fsid(self) -> str:
        """The UUID of the volume."""
        with self._using() as volume:
            return f"throughline:{volume.uuid}"

    def sync(self) -> None:
        """Returns when all that was written before survives a crash."""
        with self._using() as volume:
            volume.sync()

    def close(self) -> None:
        """Closes the volume, and the files of it that are open, for all file systems of this process that
        use the image. Each opens it again when it is used again."""
        with _shared_lock:
            shared = _shared.get((self.image, *self._options.values()))
        if shared is not None:
            shared.close()

    # What is there.

    def _info(self, volume: Volume, path: str, is_listed: bool = False) -> dict[str, Any]:
        found = volume.lstat(path)
        is_link = stat.S_ISLNK(found.st_mode)
        destination = volume.readlink(path) if is_link else None
        # A walk does not follow links to directories.
        if is_link and volume.exists(path) and not (is_listed and volume.isdir(path)):
            found = volume.stat(path)
        kinds = {stat.S_IFDIR: "directory", stat.S_IFREG: "file", stat.S_IFLNK: "link"}
        info: dict[str, Any] = {
            "name": path,
            "size": found.st_size,
            "type": kinds.get(stat.S_IFMT(found.st_mode), "other"),
            "created": volume.birthtime(path, follow_symlinks=False) or found.st_ctime,
            "islink": is_link,
        }
        for name in ("mode", "uid", "gid", "mtime", "ino", "nlink"):
            info[name] = getattr(found, f"st_{name}")
        if is_link:
            info["destination"] = destination
        return info

    def info(self, path: Any, **kwargs: Any) -> dict[str, Any]:
        """What is at a path. Symbolic links are followed."""
        with self._using() as volume:
            return self._info(volume, self._strip_protocol(path))

    def ls(self, path: Any, detail: bool = True, **kwargs: Any) -> list[Any]:
        """The names in a directory, or a file."""
        path = self._strip_protocol(path)
        with self._using() as volume:
            if not volume.isdir(path):
                info = self._info(volume, path)
                return [info] if detail else [path]
            infos: list[Any] = []
            with volume.scandir(path) as entries:
                for entry in entries:
                    infos += self._listed(volume, entry) if detail else [entry.path]
            return infos

    def _listed(self, volume: Volume, entry: DirEntry) -> list[dict[str, Any]]:
        try:
            return [self._info(volume, entry.path, is_listed=True)]
        except FileNotFoundError:
            # Removed meanwhile.
            return []

    def _is(self, test: Callable[[Volume, str], bool], path: Any) -> bool:
        with self._using() as volume:
            return test(volume, self._strip_protocol(path))

    def exists(self, path: Any, **kwargs: Any) -> bool:
        """Whether something is there."""
        return self._is(Volume.exists, path)

    def lexists(self, path: Any, **kwargs: Any) -> bool:
        """Whether something is there, also a broken symbolic link."""
        return self._is(Volume.lexists, path)

    def isdir(self, path: Any) -> bool:
        """Whether it is a directory, or a link to one."""
        return self._is(Volume.isdir, path)

    def isfile(self, path: Any) -> bool:
        """Whether it is a regular file, or a link to one."""
        return self._is(Volume.isfile, path)

    def islink(self, path: Any) -> bool:
        """Whether it is a symbolic link."""
        return self._is(Volume.islink, path)

    def created(self, path: Any) -> datetime.datetime:
        """When it was created; of a volume that does not store it, when its metadata was last changed."""
        return datetime.datetime.fromtimestamp(self.info(path)["created"], tz=datetime.UTC)

    def modified(self, path: Any) -> datetime.datetime:
        """When its contents were last changed."""
        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.UTC)

    # Changes.

    @contextmanager
    def _changing(self, path: Any) -> Iterator[tuple[Volume, str]]:
        """The volume and the path of what is made, whose directory is made if need be."""
        path = self._strip_protocol(path)
        with self._using(write=True) as volume:
            if self.auto_mkdir:
                volume.makedirs(self._parent(path), exist_ok=True)
            yield volume, path

    def mkdir(self, path: Any, create_parents: bool = True, **kwargs: Any) -> None:
        """Makes a directory."""
        path = self._strip_protocol(path)
        with self._using(write=True) as volume:
            make = volume.makedirs if create_parents else volume.mkdir
            make(path, **kwargs)

    def makedirs(self, path: Any, exist_ok: bool = False) -> None:
        """Makes a directory and its missing parents."""
        with self._using(write=True) as volume:
            volume.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: Any) -> None:
        """Removes an empty directory."""
        with self._using(write=True) as volume:
            volume.rmdir(self._strip_protocol(path))

    def rm_file(self, path: Any) -> None:
        """Removes a file."""
        with self._using(write=True) as volume:
            volume.unlink(self._strip_protocol(path))

    def _rm(self, path: Any) -> None:
        self.rm_file(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Removes files, and directories with all below them if `recursive`; patterns are expanded."""
        paths = self.expand_path(path, recursive=recursive and maxdepth is not None, maxdepth=maxdepth)
        with self._using(write=True) as volume:
            for one in reversed(paths):
                is_directory = volume.isdir(one) and not volume.islink(one)
                if is_directory and maxdepth is not None:
                    volume.rmdir(one)
                elif is_directory and not recursive:
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), one)
                elif is_directory:
                    volume.rmtree(one)
                else:
                    volume.unlink(one)

    def cp_file(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        """Copies a file, or makes a directory where there is one."""
        path1 = self._strip_protocol(path1)
        with self._changing(path2) as (volume, there):
            if volume.isdir(path1):
                volume.makedirs(there, exist_ok=True)
            else:
                volume.copy(path1, there)

    def mv(
        self,
        path1: Any,
        path2: Any,
        recursive: bool = True,
        maxdepth: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Renames, atomically; into a directory, if there is one."""
        if isinstance(path1, list) or isinstance(path2, list) or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
            return
        path1 = self._strip_protocol(path1)
        with self._changing(path2) as (volume, there):
            if volume.isdir(there) and path1 != there:
                there = f"{there.rstrip('/')}/{path1.rpartition('/')[2]}"
            volume.rename(path1, there)

    def link(self, src: Any, dst: Any, **kwargs: Any) -> None:
        """Makes a hard link."""
        with self._changing(dst) as (volume, there):
            volume.link(self._strip_protocol(src), there)

    def symlink(self, src: str, dst: Any, **kwargs: Any) -> None:
        """Makes a symbolic link with the target `src`."""
        with self._changing(dst) as (volume, there):
            volume.symlink(src, there)

    def chmod(self, path: Any, mode: int) -> None:
        """Sets the permissions."""
        with self._using(write=True) as volume:
            volume.chmod(self._strip_protocol(path), mode)

    def touch(self, path: Any, truncate: bool = True, **kwargs: Any) -> None:
        """Makes an empty file, or sets the times of what is there, and its length to 0 if `truncate`."""
        with self._changing(path) as (volume, there):
            if volume.exists(there):
                volume.utime(there)
                if truncate:
                    volume.truncate(there, 0)
            else:
                volume.open(there, "ab", 0).close()

    def pipe_file(self, path: Any, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Writes a whole file. With the mode "create", it must not exist."""
        with self.open(path, "xb" if mode == "create" else "wb", **kwargs) as file:
            file.write(value)

    def open(self, path: Any, mode: str = "rb", *arguments: Any, **options: Any) -> Any:
        """Opens a file, with the modes of the function `open`; see `fsspec`."""
        file = super().open(path, mode, *arguments, **options)
        if not hasattr(file, "path"):
            # It wraps the file that `_open` has opened, and has data that is not yet written to that.
            with self._using() as volume:
                volume._opened(file)
        return file

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> Any:
        size = block_size or BUFFER_SIZE
        if mode == "rb":
            with self._using() as volume:
                file: Any = volume.open(path, mode, size)
                file.size = file.raw.stat().st_size
        else:
            with self._changing(path) as (volume, there):
                if autocommit or "r" in mode:
                    file = volume.open(there, mode, size)
                else:
                    file = self._uncommitted(volume, there, mode, size)
        file.path = path
        return file

    def _uncommitted(self, volume: Volume, path: str, mode: str, size: int) -> _Uncommitted:
        parent, _, name = path.rpartition("/")
        if mode.startswith("x") and volume.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        # A name has at most 255 bytes.
        temporary = f"{parent}/.{uuid4().hex}.tmp"
        if mode.startswith("a") and volume.exists(path):
            volume.copy(path, temporary)
        raw = volume.open(temporary, "ab", 0)
        file = _Uncommitted(raw, size, mode.startswith("x"), path)
        volume._opened(file)
        return file
