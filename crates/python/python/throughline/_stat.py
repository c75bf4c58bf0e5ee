"""What the native calls return, as the objects of `os`."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._throughline import _Stat

NANOS = 1_000_000_000


def nanoseconds(time: tuple[int, int]) -> int:
    """Nanoseconds since 1970 of a native time."""
    return time[0] * NANOS + time[1]


def native_time(nanoseconds: int) -> tuple[int, int]:
    """The native time of nanoseconds since 1970."""
    return divmod(nanoseconds, NANOS)


def stat_result(native: _Stat, device: int, block_size: int) -> os.stat_result:
    """An `os.stat_result`; `device` is the number of the volume."""
    (mode, ino, links, uid, gid, size, blocks), node, accessed, modified, changed, _ = native
    times = [nanoseconds(time) for time in (accessed, modified, changed)]
    whole = [time // NANOS for time in times]
    extra: dict[str, object] = {
        "st_blksize": block_size,
        "st_blocks": blocks,
        "st_rdev": os.makedev(*node) if stat.S_ISBLK(mode) or stat.S_ISCHR(mode) else 0,
    }
    for name, time in zip(("st_atime", "st_mtime", "st_ctime"), times, strict=True):
        extra[name] = time / NANOS
        extra[f"{name}_ns"] = time
    return os.stat_result((mode, ino, device, links, uid, gid, size, *whole), extra)
