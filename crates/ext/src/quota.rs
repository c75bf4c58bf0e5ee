//! [`Quotas`], what each user, group and project uses of a volume with the feature `quota`, and their limits.
//!
//! ```text
//!   an inode is stored ──► its charge (owners, space, inodes) is compared with that of its last image
//!                          └─► the difference is added to the owners' entries, in the same handle
//! ```
//!
//! So the entries on disk are at each commit the sums over the inodes on disk, whatever operation changed
//! them. No operation counts on its own.
//!
//! Invariants:
//! - An entry changes in the handle that stores the inode which caused the change. A handle has room for that
//!   beside its own credits ([`QUOTA_CREDITS`]).
//! - Quota files are metadata: their blocks change in handles only.
//! - An owner in memory that has a place on disk has the same usage there.
//! - A damaged quota file never fails a change of an inode: the usage of the owners that cannot be found is
//!   kept in memory only, the damage is recorded in the superblock, and `e2fsck` counts anew. A file whose
//!   header is damaged is not accepted: the volume is then not opened for writing, as in the kernel.
//!
//! Charged are the inodes that `e2fsck` counts: those with names to give, orphans, and the root; not the
//! volume's own, and not the inodes of attribute values, which count for each inode that uses them.
//!
//! [`file`] holds a quota file's blocks, [`find`] searches its tree, [`tree`] changes it, [`owner`] has one
//! owner's usage, [`inode`] the state kept in inodes, [`limit`] the limits.

pub(crate) mod charge;
pub(crate) mod file;
mod find;
pub(crate) mod inode;
pub(crate) mod limit;
pub(crate) mod owner;
pub(crate) mod setup;
#[cfg(test)]
mod tests;
pub(crate) mod tree;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use foldhash::HashMap;
use throughline_extfmt::quota::QuotaKind;
use throughline_extfmt::{InodeNumber, Superblock};
use throughline_locks::{Rank, RwLock};

use crate::base::Base;
use crate::error::{Error, Result};
use crate::options::QuotaLimits;
use file::QuotaFile;
use owner::Owner;

/// Blocks of quota files that one handle may change by storing inodes: entries of three kinds for each of
/// three inodes (two directories and a new inode), or for two owners of one inode.
pub(crate) const QUOTA_CREDITS: u32 = 9;
/// Owners in memory above which those without users are dropped.
const KEEP_OWNERS: usize = 4096;

/// See the head of this file.
pub(crate) struct Quotas {
    files: [OnceLock<QuotaFile>; 3],
    /// Whether there is any file.
    is_on: AtomicBool,
    /// The volume's own inodes, which are not charged.
    own: [InodeNumber; 5],
    owners: RwLock<HashMap<(QuotaKind, u32), Arc<Owner>>>,
    /// An owner without an entry on disk was charged.
    any_unplaced: AtomicBool,
    /// Whose limits are enforced.
    limits: QuotaLimits,
}

impl Quotas {
    pub(crate) fn new(sb: &Superblock, limits: QuotaLimits) -> Self {
        let own = [
            sb.s_journal_inum,
            sb.s_usr_quota_inum,
            sb.s_grp_quota_inum,
            sb.s_prj_quota_inum,
            sb.s_orphan_file_inum,
        ];
        Self {
            files: [const { OnceLock::new() }; 3],
            is_on: AtomicBool::new(false),
            own: own.map(|ino| InodeNumber(ino.get())),
            owners: RwLock::ranked(Rank::Owners, HashMap::default()),
            any_unplaced: AtomicBool::new(false),
            limits,
        }
    }

    /// Starts to keep usage in a file. No inode was changed before.
    fn start(&self, file: QuotaFile) {
        let place = self.files.get(file.kind.index());
        if place.is_some_and(|place| place.set(file).is_ok()) {
            self.is_on.store(true, Ordering::Release);
        }
    }

    /// The kinds whose limits are to be enforced.
    pub(crate) fn limited(&self) -> impl Iterator<Item = QuotaKind> + '_ {
        QuotaKind::ALL
            .into_iter()
            .filter(|kind| self.is_limited(*kind))
    }

    /// Whether the limits of a kind are to be enforced.
    fn is_limited(&self, kind: QuotaKind) -> bool {
        match kind {
            QuotaKind::User => self.limits.users,
            QuotaKind::Group => self.limits.groups,
            QuotaKind::Project => self.limits.projects,
        }
    }

    /// Whether any limits are enforced.
    pub(crate) fn any_limited(&self) -> bool {
        self.limits != QuotaLimits::default() && self.is_on()
    }

    /// Whether usage is kept.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// The credits that each handle needs in addition to its own.
    pub(crate) fn credits(&self) -> u32 {
        match self.is_on() {
            true => QUOTA_CREDITS,
            false => 0,
        }
    }

    pub(crate) fn file(&self, kind: QuotaKind) -> Option<&QuotaFile> {
        self.files.get(kind.index())?.get()
    }

    /// The kinds of usage that the volume keeps.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = QuotaKind> + '_ {
        QuotaKind::ALL
            .into_iter()
            .filter(|kind| self.file(*kind).is_some())
    }

    /// The owners in memory.
    pub(crate) fn in_memory(&self) -> Vec<Arc<Owner>> {
        let owners = self.owners.read();
        owners.values().cloned().collect()
    }

    /// Notes that an owner was charged that has no entry on disk.
    fn note_unplaced(&self) {
        self.any_unplaced.store(true, Ordering::Release);
    }

    /// Whether an owner may lack its entry. Clears the note.
    pub(crate) fn take_unplaced(&self) -> bool {
        self.any_unplaced.load(Ordering::Acquire) && self.any_unplaced.swap(false, Ordering::AcqRel)
    }
}

/// The owner with this id, in memory; its usage is read from the quota file if it is not there yet. If the
/// file is damaged where it should be, the damage is recorded, and the owner begins without usage.
///
/// # Errors
/// Device errors: nothing is known then, and the next call reads again.
pub(crate) fn find_owner(base: &Base, kind: QuotaKind, id: u32) -> Result<Arc<Owner>> {
    let quotas = &base.quotas;
    if let Some(owner) = quotas.owners.read().get(&(kind, id)) {
        return Ok(Arc::clone(owner));
    }
    // Held while the entry is read: it must not change between that and the insertion.
    let mut owners = quotas.owners.write();
    if let Some(owner) = owners.get(&(kind, id)) {
        return Ok(Arc::clone(owner));
    }
    let found = base.note_damage(find::entry(base, kind, id));
    let owner = Arc::new(match found {
        Ok(found) => Owner::new(kind, id, found),
        Err(Error::Corrupt(_)) => Owner::lost(kind, id),
        Err(error) => return Err(error),
    });
    if owners.len() >= KEEP_OWNERS {
        owners.retain(|_, owner| Arc::strong_count(owner) > 1 || owner.must_stay());
    }
    owners.insert((kind, id), Arc::clone(&owner));
    Ok(owner)
}
