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

use std::collections::{BTreeSet, HashSet};

use throughline_extfmt::InodeNumber;
use throughline_extfmt::fast_commit::Change;

use crate::error::Result;
use crate::fs::Fs;
use crate::orphan;
use ranges::Space;

/// Blocks that one step may touch, and many more: in memory, credits cost nothing.
const CREDITS: u32 = 2048;

/// Applies fast commits, the oldest first, to a volume that was opened for writing and that nobody else uses.
///
/// # Errors
/// `Corrupt` for changes that cannot be; those of the device. The volume is half changed then, and of no use.
pub(super) fn apply(fs: &Fs, commits: &[Vec<Change>]) -> Result<()> {
    let mut replay = Replay {
        fs,
        orphans: orphan::recorded(fs)?,
        space: Space::default(),
        changed: BTreeSet::new(),
        directories: BTreeSet::new(),
        unfilled: HashSet::new(),
        nameless: HashSet::new(),
    };
    replay.reserve(commits.iter().flatten())?;
    for commit in commits {
        for (at, change) in commit.iter().enumerate() {
            let rest = commit.get(at..).unwrap_or_default();
            replay.change(change, rest)?;
        }
    }
    replay.drop_nameless()?;
    replay.count_subdirectories()?;
    replay.settle_blocks()?;
    fs.write_super(|_| ())?;
    Ok(fs.journal.sync()?)
}

/// A replay under way.
struct Replay<'a> {
    fs: &'a Fs,
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
    /// Applies one change; `rest` is it and what follows it in its fast commit.
    fn change(&mut self, change: &Change, rest: &[Change]) -> Result<()> {
        match change {
            Change::Inode(ino, bytes) => self.set_inode(*ino, bytes),
            Change::AddRange(ino, extent) => {
                self.meet(*ino, rest)?;
                self.add_range(*ino, *extent)
            }
            Change::DelRange(ino, from, len) => self.remove_range(*ino, *from, *len),
            Change::Create(name) => {
                self.meet(name.ino, rest)?;
                self.create(name)
            }
            Change::Link(name) => {
                self.meet(name.ino, rest)?;
                self.link(name)
            }
            Change::Unlink(name) => self.unlink(name),
        }
    }

    /// Makes an inode that is not there yet, if what follows has it.
    fn meet(&mut self, ino: InodeNumber, rest: &[Change]) -> Result<()> {
        if self.find(ino)?.is_some() {
            return Ok(());
        }
        let later = rest.iter().find_map(|change| match change {
            Change::Inode(found, bytes) if *found == ino => Some(bytes),
            _ => None,
        });
        later.map_or(Ok(()), |bytes| self.set_inode(ino, bytes))
    }
}
