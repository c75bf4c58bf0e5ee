"""The `fsspec` file system: fsspec's own generic tests, URLs, and the programs that use it."""

import errno
import multiprocessing
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.tests.abstract import (
    AbstractCopyTests,
    AbstractFixtures,
    AbstractGetTests,
    AbstractOpenTests,
    AbstractPipeTests,
    AbstractPutTests,
)

import throughline
from conftest import SIZE, check, debugfs, module
from throughline.fsspec import ThroughlineFileSystem


class ThroughlineFixtures(AbstractFixtures):  # type: ignore[misc]
    """A new image for each test. It is checked when the test has ended."""

    @pytest.fixture
    def fs(self, tmp_path: Path) -> Iterator[ThroughlineFileSystem]:
        image = tmp_path / "generic.img"
        throughline.mkfs(image, SIZE)
        fs = ThroughlineFileSystem(str(image), auto_mkdir=True)
        yield fs
        fs.close()
        check(image)

    @pytest.fixture
    def fs_path(self, fs: ThroughlineFileSystem) -> str:
        fs.mkdir("/tests")
        return "/tests"

    # Not in the image, whose directory is also that of the local files.
    @pytest.fixture
    def local_path(self, tmp_path: Path) -> str:
        (tmp_path / "local").mkdir()
        return str(tmp_path / "local")


class TestCopy(AbstractCopyTests, ThroughlineFixtures):  # type: ignore[misc]
    """fsspec's tests of `cp`."""


class TestGet(AbstractGetTests, ThroughlineFixtures):  # type: ignore[misc]
    """fsspec's tests of `get`."""


class TestPut(AbstractPutTests, ThroughlineFixtures):  # type: ignore[misc]
    """fsspec's tests of `put`."""


class TestOpen(AbstractOpenTests, ThroughlineFixtures):  # type: ignore[misc]
    """fsspec's tests of `open`."""


class TestPipe(AbstractPipeTests, ThroughlineFixtures):  # type: ignore[misc]
    """fsspec's tests of `pipe_file`."""


@pytest.fixture
def fs(image: Path) -> Iterator[ThroughlineFileSystem]:
    """The file system of a new image."""
    fs = fsspec.filesystem("throughline", image=str(image))
    yield fs
    fs.close()
    check(image)


def test_urls(image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"throughline://{image}:/d/a.csv"
    fs, path = fsspec.url_to_fs(url, auto_mkdir=True)
    assert path == "/d/a.csv" and fs.image == str(image) and fs.unstrip_protocol(path) == url
    with fsspec.open(url, "w", auto_mkdir=True) as file:
        file.write("x,y\n1,2\n")
    with fsspec.open(url) as file:
        assert file.read() == b"x,y\n1,2\n"
    monkeypatch.chdir(tmp_path)
    with fsspec.open("throughline://disk.img:/d/a.csv", "rt") as file:
        assert file.readline() == "x,y\n"
    assert fsspec.open_files(f"throughline://{image}:/d/*.csv")[0].path == "/d/a.csv"
    fs.close()
    for chained in (
        f"throughline:///d/a.csv::file://{image}",
        f"throughline:///d/a.csv::simplecache::file://{image}",
        f"simplecache::throughline://{image}:/d/a.csv",
    ):
        with fsspec.open(chained) as file:
            assert file.read() == b"x,y\n1,2\n", chained
        throughline_fs(chained).close()
        fs.close()
    for wrong in ("throughline:///a.csv", f"throughline://{image}:/a::file://{image}"):
        with pytest.raises(ValueError):
            fsspec.open(wrong).open()
    with pytest.raises(ValueError, match="simplecache"):
        fsspec.open("throughline:///a.csv::memory://disk.img").open()


def throughline_fs(url: str) -> ThroughlineFileSystem:
    """The file system of a chained URL that is ours."""
    fs = fsspec.url_to_fs(url)[0]
    return fs if isinstance(fs, ThroughlineFileSystem) else fs.fs


def test_the_place_of_the_path_in_a_url(tmp_path: Path) -> None:
    kwargs = ThroughlineFileSystem._get_kwargs_from_urls
    strip = ThroughlineFileSystem._strip_protocol
    (tmp_path / "odd:").mkdir()
    throughline.mkfs(tmp_path / "odd:/disk", 8 << 20)
    url = f"throughline://{tmp_path}/odd:/disk:/etc/x"
    assert kwargs(url) == {"image": f"{tmp_path}/odd:/disk"} and strip(url) == "/etc/x"
    url = "throughline:///no/such.img:/a:/b"
    assert kwargs(url) == {"image": "/no/such.img"} and strip(url) == "/a:/b"
    url = "throughline://s3://bucket/disk.img@2:/etc"
    assert kwargs(url) == {"image": "s3://bucket/disk.img@2"} and strip(url) == "/etc"
    assert strip("/a:/b") == "/a:/b" and strip("a/") == "/a" and strip("") == "/" == strip("/")
    assert strip(["a", "/b/"]) == ["/a", "/b"]


def test_a_partition(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_text("in it")
    throughline.pack(tmp_path / "source", tmp_path / "d.img", partition="gpt", label="root")
    for name in ("d.img", "d.img@1", "d.img@root"):
        fs, path = fsspec.url_to_fs(f"throughline://{tmp_path}/{name}:/a")
        assert fs.cat_file(path) == b"in it"
        assert fs.unstrip_protocol(path) == f"throughline://{tmp_path}/{name}:/a"
        fs.close()


def test_names_and_facts(fs: ThroughlineFileSystem) -> None:
    fs.makedirs("/d/e")
    with pytest.raises(FileExistsError):
        fs.makedirs("/d/e")
    with pytest.raises(FileNotFoundError):
        fs.mkdir("/x/y", create_parents=False)
    fs.pipe_file("/d/f", b"12345")
    assert sorted(fs.ls("/d", detail=False)) == ["/d/e", "/d/f"]
    info = fs.info("/d/f")
    assert (info["name"], info["size"], info["type"], info["islink"]) == ("/d/f", 5, "file", False)
    assert fs.created("/d/f").tzinfo is not None
    assert abs((fs.modified("/d/f") - fs.created("/d/f")).total_seconds()) < 60
    fs.symlink("f", "/d/link")
    fs.symlink("none", "/d/broken")
    fs.symlink("..", "/d/up")
    assert fs.islink("/d/link") and fs.info("/d/link")["size"] == 5
    assert fs.info("/d/link")["destination"] == "f"
    assert not fs.exists("/d/broken") and fs.lexists("/d/broken")
    assert fs.find("/") == ["/d/broken", "/d/f", "/d/link", "/d/up"] and fs.du("/d/f") == 5
    assert fs.glob("/d/*f") == ["/d/f"] and fs.isdir("/d/up") and fs.isfile("/d/link")
    fs.link("/d/f", "/hard")
    assert fs.info("/hard")["nlink"] == 2
    fs.chmod("/hard", 0o600)
    assert fs.info("/d/f")["mode"] & 0o777 == 0o600
    fs.touch("/new")
    fs.touch("/hard", truncate=False)
    assert fs.size("/hard") == 5
    fs.touch("/hard")
    assert fs.size("/hard") == 0
    with pytest.raises(FileNotFoundError):
        fs.ls("/none")
    assert fs.fsid.startswith("throughline:")


def test_ranges(fs: ThroughlineFileSystem) -> None:
    fs.pipe_file("/f", bytes(range(100)))
    assert fs.cat_file("/f", 10, 13) == bytes([10, 11, 12])
    assert fs.cat_file("/f", -2) == bytes([98, 99]) and fs.cat_file("/f", 97, -1) == bytes([97, 98])
    assert fs.cat_ranges(["/f", "/f"], [0, 5], [1, 6]) == [b"\0", b"\5"]
    assert fs.head("/f", 2) == b"\0\1" and fs.tail("/f", 1) == b"\x63"
    assert fs.cat(["/f"]) == {"/f": bytes(range(100))}
    with fs.open("/f", "ab") as file:
        file.write(b"end")
    with fs.open("/f", "r+b") as file:
        file.write(b"begin")
    assert fs.cat_file("/f")[:5] == b"begin" and fs.cat_file("/f")[-3:] == b"end"
    with fs.open("/t.gz", "wb", compression="gzip") as file:
        file.write(b"compressed")
    with fs.open("/t.gz", "rt", compression="infer") as file:
        assert file.read() == "compressed"


def test_moves_and_removals(fs: ThroughlineFileSystem) -> None:
    fs.makedirs("/d/e")
    fs.pipe({"/a": b"a", "/b": b"b", "/d/e/c": b"c"})
    fs.mv("/a", "/moved")
    fs.mv("/b", "/d")
    assert fs.cat_file("/moved") == b"a" and fs.cat_file("/d/b") == b"b" and not fs.exists("/a")
    fs.mv("/d", "/renamed")
    fs.rename("/renamed", "/d")
    with pytest.raises(FileNotFoundError):
        fs.mv("/none", "/x")
    with pytest.raises(OSError):
        fs.rmdir("/d")
    with pytest.raises(IsADirectoryError):
        fs.rm("/d")
    fs.rm(["/moved"])
    fs.rm("/d/e/*")
    fs.rmdir("/d/e")
    fs.rm("/d", recursive=True)
    assert fs.ls("/", detail=False) == ["/lost+found"]


def test_transactions(fs: ThroughlineFileSystem) -> None:
    fs.pipe_file("/old", b"old")
    with fs.transaction:
        with fs.open("/new", "wb") as file:
            file.write(b"new")
        with fs.open("/old", "ab") as file:
            file.write(b" and more")
        with fs.open("/text", "w") as text:
            text.write("text")
        assert not fs.exists("/new") and fs.cat_file("/old") == b"old"
    assert fs.cat_file("/new") == b"new" and fs.cat_file("/old") == b"old and more"
    assert fs.cat_file("/text") == b"text"
    with pytest.raises(RuntimeError):
        with fs.transaction:
            with fs.open("/never", "wb") as file:
                file.write(b"never")
            raise RuntimeError
    with fs.transaction, pytest.raises(FileExistsError):
        fs.open("/new", "xb")
    assert set(fs.ls("/", detail=False)) == {"/lost+found", "/new", "/old", "/text"}


def test_opened_for_writing_when_something_changes(image: Path) -> None:
    fs = fsspec.filesystem("throughline", image=str(image))
    before = image.read_bytes()
    assert fs.ls("/", detail=False) == ["/lost+found"]
    # Another reader, of another process perhaps.
    with throughline.Volume(image):
        assert fs.exists("/lost+found")
    assert image.read_bytes() == before
    fs.pipe_file("/a", b"1")
    with pytest.raises(OSError):
        throughline.Volume(image)
    fs.close()
    with fs.open("/a") as reading:
        assert reading.read() == b"1"
        with pytest.raises(OSError, match="open for reading") as busy:
            fs.pipe_file("/b", b"2")
        assert busy.value.errno == errno.EBUSY
    fs.pipe_file("/b", b"2")
    fs.close()
    only_read = fsspec.filesystem("throughline", image=str(image), mode="r")
    with pytest.raises(OSError) as refused:
        only_read.pipe_file("/c", b"3")
    assert refused.value.errno == errno.EROFS
    only_read.close()
    writing = fsspec.filesystem("throughline", image=str(image), mode="r+")
    with writing.open("/a") as reading:
        writing.pipe_file("/c", b"3")
        assert reading.read() == b"1"
    writing.sync()
    writing.close()
    check(image)
    assert debugfs(image, "cat /c") == "3"


def test_threads_share_one_volume(fs: ThroughlineFileSystem, image: Path) -> None:
    failed = []

    def work(number: int) -> None:
        try:
            # fsspec makes an instance for each thread.
            own = fsspec.filesystem("throughline", image=str(image))
            for count in range(10):
                own.pipe_file(f"/{number}-{count}", str(count).encode() * 1000)
                assert own.cat_file(f"/{number}-{count}") == str(count).encode() * 1000
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(fs.ls("/")) == 41


def test_files_that_were_not_closed(image: Path) -> None:
    fs = fsspec.filesystem("throughline", image=str(image))
    text = fs.open("/text", "w")
    text.write("not yet written")
    packed = fs.open("/text.gz", "wb", compression="gzip")
    packed.write(b"nor this")
    fs.close()
    assert fs.cat_file("/text") == b"not yet written"
    with fs.open("/text.gz", compression="infer") as file:
        assert file.read() == b"nor this"
    fs.close()


def _read_in_child(fs: Any) -> None:
    assert fs.cat_file("/a") == b"1"
    fs.close()


def test_other_processes(image: Path) -> None:
    fs = fsspec.filesystem("throughline", image=str(image))
    fs.pipe_file("/a", b"1")
    fs.close()
    assert fs.cat_file("/a") == b"1"
    assert pickle.loads(pickle.dumps(fs)).cat_file("/a") == b"1"
    for method in ("fork", "spawn"):
        context: Any = multiprocessing.get_context(method)
        child = context.Process(target=_read_in_child, args=(fs,))
        child.start()
        child.join(120)
        assert child.exitcode == 0, method
    fs.close()


def test_pandas(image: Path) -> None:
    pandas = module("pandas")
    module("pyarrow")
    frame = pandas.DataFrame({"x": range(1000), "y": [str(number) for number in range(1000)]})

    def read_csv(url: str) -> Any:
        return pandas.read_csv(url, dtype={"y": str})

    for name, write, read in (
        ("a.csv", lambda url: frame.to_csv(url, index=False), read_csv),
        ("a.csv.gz", lambda url: frame.to_csv(url, index=False), read_csv),
        ("a.parquet", frame.to_parquet, pandas.read_parquet),
        ("a.json", frame.to_json, lambda url: pandas.read_json(url, dtype={"y": str})),
        ("a.pickle", frame.to_pickle, pandas.read_pickle),
    ):
        url = f"throughline://{image}:/{name}"
        write(url)
        assert read(url).astype(frame.dtypes).equals(frame), name
    fsspec.filesystem("throughline", image=str(image)).close()
    check(image)
    assert debugfs(image, "cat /a.csv").startswith("x,y\n0,0\n1,1\n")


def test_pyarrow(fs: ThroughlineFileSystem) -> None:
    pyarrow = module("pyarrow")
    for part in ("dataset", "fs", "parquet"):
        module(f"pyarrow.{part}")

    table = pyarrow.table({"x": list(range(5000)), "key": [number % 3 for number in range(5000)]})
    arrow = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
    pyarrow.parquet.write_table(table, "/t.parquet", filesystem=arrow)
    assert pyarrow.parquet.read_table("/t.parquet", filesystem=fs).equals(table)
    pyarrow.dataset.write_dataset(table, "/set", format="parquet", partitioning=["key"], filesystem=fs)
    again = pyarrow.dataset.dataset("/set", partitioning=["key"], filesystem=fs).to_table()
    assert again.num_rows == 5000 and again.sort_by("x")["x"].to_pylist() == list(range(5000))
    found = arrow.get_file_info("/t.parquet")
    assert found.size == fs.size("/t.parquet") and found.is_file
    assert {info.path for info in arrow.get_file_info(pyarrow.fs.FileSelector("/set"))} == {
        "/set/0",
        "/set/1",
        "/set/2",
    }


def test_the_protocol_is_known() -> None:
    assert "throughline" in fsspec.available_protocols()
    assert fsspec.get_filesystem_class("throughline") is ThroughlineFileSystem
