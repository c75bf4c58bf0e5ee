"""Files of a volume are Python's own kinds of files."""

import array
import errno
import io
import os
import random
import sys
import threading
import time
from pathlib import Path

import pytest

import throughline
from conftest import check, debugfs


def test_text_and_binary(volume: throughline.Volume) -> None:
    with volume.open("/a", "w", encoding="utf-8") as text:
        assert isinstance(text, io.TextIOWrapper)
        assert text.write("grüß\ngott\n") == 10
    with volume.open("/a", encoding="utf-8", newline="") as text:
        assert text.readlines() == ["grüß\n", "gott\n"]
    with volume.open("/a", "rb") as binary:
        assert isinstance(binary, io.BufferedReader)
        assert binary.read() == "grüß\ngott\n".encode()
    with volume.open("/a", "r+b") as both:
        assert isinstance(both, io.BufferedRandom)
        both.seek(2)
        both.write(b"XX")
        both.seek(0)
        assert both.read(4) == b"grXX"
    with volume.open("/a", "ab") as more:
        assert more.tell() == volume.stat("/a").st_size
        more.write(b"end")
    with volume.open("/a", "rb", 0) as raw:
        assert isinstance(raw, throughline.RawFile)
        assert raw.mode == "rb" and raw.name == "/a" and raw.volume is volume
        assert raw.readall().endswith(b"gott\nend")
        assert raw.read(1) == b"" and raw.readall() == b""


def test_the_modes_of_open(volume: throughline.Volume) -> None:
    volume.open("/x", "x").close()
    with pytest.raises(FileExistsError):
        volume.open("/x", "x")
    with volume.open("/x", "wb") as file:
        file.write(b"12345")
        with pytest.raises(io.UnsupportedOperation):
            file.read()
    with volume.open("/x", "rb", 0) as raw, pytest.raises(io.UnsupportedOperation):
        raw.write(b"no")
    with volume.open("/x", "w+b") as both:
        assert both.read() == b""
    for mode in ("", "rw", "rbt", "q", "rr", "b", "r++"):
        with pytest.raises(ValueError):
            volume.open("/x", mode)
    for arguments in ({"buffering": 0}, {"buffering": -3}):
        with pytest.raises(ValueError):
            volume.open("/x", "r", **arguments)  # type: ignore[call-overload]
    with pytest.raises(ValueError):
        volume.open("/x", "rb", encoding="utf-8")
    with pytest.raises(FileNotFoundError) as missing:
        volume.open("/none")
    assert missing.value.filename == "/none" and missing.value.errno == errno.ENOENT
    with pytest.raises(IsADirectoryError):
        volume.open("/", "w")
    with pytest.raises(ValueError):
        volume.open("/a\0b", "w")


def test_kinds_of_buffers(volume: throughline.Volume) -> None:
    with volume.open("/f", "w+b", 0) as raw:
        for data in (b"ab", bytearray(b"cd"), memoryview(b"ef"), array.array("H", [1, 2])):
            raw.write(data)
        assert raw.write(memoryview(b"")) == 0 and raw.write(b"") == 0
        raw.seek(0)
        into = bytearray(3)
        assert raw.readinto(into) == 3 and into == b"abc"
        words = array.array("H", [0, 0])
        raw.seek(6)
        assert raw.readinto(words) == 4 and words.tolist() == [1, 2]
        assert raw.readinto(bytearray(5)) == 0 and raw.readinto(bytearray()) == 0
        with pytest.raises((TypeError, BufferError)):
            raw.readinto(b"read only")
        with pytest.raises((TypeError, BufferError)):
            raw.write("text")  # type: ignore[arg-type]


def test_positions(volume: throughline.Volume) -> None:
    with volume.open("/f", "w+b", 0) as raw:
        raw.write(b"x" * 5000)
        assert raw.tell() == 5000 and raw.seek(-10, os.SEEK_END) == 4990
        assert raw.seek(-90, os.SEEK_CUR) == 4900
        for wrong in ((-1, os.SEEK_SET), (-9999, os.SEEK_CUR)):
            with pytest.raises((OSError, ValueError)):
                raw.seek(*wrong)
        with pytest.raises(ValueError):
            raw.seek(0, 9)
        assert raw.truncate(1 << 20) == 1 << 20 and raw.tell() == 4900
        assert raw.seek(0, os.SEEK_DATA) == 0
        end = raw.seek(0, os.SEEK_HOLE)
        assert 5000 <= end <= 8192
        with pytest.raises(OSError) as none:
            raw.seek(end, os.SEEK_DATA)
        assert none.value.errno == errno.ENXIO
        raw.seek(10)
        assert raw.truncate() == 10 and raw.stat().st_size == 10
        with pytest.raises(io.UnsupportedOperation):
            raw.fileno()
    with pytest.raises(ValueError):
        raw.read(1)
    with pytest.raises(ValueError):
        raw.tell()


@pytest.mark.parametrize("direct", [False, True])
def test_random_writes_and_reads(volume: throughline.Volume, direct: bool) -> None:
    seed = 19
    print(f"seed {seed}")
    generator = random.Random(seed)
    model = bytearray()
    with volume.open("/f", "w+b", direct=direct) as file:
        for _ in range(200):
            at, length = generator.randrange(1 << 20), generator.randrange(1, 600_000)
            if generator.random() < 0.5:
                data = generator.randbytes(length)
                if len(model) < at + length:
                    model.extend(bytes(at + length - len(model)))
                model[at : at + length] = data
                file.seek(at)
                assert file.write(data) == length
            else:
                file.seek(at)
                into = bytearray(length)
                count = file.readinto(into)
                assert into[:count] == model[at : at + length]
                file.seek(at)
                assert file.read(length) == model[at : at + length]
        file.seek(0)
        assert file.read() == model


def test_durable_by_fsync(image: Path, tmp_path: Path) -> None:
    volume = throughline.Volume(image, "r+")
    with volume.open("/synced", "w") as file:
        file.write("kept")
        volume.fsync(file)
        # The image as if the machine failed now.
        crashed = tmp_path / "crashed.img"
        crashed.write_bytes(image.read_bytes())
    with throughline.Volume(crashed, "r+") as after:
        assert after.path("/synced").read_text() == "kept"
    check(crashed)
    with volume.open("/other", "wb", 0) as raw, pytest.raises(ValueError):
        with throughline.Volume(crashed) as another:
            another.fsync(raw)
    volume.fsync_directory("/")
    volume.sync()
    volume.close()
    check(image)
    assert debugfs(image, "cat /synced") == "kept"


def test_closing_a_volume_closes_its_files(image: Path) -> None:
    volume = throughline.Volume(image, "r+")
    text = volume.open("/text", "w")
    text.write("in Python's buffer")
    binary = volume.open("/binary", "wb")
    binary.write(b"too")
    entries = volume.scandir("/")
    volume.close()
    volume.close()
    assert text.closed and binary.closed and volume.closed
    assert list(entries) == []
    for call in (volume.sync, lambda: volume.stat("/"), lambda: volume.open("/x", "w")):
        with pytest.raises(ValueError, match="closed"):
            call()
    check(image)
    assert debugfs(image, "cat /text") == "in Python's buffer"
    assert debugfs(image, "cat /binary") == "too"


def test_threads_share_a_volume(volume: throughline.Volume) -> None:
    contents = {f"/{thread}-{file}": os.urandom(300_000) for thread in range(4) for file in range(5)}
    failed = []

    def work(thread: int) -> None:
        try:
            for path, data in contents.items():
                if path.startswith(f"/{thread}-"):
                    with volume.open(path, "wb") as file:
                        file.write(data)
                    with volume.open(path, "rb") as file:
                        assert file.read() == data
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(volume.listdir("/")) == sorted([path[1:] for path in contents] + ["lost+found"])


def test_the_interpreter_runs_on_during_io(volume: throughline.Volume) -> None:
    """Another thread counts during calls of this one. Threads are not switched by time here: it runs only
    while a call has released the interpreter's lock."""
    count = 0
    stop = False

    def counting() -> None:
        nonlocal count
        while not stop:
            count += 1
            time.sleep(0)

    file = volume.open("/f", "wb", 0, sync=True)
    before_switching = sys.getswitchinterval()
    thread = threading.Thread(target=counting)
    thread.start()
    sys.setswitchinterval(1000)
    try:
        for _ in range(1000):
            before = count
            file.seek(0)
            file.write(b"x" * 100_000)
            if count != before:
                break
        else:
            pytest.fail("no other thread ran during 1000 writes to the device")
    finally:
        stop = True
        sys.setswitchinterval(before_switching)
        thread.join()
        file.close()


def test_a_full_volume(image: Path) -> None:
    with throughline.Volume(image, "r+") as volume:
        with pytest.raises(OSError) as full, volume.open("/big", "wb", 0) as file:
            while True:
                file.write(bytes(1 << 20))
        assert full.value.errno == errno.ENOSPC
        volume.remove("/big")
    check(image)
