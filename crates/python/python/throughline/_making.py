"""Making volumes: `mkfs` and `pack`; and what is in a disk with partitions: `partitions`."""

from __future__ import annotations

import os
import re
import uuid as uuids
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from . import _throughline
from ._volume import HostPath, host_path

if TYPE_CHECKING:
    from ._throughline import _Made


@dataclass(frozen=True)
class Made:
    """A volume that was made."""

    block_size: int
    blocks: int
    inodes: int
    free_blocks: int
    #: 0 if there is no journal.
    journal_blocks: int
    inode_size: int
    uuid: uuids.UUID
    label: str
    #: As dumpe2fs(8) names them.
    features: tuple[str, ...]


@dataclass(frozen=True)
class Packed:
    """An image that was packed."""

    volume: Made
    #: Bytes of the image.
    size: int
    #: Directories, the root among them.
    directories: int
    #: Regular files.
    files: int
    #: Symbolic links, devices, pipes, sockets.
    others: int
    #: Names beyond the first of a file.
    hard_links: int
    #: Bytes of all files, holes among them.
    data_size: int


@dataclass(frozen=True)
class Partition:
    """A partition of a disk, as its table describes it."""

    #: Linux's number for it: 1 for `sda1`.
    number: int
    #: Where it begins, in bytes.
    start: int
    #: Its length, in bytes.
    size: int
    #: Its name; an MBR has none.
    name: str
    #: Its UUID.
    uuid: str
    #: Its type: a GUID, or two hexadecimal digits.
    type: str
    #: The label of the ext volume in it; `None` if there is no such volume.
    volume_label: str | None
    #: The UUID of the ext volume in it; `None` if there is no such volume.
    volume_uuid: str | None


def _made(native: _Made) -> Made:
    numbers, uuid, label, features = native
    name = label.decode(errors="surrogateescape")
    return Made(*numbers, uuids.UUID(bytes=uuid), name, tuple(features))


def _sixteen(uuid: uuids.UUID | str | None) -> bytes | None:
    if uuid is None:
        return None
    return (uuid if isinstance(uuid, uuids.UUID) else uuids.UUID(uuid)).bytes


def _volume_options(
    *,
    fs_type: str | None,
    usage: str | None,
    block_size: int | None,
    inode_size: int | None,
    bytes_per_inode: int | None,
    inodes: int | None,
    reserved_percent: float | None,
    label: str | bytes | None,
    uuid: uuids.UUID | str | None,
    hash_seed: uuids.UUID | str | None,
    features: str | None,
    journal: str | None,
    extended: str | None,
    time: int | None,
    overwrite: bool,
) -> dict[str, object]:
    return {
        "fs_type": fs_type,
        "usage": usage,
        "block_size": block_size,
        "inode_size": inode_size,
        "bytes_per_inode": bytes_per_inode,
        "inodes": inodes,
        "reserved_percent": reserved_percent,
        "label": None if label is None else os.fsencode(label),
        "uuid": _sixteen(uuid),
        "hash_seed": _sixteen(hash_seed),
        "features": features,
        "journal": journal,
        "extended": extended,
        "time": time,
        "overwrite": overwrite,
    }


def mkfs(
    image: HostPath,
    size: int | None = None,
    *,
    fs_type: str | None = None,
    usage: str | None = None,
    block_size: int | None = None,
    inode_size: int | None = None,
    bytes_per_inode: int | None = None,
    inodes: int | None = None,
    reserved_percent: float | None = None,
    label: str | bytes | None = None,
    uuid: uuids.UUID | str | None = None,
    hash_seed: uuids.UUID | str | None = None,
    features: str | None = None,
    journal: str | None = None,
    extended: str | None = None,
    time: int | None = None,
    overwrite: bool = False,
    system_config: bool = True,
) -> Made:
    """Makes an ext4 volume, or one of another type, in a file or on a block device. A file that is not there
    is made; `size` is in bytes. When the call returns, the volume is durable.

    The options are those of mke2fs(8), as are their defaults: `fs_type` -t, `usage` -T, `block_size` -b,
    `inode_size` -I, `bytes_per_inode` -i, `inodes` -N, `reserved_percent` -m, `label` -L, `uuid` -U,
    `features` -O, `journal` -J, `extended` -E; `time`: seconds since 1970. Without `system_config`,
    `/etc/mke2fs.conf` is not read, so that the volume does not depend on the system.

    A target that holds something is `FileExistsError`, unless `overwrite`.
    """
    options = _volume_options(
        fs_type=fs_type,
        usage=usage,
        block_size=block_size,
        inode_size=inode_size,
        bytes_per_inode=bytes_per_inode,
        inodes=inodes,
        reserved_percent=reserved_percent,
        label=label,
        uuid=uuid,
        hash_seed=hash_seed,
        features=features,
        journal=journal,
        extended=extended,
        time=time,
        overwrite=overwrite,
    )
    return _made(_throughline.mkfs(host_path(image), size, not system_config, options))


def pack(
    sources: HostPath | Sequence[HostPath],
    image: HostPath,
    *,
    size: int | None = None,
    free: int | None = None,
    exclude: Sequence[str] | Callable[[str], bool] = (),
    owner: tuple[int, int] | None = None,
    epoch: int | None = None,
    partition: Literal["gpt"] | None = None,
    fs_type: str | None = None,
    usage: str | None = None,
    block_size: int | None = None,
    inode_size: int | None = None,
    bytes_per_inode: int | None = None,
    inodes: int | None = None,
    reserved_percent: float | None = None,
    label: str | bytes | None = None,
    uuid: uuids.UUID | str | None = None,
    hash_seed: uuids.UUID | str | None = None,
    features: str | None = None,
    journal: str | None = None,
    extended: str | None = None,
    overwrite: bool = False,
) -> Packed:
    """Packs directories, tar archives (plain, gzip, xz, zstd, bzip2) and container images (an OCI
    layout, or what `docker save` writes) into a new image. Later sources are laid over earlier ones. Same
    sources and options: same bytes. The image gets its name when it is complete and durable.

    - `size`: of the image, in bytes; `free`: bytes of free space instead. By default, as small as it can be.
    - `exclude`: patterns of paths to be left out, with all below them, or a function that says whether a
      path is. `*` and `?` match within a name, `**` also across slashes. A pattern without a slash matches
      in every directory, one with a slash from the root. The function gets paths without a slash at their
      start, from several threads.
    - `owner`: user and group of all, by number.
    - `epoch`: seconds since 1970; later times of files are set to it (`SOURCE_DATE_EPOCH`).
    - `partition`: "gpt" makes a disk with a table and one partition.

    The other options are those of `mkfs`.
    """
    if size is not None and free is not None:
        raise ValueError("pack: you may specify either 'size' or 'free' but not both")
    if isinstance(sources, (str, bytes, os.PathLike)):
        sources = [sources]
    options = _volume_options(
        fs_type=fs_type,
        usage=usage,
        block_size=block_size,
        inode_size=inode_size,
        bytes_per_inode=bytes_per_inode,
        inodes=inodes,
        reserved_percent=reserved_percent,
        label=label,
        uuid=uuid,
        hash_seed=hash_seed,
        features=features,
        journal=journal,
        extended=extended,
        time=None,
        overwrite=overwrite,
    )
    room = free if size is None else size
    wanted = {
        "size": None if room is None else (room, size is None),
        "epoch": epoch,
        "owner": owner,
        "partition": partition == "gpt",
        "exclude": _excluding(exclude),
    }
    paths = [host_path(source) for source in sources]
    volume, counts = _throughline.pack(paths, host_path(image), options, wanted)
    return Packed(_made(volume), *counts)


def _excluding(exclude: Sequence[str] | Callable[[str], bool]) -> Callable[[bytes], bool] | None:
    if callable(exclude):
        return lambda path: exclude(os.fsdecode(path))
    if isinstance(exclude, str):
        raise TypeError("exclude is a sequence of patterns, or a function")
    if not exclude:
        return None
    patterns = [_pattern(glob) for glob in exclude]
    return lambda path: any(pattern.fullmatch(path) for pattern in patterns)


def _pattern(glob: str) -> re.Pattern[bytes]:
    """A pattern for whole paths. A directory may be given with a slash at its end, and a path with one or
    with `./` at its start, as for tar and rsync."""
    text = glob.rstrip("/")
    anywhere = "/" not in text
    text = text.removeprefix(".") if text.startswith("./") else text
    text = text.lstrip("/")
    if not text:
        raise ValueError(f"exclude: {glob!r} names no path")
    words = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*|\*|\?)", text)
    regex = "".join(words.get(part, re.escape(part)) for part in parts)
    regex = ("(?:.*/)?" if anywhere else "") + regex
    return re.compile(os.fsencode(regex), re.DOTALL)


def partitions(image: HostPath) -> list[Partition]:
    """The partitions of a disk, by number; none if it has no table of partitions."""
    found = _throughline.partitions(host_path(image))
    if found is None:
        return []
    result = []
    for number, start, size, name, uuid, kind, volume in found[1]:
        label, volume_uuid = volume or (None, None)
        result.append(Partition(number, start, size, name, uuid, kind, label, volume_uuid))
    return result
