//! Hand-written fast commits with every kind of change, on volumes made by `mke2fs`; `e2fsck` checks the
//! result.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fastrand::Rng;
use throughline_block::Disk;
use throughline_device::{BlockDevice, MemoryDevice, Op};
use throughline_extfmt::checksum::crc32c;
use throughline_extfmt::extent::{Extent, ExtentLeaf};
use throughline_extfmt::features::Incompat;
use throughline_extfmt::jbd2::{JournalIncompat, JournalSuperblock};
use throughline_extfmt::{FileBlock, FsBlock, InodeImage, InodeNumber};
use throughline_journal::recovery::JournalRun;
use throughline_testing::{Fault, FaultDevice};
use throughline_testkit::tier::pick;
use zerocopy::{FromBytes, IntoBytes};

use super::{log_runs, write_home};
use crate::testing::Image;
use crate::{Fs, NewInode, NewKind, OpenOptions};

/// The number of the next transaction.
const TID: u32 = 5;
/// Size of the fast commit area in blocks.
const AREA_BLOCKS: u32 = 40;
/// Inode numbers, and a run of blocks, that are free at the start.
const NEW: u32 = 1000;
const NEW_DIR: u32 = 1001;
const FREE: u64 = 15_000;

const ADD_RANGE: u16 = 1;
const DEL_RANGE: u16 = 2;
const CREATE: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;
const PAD: u16 = 7;
const TAIL: u16 = 8;
const HEAD: u16 = 9;

type Tags = Vec<(u16, Vec<u8>)>;

/// Lays out fast commits in blocks.
fn area(block_bytes: usize, commits: &[Tags]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, tags) in commits.iter().enumerate() {
        let (mut sum, mut tags) = (0, tags.clone());
        if number == 0 {
            tags.insert(0, (HEAD, [0_u32.to_le_bytes(), TID.to_le_bytes()].concat()));
        }
        tags.push((TAIL, vec![0; 8]));
        for (tag, mut value) in tags {
            let room = block_bytes - bytes.len() % block_bytes;
            if value.len() + 8 > room {
                let pad = [&PAD.to_le_bytes()[..], &((room - 4) as u16).to_le_bytes()].concat();
                bytes.extend(pad);
                bytes.resize(bytes.len() + room - 4, 0);
                sum = crc32c(sum, &bytes[bytes.len() - room..]);
            }
            let room = block_bytes - bytes.len() % block_bytes;
            if tag == TAIL {
                value.resize(room - 4, 0);
                value[..4].copy_from_slice(&TID.to_le_bytes());
            }
            let at = bytes.len();
            bytes.extend(tag.to_le_bytes());
            bytes.extend((value.len() as u16).to_le_bytes());
            if tag == TAIL {
                sum = crc32c(crc32c(sum, &bytes[at..]), &value[..4]);
                value[4..8].copy_from_slice(&sum.to_le_bytes());
                sum = 0;
            } else {
                sum = crc32c(crc32c(sum, &bytes[at..]), &value);
            }
            bytes.extend(value);
        }
    }
    bytes
}

fn name(tag: u16, parent: InodeNumber, ino: InodeNumber, name: &str) -> (u16, Vec<u8>) {
    let numbers = [parent.0.to_le_bytes(), ino.0.to_le_bytes()].concat();
    (tag, [&numbers, name.as_bytes()].concat())
}

fn add_range(
    ino: InodeNumber,
    block: u32,
    len: u32,
    start: u64,
    unwritten: bool,
) -> (u16, Vec<u8>) {
    let leaf = ExtentLeaf::from(Extent {
        block: FileBlock(block),
        len,
        start: FsBlock(start),
        unwritten,
    });
    (ADD_RANGE, [&ino.0.to_le_bytes(), leaf.as_bytes()].concat())
}

fn del_range(ino: InodeNumber, block: u32, len: u32) -> (u16, Vec<u8>) {
    let numbers = [ino.0, block, len].map(u32::to_le_bytes);
    (DEL_RANGE, numbers.concat())
}

fn inode(ino: InodeNumber, image: &InodeImage) -> (u16, Vec<u8>) {
    (
        INODE,
        [&ino.0.to_le_bytes(), &image.as_bytes()[..160]].concat(),
    )
}

/// A volume with a few files and an empty, active journal.
struct Volume {
    bytes: Vec<u8>,
    image: Image,
    runs: Vec<JournalRun>,
    old: (InodeNumber, InodeImage),
    victim: (InodeNumber, InodeImage),
    dir: InodeNumber,
}

const NOBODY: NewInode = NewInode {
    permissions: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

impl Volume {
    fn make(features: &str) -> Option<Self> {
        let features = format!("fast_commit,{features}");
        let image = Image::make("16M", &["-t", "ext4", "-b", "1024", "-O", &features])?;
        let fs = image.open();
        let root = fs.root().expect("a root");
        let file = |name: &[u8]| {
            let inode = fs.create(&root, name, NewKind::File, NOBODY).expect("made");
            let data = [name[0]; 10 << 10];
            fs.write_at(&inode, 0, &[IoSlice::new(&data)])
                .expect("written");
            inode.ino
        };
        let (old, victim) = (file(b"old"), file(b"victim"));
        let dir = fs
            .create(&root, b"d", NewKind::Dir, NOBODY)
            .expect("made")
            .ino;
        let runs = log_runs(&fs).expect("read").expect("a journal");
        drop(root);
        fs.close().expect("closed");
        let fs = image.try_open(&OpenOptions::default()).expect("opens");
        let of = |ino| (ino, fs.inode(ino).expect("there").image());
        let (old, victim) = (of(old), of(victim));
        drop(fs);
        image.edit_super(|sb| {
            let incompat = sb.incompat() | Incompat::RECOVER;
            sb.s_feature_incompat.set(incompat.bits());
        });
        let mut volume = Self {
            bytes: Vec::new(),
            image,
            runs,
            old,
            victim,
            dir,
        };
        volume.bytes = std::fs::read(volume.image.path()).expect("the image");
        volume.enliven();
        Some(volume)
    }

    /// Makes the journal start at its first block with the next transaction, and adds a fast commit area. The
    /// blocks that the commits map are written.
    fn enliven(&mut self) {
        let at = self.journal_offset(0);
        let (sb, _) = JournalSuperblock::mut_from_prefix(&mut self.bytes[at..]).expect("there");
        sb.s_start.set(1);
        sb.s_sequence.set(TID);
        sb.s_num_fc_blks.set(AREA_BLOCKS);
        sb.set_incompat(sb.incompat() | JournalIncompat::FAST_COMMIT);
        sb.update_checksum();
        for block in 0..40_u8 {
            let at = (FREE as usize + usize::from(block)) << 10;
            self.bytes[at..at + 1024].fill(100 + block);
        }
    }

    fn journal_offset(&self, block: u32) -> usize {
        let run = self.runs.iter().rfind(|run| run.journal_block <= block);
        let run = run.expect("mapped");
        (run.first.0 as usize + (block - run.journal_block) as usize) << 10
    }

    /// The image with fast commits.
    fn with(&self, commits: &[Tags]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let blocks: u32 = self.runs.iter().map(|run| run.len).sum();
        for (block, content) in area(1024, commits).chunks(1024).enumerate() {
            let at = self.journal_offset(blocks - AREA_BLOCKS + 1 + block as u32);
            bytes[at..at + content.len()].copy_from_slice(content);
        }
        bytes
    }

    /// A new inode.
    fn fresh(&self, mode: u16, links: u16, size: u64) -> InodeImage {
        let mut image = self.old.1.clone();
        image.set_mode(mode);
        image.set_links_count(links);
        image.set_size_bytes(size);
        image.set_generation(77);
        image
    }

    /// One change of each kind.
    fn commits(&self) -> Vec<Tags> {
        let (root, new, new_dir) = (InodeNumber::ROOT, InodeNumber(NEW), InodeNumber(NEW_DIR));
        let ((old, old_image), (victim, _)) = (&self.old, &self.victim);
        let mut made = self.fresh(0o100_600, 1, 5 << 10);
        made.set_uid(70_000);
        let mut linked = made.clone();
        linked.set_links_count(2);
        let mut cut = old_image.clone();
        cut.set_size_bytes(5 << 10);
        cut.set_uid(5);
        let mut again = self.fresh(0o100_640, 1, 1 << 10);
        again.set_gid(99);
        vec![
            vec![
                inode(new, &made),
                add_range(new, 0, 3, FREE, false),
                add_range(new, 3, 2, FREE + 10, true),
                name(CREATE, root, new, "new"),
                name(LINK, root, new, "second"),
                inode(new, &linked),
            ],
            vec![
                name(UNLINK, root, *victim, "victim"),
                inode(new_dir, &self.fresh(0o040_755, 2, 1 << 10)),
                name(CREATE, self.dir, new_dir, "sub"),
                name(LINK, self.dir, *old, "moved"),
                name(UNLINK, root, *old, "old"),
                del_range(*old, 5, 100),
                // One of the file's blocks has moved.
                add_range(*old, 1, 1, FREE + 20, false),
                inode(*old, &cut),
            ],
            vec![
                // The reused number of a deleted file; and a file created and deleted between two fast
                // commits.
                inode(*victim, &again),
                add_range(*victim, 0, 1, FREE + 30, false),
                name(CREATE, new_dir, *victim, "again"),
                inode(*victim, &again),
                add_range(new, 3, 1, FREE + 10, false),
                name(UNLINK, root, InodeNumber(NEW + 10), "never"),
            ],
            vec![
                // A file in a directory that was removed before its commit: no name leads to it.
                inode(InodeNumber(NEW + 11), &self.fresh(0o100_600, 1, 0)),
                name(CREATE, InodeNumber(NEW + 10), InodeNumber(NEW + 11), "lost"),
            ],
        ]
    }
}

fn memory(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes.len() as u64));
    let disk = Disk::new(Arc::clone(&device)).expect("a disk");
    disk.write_at(0, bytes, false).expect("written");
    device
}

fn content(device: &Arc<dyn BlockDevice>) -> Vec<u8> {
    let mut bytes = vec![0; device.len_bytes() as usize];
    let disk = Disk::new(Arc::clone(device)).expect("a disk");
    disk.read_at(0, &mut bytes).expect("read");
    bytes
}

fn open(device: Arc<dyn BlockDevice>, no_replay: bool) -> crate::Result<Fs> {
    let options = OpenOptions {
        no_replay,
        ..OpenOptions::default()
    };
    Fs::open(Arc::new(Disk::new(device).expect("a disk")), &options)
}

/// Every name: links, size, and the first byte of each block.
fn names(fs: &Fs) -> BTreeMap<String, (u16, u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(String::new(), fs.root().expect("a root"))];
    while let Some((path, inode)) = waiting.pop() {
        let meta = fs.metadata(&inode).expect("read");
        let mut data = vec![0; 16 << 10];
        let mut len = 0;
        if inode.is_dir() {
            for entry in fs.list_dir(&inode, 0).expect("read") {
                if entry.name[0] != b'.' {
                    let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
                    waiting.push((path, fs.inode(entry.ino).expect("there")));
                }
            }
        } else {
            len = fs
                .read_at(&inode, 0, &mut [IoSliceMut::new(&mut data)])
                .expect("read");
        }
        let firsts = data[..len].iter().step_by(1024).copied().collect();
        found.insert(path, (meta.links, meta.size_bytes, firsts));
    }
    found.remove("/lost+found");
    found
}

fn expected() -> BTreeMap<String, (u16, u64, Vec<u8>)> {
    let new = vec![100, 101, 102, 110, 0];
    [
        ("", (4, 1 << 10, vec![])),
        ("/new", (2, 5 << 10, new.clone())),
        ("/second", (2, 5 << 10, new)),
        ("/d", (3, 1 << 10, vec![])),
        ("/d/moved", (1, 5 << 10, vec![b'o', 120, b'o', b'o', b'o'])),
        ("/d/sub", (2, 1 << 10, vec![])),
        ("/d/sub/again", (1, 1 << 10, vec![130])),
    ]
    .map(|(path, what)| (path.to_owned(), what))
    .into()
}

const FEATURES: [&str; 4] = [
    "metadata_csum,64bit",
    "^metadata_csum,^64bit",
    "orphan_file",
    "quota,project",
];

#[test]
fn one_of_every_change_is_shown_and_written() {
    for features in FEATURES {
        let Some(volume) = Volume::make(features) else {
            continue;
        };
        let bytes = volume.with(&volume.commits());
        let device = memory(&bytes);
        let fs = open(Arc::clone(&device), false).expect("opens");
        assert_eq!(names(&fs), expected(), "{features}, shown");
        drop(fs);
        assert!(
            content(&device) == bytes,
            "{features}: reading changed the image"
        );

        std::fs::write(volume.image.path(), &bytes).expect("written");
        let fs = volume.image.open();
        let replayed = fs.recovery().replayed.clone().expect("recovered");
        assert_eq!((replayed.transactions, replayed.fast_commits), (0, 4));
        assert_eq!(names(&fs), expected(), "{features}, written");
        fs.close().expect("closed");
        volume.image.check(features);
    }
}

/// A file's cluster is replaced block by block, as the kernel logs a rewritten file: after the first block,
/// the file has blocks in both clusters. The old one is free in the end.
#[test]
fn a_cluster_that_was_replaced_block_by_block_is_free() {
    let Some(volume) = Volume::make("bigalloc") else {
        return;
    };
    let (old, image) = &volume.old;
    let mut cut = image.clone();
    cut.set_size_bytes(1 << 10);
    let start = FREE.next_multiple_of(16);
    let tags = vec![
        add_range(*old, 0, 1, start, false),
        del_range(*old, 1, 100),
        inode(*old, &cut),
    ];
    std::fs::write(volume.image.path(), volume.with(&[tags])).expect("written");
    let fs = volume.image.open();
    let replayed = fs.recovery().replayed.clone().expect("recovered");
    assert_eq!(replayed.fast_commits, 1);
    fs.close().expect("closed");
    volume.image.check("replaced");
}

/// The last fast commit is torn: the complete ones before it are replayed.
#[test]
fn a_torn_one_ends_them() {
    let Some(volume) = Volume::make("metadata_csum") else {
        return;
    };
    let commits = volume.commits();
    let one = open(memory(&volume.with(&commits[..1])), false).expect("opens");
    let mut bytes = volume.with(&commits);
    // The first byte of the second commit, which begins in the second block.
    let blocks: u32 = volume.runs.iter().map(|run| run.len).sum();
    bytes[volume.journal_offset(blocks - AREA_BLOCKS + 2) + 8] ^= 1;
    let torn = open(memory(&bytes), false).expect("opens");
    assert_eq!(names(&torn), names(&one));
    assert!(names(&torn).contains_key("/victim") && names(&torn).contains_key("/second"));
}

/// If any write or flush of a recovery is torn and nothing later arrives, the next recovery has the same
/// result.
#[test]
fn a_replay_cut_off_anywhere_is_replayed_again() {
    let Some(volume) = Volume::make("metadata_csum,64bit") else {
        return;
    };
    let bytes = volume.with(&volume.commits());
    let (mut at, mut before, mut after) = (0, 0, 0);
    loop {
        let memory = memory(&bytes);
        let fault = FaultDevice::new(Arc::clone(&memory), Fault::Torn(at))
            .only(&[Op::Write, Op::Flush])
            .only_where(not_the_superblock)
            .seeded(at);
        let fault = Arc::new(fault);
        let fs = open(Arc::clone(&fault) as _, true).expect("opens");
        let done = write_home(&fs, |_, _| Ok(()));
        drop(fs);
        let cut = fault.failed() > 0;
        assert_eq!(done.is_err(), cut, "{done:?}");
        let again = open(Arc::clone(&memory), false).expect("opens");
        assert_eq!(names(&again), expected(), "cut at {at}");
        drop(again);
        std::fs::write(volume.image.path(), content(&memory)).expect("written");
        let fs = volume.image.open();
        match fs
            .recovery()
            .replayed
            .clone()
            .expect("recovered")
            .fast_commits
        {
            0 => after += 1,
            _ => before += 1,
        }
        assert_eq!(names(&fs), expected(), "cut at {at}, recovered");
        fs.close().expect("closed");
        volume.image.check(&format!("cut at {at}"));
        if !cut {
            break;
        }
        at += 1;
    }
    assert!(
        before > 3 && after > 2,
        "{before} cuts before the commit, {after} after it"
    );
}

/// A torn superblock is a separate case: see `primary.rs`.
fn not_the_superblock(request: &throughline_device::Request) -> bool {
    request.op() != Op::Write || request.offset_bytes() > 1024
}

/// Fast commits with any contents and valid checksums: a result, and no panic.
#[test]
fn no_fast_commit_makes_a_replay_panic() {
    let Some(volume) = Volume::make("metadata_csum,64bit") else {
        return;
    };
    let good = volume.commits();
    let (mut refused, mut applied) = (0, 0);
    for seed in 0..pick(100, 300, 300) {
        let mut random = Rng::with_seed(seed);
        let mut commits = good.clone();
        for _ in 0..random.usize(1..4) {
            let commit = random.choice(commits.iter_mut()).expect("some");
            match random.u8(..4) {
                0 => {
                    let (from, to) = (random.usize(..commit.len()), random.usize(..commit.len()));
                    commit.swap(from, to);
                }
                1 => {
                    let again = commit[random.usize(..commit.len())].clone();
                    commit.push(again);
                }
                _ => {
                    let (_, value) = random.choice(commit.iter_mut()).expect("some");
                    let at = random.usize(..value.len().min(40));
                    value[at] = random.u8(..);
                }
            }
        }
        match open(memory(&volume.with(&commits)), false) {
            Ok(fs) => {
                applied += 1;
                let root = fs.root().expect("a root");
                let _ = fs.list_dir(&root, 0);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        refused > 10 && applied > 10,
        "{refused} refused, {applied} applied"
    );
}

/// `debugfs` reads what is written here.
#[test]
fn debugfs_reads_the_same_tags() {
    let Some(volume) = Volume::make("metadata_csum,64bit") else {
        return;
    };
    let bytes = volume.with(&volume.commits());
    let file = std::fs::File::create(volume.image.path()).expect("the image");
    file.write_all_at(&bytes, 0).expect("written");
    let log = volume.image.debugfs("logdump -a");
    for tag in [
        "tag HEAD",
        "tag ADD_RANGE, inode 1000",
        "tag CREAT_DENTRY",
        "tag DEL_RANGE",
        "tag TAIL, tid 5",
    ] {
        assert!(log.contains(tag), "{tag} is missing in {log}");
    }
}
