//! Trees packed into volumes of many kinds: `e2fsck` finds nothing, our reader and the kernel show the tree,
//! the bytes are the same every time, and what fails leaves nothing.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;

use throughline::pack::{
    Attributes, Content, Kind, MemoryTree, NodeId, PackOptions, PackSize, Tree,
};
use throughline::{MkfsError, MkfsOptions, OpenOptions, Volume};
use throughline_testkit::{e2fs, kernel};

const TIME_S: i64 = 1_700_000_000;
/// Types, features, block sizes and the like.
const KINDS: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext3"],
    &["-t", "ext2"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "2048", "-O", "inline_data"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3", "-b", "1024", "-O", "^dir_index"],
    &["-t", "ext4", "-O", "^extent,^64bit"],
    &["-t", "ext4", "-O", "^metadata_csum"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-O", "^flex_bg"],
    &["-t", "ext4", "-O", "inline_data,^has_journal", "-I", "512"],
    &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"],
    &["-t", "ext4", "-O", "^resize_inode,meta_bg,^flex_bg"],
    &["-t", "ext4", "-O", "sparse_super2"],
    &["-t", "ext4", "-I", "128"],
    &["-t", "ext4", "-O", "^filetype,^dir_nlink,^huge_file"],
];

fn options(words: &[&str]) -> MkfsOptions {
    let mut options = MkfsOptions::new();
    for pair in words.chunks(2) {
        match pair[0] {
            "-t" => options.fs_type(pair[1]),
            "-b" => options.block_bytes(pair[1].parse().unwrap()),
            "-I" => options.inode_bytes(pair[1].parse().unwrap()),
            "-O" => options.features(pair[1]).unwrap(),
            other => panic!("{other}"),
        };
    }
    options
}

fn attributes(permissions: u16) -> Attributes {
    Attributes {
        permissions,
        uid: 70_000,
        gid: 5,
        mtime_seconds: TIME_S - i64::from(permissions),
        mtime_nanoseconds: 0,
    }
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251) as u8 ^ seed).collect()
}

/// A tree of everything that a volume holds; `names` in one directory.
fn tree(names: usize, has_xattrs: bool) -> MemoryTree {
    let mut tree = MemoryTree::new(attributes(0o755));
    let root = tree.root();
    let add = |tree: &mut MemoryTree, dir, name: &str, len, seed| {
        tree.file(
            dir,
            name.as_bytes(),
            attributes(0o640),
            Content::Bytes(bytes(len, seed)),
        )
    };
    let sizes = tree.directory(root, b"sizes", attributes(0o1777));
    for len in [
        0, 1, 59, 60, 61, 100, 150, 160, 1023, 1024, 1025, 4096, 4097, 50_000, 300_000, 9_000_000,
    ] {
        add(&mut tree, sizes, &format!("of {len}"), len, len as u8);
    }
    let many = tree.directory(root, b"many", attributes(0o750));
    for at in 0..names {
        add(
            &mut tree,
            many,
            &format!("a file with the number {at}"),
            at % 9,
            3,
        );
    }
    let mut deep = tree.directory(root, b"deep", attributes(0o700));
    for at in 0..60 {
        deep = tree.directory(deep, format!("level {at}").as_bytes(), attributes(0o711));
    }
    let linked = add(&mut tree, deep, "linked", 10_000, 9);
    tree.link(root, b"a link", linked);
    tree.link(many, b"a link", linked);
    for len in [1, 58, 59, 60, 61, 900] {
        tree.symlink(
            root,
            format!("to {len}").as_bytes(),
            attributes(0o777),
            &vec![b'x'; len],
        );
    }
    let devices = [
        (&b"null"[..], Kind::CharDevice { major: 1, minor: 3 }),
        (
            b"disk",
            Kind::BlockDevice {
                major: 259,
                minor: 70_000,
            },
        ),
        (b"pipe", Kind::Fifo),
        (b"socket", Kind::Socket),
    ];
    for (name, kind) in devices {
        tree.special(root, name, attributes(0o622), kind);
    }
    let pieces = vec![
        (0, bytes(1, 1)),
        (70_000, bytes(10_000, 2)),
        (5_000_000, bytes(3, 3)),
    ];
    let size = 60 << 20;
    tree.file(
        root,
        b"sparse",
        attributes(0o4755),
        Content::Sparse { size, pieces },
    );
    tree.file(
        root,
        b"hole",
        attributes(0o600),
        Content::Sparse {
            size: 5 << 30,
            pieces: vec![],
        },
    );
    if has_xattrs {
        tree.set_xattr(sizes, b"user.directory", b"of sizes");
        tree.set_xattr(linked, b"user.large", &bytes(600, 4));
        tree.set_xattr(
            linked,
            b"security.capability",
            &[1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
        tree.set_xattr(linked, b"trusted.small", b"");
    }
    tree
}

/// Compares a tree with what a volume shows.
fn compare(volume: &Volume, tree: &MemoryTree, context: &str) {
    let mut inodes: BTreeMap<NodeId, (u64, u32)> = BTreeMap::new();
    let mut stack = vec![(tree.root(), String::from("/"))];
    while let Some((directory, path)) = stack.pop() {
        let mut shown: Vec<_> = volume
            .read_dir(&path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_owned())
            .filter(|name| !(path == "/" && name == "lost+found"))
            .collect();
        shown.sort();
        let mut entries = tree.entries(directory);
        entries.sort();
        let names: Vec<_> = entries
            .iter()
            .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
            .collect();
        assert!(
            shown
                .iter()
                .map(|name| name.to_string_lossy())
                .eq(names.iter().map(String::as_str)),
            "{context}: {path}"
        );
        for ((_, node), name) in entries.iter().zip(&names) {
            let path = format!("{}/{name}", path.trim_end_matches('/'));
            let context = format!("{context}: {path}");
            same_node(volume, tree, *node, &path, &context);
            let meta = volume.symlink_metadata(&path).unwrap();
            let known = inodes.entry(*node).or_insert((meta.ino(), 0));
            assert_eq!(known.0, meta.ino(), "{context}");
            known.1 += 1;
            if !meta.is_dir() {
                assert!(known.1 <= meta.nlink(), "{context}");
            } else {
                stack.push((*node, path));
            }
        }
    }
}

fn same_node(volume: &Volume, tree: &MemoryTree, node: NodeId, path: &str, context: &str) {
    let meta = volume.symlink_metadata(path).unwrap();
    let wanted = tree.attributes(node);
    assert_eq!(meta.mode(), u32::from(wanted.permissions), "{context}");
    assert_eq!(
        (meta.uid(), meta.gid()),
        (wanted.uid, wanted.gid),
        "{context}"
    );
    let since = meta
        .modified()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    assert_eq!(since.as_secs() as i64, wanted.mtime_seconds, "{context}");
    match tree.kind(node) {
        Kind::File { size } => {
            assert_eq!(meta.len(), size, "{context}");
            if size < 1 << 30 {
                let mut wanted = vec![0; size as usize];
                for data in tree.data(node) {
                    let mut file = throughline::pack::Contents::open(tree, node).unwrap();
                    let piece = &mut wanted[data.start as usize..data.end as usize];
                    file.read_at(data.start, piece).unwrap();
                }
                assert!(volume.read(path).unwrap() == wanted, "{context}");
            }
        }
        Kind::Symlink { target } => {
            let found = volume.read_link(path).unwrap();
            assert_eq!(found.as_os_str().as_encoded_bytes(), target, "{context}");
        }
        Kind::CharDevice { major, minor } | Kind::BlockDevice { major, minor } => {
            let device = meta.device().unwrap();
            assert_eq!((device.major, device.minor), (major, minor), "{context}");
        }
        _ => {}
    }
    if meta.is_symlink() {
        return;
    }
    let xattrs = volume.xattrs(path).unwrap();
    let mut names = xattrs.names().unwrap();
    names.sort();
    let mut wanted = tree.xattrs(node);
    wanted.sort();
    assert!(
        names.iter().eq(wanted.iter().map(|(name, _)| *name)),
        "{context}: {names:?}"
    );
    for (name, value) in wanted {
        assert_eq!(xattrs.get(name).unwrap().unwrap(), value, "{context}");
    }
}

#[test]
fn every_kind_of_volume_holds_the_tree() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let tree = tree(700, true);
    for words in KINDS {
        for size in [
            PackSize::Min,
            PackSize::Exact(200 << 20),
            PackSize::Free(9 << 20),
        ] {
            let image = folder.path().join("image");
            let context = format!("{words:?} {size:?}");
            let mut pack = PackOptions::new();
            pack.mkfs(options(words)).size(size).overwrite(true);
            let packed = pack
                .pack(&tree, &tree, &image)
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(image.metadata().unwrap().len(), packed.bytes, "{context}");
            e2fs::assert_clean_after(&image, &context);
            if let PackSize::Free(bytes) = size {
                let free = packed.made.free_blocks * u64::from(packed.made.block_bytes);
                assert!(
                    (bytes..bytes + (2 << 20)).contains(&free),
                    "{context}: {free}"
                );
            }
            let volume = Volume::open(&image).unwrap();
            compare(&volume, &tree, &context);
        }
    }
}

/// A volume that was packed is one that can be written.
#[test]
fn a_packed_volume_can_be_written() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let tree = tree(3000, true);
    PackOptions::new()
        .size(PackSize::Free(20 << 20))
        .pack(&tree, &tree, &image)
        .unwrap();
    let volume = OpenOptions::new().write(true).open(&image).unwrap();
    for at in 0..500 {
        volume
            .write(format!("/many/new {at}"), bytes(at * 10, 1))
            .unwrap();
    }
    volume
        .remove_file("/many/a file with the number 77")
        .unwrap();
    volume.remove_dir_all("/deep").unwrap();
    volume.remove_file("/sparse").unwrap();
    volume.close().unwrap();
    e2fs::assert_clean(&image);
}

#[test]
fn the_kernel_mounts_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let tree = tree(5000, true);
    PackOptions::new().pack(&tree, &tree, &image).unwrap();
    let point = folder.path().join("point");
    std::fs::create_dir(&point).unwrap();
    let Some(mount) = kernel::Mount::or_skip(&image, &point, &["-o", "loop,ro"]) else {
        return;
    };
    assert_eq!(std::fs::read_dir(point.join("many")).unwrap().count(), 5001);
    assert_eq!(
        std::fs::read(point.join("sizes/of 9000000")).unwrap(),
        bytes(9_000_000, 9_000_000u32 as u8)
    );
    for at in (0..5000).step_by(97) {
        assert!(
            point
                .join(format!("many/a file with the number {at}"))
                .exists()
        );
    }
    mount.unmount();
}

#[test]
fn many_names_are_hashed() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (words, names) in [(&["-b", "1024"][..], 30_000), (&["-b", "4096"], 120_000)] {
        let image = folder.path().join("image");
        let mut tree = MemoryTree::new(attributes(0o755));
        let root = tree.root();
        for at in 0..names {
            let name = format!("{at:06} and a longer name");
            tree.file(
                root,
                name.as_bytes(),
                attributes(0o644),
                Content::Bytes(Vec::new()),
            );
        }
        let mut pack = PackOptions::new();
        pack.mkfs(options(words))
            .overwrite(true)
            .pack(&tree, &tree, &image)
            .unwrap();
        e2fs::assert_clean(&image);
        let volume = Volume::open(&image).unwrap();
        for at in (0..names).step_by(997) {
            let path = format!("/{at:06} and a longer name");
            assert!(volume.symlink_metadata(&path).unwrap().is_file(), "{path}");
        }
    }
}

#[test]
fn the_same_bytes_every_time() {
    let folder = tempfile::tempdir().unwrap();
    let tree = tree(1000, true);
    let mut images = Vec::new();
    for threads in [1, 2, 8] {
        let image = folder.path().join(threads.to_string());
        PackOptions::new()
            .threads(threads)
            .pack(&tree, &tree, &image)
            .unwrap();
        images.push(std::fs::read(image).unwrap());
    }
    assert!(images.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_check_names_what_differs() {
    use std::os::unix::fs::FileExt;

    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let tree = tree(100, true);
    let pack = PackOptions::new();
    pack.pack(&tree, &tree, &image).unwrap();
    assert_eq!(pack.check(&tree, &tree, &image).unwrap(), []);
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0xff], 1024 + 0x30).unwrap();
    let found = pack.check(&tree, &tree, &image).unwrap();
    let what: Vec<_> = found
        .iter()
        .map(|difference| difference.what.as_str())
        .collect();
    assert_eq!(what, ["superblock of group 0"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// The smallest volume is not larger than the smallest that `mke2fs -d` fills with the same files, and a
/// block less does not hold them.
#[test]
fn the_smallest_is_as_small_as_mke2fs() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    for at in 0..40 {
        let directory = source.join(format!("directory {at}"));
        std::fs::create_dir_all(&directory).unwrap();
        for file in 0..30 {
            std::fs::write(
                directory.join(format!("file {file}")),
                bytes(at * file * 40, 1),
            )
            .unwrap();
        }
    }
    let mut tree = MemoryTree::new(Attributes::default());
    tree.add_host(&source, &|_| false).unwrap();
    for words in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let image = folder.path().join("image");
        let mut pack = PackOptions::new();
        pack.mkfs(options(words)).overwrite(true);
        let packed = pack.pack(&tree, &tree, &image).unwrap();
        let block = u64::from(packed.made.block_bytes);
        let less = pack
            .size(PackSize::Exact(packed.bytes - block))
            .pack(&tree, &tree, &image);
        assert!(
            matches!(less, Err(MkfsError::Invalid(_))),
            "{words:?}: {less:?}"
        );
        let inodes = packed.made.inodes.to_string();
        let blocks = packed.made.blocks * 98 / 100;
        let theirs = folder.path().join("theirs");
        let size = format!("{}k", blocks * block / 1024);
        let source = source.to_str().unwrap();
        let more = [words, &["-N", &inodes, "-d", source]].concat();
        let made = e2fs::try_mke2fs(&theirs, &size, &more);
        if let Some(ran) = made {
            assert!(
                !ran.status.success(),
                "{words:?}: mke2fs needs only {blocks} blocks of {}",
                packed.made.blocks
            );
        }
    }
}

#[test]
fn failures_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let host = folder.path().join("host");
    std::fs::write(&host, bytes(5000, 1)).unwrap();
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    let with = |size| {
        let mut tree = MemoryTree::new(attributes(0o755));
        let path = host.clone();
        tree.file(
            tree.root(),
            b"shrunk",
            attributes(0o644),
            Content::File { path, size },
        );
        tree
    };
    let shrunk = with(6000);
    let error = PackOptions::new()
        .pack(&shrunk, &shrunk, &image)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "/shrunk: became shorter while it was read; run again when it no longer changes"
    );
    assert_eq!(names(), 1);
    let fits = with(5000);
    std::fs::rename(&host, folder.path().join("gone")).unwrap();
    let error = PackOptions::new().pack(&fits, &fits, &image).unwrap_err();
    assert!(
        error.to_string().starts_with("/shrunk: No such file"),
        "{error}"
    );
    let large = tree(10, false);
    let error = PackOptions::new()
        .size(PackSize::Exact(5 << 20))
        .pack(&large, &large, &image)
        .unwrap_err();
    assert!(error.to_string().contains("too few"), "{error}");
    assert_eq!(names(), 1);
    std::fs::write(&image, "something").unwrap();
    let error = PackOptions::new().pack(&large, &large, &image).unwrap_err();
    assert!(matches!(error, MkfsError::Occupied(_)), "{error}");
    assert_eq!(std::fs::read(&image).unwrap(), b"something");
}

#[test]
fn what_no_volume_holds_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let refused = |tree: &MemoryTree, what: &str| {
        let error = PackOptions::new()
            .pack(tree, tree, &image)
            .unwrap_err()
            .to_string();
        assert!(error.contains(what), "{error}");
        assert!(!Path::new(&image).exists());
    };
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
        let mut tree = MemoryTree::new(attributes(0o755));
        tree.file(tree.root(), name, attributes(0o644), Content::Bytes(vec![]));
        refused(&tree, "name");
    }
    let mut tree = MemoryTree::new(attributes(0o755));
    let file = tree.file(tree.root(), b"f", attributes(0o644), Content::Bytes(vec![]));
    tree.set_xattr(file, b"user.huge", &[1; 20_000]);
    refused(&tree, "/f: has more extended attributes than fit");
    tree.set_xattr(file, b"user.huge", &[1; 20]);
    tree.set_xattr(file, b"os2.name", &[1; 20]);
    refused(&tree, "no attribute \"os2.name\"");
    let mut tree = MemoryTree::new(attributes(0o755));
    let directory = tree.directory(tree.root(), b"d", attributes(0o755));
    tree.link(directory, b"cycle", directory);
    refused(&tree, "names a directory twice");
    let mut tree = MemoryTree::new(attributes(0o755));
    tree.symlink(tree.root(), b"lost+found", attributes(0o777), b"/etc");
    refused(&tree, "lost+found");
}

/// UUID and hash seed follow from the sources, and are part of every inode: they hide no other difference.
#[test]
fn a_check_names_the_file_that_differs() {
    let tree = |len, seed| {
        let mut tree = MemoryTree::new(attributes(0o755));
        let root = tree.root();
        for at in 0..300 {
            let content = match at {
                7 => bytes(len, seed),
                _ => bytes(5000, 0),
            };
            let name = format!("file {at}");
            tree.file(
                root,
                name.as_bytes(),
                attributes(0o644),
                Content::Bytes(content),
            );
        }
        tree
    };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let pack = PackOptions::new();
    let packed = tree(5000, 0);
    pack.pack(&packed, &packed, &image).unwrap();
    for (len, seed) in [(5000, 1), (5002, 0)] {
        let other = tree(len, seed);
        let found = pack.check(&other, &other, &image).unwrap();
        let what: Vec<_> = found.iter().map(|it| it.what.as_str()).collect();
        assert!(what.len() <= 6, "{what:?}");
        assert!(what[0].contains("UUID"), "{what:?}");
        assert!(
            what.iter().skip(1).all(|it| it.contains("file 7")),
            "{what:?}"
        );
        assert!(what.contains(&"data of /file 7"), "{what:?}");
    }
}
