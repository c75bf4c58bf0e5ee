//! Power loss during changes of names: afterwards the tree must be one that existed between two operations.
//!
//! Every handle is its own transaction here ([`commit_each_handle`]), so an operation that uses two instead
//! of one is found half-done. Sizes are part of the tree, so truncations are all or nothing too.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use throughline_testing::{Cut, Image as Medium, Keep, Record};

use crate::handle::commit_each_handle;
use crate::testing::{Image, Rng, power_on};
use crate::{Fs, Inode, NewInode, NewKind, RenameMode};

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// A volume with few inodes and few free blocks.
const FULL: &str = "full";

/// Arguments of `mke2fs`. Small journals fill up; small blocks make directories grow.
const VOLUMES: [(&str, &[&str]); 7] = [
    (
        // Without extents, nothing is reserved for mappings.
        FULL,
        &["-t", "ext3", "-b", "1024", "-J", "size=1", "-N", "64"],
    ),
    ("ext3", &["-t", "ext3", "-b", "1024", "-J", "size=1"]),
    ("ext4", &["-t", "ext4", "-b", "1024", "-J", "size=1"]),
    (
        "orphan file",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "orphan_file",
        ],
    ),
    (
        "inline",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "inline_data,orphan_file",
        ],
    ),
    (
        "no checksums",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-O",
            "^metadata_csum,^64bit",
        ],
    ),
    ("4 KiB", &["-t", "ext4", "-b", "4096", "-J", "size=4"]),
];

/// By path: inode, its names, size, target.
type Tree = BTreeMap<Vec<u8>, (u32, u32, u64, Vec<u8>)>;

fn tree(fs: &Fs) -> Tree {
    let mut tree = Tree::new();
    let mut dirs = vec![(Vec::new(), fs.root().expect("a root"))];
    while let Some((path, dir)) = dirs.pop() {
        let mut position = 0;
        loop {
            let batch = fs.list_dir(&dir, position).expect("a sound directory");
            let Some(last) = batch.last() else { break };
            position = last.next;
            for entry in &batch {
                if matches!(entry.name.as_slice(), b"." | b"..") {
                    continue;
                }
                let path = [&path[..], b"/", &entry.name].concat();
                let inode = fs.lookup(&dir, &entry.name).expect("an inode for a name");
                let attributes = fs.metadata(&inode).expect("attributes");
                let target = match inode.is_symlink() {
                    true => fs.read_link(&inode).expect("a target"),
                    false => Vec::new(),
                };
                let what = (
                    inode.ino.0,
                    attributes.links.into(),
                    attributes.size_bytes,
                    target,
                );
                assert!(tree.insert(path.clone(), what).is_none(), "a name twice");
                if inode.is_dir() {
                    dirs.push((path, inode));
                }
            }
        }
    }
    tree
}

/// Performs random operations, whether or not they can succeed.
struct Worker<'a> {
    fs: &'a Fs,
    random: Rng,
    /// Directories, some of them removed.
    dirs: Vec<Arc<Inode>>,
    /// Open files, some of them unnamed.
    open: Vec<Arc<Inode>>,
}

impl Worker<'_> {
    fn name(&mut self) -> Vec<u8> {
        // Long names: a few fill a block.
        let number = self.random.below(30);
        let len = if number.is_multiple_of(3) { 3 } else { 180 };
        format!("{number:0>len$}").into_bytes()
    }

    fn dir(&mut self) -> Arc<Inode> {
        let at = self.random.below(self.dirs.len() as u64) as usize;
        Arc::clone(&self.dirs[at])
    }

    fn step(&mut self) -> String {
        let (dir, name) = (self.dir(), self.name());
        let (to, new) = (self.dir(), self.name());
        let fs = self.fs;
        let (what, done) = match self.random.below(20) {
            0..4 => ("create", self.create(&dir, &name, NewKind::File)),
            4 => ("mkdir", self.create(&dir, &name, NewKind::Dir)),
            5 => {
                let target = vec![b't'; 1 + self.random.below(200) as usize];
                (
                    "symlink",
                    self.create(&dir, &name, NewKind::Symlink(&target)),
                )
            }
            6 | 7 => {
                let inode = fs.lookup(&dir, &name);
                ("link", inode.and_then(|inode| fs.link(&inode, &to, &new)))
            }
            8 => ("unlink", fs.unlink(&dir, &name)),
            9 => ("rmdir", fs.rmdir(&dir, &name)),
            10 | 11 => {
                let mode = RenameMode::Replace;
                ("rename", fs.rename(&dir, &name, &to, &new, mode))
            }
            12 => {
                let mode = RenameMode::Exchange;
                ("exchange", fs.rename(&dir, &name, &to, &new, mode))
            }
            13 => ("scatter", self.scatter()),
            14 => ("truncate", self.truncate()),
            15 => ("tmpfile", self.tmpfile(&dir)),
            16 | 17 => ("link an open file", self.link_open(&to, &new)),
            18 => {
                let mode = RenameMode::Whiteout {
                    replace: true,
                    uid: 0,
                    gid: 0,
                };
                ("whiteout", fs.rename(&dir, &name, &to, &new, mode))
            }
            _ => {
                let Some(at) = self.open.len().checked_sub(1) else {
                    return "nothing".into();
                };
                let file = self
                    .open
                    .swap_remove(self.random.below(at as u64 + 1) as usize);
                ("close", fs.close_inode(&file))
            }
        };
        format!("{what}: {:?}", done.err().map(|error| error.to_string()))
    }

    fn create(&mut self, dir: &Arc<Inode>, name: &[u8], kind: NewKind<'_>) -> crate::Result<()> {
        let made = self.fs.create(dir, name, kind, OWNER)?;
        match kind {
            NewKind::Dir => self.dirs.push(made),
            NewKind::File => {
                self.fs.open_inode(&made)?;
                self.open.push(made);
            }
            _ => {}
        }
        Ok(())
    }

    /// A crash leaves nothing of it unless it has a name.
    fn tmpfile(&mut self, dir: &Arc<Inode>) -> crate::Result<()> {
        let made = self.fs.tmpfile(dir, OWNER, true)?;
        self.fs.open_inode(&made)?;
        self.open.push(made);
        Ok(())
    }

    /// Gives the newest open file another name, or its first.
    fn link_open(&mut self, dir: &Arc<Inode>, name: &[u8]) -> crate::Result<()> {
        match self.open.last() {
            Some(file) => self.fs.link(file, dir, name),
            None => Ok(()),
        }
    }

    /// Appends a block to an open file after a hole: its size grows in one transaction.
    fn scatter(&mut self) -> crate::Result<()> {
        let Some(at) = self.open.len().checked_sub(1) else {
            return Ok(());
        };
        let file = &self.open[self.random.below(at as u64 + 1) as usize];
        let block = u64::from(self.fs.geometry().block_bytes);
        let size = self.fs.metadata(file)?.size_bytes;
        let at = size.next_multiple_of(block) + block;
        self.fs
            .write_at(file, at, &[IoSlice::new(&[7; 100])])
            .map(drop)
    }

    fn truncate(&mut self) -> crate::Result<()> {
        let Some(at) = self.open.len().checked_sub(1) else {
            return Ok(());
        };
        let file = Arc::clone(&self.open[self.random.below(at as u64 + 1) as usize]);
        let size = self.fs.metadata(&file)?.size_bytes;
        let to = self.random.below(size + 1);
        self.fs.truncate(&file, to)
    }
}

/// The recording up to the power loss: the device writes, and the trees between operations, each with its
/// position in the recording.
struct Past {
    record: Record,
    /// A tree, the operation that produced it, and the recording position at which it was durable.
    trees: Vec<(Tree, String, usize)>,
}

/// Allocates all but this many blocks.
fn fill(fs: &Fs, left: u64) {
    let root = fs.root().expect("a root");
    let file = fs
        .create(&root, b"fill", NewKind::File, OWNER)
        .expect("made");
    let block = u64::from(fs.geo.block_bytes);
    let mut at = 0;
    for len in [256 * block, block] {
        let bytes = vec![1; len as usize];
        while let Ok(done @ 1..) = fs.write_at(&file, at, &[IoSlice::new(&bytes)]) {
            at += done as u64;
        }
    }
    fs.truncate(&file, at - left * block).expect("truncated");
    fs.sync().expect("synced");
    let free = fs.statfs().expect("numbers").free_blocks;
    assert!((left..left + 20).contains(&free), "{free} blocks are free");
}

/// Truncation of a large file, then random operations with commits at random times.
fn work(medium: &Medium, full: bool, seed: u64, operations: usize) -> Past {
    let (device, fs) = power_on(medium);
    let fs = fs.expect("opens");
    let root = fs.root().expect("a root");
    let mut worker = Worker {
        fs: &fs,
        random: Rng::new(seed),
        dirs: vec![root],
        open: Vec::new(),
    };
    for at in 0..3 {
        let name = [b'z', b'0' + at];
        let (dir, kind) = (worker.dir(), NewKind::File);
        worker.create(&dir, &name, kind).expect("made");
        for _ in 0..80 {
            worker.scatter().expect("written");
        }
    }
    if full {
        // Closed files are not truncated any more, so the volume stays full.
        for file in worker.open.drain(..) {
            fs.close_inode(&file).expect("closed");
        }
        fill(&fs, 0);
    }
    fs.sync().expect("synced");
    let mut trees = vec![(tree(&fs), "start".to_owned(), device.position())];
    let _each = commit_each_handle();
    for _ in 0..operations {
        let what = worker.step();
        fs.sync().expect("synced");
        trees.push((tree(&fs), what, device.position()));
    }
    // The power fails before the close.
    let record = device.record();
    Past { record, trees }
}

impl Past {
    /// The index of the matching tree; trees older than the durable state do not count.
    fn find(&self, found: &Tree, cut: Cut) -> Option<usize> {
        let durable = |(.., position): &(Tree, String, usize)| *position <= cut.at;
        let first = self.trees.iter().rposition(durable).unwrap_or(0);
        let same = self.trees[first..]
            .iter()
            .rposition(|(tree, ..)| tree == found);
        same.map(|at| first + at)
    }

    /// The most similar tree, for diagnosis.
    fn nearest(&self, found: &Tree) -> String {
        let distance = |tree: &Tree| {
            let other = |a: &Tree, b: &Tree| a.iter().filter(|(k, v)| b.get(*k) != Some(v)).count();
            other(tree, found) + other(found, tree)
        };
        let (at, (tree, what, _)) = self
            .trees
            .iter()
            .enumerate()
            .min_by_key(|(_, (tree, ..))| distance(tree))
            .expect("trees");
        let short = |(path, what): (&Vec<u8>, &(u32, u32, u64, Vec<u8>))| {
            let path = String::from_utf8_lossy(path).replace("000", "");
            format!(
                "{path} is inode {}, {} links, {} bytes",
                what.0, what.1, what.2
            )
        };
        let more: Vec<_> = found
            .iter()
            .filter(|(k, v)| tree.get(*k) != Some(v))
            .map(short)
            .collect();
        let less: Vec<_> = tree
            .iter()
            .filter(|(k, v)| found.get(*k) != Some(v))
            .map(short)
            .collect();
        let next = self
            .trees
            .get(at + 1)
            .map_or("the end", |(_, what, _)| what);
        format!("nearest to {at} (after {what}, before {next}): found {more:?} instead of {less:?}")
    }
}

/// One cut in every operation, mostly right after a flush: then all of one transaction is there and nothing
/// of the next.
fn cuts(past: &Past, random: &mut Rng) -> Vec<Cut> {
    let positions: Vec<_> = past.trees.iter().map(|(.., position)| *position).collect();
    let barriers = past.record.barriers();
    let mut cuts = Vec::new();
    for pair in positions.windows(2) {
        let within: Vec<_> = barriers
            .iter()
            .filter(|at| (pair[0] + 1..=pair[1]).contains(at))
            .collect();
        let any = pair[0] + random.below((pair[1] - pair[0]) as u64 + 1) as usize;
        let (at, keep) = match random.below(6) {
            0 => (any, Keep::Everything),
            1 => (any, Keep::Some(random.below(u64::MAX))),
            _ if within.is_empty() => (any, Keep::Nothing),
            _ => {
                let at = random.below(within.len() as u64) as usize;
                (*within[at], Keep::Nothing)
            }
        };
        cuts.push(Cut { at, keep });
    }
    cuts
}

#[test]
fn after_a_cut_every_operation_is_there_or_not() {
    let soak = throughline_testkit::tier::soak();
    let (rounds, operations) = if soak { (10, 400) } else { (1, 80) };
    for (at, (what, args)) in VOLUMES.into_iter().enumerate() {
        let Some(image) = Image::make("24M", args) else {
            return;
        };
        let medium = Medium::read_file(image.path()).expect("the image");
        for round in 0..rounds {
            let seed = 0xA70 + (at + 100 * round) as u64;
            let past = work(&medium, what == FULL, seed, operations);
            let refused = |(_, message, _): &(Tree, String, usize)| message.contains("no space");
            let refusals = past.trees.iter().filter(|past| refused(past)).count();
            assert_eq!(
                refusals > 4,
                what == FULL,
                "{what}: {refusals} without space"
            );
            let mut states = past.record.states();
            for (number, cut) in cuts(&past, &mut Rng::new(seed)).into_iter().enumerate() {
                let crashed = states.state(cut);
                let place = format!("{what}, seed {seed:#x}, {cut:?}");
                judge(&past, &image, &crashed, cut, number % 30 == 15, &place);
            }
        }
    }
}

/// Recovers the remains and checks them; with `e2fsck` too if `asked`.
fn judge(past: &Past, image: &Image, crashed: &Medium, cut: Cut, asked: bool, place: &str) {
    let (device, fs) = power_on(crashed);
    let fs = fs.unwrap_or_else(|error| panic!("{place}: {error}"));
    let found = tree(&fs);
    assert!(
        past.find(&found, cut).is_some(),
        "{place}: {}",
        past.nearest(&found)
    );
    let stat = fs.statfs().expect("numbers");
    fs.close()
        .unwrap_or_else(|error| panic!("{place}: {error}"));
    if !asked {
        return;
    }
    image.hold(&device.contents());
    image.check(place);
    image.hold(crashed);
    image.repair();
    image.check(place);
    let theirs = image.open();
    assert_eq!(
        tree(&theirs),
        found,
        "{place}: e2fsck leaves a different tree"
    );
    let their_stat = theirs.statfs().expect("numbers");
    assert_eq!(
        (stat.free_blocks, stat.free_inodes),
        (their_stat.free_blocks, their_stat.free_inodes),
        "{place}"
    );
}

/// A walk that reached a directory before its removal finds nothing in it. The directory's blocks are then
/// free, and their contents are not damage.
#[test]
fn a_removed_directory_holds_nothing() {
    let Some(image) = Image::make("24M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("the root");
    let new = NewInode {
        permissions: 0o755,
        uid: 0,
        gid: 0,
        umask: 0,
    };
    let dir = fs
        .create(&root, b"d", NewKind::Dir, new)
        .expect("a directory");
    fs.rmdir(&root, b"d").expect("it is empty");
    let gone = |found: crate::Result<Arc<Inode>>| {
        matches!(found, Err(crate::Error::Caller(crate::Reason::NotFound)))
    };
    assert!(gone(fs.lookup(&dir, b"x")));
    assert!(gone(fs.lookup(&dir, b"..")));
    assert_eq!(fs.list_dir(&dir, 0).expect("no damage"), []);
    let target = [b't'; 200];
    let link = fs
        .create(&root, b"l", NewKind::Symlink(&target), new)
        .expect("a symbolic link");
    assert_eq!(fs.read_link(&link).expect("its target"), target);
    fs.unlink(&root, b"l").expect("it has a name");
    let read = fs.read_link(&link);
    assert!(matches!(
        read,
        Err(crate::Error::Caller(crate::Reason::NotFound))
    ));
    fs.close().expect("close");
    image.check("after all");
}
