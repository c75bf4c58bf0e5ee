"""Reads a cached file of 1 GiB in an image, and a cached plain file, side by side, and prints the ratio.

    python bench/read.py [DIRECTORY [ROUNDS]]

The file of the plain system is in the kernel's cache, the one in the image in the library's. Each round
reads both by `readinto` into the same buffer; the order changes. With a third argument, the program that
reads the file in the image in Rust (crates/throughline/examples/read_rate.rs) is run in each round, too."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import throughline

SIZE = 1 << 30
CALL = 1 << 20


def rate(readinto: Callable[[bytearray], int | None], buffer: bytearray) -> float:
    """GiB a second until the end of a file."""
    begin = time.perf_counter()
    total = 0
    while count := readinto(buffer):
        total += count
    assert total == SIZE
    return total / (time.perf_counter() - begin) / (1 << 30)


def main() -> None:
    directory = sys.argv[1] if len(sys.argv) > 1 else None
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    in_rust = sys.argv[3] if len(sys.argv) > 3 else None
    buffer = bytearray(CALL)
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
            found: dict[str, list[float]] = {name: [] for name in files}
            for number in range(rounds + 1):
                order = list(files)
                for name in order if number % 2 else reversed(order):
                    with files[name]() as file:
                        found[name].append(rate(file.readinto, buffer))
                if in_rust is not None:
                    words = [in_rust, str(image), "/file", str(CALL)]
                    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
                    found.setdefault("in an image, Rust", []).append(float(said))
    for name, rates in found.items():
        # The first round fills the caches.
        rates = rates[1:]
        base = statistics.median(found["plain file"][1:])
        middle = statistics.median(rates)
        print(
            f"{name}: {middle:.2f} GiB/s ({min(rates):.2f} to {max(rates):.2f}), "
            f"{middle / base:.2f} x the plain file"
        )


if __name__ == "__main__":
    main()
