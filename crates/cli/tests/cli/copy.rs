//! `cp` between the host, images and streams.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::common::{Image, fails, is_root, noise, ok, str, throughline, tools_are_missing};

/// The properties of a file to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    kind: &'static str,
    /// Size and checksum of a file, target of a link, or number of a device.
    what: String,
    mode: u32,
    owner: (u32, u32),
    modified: (i64, i64),
    links: u64,
}

/// All files below a directory of the host.
fn seen(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let kind = meta.file_type();
            let (kind, what) = if kind.is_dir() {
                folders.push(path.clone());
                ("directory", String::new())
            } else if kind.is_symlink() {
                (
                    "link",
                    fs::read_link(&path).unwrap().to_string_lossy().into_owned(),
                )
            } else if kind.is_file() {
                let sum = fs::read(&path).unwrap().iter().fold(7u64, |sum, byte| {
                    sum.wrapping_mul(31).wrapping_add((*byte).into())
                });
                ("file", format!("{} bytes, sum {sum:x}", meta.len()))
            } else if kind.is_fifo() {
                ("fifo", String::new())
            } else if kind.is_socket() {
                ("socket", String::new())
            } else {
                ("device", meta.rdev().to_string())
            };
            let links = if kind == "directory" { 0 } else { meta.nlink() };
            let mode = if kind == "link" {
                0
            } else {
                meta.mode() & 0o7777
            };
            let owner = (meta.uid(), meta.gid());
            let seen = Seen {
                kind,
                what,
                mode,
                owner,
                modified: (meta.mtime(), meta.mtime_nsec()),
                links,
            };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), seen);
        }
    }
    found
}

/// A tree with every kind of file that this user may create on the host.
pub(crate) fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("a/small"), noise(5000, 2)).unwrap();
    fs::write(root.join("a/nothing"), b"").unwrap();
    fs::write(root.join("a/b/large"), noise(20 << 20 | 4321, 3)).unwrap();
    fs::hard_link(root.join("a/small"), root.join("a/b/c/again")).unwrap();
    symlink("../a/small", root.join("empty/link")).unwrap();
    symlink("/nowhere/at/all", root.join("a/broken")).unwrap();
    let holes = fs::File::create(root.join("holes")).unwrap();
    holes.write_all_at(b"begin", 0).unwrap();
    holes.write_all_at(b"middle", 5 << 20).unwrap();
    holes.set_len(9 << 20).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("pipe"),
        rustix::fs::FileType::Fifo,
        0o640.into(),
        0,
    )
    .unwrap();
    for (path, mode) in [
        ("a/small", 0o4711),
        ("a/nothing", 0o400),
        ("empty", 0o700),
        ("a/b", 0o2755),
    ] {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    if is_root() {
        std::os::unix::fs::chown(root.join("a/b/large"), Some(1234), Some(70_000)).unwrap();
        let device = rustix::fs::makedev(7, 300);
        let kind = rustix::fs::FileType::BlockDevice;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("device"),
            kind,
            0o600.into(),
            device,
        )
        .unwrap();
    } else {
        throughline_testkit::missing!("owners and devices: not root");
    }
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    for path in ["a/small", "a/b/large", "a/b"] {
        let times = fs::FileTimes::new().set_accessed(time).set_modified(time);
        fs::File::open(root.join(path))
            .unwrap()
            .set_times(times)
            .unwrap();
    }
}

#[track_caller]
pub(crate) fn assert_same_trees(one: &Path, other: &Path) {
    let (one, other) = (seen(one), seen(other));
    assert_eq!(
        one.keys().collect::<Vec<_>>(),
        other.keys().collect::<Vec<_>>()
    );
    for (path, seen) in &one {
        assert_eq!(seen, &other[path], "{}", path.display());
    }
}

#[test]
fn an_archive_copy_round_trips() {
    if tools_are_missing() {
        return;
    }
    for options in [
        &["-t", "ext4"][..],
        &["-t", "ext3"],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let image = Image::new("128M", options);
        let tree = image.sibling("tree");
        make_tree(&tree);
        ok(["cp", "-a", str(&tree), &image.at("/")]);
        image.assert_clean();
        let back = image.sibling("back");
        ok(["cp", "-a", &image.at("/tree"), str(&back)]);
        let (mut went, mut came) = (seen(&tree), seen(&back));
        if options[1] != "ext4" {
            // Inodes of 256 bytes hold nanoseconds in ext3 and ext2 as well; smaller ones hold whole seconds.
            for seen in went.values_mut().chain(came.values_mut()) {
                seen.modified.1 = 0;
            }
        }
        assert_eq!(went, came, "{options:?}");
        assert_eq!(
            fs::metadata(tree.join("a/small")).unwrap().ino(),
            fs::metadata(tree.join("a/b/c/again")).unwrap().ino()
        );
        assert_eq!(
            fs::metadata(back.join("a/small")).unwrap().ino(),
            fs::metadata(back.join("a/b/c/again")).unwrap().ino()
        );
        assert!(
            fs::metadata(back.join("holes")).unwrap().blocks() * 512 < 1 << 20,
            "the holes were filled"
        );
    }
}

#[test]
fn debugfs_takes_out_what_we_put_in() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("128M", &["-t", "ext4"]);
    let tree = image.sibling("tree");
    make_tree(&tree);
    // Files of types that debugfs does not extract.
    for name in ["pipe", "device"] {
        let _ = fs::remove_file(tree.join(name));
    }
    ok(["cp", "-a", str(&tree), &image.at("/")]);
    let out = image.extracted("/tree");
    let contents = |root: &Path| -> Vec<_> {
        seen(root)
            .into_iter()
            .map(|(path, seen)| (path, seen.kind, seen.what))
            .collect()
    };
    assert_eq!(contents(&tree), contents(&out.join("tree")));
    let stat = image.debugfs("stat /tree/holes");
    let blocks: u64 = stat[stat.find("Blockcount: ").unwrap() + 12..]
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(blocks * 512 < 64 << 10, "{stat}");
}

#[test]
fn we_take_out_what_debugfs_put_in() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let file = image.sibling("file");
    fs::write(&file, noise(3 << 20 | 17, 4)).unwrap();
    image.debugfs_write("mkdir /dir");
    image.debugfs_write(&format!("write {} /dir/file", file.display()));
    image.debugfs_write("symlink /dir/link file");
    let back = image.sibling("back");
    ok(["cp", "-r", &image.at("/dir"), str(&back)]);
    assert_eq!(
        fs::read(back.join("file")).unwrap(),
        fs::read(&file).unwrap()
    );
    assert_eq!(fs::read_link(back.join("link")).unwrap(), Path::new("file"));
}

#[test]
fn from_image_to_image_and_inside_one() {
    if tools_are_missing() {
        return;
    }
    let (one, two) = (
        Image::new("96M", &["-t", "ext4"]),
        Image::new("128M", &["-t", "ext2", "-b", "2048"]),
    );
    let tree = one.sibling("tree");
    make_tree(&tree);
    ok(["cp", "-a", str(&tree), &one.at("/")]);
    ok(["cp", "-a", &one.at("/tree"), &two.at("/other")]);
    ok(["cp", "-a", &two.at("/other/."), &two.at("/lost+found")]);
    two.assert_clean();
    let back = two.sibling("back");
    ok(["cp", "-a", &two.at("/lost+found"), str(&back)]);
    ok(["rm", "-r", &one.at("/tree/a/b")]);
    ok(["cp", "-a", &one.at("/tree/a"), &one.at("/copy of a")]);
    one.assert_clean();
    assert_same_trees(&tree, &back);
}

#[test]
fn sources_get_their_names_as_cp_gives_them() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let (x, y) = (image.sibling("x"), image.sibling("y"));
    fs::write(&x, b"x").unwrap();
    fs::write(&y, b"y").unwrap();
    ok(["mkdir", &image.at("/d")]);
    ok(["cp", str(&x), &image.at("/renamed")]);
    ok(["cp", str(&x), str(&y), &image.at("/d/")]);
    ok(["cp", "-t", &image.at("/d"), &image.at("/renamed")]);
    ok(["cp", "-T", str(&y), &image.at("/y")]);
    assert_eq!(
        ok(["ls", "-R", &image.at("/d")])
            .lines()
            .skip(1)
            .collect::<Vec<_>>(),
        ["renamed", "x", "y"]
    );
    // A directory copied into an existing one and to a new name; the root is copied as its contents.
    ok(["cp", "-r", &image.at("/d"), &image.at("/lost+found")]);
    ok(["cp", "-r", &image.at("/d"), &image.at("/e")]);
    let host = image.sibling("host");
    fs::create_dir(&host).unwrap();
    ok(["cp", "-r", &image.at("/"), str(&host)]);
    assert_eq!(fs::read(host.join("lost+found/d/renamed")).unwrap(), b"x");
    assert_eq!(fs::read(host.join("e/y")).unwrap(), b"y");
    fails(
        ["cp", str(&x), str(&y), &image.at("/none")],
        1,
        "Not a directory",
    );
    fails(["cp", str(&x), &image.at("/none/")], 1, "Not a directory");
    fails(
        ["cp", str(&x), &image.at("/none/x")],
        1,
        "No such file or directory",
    );
    fails(
        ["cp", &image.at("/d"), &image.at("/f")],
        1,
        "omitting directory",
    );
    fails(
        ["cp", "-r", &image.at("/d"), &image.at("/y")],
        1,
        "cannot overwrite non-directory",
    );
    fails(
        ["cp", "-T", str(&x), &image.at("/d")],
        1,
        "cannot overwrite directory",
    );
    image.assert_clean();
}

#[test]
fn an_existing_target_is_replaced_kept_or_refused() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let (x, y) = (image.sibling("x"), image.sibling("y"));
    fs::write(&x, b"the longer one").unwrap();
    fs::write(&y, b"short").unwrap();
    ok(["cp", str(&x), &image.at("/f")]);
    ok(["cp", "-n", str(&y), &image.at("/f")]);
    assert_eq!(image.contents("/f"), b"the longer one");
    assert_eq!(
        ok(["cp", "-v", str(&y), &image.at("/f")]),
        format!("'{}' -> '{}'\n", y.display(), image.at("/f"))
    );
    assert_eq!(image.contents("/f"), b"short");
    // A link named on the command line is followed for writing, and its file keeps its inode.
    ok(["ln", "-s", "f", &image.at("/link")]);
    ok(["cp", str(&x), &image.at("/link")]);
    assert_eq!(image.contents("/f"), b"the longer one");
    fails(["cp", &image.at("/f"), &image.at("/link")], 1, "same file");
    fails(["cp", &image.at("/f"), &image.at("/f")], 1, "same file");
    // An immutable file can be neither written nor replaced.
    image.debugfs_write("set_inode_field /f flags 0x80010");
    fails(
        ["cp", str(&y), &image.at("/f")],
        1,
        "Operation not permitted",
    );
    fails(
        ["cp", "-f", str(&y), &image.at("/f")],
        1,
        "Operation not permitted",
    );
    assert_eq!(image.contents("/f"), b"the longer one");
    image.assert_clean();
}

#[test]
fn below_the_target_links_are_not_written_through() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let (tree, target) = (image.sibling("tree"), image.sibling("target"));
    fs::create_dir_all(tree.join("d")).unwrap();
    fs::write(tree.join("file"), b"new").unwrap();
    fs::write(tree.join("d/file"), b"new").unwrap();
    ok(["cp", "-r", str(&tree), &image.at("/")]);
    let outside = image.sibling("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("file"), b"dear").unwrap();
    fs::create_dir_all(&target).unwrap();
    symlink(outside.join("file"), target.join("file")).unwrap();
    symlink(&outside, target.join("d")).unwrap();
    let ran = fails(
        ["cp", "-rT", &image.at("/tree"), str(&target)],
        1,
        "cannot overwrite non-directory",
    );
    assert!(ran.stderr.contains("not writing to"), "{}", ran.stderr);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"dear");
    // The same inside an image.
    ok(["mkdir", "-p", &image.at("/t"), &image.at("/o")]);
    ok(["touch", &image.at("/o/file")]);
    ok(["ln", "-s", "/o/file", &image.at("/t/file")]);
    ok(["ln", "-s", "/o", &image.at("/t/d")]);
    fails(
        ["cp", "-rT", str(&tree), &image.at("/t")],
        1,
        "not writing to",
    );
    assert_eq!(image.contents("/o/file"), b"");
    ok(["rm", &image.at("/t/d")]);
    ok(["cp", "-rfT", str(&tree), &image.at("/t")]);
    assert_eq!(
        (image.contents("/o/file"), image.contents("/t/file")),
        (b"".to_vec(), b"new".to_vec())
    );
    image.assert_clean();
}

#[test]
fn links_in_sources_are_followed_when_asked() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let tree = image.sibling("tree");
    fs::create_dir_all(tree.join("real")).unwrap();
    fs::write(tree.join("real/file"), b"x").unwrap();
    symlink("real", tree.join("dir")).unwrap();
    symlink("real/file", tree.join("link")).unwrap();
    ok(["cp", str(&tree.join("link")), &image.at("/followed")]);
    ok(["cp", "-P", str(&tree.join("link")), &image.at("/kept")]);
    ok(["cp", "-rL", str(&tree), &image.at("/all")]);
    assert_eq!(image.contents("/followed"), b"x");
    assert_eq!(ok(["readlink", &image.at("/kept")]), "real/file\n");
    assert_eq!(image.contents("/all/dir/file"), b"x");
    ok(["cp", "-rL", &image.at("/all"), &image.at("/again")]);
    // A link to a parent directory forms a cycle.
    symlink("..", tree.join("real/up")).unwrap();
    fails(
        ["cp", "-rL", str(&tree), &image.at("/endless")],
        1,
        "leads back",
    );
    image.assert_clean();
}

#[test]
fn nothing_is_copied_into_itself() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["mkdir", &image.at("/d")]);
    ok(["touch", &image.at("/d/file")]);
    fails(
        ["cp", "-r", &image.at("/d"), &image.at("/d/copy")],
        1,
        "into itself",
    );
    fails(
        ["cp", "-r", &image.at("/d/."), &image.at("/d")],
        1,
        "into itself",
    );
    image.assert_clean();
    // Likewise the open image itself.
    let folder = image.path().parent().unwrap().to_owned();
    fails(
        ["cp", "-r", str(&folder), &image.at("/")],
        1,
        "it is the image that is open",
    );
    // Even if images may be overwritten.
    fails(
        ["cp", "--overwrite-image", &image.at("/d/file"), image.str()],
        1,
        "it is the image that is open",
    );
    image.assert_clean();
}

#[test]
fn long_files_are_the_same_past_the_caches_and_through_them() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("128M", &["-t", "ext4"]);
    // Longer than the buffers together, with a hole, and with an end inside a block.
    let len = (26 << 20) + 123;
    let source = image.sibling("source");
    let file = fs::File::create(&source).unwrap();
    let (front, back) = (noise(9 << 20, 1), noise((4 << 20) + 123, 2));
    file.write_all_at(&front, 0).unwrap();
    file.write_all_at(&back, (len - back.len()) as u64).unwrap();
    let wanted = fs::read(&source).unwrap();
    let source = source.to_str().unwrap();
    for (name, options) in [
        ("past", &[][..]),
        ("through", &["--cache", "8M"]),
        ("direct", &["--direct"]),
    ] {
        let inside = image.at(&format!("/{name}"));
        let with = |command: &[&str]| ok(options.iter().chain(command).copied());
        // Its pages are dirty in the host's cache, then on its disk only.
        if name == "direct" {
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        with(&["cp", source, &inside]);
        assert!(image.contents(&format!("/{name}")) == wanted, "{name}: in");
        let back = image.sibling(&format!("{name}.back"));
        with(&["cp", &inside, back.to_str().unwrap()]);
        assert!(fs::read(&back).unwrap() == wanted, "{name}: out");
        let sectors = fs::metadata(&back).unwrap().blocks();
        assert!(sectors < (len as u64) / 512, "{name}: the hole is kept");
        let shown = throughline()
            .args(options)
            .args(["cat", &inside, &inside])
            .output()
            .unwrap();
        assert!(shown.status.success() && shown.stdout.len() == 2 * len);
        assert!(shown.stdout[len..] == wanted && shown.stdout[..len] == wanted);
    }
    image.assert_clean();
}
