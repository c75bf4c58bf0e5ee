"""Read, edit and make ext2, ext3 and ext4 images, without mounting them and without root.

>>> import throughline
>>> throughline.mkfs("disk.img", 64 << 20)
>>> with throughline.Volume("disk.img", "r+") as volume:
...     volume.path("/hello.txt").write_text("hello")

`Volume` has the calls of `os` and `open`, `Path` those of `pathlib`. With `fsspec`, files in images have
URLs, such as `throughline://disk.img:/hello.txt` (see `throughline.fsspec`). Errors are `OSError` with the
`errno` of the kernel's ext4."""

from . import _throughline
from ._file import RawFile
from ._making import Made, Packed, Partition, mkfs, pack, partitions
from ._path import Path
from ._volume import DirEntry, ScandirIterator, Volume

__version__: str = _throughline.version

__all__ = [
    "DirEntry",
    "Made",
    "Packed",
    "Partition",
    "Path",
    "RawFile",
    "ScandirIterator",
    "Volume",
    "__version__",
    "mkfs",
    "pack",
    "partitions",
]
