//! Inode attributes: what `stat` shows, and what `chmod`, `chown` and `utimes` set.

use std::sync::atomic::Ordering;

use throughline_extfmt::inode::{FileType, InodeFlags, Time};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::{Geometry, InodeImage, InodeNumber};

use crate::coherent;
use crate::delayed::Pending;
use crate::error::{Error, Reason, Result};
use crate::inode::{Inode, Inodes, Shown};
use crate::names::Names;
use crate::privileges;
use crate::xattr::{self, Step, acl};

/// The permission bits of a mode, with setuid, setgid and sticky.
const PERMISSIONS: u16 = 0o7777;

/// The attributes of an inode at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// Inode number.
    pub ino: InodeNumber,
    /// File type.
    pub file_type: FileType,
    /// Permissions, setuid, setgid, sticky: 0 to 0o7777.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count. 1 for a directory with more subdirectories than the field can count.
    pub links: u16,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Allocated space in units of 512 bytes. Data that is only in memory counts as if it had been written
    /// back; the mapping blocks that it may need do not count.
    pub blocks_512: u64,
    /// Whether `blocks_512` stays the same until the inode is changed. False while write-back may add mapping
    /// blocks, and while a block being written back has been dirtied again: it counts twice until it is
    /// written.
    pub is_stable: bool,
    /// Device number (major, minor), for device inodes.
    pub device: Option<(u32, u32)>,
    /// Inode flags, as on disk.
    pub flags: InodeFlags,
    /// Distinguishes this inode from earlier ones with the same number.
    pub generation: u32,
    /// Project ID, on volumes that support projects.
    pub project: u32,
    /// Last access, as far as access times are recorded.
    pub accessed: Timestamp,
    /// Last change of the data.
    pub modified: Timestamp,
    /// Last change of data or attributes.
    pub changed: Timestamp,
    /// Creation time, if the inode has room for it.
    pub created: Option<Timestamp>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The current time.
    Now,
    /// This time, limited to the inode's range and precision: 1901 to 2446 in nanoseconds, or to 2038 in
    /// seconds.
    At(Timestamp),
}

/// Attributes to set; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, setuid, setgid, sticky: 0 to 0o7777.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub accessed: Option<SetTime>,
    /// Last change of the data.
    pub modified: Option<SetTime>,
    /// Drops privileges as [`crate::Attrs::drop_privileges`] does, in the same transaction. If permissions
    /// are set too, the mode is the one they give.
    pub drop_privileges: bool,
    /// When privileges are dropped, also drops setgid if the group may not execute: for a caller outside the
    /// file's group.
    pub drop_setgid: bool,
}

impl From<Timestamp> for SetTime {
    fn from(time: Timestamp) -> Self {
        Self::At(time)
    }
}

impl Names {
    /// The size of an inode's data in bytes, including what is not written back yet.
    ///
    /// # Errors
    /// `Corrupt` for an invalid size.
    pub fn data_size(&self, inode: &Inode) -> Result<u64> {
        size_in(&self.geo, inode, &inode.raw.read())
    }

    /// The attributes of an inode.
    ///
    /// # Errors
    /// `Corrupt` for an invalid mode or size.
    pub fn metadata(&self, inode: &Inode) -> Result<Metadata> {
        let (raw, pending) = with_pending(self, inode);
        let damaged = |what: throughline_extfmt::Corrupt| Error::from(what).in_inode(inode.ino);
        let file_type = raw.file_type().map_err(damaged)?;
        let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        let time = |which| raw.time(which).unwrap_or_default();
        // Data not written back yet counts towards the size and the space.
        let size_bytes = size_in(&self.geo, inode, &raw)?;
        let reserved = pending.units << self.geo.block_log >> 9;
        // Inline data counts as the space that it would take in blocks.
        let inline =
            file_type == FileType::Regular && raw.flags().contains(InodeFlags::INLINE_DATA);
        let in_inode = if inline { size_bytes.div_ceil(512) } else { 0 };
        let mut metadata = Metadata {
            ino: inode.ino,
            file_type,
            permissions: raw.mode() & PERMISSIONS,
            uid: raw.uid(),
            gid: raw.gid(),
            links: raw.links_count(),
            size_bytes,
            blocks_512: raw
                .blocks_512(&self.geo)
                .saturating_add(reserved)
                .saturating_add(in_inode),
            is_stable: pending.is_exact,
            device: is_device.then(|| raw.device_number()),
            flags: raw.flags(),
            generation: raw.generation(),
            project: raw.projid(),
            accessed: time(Time::Access),
            modified: time(Time::Modify),
            changed: time(Time::Change),
            created: raw.time(Time::Create),
        };
        drop(raw);
        // The size of an encrypted symlink is the length of the target that is shown, if it can be
        // determined.
        if file_type == FileType::Symlink
            && self.is_encrypted(inode)
            && let Ok(shown) = self.shown_target(inode)
        {
            metadata.size_bytes = shown.len() as u64;
        }
        Ok(metadata)
    }

    /// Sets attributes and the change time, all in one transaction.
    ///
    /// A new owner or group clears the setuid and setgid bits of an executable file, unless the same call
    /// sets the permissions, and always removes capabilities. New permissions also update the ACL.
    ///
    /// # Errors
    /// `Permission` for an immutable inode, and for an append-only one unless only both times are set, to the
    /// current time; `NotFound` for a freed inode; `ReadOnly`; `NoSpace` if its ACL block is shared and there
    /// is no room for a copy.
    pub fn set_attributes(&self, inode: &Inode, set: &Attributes) -> Result<()> {
        if set.takes_privileges() && !inode.is_dir() {
            set.check_inode(inode, &inode.raw.read())?;
            self.drop_capability(inode)?;
        }
        if inode.is_dir() && set.widens(&inode.raw.read()) {
            self.truncations_before_directory()?;
        }
        let moves = set.uid.is_some() || set.gid.is_some();
        let held = match moves {
            true => self.prepare_owners(inode, [set.uid, set.gid, None])?,
            false => None,
        };
        let unused = {
            // The ACL repeats the permissions, so the two change together.
            let _exclusive = set.permissions.map(|_| xattr::ChangeLocks::lock(inode));
            let with_list = match set.permissions {
                Some(permissions) => {
                    acl::set_permissions(self, inode, permissions, &|step, raw| match step {
                        Step::Check => set.check_inode(inode, raw),
                        Step::Apply => {
                            change_attributes(self, inode, raw, set);
                            Ok(())
                        }
                    })?
                }
                None => None,
            };
            match with_list {
                Some(unused) => unused,
                None => {
                    set_plain_attributes(self, inode, set)?;
                    Vec::new()
                }
            }
        };
        if moves {
            inode.delayed.hold_anew(self, inode);
            inode.emptied.hold_owners(held);
        }
        xattr::free(self, unused)?;
        // As after a write, times alone may follow later.
        match set.permissions.is_some() || set.takes_privileges() {
            true => self.attributes_changed(inode),
            false => Ok(()),
        }
    }
}

fn set_plain_attributes(fs: &Inodes, inode: &Inode, set: &Attributes) -> Result<()> {
    let mut h = fs.begin(1)?;
    {
        let mut raw = inode.raw.write();
        set.check_inode(inode, &raw)?;
        change_attributes(fs, inode, &mut raw, set);
    }
    if let Err(error) = fs.store_attributes(&mut h, inode) {
        // The inode may have been freed since the check.
        let gone = inode.is_freed().then(|| Reason::NotFound.into());
        return Err(gone.unwrap_or(error));
    }
    h.stop()
}

fn change_attributes(fs: &Inodes, inode: &Inode, raw: &mut InodeImage, set: &Attributes) {
    let now = fs.now();
    set.apply(raw, now);
    if set.modified.is_some() {
        // Makes the next write set the time again, even if it comes in the same tick.
        inode.mapping.touched.store(0, Ordering::Relaxed);
    }
    raw.set_time(Time::Change, now);
}

fn size_in(geo: &Geometry, inode: &Inode, raw: &InodeImage) -> Result<u64> {
    let committed = raw.size_bytes(geo);
    let committed = committed.map_err(|e| Error::from(e).in_inode(inode.ino))?;
    Ok(match inode.cached.get() {
        Some(cached) => cached.space.size().max(committed),
        None => committed,
    })
}

/// The inode image, and what write-back will add to the inode's blocks.
fn with_pending<'i>(fs: &Inodes, inode: &'i Inode) -> (Shown<'i>, Pending) {
    if coherent::is_clean(inode) {
        return (inode.raw.read(), Pending::NOTHING);
    }
    // Write-back moves blocks from one to the other under this lock.
    let _map = inode.map_shared();
    let pending = inode.delayed.pending(fs.geo.cluster_ratio_log);
    (inode.raw.read(), pending)
}

impl Attributes {
    fn check_inode(&self, inode: &Inode, raw: &InodeImage) -> Result<()> {
        if inode.is_freed() {
            return Err(Reason::NotFound.into());
        }
        self.check(raw.flags())
    }

    /// Whether someone may get rights that he did not have.
    fn widens(&self, raw: &InodeImage) -> bool {
        let given = self
            .permissions
            .is_some_and(|permissions| permissions & !raw.mode() != 0);
        given
            || self.uid.is_some_and(|uid| uid != raw.uid())
            || self.gid.is_some_and(|gid| gid != raw.gid())
    }

    fn takes_privileges(&self) -> bool {
        self.drop_privileges || self.uid.is_some() || self.gid.is_some()
    }

    /// Whether an inode with these flags allows this change.
    fn check(&self, flags: InodeFlags) -> Result<()> {
        let times = (self.accessed, self.modified);
        let touches = matches!(
            times,
            (None, None) | (Some(SetTime::Now), Some(SetTime::Now))
        );
        let harmless =
            touches && self.permissions.is_none() && self.uid.is_none() && self.gid.is_none();
        if flags.contains(InodeFlags::IMMUTABLE) || flags.contains(InodeFlags::APPEND) && !harmless
        {
            return Err(Reason::Permission.into());
        }
        Ok(())
    }

    fn apply(&self, raw: &mut InodeImage, now: Timestamp) {
        let mode = raw.mode();
        if let Some(permissions) = self.permissions {
            raw.set_mode(mode & !PERMISSIONS | permissions & PERMISSIONS);
        } else if self.takes_privileges() {
            raw.set_mode(privileges::without(mode, self.drop_setgid));
        }
        if let Some(uid) = self.uid {
            raw.set_uid(uid);
        }
        if let Some(gid) = self.gid {
            raw.set_gid(gid);
        }
        for (which, time) in [(Time::Access, self.accessed), (Time::Modify, self.modified)] {
            match time {
                Some(SetTime::Now) => raw.set_time(which, now),
                Some(SetTime::At(time)) => raw.set_time(which, time),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp {
        seconds: 1_000,
        nanoseconds: 7,
    };

    fn file(mode: u16) -> InodeImage {
        let mut raw = InodeImage::new(256, 32);
        raw.set_mode(FileType::Regular.mode_bits() | mode);
        raw
    }

    #[test]
    fn a_new_owner_takes_setuid_away() {
        let mut raw = file(0o6755);
        Attributes {
            uid: Some(70_000),
            ..Attributes::default()
        }
        .apply(&mut raw, NOW);
        assert_eq!((raw.mode() & PERMISSIONS, raw.uid()), (0o755, 70_000));
        // Without the right to execute, the setgid bit means mandatory locking and stays.
        let mut raw = file(0o2644);
        Attributes {
            gid: Some(5),
            ..Attributes::default()
        }
        .apply(&mut raw, NOW);
        assert_eq!((raw.mode() & PERMISSIONS, raw.gid()), (0o2644, 5));
        let mut raw = file(0o644);
        Attributes {
            uid: Some(1),
            permissions: Some(0o4755),
            ..Attributes::default()
        }
        .apply(&mut raw, NOW);
        assert_eq!(raw.mode(), FileType::Regular.mode_bits() | 0o4755);
    }

    #[test]
    fn setting_no_attribute_changes_nothing() {
        let mut raw = file(0o6755);
        let before = raw.clone();
        Attributes::default().apply(&mut raw, NOW);
        assert!(raw == before);
    }

    #[test]
    fn an_append_only_inode_accepts_only_the_current_time() {
        let touch = Attributes {
            accessed: Some(SetTime::Now),
            modified: Some(SetTime::Now),
            ..Attributes::default()
        };
        let one = Attributes {
            accessed: None,
            ..touch
        };
        let given = Attributes {
            accessed: Some(SetTime::At(NOW)),
            ..touch
        };
        let mode = Attributes {
            permissions: Some(0o644),
            ..touch
        };
        assert!(touch.check(InodeFlags::APPEND).is_ok());
        for refused in [one, given, mode] {
            assert!(refused.check(InodeFlags::APPEND).is_err());
            assert!(refused.check(InodeFlags::empty()).is_ok());
        }
        assert!(touch.check(InodeFlags::IMMUTABLE).is_err());
        let mut raw = file(0o644);
        touch.apply(&mut raw, NOW);
        assert_eq!(raw.time(Time::Access), Some(NOW));
        assert_eq!(raw.time(Time::Modify), Some(NOW));
    }
}
