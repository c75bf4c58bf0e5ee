"""Reads a cached file of 1 GiB in an image, and a cached plain file, side by side, and prints the ratio.

    python bench/read.py [DIRECTORY [ROUNDS]]

The file of the plain system is in the kernel's cache, the one in the image in the library's. Each round
reads both by `readinto` into the same buffer; the order changes."""

import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import throughline

SIZE = 1 << 30
CALL = 1 << 20


def rate(readinto: Callable[[memoryview], int | None], buffer: memoryview) -> tuple[float, float]:
    """GiB a second until the end of a file; by the clock, and by the time of the processor."""
    begin = time.perf_counter(), time.process_time()
    total = 0
    while count := readinto(buffer):
        total += count
    end = time.perf_counter(), time.process_time()
    assert total == SIZE
    gib = total / (1 << 30)
    return gib / (end[0] - begin[0]), gib / (end[1] - begin[1])


def main() -> None:
    directory = sys.argv[1] if len(sys.argv) > 1 else None
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    # Of whole pages: some processors copy several times slower to memory that is not aligned, which that of a
    # bytearray is by chance.
    buffer = memoryview(mmap.mmap(-1, CALL))
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        plain, image = Path(folder, "plain"), Path(folder, "disk.img")
        throughline.mkfs(image, SIZE + (256 << 20))
        data = os.urandom(CALL)
        with (
            throughline.Volume(image, "r+", cache_size=SIZE + (512 << 20)) as volume,
            open(plain, "wb") as first,
            volume.open("/file", "wb") as second,
        ):
            for _ in range(SIZE // CALL):
                first.write(data)
                second.write(data)
        with throughline.Volume(image, cache_size=SIZE + (512 << 20)) as volume:
            files: dict[str, Callable[[], Any]] = {
                "plain file": lambda: open(plain, "rb", buffering=0),
                "in an image, raw": lambda: volume.open("/file", "rb", 0),
                "in an image, buffered": lambda: volume.open("/file", "rb"),
            }
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in files}
            for number in range(rounds + 1):
                order = list(files)
                for name in order if number % 2 else reversed(order):
                    with files[name]() as file:
                        found[name].append(rate(file.readinto, buffer))
    # The first round fills the caches.
    for what, index in (("by the clock", 0), ("by the time of the processor", 1)):
        base = statistics.median(pair[index] for pair in found["plain file"][1:])
        print(f"{what}:")
        for name, pairs in found.items():
            rates = [pair[index] for pair in pairs[1:]]
            middle = statistics.median(rates)
            spread = f"{min(rates):.2f} to {max(rates):.2f}"
            print(f"  {name}: {middle:.2f} GiB/s ({spread}), {middle / base:.2f} x the plain file")


if __name__ == "__main__":
    main()
