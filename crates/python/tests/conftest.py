"""Images for the tests, and the judge of what was written to them."""

import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import throughline

SIZE = 32 << 20


def missing(what: str) -> None:
    """Skips a test; with THROUGHLINE_REQUIRE_ALL=1 that is an error."""
    if os.environ.get("THROUGHLINE_REQUIRE_ALL") == "1":
        pytest.fail(f"THROUGHLINE_REQUIRE_ALL=1, but missing: {what}")
    pytest.skip(f"missing: {what}")


def module(name: str) -> Any:
    """A module that a test needs."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"the module {name}")


def program(name: str) -> str:
    """The path of a program of e2fsprogs."""
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if found is None:
        missing(name)
    assert found is not None
    return found


def check(image: Path) -> None:
    """`e2fsck` finds nothing."""
    done = subprocess.run([program("e2fsck"), "-fn", str(image)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def debugfs(image: Path, command: str) -> str:
    """What `debugfs` says about an image."""
    words = [program("debugfs"), "-R", command, str(image)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """A new ext4 image."""
    path = tmp_path / "disk.img"
    throughline.mkfs(path, SIZE)
    return path


@pytest.fixture
def volume(image: Path) -> Iterator[throughline.Volume]:
    """A volume that is open for writing; what a test left in it is checked."""
    with throughline.Volume(image, "r+") as opened:
        yield opened
    check(image)
