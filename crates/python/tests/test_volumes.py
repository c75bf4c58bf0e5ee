"""Opening, closing and making volumes."""

import errno
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest

import throughline
from conftest import SIZE, check, debugfs, program


def test_one_writer_or_many_readers(image: Path) -> None:
    with throughline.Volume(image) as one, throughline.Volume(image) as two:
        assert one.listdir("/") == two.listdir("/") == ["lost+found"]
        assert one.read_only and one.read_only_reason is None and one.mode == "r"
        with pytest.raises(OSError) as refused:
            one.mkdir("/d")
        assert refused.value.errno == errno.EROFS
        with pytest.raises(OSError) as busy:
            throughline.Volume(image, "r+")
        assert busy.value.errno in (errno.EBUSY, errno.EAGAIN)
        assert busy.value.filename == str(image)
    with throughline.Volume(image, "r+") as writer:
        assert not writer.read_only
        with pytest.raises(OSError):
            throughline.Volume(image)


def test_what_cannot_be_opened(tmp_path: Path, image: Path) -> None:
    with pytest.raises(FileNotFoundError) as none:
        throughline.Volume(tmp_path / "none.img")
    assert none.value.filename == str(tmp_path / "none.img")
    other = tmp_path / "other"
    other.write_bytes(bytes(1 << 20))
    with pytest.raises(OSError) as wrong:
        throughline.Volume(other)
    assert wrong.value.errno is not None and wrong.value.strerror
    for options in ({"mode": "w"}, {"format": "bogus"}, {"durable_within": -1.0}):
        with pytest.raises(ValueError):
            throughline.Volume(image, **options)
    with pytest.raises(FileNotFoundError):
        throughline.Volume(image, partition="7")


def test_damage_is_an_error_with_a_number(image: Path) -> None:
    with throughline.Volume(image, "r+") as volume:
        volume.mkdir("/d")
        inode = volume.stat("/d").st_ino
    words = [program("debugfs"), "-w", "-R", f"set_inode_field <{inode}> mode 0170000", str(image)]
    subprocess.run(words, check=True, capture_output=True)
    with throughline.Volume(image) as volume:
        with pytest.raises(OSError) as damaged:
            volume.stat("/d")
        assert damaged.value.errno == errno.EUCLEAN and str(inode) in str(damaged.value.strerror)


def test_facts(image: Path, tmp_path: Path) -> None:
    uuid = "01234567-89ab-cdef-0123-456789abcdef"
    made = throughline.mkfs(
        tmp_path / "two.img", 16 << 20, fs_type="ext2", label="two", uuid=uuid, block_size=1024
    )
    assert (made.block_size, made.blocks, made.journal_blocks) == (1024, 16384, 0)
    assert str(made.uuid) == uuid and made.label == "two" and "has_journal" not in made.features
    check(tmp_path / "two.img")
    with throughline.Volume(tmp_path / "two.img") as volume:
        assert (volume.format, volume.label, volume.uuid) == ("ext2", "two", uuid)
        assert set(volume.features) == set(made.features)
    with pytest.raises(FileExistsError):
        throughline.mkfs(image, SIZE)
    throughline.mkfs(image, SIZE, overwrite=True, system_config=False)
    check(image)
    with pytest.raises(OSError) as wrong:
        throughline.mkfs(tmp_path / "x", SIZE, features="bogus")
    assert wrong.value.errno in (errno.EINVAL, errno.EOPNOTSUPP) and "bogus" in str(wrong.value.strerror)
    assert not (tmp_path / "x").exists()


def test_without_a_close(image: Path) -> None:
    volume = throughline.Volume(image, "r+")
    volume.path("/a").write_text("1")
    with pytest.warns(ResourceWarning, match="unclosed volume"):
        del volume
        gc.collect()
    check(image)
    assert debugfs(image, "cat /a") == "1"


def test_the_end_of_the_interpreter_closes(image: Path) -> None:
    code = f"""
import throughline
volume = throughline.Volume({str(image)!r}, "r+")
file = volume.open("/a", "w")
file.write("kept")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    check(image)
    assert debugfs(image, "cat /a") == "kept"


def test_a_killed_process_leaves_a_sound_volume(image: Path) -> None:
    code = f"""
import os, signal, throughline
volume = throughline.Volume({str(image)!r}, "r+")
with volume.open("/synced", "w") as file:
    file.write("kept")
    volume.fsync(file)
volume.open("/lost", "w").close()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    with throughline.Volume(image, "r+") as volume:
        assert volume.path("/synced").read_text() == "kept"
    check(image)


def _in_child(image: str, volume: throughline.Volume, file: throughline.RawFile) -> None:
    assert volume.closed
    for call in (volume.sync, file.tell, lambda: volume.listdir("/")):
        try:
            call()
        except OSError as error:
            assert error.errno == errno.EBADF
        else:
            raise AssertionError("a forked process used the volume of its parent")
    volume.close()
    try:
        throughline.Volume(image)
    except OSError as error:
        assert error.errno is not None
    else:
        raise AssertionError("the parent is writing it")


def test_a_forked_process_leaves_the_volume_alone(image: Path) -> None:
    with throughline.Volume(image, "r+") as volume:
        file = volume.open("/a", "wb", 0)
        file.write(b"before")
        context = multiprocessing.get_context("fork")
        child = context.Process(target=_in_child, args=(str(image), volume, file))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        file.write(b" and after")
    check(image)
    assert debugfs(image, "cat /a") == "before and after"


def test_closing_waits_for_other_threads(image: Path) -> None:
    volume = throughline.Volume(image, "r+")
    begun = threading.Event()

    def write() -> None:
        try:
            for number in range(10_000):
                volume.open(f"/{number}", "wb", 0).close()
                begun.set()
        except ValueError:
            pass

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait(60)
    try:
        volume.close()
    except OSError as error:
        # A file that was opened meanwhile: the volume is closed with it.
        assert error.errno == errno.EBUSY
    thread.join()
    assert volume.closed
    check(image)


def test_an_overlay_takes_the_changes(image: Path, tmp_path: Path) -> None:
    before = image.read_bytes()
    overlay = tmp_path / "changes.qcow2"
    with throughline.Volume(image, "r+", overlay=overlay) as volume:
        volume.path("/a").write_text("new")
    assert image.read_bytes() == before
    with throughline.Volume(image) as volume:
        assert not volume.exists("/a")
    with throughline.Volume(overlay, backing=[image]) as volume:
        assert volume.path("/a").read_text() == "new"
    with pytest.raises(OSError):
        throughline.Volume(overlay)


class TestPack:
    """Images of directories and archives."""

    def test_a_directory(self, tmp_path: Path) -> None:
        source = tmp_path / "source"
        (source / "sub").mkdir(parents=True)
        (source / "a.txt").write_text("a")
        (source / "sub/b.o").write_text("b")
        (source / "sub/c.txt").write_text("c")
        packed = throughline.pack(source, tmp_path / "out.img", exclude=["*.o"], owner=(0, 0), label="x")
        assert packed.files == 2
        assert packed.size == (tmp_path / "out.img").stat().st_size
        check(tmp_path / "out.img")
        with throughline.Volume(tmp_path / "out.img") as volume:
            assert volume.path("/sub/c.txt").read_text() == "c" and not volume.exists("/sub/b.o")
            assert volume.stat("/a.txt").st_uid == 0 and volume.label == "x"
        with pytest.raises(FileExistsError):
            throughline.pack(source, tmp_path / "out.img")
        again = throughline.pack(source, tmp_path / "again.img", exclude=["*.o"], owner=(0, 0), label="x")
        assert again == packed
        assert (tmp_path / "again.img").read_bytes() == (tmp_path / "out.img").read_bytes()

    def test_a_function_leaves_out(self, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.mkdir()
        for name in ("keep", "drop"):
            (source / name).write_text(name)
        asked = []

        def exclude(path: str) -> bool:
            asked.append(path)
            return path == "drop"

        packed = throughline.pack([source], tmp_path / "out.img", free=1 << 20, exclude=exclude)
        assert packed.files == 1 and set(asked) == {"drop", "keep"}

        def failing(path: str) -> bool:
            raise RuntimeError(path)

        with pytest.raises(RuntimeError):
            throughline.pack([source], tmp_path / "none.img", exclude=failing)
        assert not (tmp_path / "none.img").exists()

    def test_a_tar_in_a_partition(self, tmp_path: Path) -> None:
        (tmp_path / "motd").write_text("hello\n")
        with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
            tar.add(tmp_path / "motd", "etc/motd")
        disk = tmp_path / "disk.img"
        throughline.pack(tmp_path / "x.tar.gz", disk, partition="gpt", label="root", epoch=1_700_000_000)
        (partition,) = throughline.partitions(disk)
        assert partition.number == 1 and partition.volume_label == "root" and partition.start == 1 << 20
        for name in (1, "root", None):
            with throughline.Volume(disk, partition=name) as volume:
                assert volume.path("/etc/motd").read_text() == "hello\n"
        with throughline.Volume(disk, offset=partition.start) as volume:
            assert volume.listdir("/etc") == ["motd"]
        assert throughline.partitions(tmp_path / "motd") == []

    def test_errors(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            throughline.pack(tmp_path / "none", tmp_path / "out.img")
        (tmp_path / "bad.tar").write_bytes(os.urandom(4096))
        with pytest.raises(OSError) as damaged:
            throughline.pack(tmp_path / "bad.tar", tmp_path / "out.img")
        assert damaged.value.errno == errno.EUCLEAN
        for arguments in ({"size": 1, "free": 1}, {"exclude": ["/"]}):
            with pytest.raises(ValueError):
                throughline.pack(tmp_path, tmp_path / "out.img", **arguments)
        with pytest.raises(TypeError):
            throughline.pack(tmp_path, tmp_path / "out.img", exclude="*.o")
        assert not (tmp_path / "out.img").exists()
