"""Packs a directory into the smallest image that holds it; same directory, same bytes."""

import sys

import throughline


def main(source: str, image: str) -> None:
    """Packs `source` into the new file `image`."""
    packed = throughline.pack(source, image, exclude=["*.pyc", ".git"], owner=(0, 0))
    print(f"{packed.files} files, {packed.size} bytes, UUID {packed.volume.uuid}")


if __name__ == "__main__":
    main(*sys.argv[1:])
