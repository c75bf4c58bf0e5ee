//! Fast commits, applied.
//!
//! A fast commit says what became of inodes, ranges and names since the last full commit; which blocks of bitmaps, maps
//! and directories that changes it does not say. So it is applied by the file system itself, to a volume that exists in
//! memory only ([`throughline_journal::OverlayDevice`]), and what comes of it goes home as one transaction, or is shown.
//!
//! ```text
//!   1  blocks that ranges name are taken in the bitmaps, before anything else can have them      (ranges.rs)
//!   2  fast commit by fast commit, change by change:   inodes, ranges, names       (inodes.rs, ranges.rs, names.rs)
//!   3  blocks that no inode has any more are freed, directories count their subdirectories, the superblock its blocks
//! ```
//!
//! Invariants:
//! - What a change names and is not there (any more) is no error: an inode that was made and deleted between two fast
//!   commits leaves only the loss of its names.
//! - Blocks are freed at the end only: nothing gets what a later change still names.
//! - No block is mapped twice by the inodes that were changed, and none of them maps the volume's own structures.

mod inodes;
mod names;
mod ranges;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use throughline_extfmt::InodeNumber;
use throughline_extfmt::fast_commit::Change;

use crate::error::Result;
use crate::names::Names;
use crate::reclaim;
use ranges::Space;

/// Blocks that one step may touch, and many more: in memory, credits cost nothing.
const CREDITS: u32 = 2048;

/// Applies fast commits, the oldest first, to a volume that was opened for writing and that nobody else uses.
///
/// # Errors
/// `Corrupt` for changes that cannot be; those of the device. The volume is half changed then, and of no use.
pub(super) fn apply(fs: &Names, commits: &[Vec<Change>]) -> Result<()> {
    let mut replay = Replay {
        fs,
        orphans: reclaim::recorded(fs)?,
        space: Space::default(),
        changed: BTreeSet::new(),
        directories: BTreeSet::new(),
        unfilled: HashSet::new(),
        nameless: HashSet::new(),
    };
    replay.reserve(commits.iter().flatten())?;
    for commit in commits {
        let inodes = inodes_of(commit);
        for (at, change) in commit.iter().enumerate() {
            replay.change(change, at, &inodes)?;
        }
    }
    replay.drop_nameless()?;
    replay.count_subdirectories()?;
    replay.settle_blocks()?;
    fs.write_super(|_| ())?;
    Ok(fs.journal.sync()?)
}

/// Where a fast commit has which inodes, and what it says of them.
type Inodes<'c> = BTreeMap<(InodeNumber, usize), &'c [u8]>;

fn inodes_of(commit: &[Change]) -> Inodes<'_> {
    let inodes = commit.iter().enumerate();
    inodes
        .filter_map(|(at, change)| match change {
            Change::Inode(ino, bytes) => Some(((*ino, at), bytes.as_slice())),
            _ => None,
        })
        .collect()
}

/// A replay under way.
struct Replay<'a> {
    fs: &'a Names,
    /// What the disk has among the orphans: their deletion time may be a link of the list, and freeing them is the work of
    /// who opens the volume next.
    orphans: HashSet<InodeNumber>,
    space: Space,
    /// Inodes whose mapping or content may have changed.
    changed: BTreeSet<InodeNumber>,
    /// Directories that got or lost a subdirectory.
    directories: BTreeSet<InodeNumber>,
    /// New directories without a block.
    unfilled: HashSet<InodeNumber>,
    /// New inodes that no name leads to: the directory that was to have it may be gone.
    nameless: HashSet<InodeNumber>,
}

impl Replay<'_> {
    /// Applies one change, which is at the place `at` of its fast commit, that has `inodes`.
    fn change(&mut self, change: &Change, at: usize, inodes: &Inodes<'_>) -> Result<()> {
        match change {
            Change::Inode(ino, bytes) => self.set_inode(*ino, bytes),
            Change::AddRange(ino, extent) => {
                self.meet(*ino, at, inodes)?;
                self.add_range(*ino, *extent)
            }
            Change::DelRange(ino, from, len) => self.remove_range(*ino, *from, *len),
            Change::Create(name) => {
                self.meet(name.ino, at, inodes)?;
                self.create(name)
            }
            Change::Link(name) => {
                self.meet(name.ino, at, inodes)?;
                self.link(name)
            }
            Change::Unlink(name) => self.unlink(name),
        }
    }

    /// Makes an inode that is not there yet, if what follows `at` has it.
    fn meet(&mut self, ino: InodeNumber, at: usize, inodes: &Inodes<'_>) -> Result<()> {
        if self.find(ino)?.is_some() {
            return Ok(());
        }
        let later = inodes.range((ino, at)..=(ino, usize::MAX)).next();
        later.map_or(Ok(()), |(_, bytes)| self.set_inode(ino, bytes))
    }
}
