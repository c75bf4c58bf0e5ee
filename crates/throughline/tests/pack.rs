//! Trees packed into volumes of many kinds: `e2fsck` finds nothing, our reader and the kernel show the tree,
//! the bytes are the same every time, and what fails leaves nothing.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;

use throughline::archive::{
    Device, Error as SourceError, Extent, FileContent, Kind, Limits, Memory, Merge, Meta, NodeId,
    SourceId, Sources, Time, Tree,
};
use throughline::pack::{PackOptions, PackSize};
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
    &["-t", "ext4", "-O", "quota"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-O",
        "quota,project,orphan_file,inline_data",
    ],
    &["-t", "ext3", "-b", "1024", "-O", "quota,^dir_index"],
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

fn meta(permissions: u16) -> Meta {
    Meta {
        uid: 70_000,
        gid: 5,
        mtime: Time::from_seconds(TIME_S - i64::from(permissions)),
        ..Meta::new(permissions)
    }
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251) as u8 ^ seed).collect()
}

/// A tree in the making, with contents in memory.
struct Maker {
    tree: Tree,
    memory: Memory,
    id: SourceId,
}

impl Maker {
    fn new() -> Maker {
        let mut tree = Tree::new(Limits::default());
        tree.set_implied_directories(meta(0o711));
        tree.mkdir(b"/", &meta(0o755)).unwrap();
        Maker {
            tree,
            memory: Memory::new(),
            // The only source.
            id: Sources::new().add(Box::new(Memory::new())),
        }
    }

    fn file(&mut self, path: &str, meta: &Meta, bytes: &[u8]) {
        let content = self.memory.add(bytes).of(self.id);
        self.tree.add_file(path.as_bytes(), meta, &content).unwrap();
    }

    fn sparse(&mut self, path: &str, meta: &Meta, size: u64, pieces: &[(u64, Vec<u8>)]) {
        let mut content = FileContent::hole(size);
        content.source = self.id;
        for (offset, bytes) in pieces {
            let piece = self.memory.add(bytes).of(self.id).extents[0];
            content.extents.push(Extent {
                offset: *offset,
                ..piece
            });
        }
        self.tree.add_file(path.as_bytes(), meta, &content).unwrap();
    }

    fn finish(self) -> (Tree, Sources) {
        let mut sources = Sources::new();
        sources.add(Box::new(self.memory));
        (self.tree, sources)
    }
}

/// Names and values of attributes.
type Given<'a> = &'a [(&'a str, &'a [u8])];

fn with_xattrs(permissions: u16, xattrs: Given<'_>) -> Meta {
    let owned = |(name, value): &(&str, &[u8])| (name.as_bytes().to_vec(), value.to_vec());
    Meta {
        xattrs: xattrs.iter().map(owned).collect(),
        ..meta(permissions)
    }
}

/// A tree of everything that a volume holds; `names` in one directory.
fn tree(names: usize, has_xattrs: bool) -> (Tree, Sources) {
    let mut maker = Maker::new();
    let large = bytes(600, 4);
    let (of_directory, of_file): (Given<'_>, Given<'_>) = match has_xattrs {
        true => (
            &[("user.directory", b"of sizes")],
            &[
                ("user.large", &large),
                (
                    "security.capability",
                    &[1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                ),
                ("trusted.small", b""),
            ],
        ),
        false => (&[], &[]),
    };
    let sizes = with_xattrs(0o1777, of_directory);
    maker.tree.mkdir(b"sizes", &sizes).unwrap();
    for len in [
        0, 1, 59, 60, 61, 100, 150, 160, 1023, 1024, 1025, 4096, 4097, 50_000, 300_000, 9_000_000,
    ] {
        let path = format!("sizes/of {len}");
        maker.file(&path, &meta(0o640), &bytes(len, len as u8));
    }
    maker.tree.mkdir(b"many", &meta(0o750)).unwrap();
    for at in 0..names {
        let path = format!("many/a file with the number {at}");
        maker.file(&path, &meta(0o640), &bytes(at % 9, 3));
    }
    let deep: Vec<_> = (0..60).map(|at| format!("level {at}")).collect();
    let linked = format!("deep/{}/linked", deep.join("/"));
    maker.file(&linked, &with_xattrs(0o640, of_file), &bytes(10_000, 9));
    for path in ["a link", "many/a link"] {
        maker.tree.link(path.as_bytes(), linked.as_bytes()).unwrap();
    }
    for len in [1, 58, 59, 60, 61, 900] {
        let path = format!("to {len}");
        let target = vec![b'x'; len];
        maker
            .tree
            .symlink(path.as_bytes(), &target, &meta(0o777))
            .unwrap();
    }
    let devices = [
        (&b"null"[..], Kind::CharDevice, (1, 3)),
        (b"disk", Kind::BlockDevice, (259, 70_000)),
        (b"pipe", Kind::Fifo, (0, 0)),
        (b"socket", Kind::Socket, (0, 0)),
    ];
    for (name, kind, (major, minor)) in devices {
        let device = Device { major, minor };
        maker.tree.mknod(name, kind, device, &meta(0o622)).unwrap();
    }
    let pieces = [
        (0, bytes(1, 1)),
        (70_000, bytes(10_000, 2)),
        (5_000_000, bytes(3, 3)),
    ];
    maker.sparse("sparse", &meta(0o4755), 60 << 20, &pieces);
    maker.sparse("hole", &meta(0o600), 5 << 30, &[]);
    maker.finish()
}

/// Compares a tree with what a volume shows.
fn compare(volume: &Volume, (tree, sources): (&Tree, &Sources), context: &str) {
    let mut inodes: BTreeMap<NodeId, (u64, u32)> = BTreeMap::new();
    let mut names = 0;
    let mut walk = tree.walk();
    while let Some(step) = walk.next() {
        let path = format!("/{}", String::from_utf8_lossy(step.path));
        let context = format!("{context}: {path}");
        same_node(volume, tree, sources, step.node, &path, &context);
        let meta = volume.symlink_metadata(&path).unwrap();
        let known = inodes.entry(step.node).or_insert((meta.ino(), 0));
        assert_eq!(known.0, meta.ino(), "{context}");
        known.1 += 1;
        if !meta.is_dir() {
            assert!(known.1 <= meta.nlink(), "{context}");
        }
        names += 1;
    }
    let shown = volume.walk("/").unwrap().map(|entry| entry.unwrap());
    let shown = shown.filter(|entry| entry.path() != Path::new("/lost+found"));
    assert_eq!(shown.count(), names, "{context}");
}

fn same_node(
    volume: &Volume,
    tree: &Tree,
    sources: &Sources,
    node: NodeId,
    path: &str,
    context: &str,
) {
    let meta = volume.symlink_metadata(path).unwrap();
    let wanted = tree.node(node);
    assert_eq!(meta.mode(), u32::from(wanted.permissions()), "{context}");
    assert_eq!(
        (meta.uid(), meta.gid()),
        (wanted.uid(), wanted.gid()),
        "{context}"
    );
    let since = meta
        .modified()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    assert_eq!(since.as_secs() as i64, wanted.mtime().seconds, "{context}");
    if let Some(content) = wanted.content() {
        assert_eq!(meta.len(), wanted.size(), "{context}");
        if wanted.size() < 1 << 30 {
            let mut bytes = vec![0; wanted.size() as usize];
            sources.read_at(content, 0, &mut bytes).unwrap();
            assert!(volume.read(path).unwrap() == bytes, "{context}");
        }
    }
    if let Some(target) = wanted.target() {
        let found = volume.read_link(path).unwrap();
        assert_eq!(found.as_os_str().as_encoded_bytes(), target, "{context}");
    }
    if let Some(numbers) = wanted.device() {
        let device = meta.device().unwrap();
        let found = (device.major, device.minor);
        assert_eq!(found, (numbers.major, numbers.minor), "{context}");
    }
    if meta.is_symlink() {
        return;
    }
    let xattrs = volume.xattrs(path).unwrap();
    let mut names = xattrs.names().unwrap();
    names.sort();
    assert!(
        names.iter().eq(wanted.xattrs().map(|(name, _)| name)),
        "{context}: {names:?}"
    );
    for (name, value) in wanted.xattrs() {
        assert_eq!(xattrs.get(name).unwrap().unwrap(), value, "{context}");
    }
}

#[test]
fn every_kind_of_volume_holds_the_tree() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (tree, sources) = tree(700, true);
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
                .pack(&tree, &sources, &image)
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
            compare(&volume, (&tree, &sources), &context);
        }
    }
}

/// A volume that was packed is one that can be written.
/// Their entries fill several blocks of the quota files, whose size is known before the usage is.
#[test]
fn usage_of_many_owners_is_counted() {
    if !e2fs::is_there() {
        return;
    }
    let mut maker = Maker::new();
    for number in 0..300_u32 {
        let owner = Meta {
            uid: number % 97 * 1000,
            gid: number % 41,
            ..meta(0o644)
        };
        let size = number as usize * 311 % 9000;
        maker.file(&format!("f{number}"), &owner, &bytes(size, number as u8));
    }
    let (tree, sources) = maker.finish();
    let folder = tempfile::tempdir().unwrap();
    for features in ["quota", "quota,project,^extent,^64bit"] {
        let image = folder.path().join(features);
        let mut pack = PackOptions::new();
        pack.mkfs(options(&["-t", "ext4", "-b", "1024", "-O", features]));
        pack.pack(&tree, &sources, &image).unwrap();
        e2fs::assert_clean(&image);
        let listed = e2fs::debugfs(&image, "list_quota user");
        assert_eq!(listed.lines().count(), 1 + 97, "{listed}");
    }
}

#[test]
fn a_packed_volume_can_be_written() {
    if !e2fs::is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let (tree, sources) = tree(3000, true);
    PackOptions::new()
        .size(PackSize::Free(20 << 20))
        .pack(&tree, &sources, &image)
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
    let (tree, sources) = tree(5000, true);
    PackOptions::new().pack(&tree, &sources, &image).unwrap();
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
        let mut maker = Maker::new();
        for at in 0..names {
            let name = format!("{at:06} and a longer name");
            maker.file(&name, &meta(0o644), b"");
        }
        let (tree, sources) = maker.finish();
        let mut pack = PackOptions::new();
        pack.mkfs(options(words))
            .overwrite(true)
            .pack(&tree, &sources, &image)
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
    let (tree, sources) = tree(1000, true);
    let mut images = Vec::new();
    for threads in [1, 2, 8] {
        let image = folder.path().join(threads.to_string());
        PackOptions::new()
            .threads(threads)
            .pack(&tree, &sources, &image)
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
    let (tree, sources) = tree(100, true);
    let pack = PackOptions::new();
    pack.pack(&tree, &sources, &image).unwrap();
    assert_eq!(pack.check(&tree, &sources, &image).unwrap(), []);
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0xff], 1024 + 0x30).unwrap();
    let found = pack.check(&tree, &sources, &image).unwrap();
    let what: Vec<_> = found
        .iter()
        .map(|difference| difference.what.as_str())
        .collect();
    assert_eq!(what, ["superblock of group 0"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A block less than the smallest volume does not hold the files.
#[test]
fn the_smallest_has_no_block_to_spare() {
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
    let mut merge = Merge::new(Limits::default());
    merge.add(&source).unwrap();
    let (tree, sources) = merge.finish();
    for words in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let image = folder.path().join("image");
        let mut pack = PackOptions::new();
        pack.mkfs(options(words)).overwrite(true);
        let packed = pack.pack(&tree, &sources, &image).unwrap();
        let block = u64::from(packed.made.block_bytes);
        let less = pack
            .size(PackSize::Exact(packed.bytes - block))
            .pack(&tree, &sources, &image);
        assert!(
            matches!(less, Err(MkfsError::Invalid(_))),
            "{words:?}: {less:?}"
        );
    }
}

#[test]
fn failures_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let source = folder.path().join("source");
    let host = source.join("host");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(&host, bytes(5000, 1)).unwrap();
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    let mut merge = Merge::new(Limits::default());
    merge.add(&source).unwrap();
    let (changed, of_changed) = merge.finish();
    std::fs::write(&host, bytes(4000, 1)).unwrap();
    let pack = |pack: &PackOptions| pack.pack(&changed, &of_changed, &image).unwrap_err();
    let error = pack(&PackOptions::new());
    let text = error.to_string();
    assert!(
        text.ends_with(
            "source/host: changed while it was read; run again when it no longer changes"
        )
    );
    assert!(matches!(error, MkfsError::Source(SourceError::Changed(_))));
    std::fs::remove_file(&host).unwrap();
    let error = pack(&PackOptions::new());
    assert!(
        matches!(error, MkfsError::Source(SourceError::Changed(_))),
        "{error}"
    );
    assert_eq!(names(), 1);
    let (large, sources) = tree(10, false);
    let error = PackOptions::new()
        .size(PackSize::Exact(5 << 20))
        .pack(&large, &sources, &image)
        .unwrap_err();
    assert!(error.to_string().contains("too few"), "{error}");
    assert_eq!(names(), 1);
    std::fs::write(&image, "something").unwrap();
    let error = PackOptions::new()
        .pack(&large, &sources, &image)
        .unwrap_err();
    assert!(matches!(error, MkfsError::Occupied(_)), "{error}");
    assert_eq!(std::fs::read(&image).unwrap(), b"something");
}

#[test]
fn what_no_volume_holds_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let refused = |maker: Maker, what: &str| {
        let (tree, sources) = maker.finish();
        let error = PackOptions::new()
            .pack(&tree, &sources, &image)
            .unwrap_err()
            .to_string();
        assert!(error.contains(what), "{error}");
        assert!(!Path::new(&image).exists());
    };
    let huge = [1; 20_000];
    let attributes: [(Given<'_>, &str); 2] = [
        (
            &[("user.huge", &huge)],
            "/f: has more extended attributes than fit",
        ),
        (
            &[("os2.name", &huge[..9])],
            "/f: ext file systems have no attribute \"os2.name\"",
        ),
    ];
    for (attributes, what) in attributes {
        let mut maker = Maker::new();
        maker.file("f", &with_xattrs(0o644, attributes), b"");
        refused(maker, what);
    }
    let mut maker = Maker::new();
    maker
        .tree
        .symlink(b"lost+found", b"/etc", &meta(0o777))
        .unwrap();
    refused(maker, "lost+found");
}

/// UUID and hash seed follow from the sources, and are part of every inode: they hide no other difference.
#[test]
fn a_check_names_the_file_that_differs() {
    let tree = |len, seed| {
        let mut maker = Maker::new();
        for at in 0..300 {
            let content = match at {
                7 => bytes(len, seed),
                _ => bytes(5000, 0),
            };
            maker.file(&format!("file {at}"), &meta(0o644), &content);
        }
        maker.finish()
    };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let pack = PackOptions::new();
    let (packed, sources) = tree(5000, 0);
    pack.pack(&packed, &sources, &image).unwrap();
    for (len, seed) in [(5000, 1), (5002, 0)] {
        let (other, sources) = tree(len, seed);
        let found = pack.check(&other, &sources, &image).unwrap();
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
