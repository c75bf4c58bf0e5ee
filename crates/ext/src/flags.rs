//! Inode flags as programs see and set them (`lsattr`, `chattr`), the checks for immutable and append-only
//! inodes, projects, and generations.
//!
//! Invariant: [`seen::Seen`] holds the flags of the inode's last stored image, so that calls can read them
//! without a lock.

pub(crate) mod seen;
#[cfg(test)]
mod tests;

use throughline_extfmt::features::{Incompat, RoCompat};
use throughline_extfmt::inode::{BASE_BYTES, FileType, InodeFlags, Time};

use crate::attrs::Attrs;
use crate::coherent;
use crate::emptied;
use crate::error::{Error, Reason, Result};
use crate::inode::Inode;
use crate::map;
use seen::{COMPRESSION, meaningful};

/// Flags that a program may change.
const MODIFIABLE: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::EXTENTS)
    .union(InodeFlags::EOFBLOCKS)
    .union(InodeFlags::DAX)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD);
/// Flags that a program is shown. It may pass all of them back; those that it cannot change are ignored.
const VISIBLE: InodeFlags = MODIFIABLE
    .union(COMPRESSION)
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::INDEX)
    .union(InodeFlags::VERITY)
    .union(InodeFlags::INLINE_DATA);
/// Flags that are not simply set or cleared. The extents flag converts the mapping if the file is small
/// enough; journaled data and case-insensitive names cannot be changed.
const FIXED: InodeFlags = InodeFlags::EXTENTS
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::JOURNAL_DATA);
/// Flags that are incompatible with DAX.
const NOT_WITH_DAX: InodeFlags = InodeFlags::VERITY
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::INLINE_DATA);

/// How a file is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFor {
    /// Its data will be changed.
    pub write: bool,
    /// Every write appends.
    pub append: bool,
    /// It is truncated to 0 first.
    pub truncate: bool,
}

impl Attrs {
    /// Whether a directory's names are looked up without regard to case.
    pub fn ignores_case(&self, dir: &Inode) -> bool {
        self.geo.incompat.contains(Incompat::CASEFOLD)
            && dir.is_dir()
            && dir.flags.any(InodeFlags::CASEFOLD)
    }

    /// The flags of an inode as shown to programs (`FS_IOC_GETFLAGS`).
    pub fn flags(&self, inode: &Inode) -> InodeFlags {
        let shown = inode.raw.read().flags() & VISIBLE;
        if inode.kind == Some(FileType::Regular) {
            shown - InodeFlags::PROJINHERIT
        } else {
            shown
        }
    }

    /// Sets the flags of an inode (`FS_IOC_SETFLAGS`): all flags that a program can change are set as given;
    /// those that are only shown are ignored. The caller must check permission: only the owner may, and
    /// immutable and append-only need a capability. When a file becomes immutable, its data is on the device
    /// when this returns.
    ///
    /// # Errors
    /// `Unsupported` for flags that are never shown, that have no meaning on such an inode, or that would
    /// change the storage format (journaled data; case-insensitive names unless it `may_fold`); also if the
    /// extents flag changes and the file is too large to convert, in which case its other flags have been
    /// changed. `Permission` for other changes of an inode that stays immutable; `ReadOnly`; device errors.
    pub(crate) fn set_flags_and(
        &self,
        inode: &Inode,
        flags: InodeFlags,
        may_fold: bool,
    ) -> Result<()> {
        self.check_writable()?;
        if !VISIBLE.contains(flags) {
            return Err(unsupported("unknown inode flags"));
        }
        let flags = flags & MODIFIABLE;
        let stays_as_it_is = flags & FIXED;
        if meaningful(inode.kind, flags - FIXED) | stays_as_it_is != flags {
            return Err(unsupported("these inode flags on an inode of this type"));
        }
        let extents = flags.contains(InodeFlags::EXTENTS);
        let converts = self.change_flags(inode, flags, may_fold)?;
        if converts {
            self.convert_mapping(inode, extents)?;
        }
        self.attributes_changed(inode)
    }

    /// Converts the mapping to or from extents, and changes the flag with it.
    fn convert_mapping(&self, inode: &Inode, extents: bool) -> Result<()> {
        if extents && !self.geo.incompat.contains(Incompat::EXTENTS) {
            return Err(unsupported("extents: the volume lacks the feature"));
        }
        // Needs exclusive access to the contents, with no data waiting to be written.
        let is_file = inode.kind == Some(FileType::Regular);
        let _io = is_file.then(|| inode.io_exclusive());
        let _names = inode.is_dir().then(|| inode.dir_exclusive());
        if is_file {
            emptied::finish(self, inode)?;
        }
        let _frozen = coherent::freeze(inode);
        self.transact(1, |h| {
            if inode.is_freed() {
                return Err(Reason::NotFound.into());
            }
            map::convert(self, inode, extents)?;
            self.store(h, inode)
        })
    }

    /// Sets all flags except the extents flag. Returns whether that is to change.
    fn change_flags(&self, inode: &Inode, flags: InodeFlags, may_fold: bool) -> Result<bool> {
        let is_file = inode.kind == Some(FileType::Regular);
        let _io = is_file.then(|| inode.io_exclusive());
        if is_file && flags.contains(InodeFlags::IMMUTABLE) {
            coherent::flush(inode, coherent::ALL)?;
        }
        let mut converts = false;
        self.transact(1, |h| {
            {
                let mut raw = inode.raw.write();
                if inode.is_freed() {
                    return Err(Reason::NotFound.into());
                }
                let old = raw.flags();
                check_change(old, flags, may_fold)?;
                let kept = MODIFIABLE - InodeFlags::EXTENTS;
                raw.set_flags((old - kept) | (flags & kept));
                raw.set_time(Time::Change, self.now());
                converts = (old ^ flags).contains(InodeFlags::EXTENTS);
            }
            self.store(h, inode)
        })?;
        Ok(converts)
    }

    /// Assigns an inode to a project (part of `FS_IOC_FSSETXATTR`).
    ///
    /// # Errors
    /// `Unsupported` if the volume does not support projects or the inode has no room for the project ID;
    /// `Permission` for an immutable inode; `ReadOnly`.
    pub fn set_project(&self, inode: &Inode, project: u32) -> Result<()> {
        self.check_writable()?;
        if !self.geo.ro_compat.contains(RoCompat::PROJECT) {
            if project == 0 {
                return Ok(());
            }
            return Err(unsupported("projects: the volume lacks the feature"));
        }
        if usize::from(self.geo.inode_bytes) <= BASE_BYTES {
            return Err(unsupported("projects: the inodes are too small"));
        }
        let held = self.prepare_owners(inode, [None, None, Some(project)])?;
        self.transact(1, |h| {
            {
                let mut raw = inode.raw.write();
                if inode.is_freed() {
                    return Err(Reason::NotFound.into());
                }
                if raw.projid() == project {
                    return Ok(());
                }
                if raw.flags().contains(InodeFlags::IMMUTABLE) {
                    return Err(Reason::Permission.into());
                }
                if !raw.set_projid(project) {
                    return Err(unsupported("projects: this inode has no room for one"));
                }
                raw.set_time(Time::Change, self.now());
            }
            self.store_attributes(h, inode)
        })?;
        inode.delayed.hold_anew(self, inode);
        inode.emptied.hold_owners(held);
        Ok(())
    }

    /// The generation of an inode (`FS_IOC_GETVERSION`).
    pub fn generation(&self, inode: &Inode) -> u32 {
        inode.raw.read().generation()
    }

    /// Sets the generation of an inode (`FS_IOC_SETVERSION`). The caller must check permission: only the
    /// owner may.
    ///
    /// # Errors
    /// `Unsupported` on volumes with metadata checksums, which depend on the generation; `ReadOnly`.
    pub fn set_generation(&self, inode: &Inode, generation: u32) -> Result<()> {
        self.check_writable()?;
        if self.geo.csum_seed.is_some() {
            return Err(unsupported(
                "setting the generation of an inode that checksums depend on",
            ));
        }
        self.transact(1, |h| {
            {
                let mut raw = inode.raw.write();
                if inode.is_freed() {
                    return Err(Reason::NotFound.into());
                }
                raw.set_generation(generation);
                raw.set_time(Time::Change, self.now());
            }
            self.store(h, inode)
        })
    }

    /// Whether the inode's flags allow it to be opened like this. An open file stays writable if it becomes
    /// append-only later; an immutable file rejects all writes, even through open handles.
    ///
    /// # Errors
    /// `Permission`, for a file with fs-verity too; `NoKey` for changing an encrypted file.
    pub fn check_open(&self, inode: &Inode, wanted: OpenFor) -> Result<()> {
        let changes = wanted.write || wanted.truncate;
        let immutable = changes && inode.flags.any(InodeFlags::IMMUTABLE);
        let only_appends = !wanted.truncate && (wanted.append || !wanted.write);
        if immutable || !only_appends && inode.flags.any(InodeFlags::APPEND) {
            return Err(Reason::Permission.into());
        }
        match changes {
            true => self.check_unprotected(inode),
            false => Ok(()),
        }
    }

    /// Whether `inode` may be linked into `dir`: entries of a directory that passes its project on must
    /// belong to that project.
    ///
    /// # Errors
    /// `CrossDevice`.
    pub(crate) fn check_project(&self, dir: &Inode, inode: &Inode) -> Result<()> {
        let gives_on = dir.raw.read().flags().contains(InodeFlags::PROJINHERIT);
        if gives_on && self.project(dir) != self.project(inode) {
            return Err(Reason::CrossDevice.into());
        }
        Ok(())
    }
}

/// Whether the flags may change from `old` to `new`.
fn check_change(old: InodeFlags, new: InodeFlags, may_fold: bool) -> Result<()> {
    let changed = (old ^ new) & FIXED;
    if changed.contains(InodeFlags::JOURNAL_DATA) {
        return Err(unsupported(
            "changing whether data goes through the journal",
        ));
    }
    if changed.contains(InodeFlags::CASEFOLD) && !may_fold {
        return Err(unsupported("changing whether names ignore case"));
    }
    // An inode that stays immutable must not change otherwise.
    let kept = old & new & InodeFlags::IMMUTABLE;
    if !kept.is_empty() && old & MODIFIABLE != new {
        return Err(Reason::Permission.into());
    }
    let clash = new.contains(InodeFlags::DAX) && (old | new).intersects(NOT_WITH_DAX)
        || old.contains(InodeFlags::DAX) && new.intersects(NOT_WITH_DAX);
    if clash {
        return Err(unsupported("DAX together with an incompatible flag"));
    }
    Ok(())
}

fn unsupported(what: &str) -> Error {
    Error::Unsupported(what.into())
}
