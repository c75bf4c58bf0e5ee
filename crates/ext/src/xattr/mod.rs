//! Extended attributes: what they are called, reading, listing and setting them.
//!
//! They are in the inode behind its fields, in one block that inodes may share (counted), and, where a value is large, in
//! inodes of their own (counted too, `ea_inode`). Where one goes: [`layout`]; how that is changed: [`change`], [`place`]; values in
//! inodes: [`values`]; lists of access rights, which programs see in another form: [`acl`]; the end of an inode: [`release`].
//!
//! Invariants:
//! - Whoever changes the attributes of an inode holds its I/O lock alone, and, as the body of a directory holds names too,
//!   its directory lock. Whoever reads them shares the I/O lock, but for a look at the body.
//! - Counts of blocks and values change with [`Xattrs::known`] held, which comes after the handle.
//! - What has an index that is not known is kept, wherever the others go.

pub(crate) mod acl;
mod change;
mod layout;
#[cfg(test)]
mod limit_tests;
mod place;
mod release;
mod shared;
#[cfg(test)]
mod tests;
mod values;

use throughline_extfmt::FsBlock;
use throughline_extfmt::features::Compat;
use throughline_extfmt::inode::{FileType, InodeFlags};
use throughline_extfmt::xattr::{self as format, Attribute, Value};
use throughline_journal::Block;

use crate::attrs::Attrs;
use crate::error::{Error, Reason, Result};
use crate::inode::{Inode, Inodes};

pub(crate) use change::{Alone, Prepared, Step, free};
pub(crate) use release::{RELEASE_CREDITS, release};
pub(crate) use shared::Xattrs;

/// Longest name of an attribute, its prefix included, in bytes.
const NAME_MAX: usize = 255;
/// Longest value that the calls of Linux know, in bytes.
const VALUE_MAX: usize = 1 << 16;

/// What [`Attrs::set_xattr`] does about an attribute that is there, or is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Replaces it, or makes it.
    #[default]
    Either,
    /// Makes it; `Exists` where it is there.
    Create,
    /// Replaces it; `NoAttribute` where it is not there.
    Replace,
}

/// The name of an attribute that programs can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key<'n> {
    index: u8,
    /// Behind the prefix.
    name: &'n [u8],
}

impl<'n> Key<'n> {
    /// Of a name with its prefix.
    fn of(fs: &Attrs, full: &'n [u8]) -> Result<Self> {
        if full.is_empty() || full.len() > NAME_MAX {
            return Err(Reason::AttributeName.into());
        }
        match format::split_name(full) {
            Some((index, name)) if is_usable(fs, index) => Ok(Self { index, name }),
            _ if matches!(full, b"user." | b"trusted." | b"security.") => {
                Err(Reason::Invalid("an attribute's name is more than its prefix").into())
            }
            _ => Err(Error::Unsupported("attributes of this prefix".into())),
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

    /// Refuses lists of access rights of what has none.
    fn check_acl(&self, inode: &Inode) -> Result<()> {
        if self.acl().is_some() && inode.is_symlink() {
            return Err(Error::Unsupported(
                "access rights of a symbolic link".into(),
            ));
        }
        Ok(())
    }
}

/// Whether an inode of that kind can have attributes `user.`.
fn may_have_user(inode: &Inode) -> bool {
    matches!(inode.kind, Some(FileType::Regular | FileType::Directory))
}

/// Whether programs see attributes of that index.
fn is_usable(fs: &Attrs, index: u8) -> bool {
    match index {
        format::INDEX_USER | format::INDEX_TRUSTED | format::INDEX_SECURITY => true,
        format::INDEX_ACL_ACCESS | format::INDEX_ACL_DEFAULT => fs.xattrs.acl,
        _ => false,
    }
}

impl Attrs {
    /// The names of an inode's attributes, with their prefixes (`user.`, `security.` ...), in the order of the disk.
    ///
    /// # Errors
    /// `Corrupt`; those of the device; `NotFound` for an inode that was freed.
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

    /// The value of an attribute; lists of access rights in the form that programs have them in. Of an inode without such an
    /// attribute in its body, and without a block, it costs a look at the inode in memory.
    ///
    /// # Errors
    /// `NoAttribute`; `AttributeName`; `Unsupported` for a prefix that programs cannot use, and for access rights where they
    /// are not kept; `Corrupt`; those of the device; `NotFound` for an inode that was freed.
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

    /// Sets an attribute; lists of access rights in the form that programs have them in, an empty one for none. The
    /// permissions follow a list that is set, and one that says no more than they do is not kept.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute` as `mode` says; `NoSpace` on the volume, or where attributes can be; `AttributeName`,
    /// `ValueTooLong`, `Invalid`; `Unsupported` as [`Attrs::get_xattr`]; `Permission` for an immutable or append-only inode, and for
    /// `user.` on anything but files and directories; `Denied` for a default list of anything but a directory; `ReadOnly`;
    /// `NotFound` for an inode that was freed.
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

    /// As [`Attrs::set_xattr`], for a list of access rights set by somebody who is not in the inode's group: the setgid bit goes
    /// with the permissions that an access list sets.
    ///
    /// # Errors
    /// As there; `Invalid` for any other attribute.
    pub fn set_acl_clearing_setgid(&self, inode: &Inode, name: &[u8], value: &[u8]) -> Result<()> {
        let key = self.may_set(inode, name)?;
        let kind = key
            .acl()
            .ok_or(Reason::Invalid("not a list of access rights"))?;
        acl::set(self, inode, kind, value, true)
    }

    /// Takes an attribute away. A list of access rights need not be there.
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

    /// Takes `security.capability` away: the file is being changed by somebody who may not keep it. Whether it was there. No
    /// lock of the inode is held, and no handle open. Where there is no such attribute in the body and no block, it costs a
    /// look at the inode in memory.
    ///
    /// # Errors
    /// As [`Attrs::remove_xattr`], but for one that is not there.
    pub fn drop_capability(&self, inode: &Inode) -> Result<bool> {
        let key = Key {
            index: format::INDEX_SECURITY,
            name: b"capability",
        };
        if self.surely_lacks(inode, &key)? {
            return Ok(false);
        }
        change::set(self, inode, &key, None, change::Rule::IfThere)
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

    /// Whether the inode has no such attribute, as far as that is known without its block. Takes no lock of the inode but its
    /// image's, and allocates nothing.
    fn surely_lacks(&self, inode: &Inode, key: &Key<'_>) -> Result<bool> {
        let raw = inode.raw.read();
        if raw.file_acl(&self.geo) != FsBlock(0) {
            return Ok(false);
        }
        let found = format::has_ibody(raw.xattr_area(), key.index, key.name)
            .map_err(|e| Error::from(e).in_inode(inode.ino));
        Ok(!found?)
    }

    /// Whether the volume says that it has attributes.
    fn says_attributes(&self) -> bool {
        self.geo.compat.contains(Compat::EXT_ATTR)
            || self.superblock.lock().compat().contains(Compat::EXT_ATTR)
    }
}

/// The value of an attribute, as it is stored. The I/O lock is held.
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

/// All attributes: the inode's own, then the block's. The I/O lock is held.
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

/// The block of an inode's attributes, if it has one.
fn block(fs: &Inodes, inode: &Inode) -> Result<Option<(FsBlock, Block)>> {
    let at = inode.raw.read().file_acl(&fs.geo);
    if at == FsBlock(0) {
        return Ok(None);
    }
    let bytes = read_block(fs, at).map_err(|e| e.in_inode(inode.ino))?;
    Ok(Some((at, bytes)))
}

/// A block of attributes, its head and its checksum checked.
fn read_block(fs: &Inodes, at: FsBlock) -> Result<Block> {
    let read = || {
        fs.check_data_range(at, 1)?;
        fs.read_checked(at, |bytes| check_block(fs, at, bytes))
    };
    read().map_err(|e| e.in_block(at))
}

/// Of a block just loaded: to be read, or to be changed in a part of it.
fn check_block(
    fs: &Inodes,
    at: FsBlock,
    bytes: &[u8],
) -> core::result::Result<(), throughline_extfmt::Corrupt> {
    format::header(bytes)?;
    format::verify_checksum(bytes, at, fs.geo.csum_seed)
}
