//! Applies fast commits.
//!
//! A fast commit records changes of inodes, ranges and names since the last full commit, but not the blocks
//! of bitmaps, maps and directories that they change. So the file system applies it to a volume that exists
//! only in memory ([`throughline_journal::OverlayDevice`]). The result is written in place as one
//! transaction, or only shown.
//!
//! ```text
//!   1  Allocate the blocks that ranges name, before anything else can use them.          (ranges.rs)
//!   2  Apply each fast commit, change by change: inodes, ranges, names.     (inodes.rs, ranges.rs, names.rs)
//!   3  Free the blocks that no inode maps any more. Recount the directories' subdirectories and the
//!      superblock's free blocks.
//! ```
//!
//! Invariants:
//! - A change that names something missing is not an error: an inode created and deleted between two fast
//!   commits leaves only the removal of its names.
//! - Blocks are freed only at the end, so nothing reuses a block that a later change still names.
//! - No block is mapped twice by the changed inodes, and none of them maps the volume's own structures.

mod inodes;
mod names;
mod ranges;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use throughline_extfmt::InodeNumber;
use throughline_extfmt::fast_commit::Change;

use crate::error::Result;
use crate::names::Names;
use crate::{quota, reclaim};
use ranges::Space;

/// Far more blocks than a step may change: in memory, credits cost nothing.
const CREDITS: u32 = 2048;

/// Applies fast commits, oldest first, to a volume opened for writing that has no other users.
///
/// # Errors
/// `Corrupt` for invalid changes; device errors. The volume is then partly changed and useless.
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
    replay.free_unmapped()?;
    quota::tree::place_all(fs)?;
    fs.write_super(|_| ())?;
    Ok(fs.journal.sync()?)
}

/// The inodes logged in a fast commit, by number and position.
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

/// A replay in progress.
struct Replay<'a> {
    fs: &'a Names,
    /// The orphans on disk: their deletion time may be a list link, and the next open of the volume frees
    /// them.
    orphans: HashSet<InodeNumber>,
    space: Space,
    /// Inodes whose mapping or content may have changed.
    changed: BTreeSet<InodeNumber>,
    /// Directories that gained or lost a subdirectory.
    directories: BTreeSet<InodeNumber>,
    /// New directories without a block.
    unfilled: HashSet<InodeNumber>,
    /// New inodes without a name: their directory may be gone.
    nameless: HashSet<InodeNumber>,
}

impl Replay<'_> {
    /// Applies the change at position `at` of a fast commit that logs `inodes`.
    fn change(&mut self, change: &Change, at: usize, inodes: &Inodes<'_>) -> Result<()> {
        match change {
            Change::Inode(ino, bytes) => self.set_inode(*ino, bytes),
            Change::AddRange(ino, extent) => {
                self.ensure_inode(*ino, at, inodes)?;
                self.add_range(*ino, *extent)
            }
            Change::DelRange(ino, from, len) => self.remove_range(*ino, *from, *len),
            Change::Create(name) => {
                self.ensure_inode(name.ino, at, inodes)?;
                self.create(name)
            }
            Change::Link(name) => {
                self.ensure_inode(name.ino, at, inodes)?;
                self.link(name)
            }
            Change::Unlink(name) => self.unlink(name),
        }
    }

    /// Creates a missing inode if it is logged after `at`.
    fn ensure_inode(&mut self, ino: InodeNumber, at: usize, inodes: &Inodes<'_>) -> Result<()> {
        if self.find(ino)?.is_some() {
            return Ok(());
        }
        let later = inodes.range((ino, at)..=(ino, usize::MAX)).next();
        later.map_or(Ok(()), |(_, bytes)| self.set_inode(ino, bytes))
    }
}
