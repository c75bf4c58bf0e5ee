"""The calls of `os` by path."""

import errno
import os
import stat
import subprocess
from pathlib import Path, PurePosixPath

import pytest

import throughline
from conftest import program


def test_directories(volume: throughline.Volume) -> None:
    volume.mkdir("/d")
    with pytest.raises(FileExistsError):
        volume.mkdir("/d")
    with pytest.raises(FileNotFoundError):
        volume.mkdir("/none/d")
    volume.makedirs("/d/e/f")
    volume.makedirs("/d/e/f", exist_ok=True)
    with pytest.raises(FileExistsError):
        volume.makedirs("/d/e/f")
    volume.open("/d/file", "w").close()
    assert sorted(volume.listdir("/d")) == ["e", "file"] == sorted(volume.listdir(b"d/"))
    with volume.scandir("/d") as entries:
        kinds = {entry.name: (entry.is_dir(), entry.is_file(), entry.path) for entry in entries}
    assert kinds == {"e": (True, False, "/d/e"), "file": (False, True, "/d/file")}
    with pytest.raises(OSError) as full:
        volume.rmdir("/d")
    assert full.value.errno == errno.ENOTEMPTY
    with pytest.raises(NotADirectoryError):
        volume.listdir("/d/file")
    with pytest.raises(NotADirectoryError):
        volume.rmdir("/d/file")
    with pytest.raises(IsADirectoryError):
        volume.remove("/d/e")
    volume.rmdir("/d/e/f")
    volume.rmtree("/d")
    assert not volume.exists("/d")


def test_many_names(volume: throughline.Volume) -> None:
    volume.mkdir("/many")
    names = {f"name-{number}" for number in range(3000)}
    for name in names:
        volume.open(f"/many/{name}", "wb", 0).close()
    assert set(volume.listdir("/many")) == names
    entries = volume.scandir("/many")
    next(entries)
    entries.close()
    assert list(entries) == []


def test_links_and_renames(volume: throughline.Volume) -> None:
    path = volume.path("/a")
    path.write_text("1")
    volume.link("/a", "/b")
    assert volume.stat("/b").st_nlink == 2 and os.path.samestat(volume.stat("/a"), volume.stat("/b"))
    volume.symlink("a", "/s")
    assert volume.readlink("/s") == "a" and volume.islink("/s") and not volume.islink("/a")
    assert stat.S_ISLNK(volume.lstat("/s").st_mode) and volume.stat("/s").st_size == 1
    volume.symlink("none", "/broken")
    assert volume.lexists("/broken") and not volume.exists("/broken")
    volume.symlink("loop", "/loop")
    assert not volume.exists("/loop") and not volume.isdir("/loop")
    with pytest.raises(OSError) as loop:
        volume.stat("/loop")
    assert loop.value.errno == errno.ELOOP
    volume.path("/c").write_text("2")
    with pytest.raises(FileExistsError):
        volume.rename("/c", "/a", keep=True)
    volume.replace("/c", "/a")
    assert path.read_text() == "2" and volume.path("/b").read_text() == "1"
    with pytest.raises(OSError) as moved:
        volume.mkdir("/d")
        volume.rename("/d", "/d/d")
    assert moved.value.errno == errno.EINVAL
    volume.unlink("/b")
    volume.copy("/a", "/copy")
    assert volume.path("/copy").read_text() == "2"


def test_metadata(volume: throughline.Volume, image: Path) -> None:
    with volume.open("/f", "wb", permissions=0o640) as file:
        file.write(bytes(5000))
    volume.mkdir("/d", 0o777)
    assert stat.S_IMODE(volume.stat("/f").st_mode) == 0o640
    assert stat.S_IMODE(volume.stat("/d").st_mode) == 0o755, "the umask of a volume is 022"
    volume.chmod("/f", 0o4711)
    volume.chown("/f", 12, 70_000)
    volume.chown("/f", -1, 34)
    ns = (1_700_000_000_123_456_789, -1_500_000_001)
    volume.utime("/f", ns=ns)
    found = volume.stat("/f")
    assert stat.S_IMODE(found.st_mode) == 0o711, "a new owner clears setuid"
    assert (found.st_uid, found.st_gid, found.st_size) == (12, 34, 5000)
    assert (found.st_atime_ns, found.st_mtime_ns) == ns
    assert found.st_atime == ns[0] / 1e9 and found[stat.ST_MTIME] == -2
    assert found.st_blksize == volume.statvfs().f_bsize and found.st_dev == volume.stat("/").st_dev
    volume.utime("/f", (1.5, 2.25))
    assert volume.stat("/f").st_mtime == 2.25
    before = volume.stat("/f").st_mtime_ns
    volume.utime("/f")
    assert volume.stat("/f").st_mtime_ns > before
    created = volume.birthtime("/f")
    assert created is not None and abs(created - found.st_ctime) < 60
    space = volume.statvfs()
    assert space.f_bsize in (1024, 4096) and 0 < space.f_bavail <= space.f_bfree < space.f_blocks
    assert not space.f_flag & os.ST_RDONLY
    with pytest.raises(FileNotFoundError):
        volume.chmod("/none", 0o600)


def test_extended_attributes(volume: throughline.Volume) -> None:
    volume.open("/f", "w").close()
    volume.setxattr("/f", "user.comment", b"hello")
    volume.setxattr("/f", b"user.other", bytearray(b"x"), os.XATTR_CREATE)
    assert volume.getxattr("/f", "user.comment") == b"hello"
    assert sorted(volume.listxattr("/f")) == ["user.comment", "user.other"]
    with pytest.raises(FileExistsError):
        volume.setxattr("/f", "user.other", b"", os.XATTR_CREATE)
    for call in (volume.getxattr, volume.removexattr):
        with pytest.raises(OSError) as none:
            call("/f", "user.none")
        assert none.value.errno == errno.ENODATA and none.value.filename == "/f"
    volume.removexattr("/f", "user.other")
    assert volume.listxattr("/f") == ["user.comment"]
    with pytest.raises(OSError) as wrong:
        volume.setxattr("/f", "bogus.name", b"")
    assert wrong.value.errno == errno.EOPNOTSUPP


def test_walk(volume: throughline.Volume) -> None:
    for path in ("/w/a/b", "/w/c"):
        volume.makedirs(path)
    volume.open("/w/a/file", "w").close()
    volume.symlink("..", "/w/c/up")
    down = list(volume.walk("/w"))
    assert {at: (sorted(dirs), files) for at, dirs, files in down} == {
        "/w": (["a", "c"], []),
        "/w/a": (["b"], ["file"]),
        "/w/a/b": ([], []),
        "/w/c": (["up"], []),
    }
    up = [at for at, _, _ in volume.walk("/w", topdown=False)]
    assert up[-1] == "/w" and sorted(up) == sorted(at for at, _, _ in down)
    pruned = []
    for at, dirs, _ in volume.walk("/w"):
        pruned.append(at)
        dirs[:] = [name for name in dirs if name != "a"]
    assert sorted(pruned) == ["/w", "/w/c"]
    errors: list[OSError] = []
    assert list(volume.walk("/none", onerror=errors.append)) == []
    assert [error.errno for error in errors] == [errno.ENOENT]


def test_a_directory_in_itself_is_entered_once(image: Path) -> None:
    """Damage that debugfs makes: a directory that is found again below itself."""
    with throughline.Volume(image, "r+") as volume:
        volume.makedirs("/a/b")
    words = [program("debugfs"), "-w", "-R", "link /a /a/b/again", str(image)]
    subprocess.run(words, check=True, capture_output=True)
    with throughline.Volume(image) as volume:
        errors: list[OSError] = []
        walked = [at for at, _, _ in volume.walk("/", onerror=errors.append)]
        assert walked.count("/a") == 1 and len(walked) < 6
        assert [error.errno for error in errors] == [errno.EUCLEAN]


def test_names_that_are_not_unicode(volume: throughline.Volume, image: Path) -> None:
    name = os.fsdecode(b"\xff\xfe")
    volume.open(f"/{name}", "w").close()
    assert name in volume.listdir("/")
    with pytest.raises(FileNotFoundError) as none:
        volume.stat(b"/\xfd")
    assert none.value.filename == os.fsdecode(b"/\xfd")
    with pytest.raises(OSError) as long:
        volume.stat("/" + "x" * 256)
    assert long.value.errno == errno.ENAMETOOLONG


class TestPath:
    """The methods of `pathlib.Path`."""

    def test_derived_paths_stay_in_the_volume(self, volume: throughline.Volume) -> None:
        path = volume.path("/a") / "b" / "c.txt"
        derived = [
            path,
            path.parent,
            *path.parents,
            path.with_name("x"),
            path.with_stem("x"),
            path.with_suffix(".y"),
            path.joinpath("d", "e"),
            "z" / path,
            path.absolute(),
            volume.path("/x") / path,
        ]
        assert all(type(one) is throughline.Path and one.volume is volume for one in derived)
        assert str(path) == "/a/b/c.txt" and path.name == "c.txt" and path.suffix == ".txt"
        assert path == volume.path("/a", "b", "c.txt") and hash(path) == hash(volume.path("/a/b/c.txt"))
        pure = PurePosixPath("/a/b/c.txt")
        assert path != pure and pure != path and path != "/a/b/c.txt"
        assert path.relative_to("/a") == PurePosixPath("b/c.txt")
        assert path.is_relative_to("/a") and path.is_absolute() and path.match("*.txt")
        assert path.as_uri() == f"throughline://{os.path.abspath(volume.name)}:/a/b/c.txt"
        assert sorted([path, path.parent])[0] == path.parent

    def test_it_is_not_a_path_of_the_host(self, volume: throughline.Volume) -> None:
        path = volume.path("/etc")
        for call in (open, os.stat, os.fspath, os.listdir):
            with pytest.raises(TypeError, match="not on the host"):
                call(path)
        assert repr(path).startswith("throughline.Path('/etc', volume=<throughline.Volume name=")

    def test_of_another_volume(self, volume: throughline.Volume, tmp_path: Path) -> None:
        throughline.mkfs(tmp_path / "other.img", 8 << 20)
        with throughline.Volume(tmp_path / "other.img") as other:
            assert other.path("/a") != volume.path("/a")
            with pytest.raises(OSError) as crossed:
                volume.stat(other.path("/"))
            assert crossed.value.errno == errno.EXDEV
            with pytest.raises(OSError):
                volume.path("/a").rename(other.path("/b"))

    def test_what_is_there(self, volume: throughline.Volume) -> None:
        root = volume.path("/")
        directory = root / "d" / "e"
        with pytest.raises(FileNotFoundError):
            directory.mkdir()
        directory.mkdir(parents=True)
        directory.mkdir(exist_ok=True)
        with pytest.raises(FileExistsError):
            directory.mkdir()
        file = directory / "f"
        assert file.write_text("ä\n", encoding="utf-8") == 2 and file.read_bytes() == "ä\n".encode()
        assert file.write_bytes(b"12") == 2 and file.read_text() == "12"
        assert file.exists() and file.is_file() and not file.is_dir() and directory.is_dir()
        assert file.stat().st_size == 2 and file.samefile("/d/e/f") and file.samefile(file)
        link = root / "link"
        link.symlink_to(file)
        assert link.is_symlink() and link.readlink() == file and link.resolve() == file
        assert (root / "d/../link").resolve() == file and (root / "no/such").resolve() == root / "no/such"
        (root / "hard").hardlink_to(file)
        assert file.stat().st_nlink == 2
        moved = file.rename(root / "moved")
        assert moved == root / "moved" and not file.exists()
        moved.chmod(0o600)
        assert stat.S_IMODE(moved.stat().st_mode) == 0o600
        (root / "t").touch()
        (root / "t").touch()
        with pytest.raises(FileExistsError):
            (root / "t").touch(exist_ok=False)
        (root / "t").unlink()
        (root / "t").unlink(missing_ok=True)
        directory.rmdir()
        assert {path.name for path in root.iterdir()} == {"d", "hard", "link", "lost+found", "moved"}
        with moved.open("rb") as opened:
            assert opened.read() == b"12"

    def test_glob(self, volume: throughline.Volume) -> None:
        root = volume.path("/g")
        for name in ("a.txt", "b.csv", "x/c.txt", "x/y/d.txt", "x/.hidden"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).touch()

        def found(pattern: str) -> list[str]:
            return sorted(str(path.relative_to(root)) for path in root.glob(pattern))

        assert found("*.txt") == ["a.txt"]
        assert found("**/*.txt") == ["a.txt", "x/c.txt", "x/y/d.txt"]
        assert found("x/*") == ["x/.hidden", "x/c.txt", "x/y"]
        assert found("*/y/[a-d].txt") == ["x/y/d.txt"]
        assert found("**") == [".", "x", "x/y"] and found("x/none") == [] and found("a.txt/*") == []
        assert [path.name for path in root.rglob("d.*")] == ["d.txt"]
        with pytest.raises(ValueError):
            list(root.glob(""))
