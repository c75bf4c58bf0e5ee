//! Charges the owners of an inode with the difference between two of its images.

use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::quota::QuotaKind;
use throughline_extfmt::{InodeImage, InodeNumber};

use super::inode::{Charge, Moved, OfInode};
use super::limit::Hold;
use super::owner::{Delta, Grace};
use super::{Quotas, find_owner};
use crate::base::Base;
use crate::error::Result;
use crate::handle::Handle;

/// What an image counts, without its attribute values; `None` for an inode that is not charged.
pub(crate) fn charge_of(base: &Base, ino: InodeNumber, image: &InodeImage) -> Option<Charge> {
    let reserved = ino < base.geo.first_ino && ino != InodeNumber::ROOT;
    let is_own = reserved || base.quotas.own.contains(&ino);
    if is_own || image.flags().contains(InodeFlags::EA_INODE) {
        return None;
    }
    let project = match base.quotas.file(QuotaKind::Project) {
        Some(_) => image.projid(),
        None => 0,
    };
    Some(Charge {
        ids: [image.uid(), image.gid(), project],
        bytes: image.blocks_512(&base.geo).saturating_mul(512),
        inodes: 1,
    })
}

/// The state of an inode that was loaded with this image.
pub(crate) fn usage_of_loaded(base: &Base, ino: InodeNumber, image: &InodeImage) -> OfInode {
    match base.quotas.is_on() {
        true => OfInode::new(charge_of(base, ino, image)),
        false => OfInode::default(),
    }
}

/// Reads what the owners of an inode use, so that a change of the inode need not. Errors show then.
pub(crate) fn preload(base: &Base, usage: &OfInode) {
    let Some(charge) = usage.charged() else {
        return;
    };
    let owner = |kind: QuotaKind| {
        base.quotas.file(kind)?;
        find_owner(base, kind, *charge.ids.get(kind.index())?).ok()
    };
    usage.remember(Some(charge), QuotaKind::ALL.map(owner));
}

/// The state of a new inode.
pub(crate) fn usage_of_new(base: &Base) -> OfInode {
    match base.quotas.is_on() {
        true => OfInode::new(None),
        false => OfInode::default(),
    }
}

/// Enters a change of an inode's charge into the quota files.
pub(crate) fn charge(
    base: &Base,
    h: &mut Handle<'_>,
    usage: &OfInode,
    mut moved: Moved,
) -> Result<()> {
    let grace = |kind| {
        base.quotas
            .grace(base.now().seconds.max(0).cast_unsigned(), kind)
    };
    for kind in base.quotas.kinds() {
        let id = |charge: Charge| charge.ids.get(kind.index()).copied().unwrap_or(0);
        let (from, to) = (moved.from.map(id), moved.to.map(id));
        let space = |charge: Option<Charge>| {
            charge.map_or((0, 0), |charge| {
                (charge.bytes.cast_signed(), charge.inodes.cast_signed())
            })
        };
        let (before, after) = (space(moved.from), space(moved.to));
        let grace = grace(kind);
        if from != to
            && let Some(id) = from
        {
            let owner = find_owner(base, kind, id)?;
            let delta = Delta {
                bytes: -before.0,
                inodes: -before.1,
            };
            base.quotas.note_added(owner.add(h, delta, grace)?);
        }
        let Some(id) = to else { continue };
        let delta = match from == to {
            true => Delta {
                bytes: after.0 - before.0,
                inodes: after.1 - before.1,
            },
            false => Delta {
                bytes: after.0,
                inodes: after.1,
            },
        };
        if !delta.is_none()
            && let Some(owner) = moved.owners.get_mut(kind.index())
        {
            let owner = match owner {
                Some(owner) => owner,
                none => none.insert(find_owner(base, kind, id)?),
            };
            base.quotas.note_added(owner.add(h, delta, grace)?);
        }
    }
    usage.remember(moved.to, moved.owners);
    Ok(())
}

/// Holds space and inodes for those of these owners (user, group, project) whose limits are enforced;
/// `None` if there are none. See [`super::limit`].
///
/// # Errors
/// `Quota`.
pub(crate) fn hold(
    base: &Base,
    owners: [Option<u32>; 3],
    bytes: u64,
    inodes: u64,
) -> Result<Option<Hold>> {
    if !base.quotas.any_limited() {
        return Ok(None);
    }
    let mut limited = Vec::new();
    for kind in base.quotas.kinds() {
        let id = owners.get(kind.index()).copied().flatten();
        if let Some(id) = id.filter(|_| base.quotas.is_limited(kind)) {
            limited.push(find_owner(base, kind, id)?);
        }
    }
    let mut hold = Hold::of(limited);
    hold.add(bytes, inodes, base.now().seconds.max(0).cast_unsigned())?;
    Ok(Some(hold))
}

/// As [`hold`], for an inode with this image.
///
/// # Errors
/// `Quota`.
pub(crate) fn hold_for(
    base: &Base,
    (ino, image): (InodeNumber, &InodeImage),
    bytes: u64,
    inodes: u64,
) -> Result<Option<Hold>> {
    if !base.quotas.any_limited() {
        return Ok(None);
    }
    match charge_of(base, ino, image) {
        Some(charge) => hold(base, charge.ids.map(Some), bytes, inodes),
        None => Ok(None),
    }
}

impl Quotas {
    fn note_added(&self, is_on_disk: bool) {
        if !is_on_disk {
            self.note_unplaced();
        }
    }

    /// When soft limits that are exceeded now become hard.
    fn grace(&self, now: u64, kind: QuotaKind) -> Grace {
        let Some(file) = self.file(kind).filter(|_| self.is_limited(kind)) else {
            return Grace::default();
        };
        let header = file.header();
        Grace {
            space_ends: now.saturating_add(header.dqi_bgrace.get().into()),
            inodes_end: now.saturating_add(header.dqi_igrace.get().into()),
        }
    }
}
