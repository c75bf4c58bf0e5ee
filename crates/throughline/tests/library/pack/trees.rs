//! Trees to pack, and the comparison of what a volume shows with them.

use std::collections::BTreeMap;
use std::path::Path;

use throughline::archive::{
    Device, Extent, FileContent, Kind, Limits, Memory, Meta, NodeId, SourceId, Sources, Time, Tree,
};
use throughline::{MkfsOptions, Volume};

const TIME_S: i64 = 1_700_000_000;

pub(crate) fn options(words: &[&str]) -> MkfsOptions {
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

pub(crate) fn meta(permissions: u16) -> Meta {
    Meta {
        uid: 70_000,
        gid: 5,
        mtime: Time::from_seconds(TIME_S - i64::from(permissions)),
        ..Meta::new(permissions)
    }
}

pub(crate) fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 7 % 251) as u8 ^ seed).collect()
}

/// A tree in the making, with contents in memory.
pub(crate) struct Maker {
    pub(crate) tree: Tree,
    pub(crate) memory: Memory,
    pub(crate) id: SourceId,
}

impl Maker {
    pub(crate) fn new() -> Maker {
        let mut tree = Tree::new(Limits::default());
        tree.mkdir(b"/", &meta(0o755)).unwrap();
        Maker {
            tree,
            memory: Memory::new(),
            // The only source.
            id: Sources::new().add(Box::new(Memory::new())),
        }
    }

    pub(crate) fn file(&mut self, path: &str, meta: &Meta, bytes: &[u8]) {
        let content = self.memory.add(bytes).of(self.id);
        self.tree.add_file(path.as_bytes(), meta, &content).unwrap();
    }

    pub(crate) fn sparse(&mut self, path: &str, meta: &Meta, size: u64, pieces: &[(u64, Vec<u8>)]) {
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

    pub(crate) fn finish(self) -> (Tree, Sources) {
        let mut sources = Sources::new();
        sources.add(Box::new(self.memory));
        (self.tree, sources)
    }
}

/// Names and values of attributes.
pub(crate) type Given<'a> = &'a [(&'a str, &'a [u8])];

pub(crate) fn with_xattrs(permissions: u16, xattrs: Given<'_>) -> Meta {
    let owned = |(name, value): &(&str, &[u8])| (name.as_bytes().to_vec(), value.to_vec());
    Meta {
        xattrs: xattrs.iter().map(owned).collect(),
        ..meta(permissions)
    }
}

/// A tree of everything that a volume holds; `names` in one directory.
pub(crate) fn tree(names: usize, has_xattrs: bool) -> (Tree, Sources) {
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
pub(crate) fn compare(volume: &Volume, (tree, sources): (&Tree, &Sources), context: &str) {
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

pub(crate) fn same_node(
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
