//! Extended attributes: names, and reading, listing and setting them.
//!
//! Attributes are stored in the inode after its fields, in one block that inodes may share
//! (reference-counted), and, for large values, in separate inodes (also reference-counted, `ea_inode`).
//! [`layout`] decides where one goes; [`change`] and [`place`] apply changes; [`values`] handles values in
//! inodes; [`acl`] handles access control lists, which have a different form in user space; [`release`] frees
//! an inode's attributes; [`hold`] keeps a change in memory while a truncation is deferred.
//!
//! Invariants:
//! - A change of an inode's attributes holds its I/O lock exclusively and, since the body of a directory also
//!   contains names, its directory lock. A read holds the I/O lock shared, except for a read of only the
//!   body.
//! - Reference counts of blocks and values change with [`Xattrs::known`] held, which is taken after the
//!   handle.
//! - Attributes with an unknown index are kept, wherever the others move.

pub(crate) mod acl;
mod change;
mod hold;
mod layout;
#[cfg(test)]
mod limit_tests;
mod place;
mod release;
mod shared;
#[cfg(test)]
mod tests;
mod values;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_extfmt::FsBlock;
use throughline_extfmt::features::Compat;
use throughline_extfmt::inode::{FileType, InodeFlags};
use throughline_extfmt::xattr::{self as format, Attribute, Value};
use throughline_journal::Block;

use crate::attrs::Attrs;
use crate::error::{Error, Reason, Result};
use crate::inode::{Inode, Inodes};

pub(crate) use change::{ChangeLocks, Prepared, Step, free};
pub(crate) use release::{RELEASE_CREDITS, count_values, release};
pub(crate) use shared::Xattrs;
#[cfg(test)]
pub(crate) use values::begin_value;

/// Longest attribute name in bytes, with its prefix.
const NAME_MAX: usize = 255;
/// Largest value supported by the Linux system calls, in bytes.
const VALUE_MAX: usize = 1 << 16;

/// How setting an attribute treats an existing or a missing one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Replaces or creates it.
    #[default]
    Either,
    /// Creates it; `Exists` if it exists.
    Create,
    /// Replaces it; `NoAttribute` if it does not exist.
    Replace,
}

/// The name of an attribute accessible from user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key<'n> {
    index: u8,
    /// The part after the prefix.
    name: &'n [u8],
}

impl Inode {
    /// Whether it is known to have no file capabilities.
    pub fn lacks_capability(&self) -> bool {
        self.lacks_capability.load(Ordering::Acquire)
    }
}

impl<'n> Key<'n> {
    /// The capabilities of a program file.
    const CAPABILITY: Key<'static> = Key {
        index: format::INDEX_SECURITY,
        name: b"capability",
    };

    /// Parses a full name.
    fn of(fs: &Attrs, full: &'n [u8]) -> Result<Self> {
        if full.is_empty() || full.len() > NAME_MAX {
            return Err(Reason::AttributeName.into());
        }
        match format::split_name(full) {
            Some((index, name)) if is_usable(fs, index) => Ok(Self { index, name }),
            _ if matches!(full, b"user." | b"trusted." | b"security.") => {
                Err(Reason::Invalid("an attribute's name must have a part after its prefix").into())
            }
            _ => Err(Error::Unsupported("attributes with this prefix".into())),
        }
    }

    fn is_of(&self, attribute: &Attribute) -> bool {
        attribute.is_named(self.index, self.name)
    }

    fn acl(&self) -> Option<acl::Kind> {
        match self.index {
            format::INDEX_ACL_ACCESS => Some(acl::Kind::Access),
            format::INDEX_ACL_DEFAULT => Some(acl::Kind::Default),
            _ => None,
        }
    }

    /// Fails for an ACL on an inode that cannot have one.
    fn check_acl(&self, inode: &Inode) -> Result<()> {
        if self.acl().is_some() && inode.is_symlink() {
            return Err(Error::Unsupported("the ACL of a symbolic link".into()));
        }
        Ok(())
    }
}

/// Whether this type of inode can have `user.` attributes.
fn may_have_user(inode: &Inode) -> bool {
    matches!(inode.kind, Some(FileType::Regular | FileType::Directory))
}

/// Whether attributes with this index are visible to user space.
fn is_usable(fs: &Attrs, index: u8) -> bool {
    match index {
        format::INDEX_USER | format::INDEX_TRUSTED | format::INDEX_SECURITY => true,
        format::INDEX_ACL_ACCESS | format::INDEX_ACL_DEFAULT => fs.xattrs.acl,
        _ => false,
    }
}

impl Attrs {
    /// The full names of an inode's attributes (`user.`, `security.` ...), in on-disk order.
    ///
    /// # Errors
    /// `Corrupt`; device errors; `NotFound` for a freed inode.
    pub fn list_xattrs(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let _io = inode.io_shared();
        let shown = |attribute: &&Attribute| {
            let is_acl = matches!(
                attribute.name_index,
                format::INDEX_ACL_ACCESS | format::INDEX_ACL_DEFAULT
            );
            is_usable(self, attribute.name_index) && !(is_acl && inode.is_symlink())
        };
        Ok(attributes(self, inode)?
            .iter()
            .filter(shown)
            .filter_map(Attribute::full_name)
            .collect())
    }

    /// The value of an attribute; ACLs in their user-space form. Needs no I/O for an inode with neither this
    /// attribute in its body nor an attribute block.
    ///
    /// # Errors
    /// `NoAttribute`; `AttributeName`; `Unsupported` for prefixes not available to user space, and for ACLs
    /// if they are not kept; `Corrupt`; device errors; `NotFound` for a freed inode.
    pub fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let key = Key::of(self, name)?;
        key.check_acl(inode)?;
        let none = key.index == format::INDEX_USER && !may_have_user(inode);
        if none || self.surely_lacks(inode, &key)? {
            return Err(Reason::NoAttribute.into());
        }
        let value = {
            let _io = inode.io_shared();
            value(self, inode, &key)?.ok_or(Reason::NoAttribute)?
        };
        match key.acl() {
            Some(_) => acl::to_user(inode, &value),
            None => Ok(value),
        }
    }

    /// Sets an attribute; ACLs in their user-space form, where an empty list removes the ACL. Setting an
    /// access ACL updates the permissions; an ACL equivalent to permission bits is not stored.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute` according to `mode`; `NoSpace` on the volume, or in the attribute space;
    /// `AttributeName`, `ValueTooLong`, `Invalid`; `Unsupported` as [`Attrs::get_xattr`]; `Permission` for an
    /// immutable or append-only inode, and for `user.` on anything but files and directories; `Denied` for a
    /// default ACL on anything but a directory; `ReadOnly`; `NotFound` for a freed inode.
    pub fn set_xattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let key = self.may_set(inode, name)?;
        if value.len() > VALUE_MAX {
            return Err(Reason::ValueTooLong.into());
        }
        match key.acl() {
            Some(kind) => acl::set(self, inode, kind, value, false),
            None => change::set(self, inode, &key, Some(value), mode.into()).map(drop),
        }
    }

    /// As [`Attrs::set_xattr`], for an ACL set by a caller outside the inode's group: an access ACL also
    /// clears the setgid bit.
    ///
    /// # Errors
    /// The same; `Invalid` for any other attribute.
    pub fn set_acl_clearing_setgid(&self, inode: &Inode, name: &[u8], value: &[u8]) -> Result<()> {
        let key = self.may_set(inode, name)?;
        let kind = key.acl().ok_or(Reason::Invalid("not an ACL"))?;
        acl::set(self, inode, kind, value, true)
    }

    /// Removes an attribute. Removing an ACL that does not exist is not an error.
    ///
    /// # Errors
    /// `NoAttribute`, and those of [`Attrs::set_xattr`].
    pub fn remove_xattr(&self, inode: &Inode, name: &[u8]) -> Result<()> {
        let key = self.may_set(inode, name)?;
        match key.acl() {
            Some(kind) => acl::set(self, inode, kind, &[], false),
            None => change::set(self, inode, &key, None, change::Rule::Replace).map(drop),
        }
    }

    /// Removes `security.capability` before a change of the file's data or owner. Returns whether it existed.
    /// No lock of the inode may be held and no handle open. The attributes are looked at once: after that, it
    /// is a load until the attribute is set.
    ///
    /// # Errors
    /// As [`Attrs::remove_xattr`], except for a missing attribute.
    pub fn drop_capability(&self, inode: &Inode) -> Result<bool> {
        if inode.lacks_capability() {
            return Ok(false);
        }
        {
            // While it is held, no attribute is set.
            let _io = inode.io_shared();
            if self.surely_lacks(inode, &Key::CAPABILITY)? {
                inode.lacks_capability.store(true, Ordering::Release);
                return Ok(false);
            }
        }
        change::set(self, inode, &Key::CAPABILITY, None, change::Rule::IfThere)
    }

    fn may_set<'n>(&self, inode: &Inode, name: &'n [u8]) -> Result<Key<'n>> {
        self.check_writable()?;
        let kept = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        let of_users = name.starts_with(b"user.") && !may_have_user(inode);
        if of_users || inode.raw.read().flags().intersects(kept) {
            return Err(Reason::Permission.into());
        }
        let key = Key::of(self, name)?;
        key.check_acl(inode)?;
        Ok(key)
    }

    /// Whether the inode certainly lacks the attribute, as far as can be told without its block. Takes only
    /// the lock of the inode's image, and does not allocate.
    fn surely_lacks(&self, inode: &Inode, key: &Key<'_>) -> Result<bool> {
        let raw = inode.raw.read();
        if raw.file_acl(&self.geo) != FsBlock(0) {
            return Ok(false);
        }
        let found = format::has_ibody(raw.xattr_area(), key.index, key.name)
            .map_err(|e| Error::from(e).in_inode(inode.ino));
        Ok(!found?)
    }

    /// Whether the superblock has the attribute feature.
    fn has_attribute_feature(&self) -> bool {
        self.geo.compat.contains(Compat::EXT_ATTR)
            || self.superblock.lock().compat().contains(Compat::EXT_ATTR)
    }
}

/// The stored value of an attribute. The I/O lock is held.
fn value(fs: &Attrs, inode: &Inode, key: &Key<'_>) -> Result<Option<Vec<u8>>> {
    let found = attributes(fs, inode)?
        .into_iter()
        .find(|attribute| key.is_of(attribute));
    match found.map(|found| (found.value, found.name)) {
        None => Ok(None),
        Some((Value::Bytes(bytes), _)) => Ok(Some(bytes)),
        Some((
            Value::Inode {
                inode: holder,
                size,
                hash,
            },
            name,
        )) => values::read(fs, inode, holder, size, &name, hash)
            .map(Some)
            .map_err(|e| e.in_inode(holder)),
    }
}

/// All attributes: those in the inode's body, then those in its block. The I/O lock is held.
fn attributes(fs: &Inodes, inode: &Inode) -> Result<Vec<Attribute>> {
    if inode.is_freed() {
        return Err(Reason::NotFound.into());
    }
    let mut list = attributes_of_body(inode)?;
    if let Some((_, block)) = block(fs, inode)? {
        list.extend(format::read_block(&block).map_err(|e| Error::from(e).in_inode(inode.ino))?);
    }
    Ok(list)
}

/// The attributes in the inode's body.
fn attributes_of_body(inode: &Inode) -> Result<Vec<Attribute>> {
    format::read_ibody(inode.raw.read().xattr_area())
        .map_err(|e| Error::from(e).in_inode(inode.ino))
}

/// The contents of an attribute block.
enum Contents {
    Stored(Block),
    /// Not on disk before a deferred truncation is ([`hold`]).
    Held(Arc<[u8]>),
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Stored(block) => block,
            Self::Held(bytes) => bytes,
        }
    }
}

/// The attribute block of an inode, if it has one.
fn block(fs: &Inodes, inode: &Inode) -> Result<Option<(FsBlock, Contents)>> {
    let at = inode.raw.read().file_acl(&fs.geo);
    if at == FsBlock(0) {
        return Ok(None);
    }
    if let Some(bytes) = inode.emptied.list().and_then(|list| list.new) {
        return Ok(Some((at, Contents::Held(bytes))));
    }
    let bytes = read_block(fs, at).map_err(|e| e.in_inode(inode.ino))?;
    Ok(Some((at, Contents::Stored(bytes))))
}

/// Reads an attribute block, and checks its header and checksum.
pub(crate) fn read_block(fs: &Inodes, at: FsBlock) -> Result<Block> {
    let read = || {
        fs.check_data_range(at, 1)?;
        fs.read_checked(at, |bytes| check_block(fs, at, bytes))
    };
    read().map_err(|e| e.in_block(at))
}

/// Checks a block that was just loaded, for reading or for a partial change.
pub(crate) fn check_block(
    fs: &Inodes,
    at: FsBlock,
    bytes: &[u8],
) -> core::result::Result<(), throughline_extfmt::Corrupt> {
    format::header(bytes)?;
    format::verify_checksum(bytes, at, fs.geo.csum_seed)
}
