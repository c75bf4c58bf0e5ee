//! Attributes of inodes: what `stat` shows, and what `chmod`, `chown` and `utimes` set.

use std::sync::atomic::Ordering;

use throughline_extfmt::inode::{FileType, InodeFlags, Time};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::{InodeImage, InodeNumber};

use crate::coherent;
use crate::delayed::ToCome;
use crate::error::{Error, Reason, Result};
use crate::inode::{Inode, Inodes};
use crate::names::Names;
use crate::privileges;
use crate::xattr::{self, Step, acl};

/// The permission bits of a mode, with setuid, setgid and sticky.
const PERMISSIONS: u16 = 0o7777;

/// What an inode says about itself, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// Its number.
    pub ino: InodeNumber,
    /// Its type.
    pub file_type: FileType,
    /// Permissions, setuid, setgid, sticky: 0 to 0o7777.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names; 1 for a directory with more subdirectories than it can count.
    pub links: u16,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Space it owns, in units of 512 bytes. Data in memory only counts as if it was written back; the blocks that its
    /// mapping may need do not.
    pub blocks_512: u64,
    /// `blocks_512` stays as it is as long as nobody changes the inode. Not so while write-back may add blocks of the mapping,
    /// and while a block that is being written is in memory anew, which counts twice until that is written.
    pub is_settled: bool,
    /// Major and minor number of a device.
    pub device: Option<(u32, u32)>,
    /// Its flags, as on disk.
    pub flags: InodeFlags,
    /// Tells this inode from others that had its number before.
    pub generation: u32,
    /// Its project, where the volume has them.
    pub project: u32,
    /// Last read, as far as that is kept.
    pub accessed: Timestamp,
    /// Last change of the contents.
    pub modified: Timestamp,
    /// Last change of contents or attributes.
    pub changed: Timestamp,
    /// Birth, where the inode has room for it.
    pub created: Option<Timestamp>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present one.
    Now,
    /// This one, kept to the precision and range the inode has: 1901 to 2446 in nanoseconds, or 2038 in seconds.
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
    /// Last read.
    pub accessed: Option<SetTime>,
    /// Last change of the contents.
    pub modified: Option<SetTime>,
    /// As [`crate::Attrs::drop_privileges`] in the same transaction, whatever else is set but permissions.
    pub drop_privileges: bool,
    /// What takes privileges takes setgid where the group may not execute, too: for a caller who is not of the group.
    pub drop_setgid: bool,
}

impl From<Timestamp> for SetTime {
    fn from(time: Timestamp) -> Self {
        Self::At(time)
    }
}

impl Names {
    /// The attributes of an inode.
    ///
    /// # Errors
    /// `Corrupt` for a mode or a size that cannot be.
    pub fn metadata(&self, inode: &Inode) -> Result<Metadata> {
        let (raw, to_come) = with_what_is_to_come(inode);
        let damaged = |what: throughline_extfmt::Corrupt| Error::from(what).in_inode(inode.ino);
        let file_type = raw.file_type().map_err(damaged)?;
        let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        let time = |which| raw.time(which).unwrap_or_default();
        let committed = raw.size_bytes(&self.geo).map_err(damaged)?;
        // What is not written yet has its size and its room.
        let size_bytes = match inode.cached.get() {
            Some(cached) => cached.space.size().max(committed),
            None => committed,
        };
        let put_by = to_come.units << self.geo.block_log >> 9;
        // What a file has in its inode counts as the space that it would take.
        let inline =
            file_type == FileType::Regular && raw.flags().contains(InodeFlags::INLINE_DATA);
        let in_inode = if inline { size_bytes.div_ceil(512) } else { 0 };
        // Of an encrypted link what it shows counts, as far as it can be read.
        let size_bytes = match file_type == FileType::Symlink && self.is_encrypted(inode) {
            true => self
                .shown_target(inode)
                .map_or(size_bytes, |shown| shown.len() as u64),
            false => size_bytes,
        };
        Ok(Metadata {
            ino: inode.ino,
            file_type,
            permissions: raw.mode() & PERMISSIONS,
            uid: raw.uid(),
            gid: raw.gid(),
            links: raw.links_count(),
            size_bytes,
            blocks_512: raw
                .blocks_512(&self.geo)
                .saturating_add(put_by)
                .saturating_add(in_inode),
            is_settled: to_come.is_sure,
            device: is_device.then(|| raw.device_number()),
            flags: raw.flags(),
            generation: raw.generation(),
            project: raw.projid(),
            accessed: time(Time::Access),
            modified: time(Time::Modify),
            changed: time(Time::Change),
            created: raw.time(Time::Create),
        })
    }

    /// Sets attributes, all in one transaction, and the time of the last change.
    ///
    /// A new owner or group takes the setuid and setgid bits from a file that could be run with them, unless the
    /// permissions are set in the same call, and capabilities always. New permissions change the list of access rights along.
    ///
    /// # Errors
    /// `Permission` for an immutable inode, and for an append-only one but where both times are set to the present one;
    /// `NotFound` for one that was freed, `ReadOnly`, `NoSpace` where its list of access rights is shared and needs room
    /// of its own.
    pub fn set_attributes(&self, inode: &Inode, set: &Attributes) -> Result<()> {
        if set.takes_privileges() && !inode.is_dir() {
            set.check_inode(inode, &inode.raw.read())?;
            self.drop_capability(inode)?;
        }
        let unused = {
            // The list of access rights says the same as the permissions: they change together.
            let _alone = set.permissions.map(|_| xattr::Alone::lock(inode));
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
                None => return set_plain_attributes(self, inode, set),
            }
        };
        xattr::free(self, unused)
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
        // Freed between the two.
        let gone = inode.is_freed().then(|| Reason::NotFound.into());
        return Err(gone.unwrap_or(error));
    }
    h.stop()
}

fn change_attributes(fs: &Inodes, inode: &Inode, raw: &mut InodeImage, set: &Attributes) {
    let now = fs.now();
    set.apply(raw, now);
    if set.modified.is_some() {
        // The next write sets the time again, however soon it comes.
        inode.mapping.touched.store(0, Ordering::Relaxed);
    }
    raw.set_time(Time::Change, now);
}

/// The inode as it is, and what write-back will add to it.
fn with_what_is_to_come(inode: &Inode) -> (InodeImage, ToCome) {
    if coherent::is_clean(inode) {
        return (inode.image(), ToCome::NOTHING);
    }
    // Under this lock write-back takes blocks from the one and adds them to the other.
    let _map = inode.map_shared();
    (inode.image(), inode.delayed.to_come())
}

impl Attributes {
    fn check_inode(&self, inode: &Inode, raw: &InodeImage) -> Result<()> {
        if inode.is_freed() {
            return Err(Reason::NotFound.into());
        }
        self.check(raw.flags())
    }

    fn takes_privileges(&self) -> bool {
        self.drop_privileges || self.uid.is_some() || self.gid.is_some()
    }

    /// Whether an inode with these flags lets it be set.
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
    fn nothing_set_changes_nothing() {
        let mut raw = file(0o6755);
        let before = raw.clone();
        Attributes::default().apply(&mut raw, NOW);
        assert!(raw == before);
    }

    #[test]
    fn what_an_append_only_inode_lets_be_set() {
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
