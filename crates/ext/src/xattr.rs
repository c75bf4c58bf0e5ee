//! Extended attributes: reading them, and giving back what holds them when their inode goes.
//!
//! They are in the inode behind its fields, in one block that inodes may share (counted), and, where a value is large, in
//! inodes of their own (counted too, `ea_inode`). Nothing here changes attributes; whatever else is done to an inode
//! leaves them as they are.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use throughline_extfmt::checksum::{CRC32C_INIT, crc32c};
use throughline_extfmt::features::Incompat;
use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::xattr::{self as format, Attribute, Value};
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber, inline_data};
use throughline_journal::Block;

use crate::balloc::GROUP_CREDITS;
use crate::error::{Error, Reason, Result};
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::orphan::ORPHAN_CREDITS;
use crate::{map, orphan};

impl Fs {
    /// The names of an inode's attributes, with their prefixes (`user.`, `security.` ...), in the order of the disk.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub fn list_xattrs(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let list = attributes(self, inode)?;
        Ok(list
            .iter()
            .filter(|attribute| !is_inline_data(attribute))
            .filter_map(Attribute::full_name)
            .collect())
    }

    /// The value of an attribute, as it is stored (lists of access rights in their on-disk form).
    ///
    /// # Errors
    /// `NoAttribute`; `Corrupt`; those of the device.
    pub fn get_xattr(&self, inode: &Inode, name: &[u8]) -> Result<Vec<u8>> {
        let (index, rest) = format::split_name(name).ok_or(Reason::NoAttribute)?;
        let found = attributes(self, inode)?
            .into_iter()
            .find(|attribute| {
                attribute.name_index == index
                    && attribute.name == rest
                    && !is_inline_data(attribute)
            })
            .ok_or(Reason::NoAttribute)?;
        match found.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Inode {
                inode: holder,
                size,
                hash,
            } => self
                .read_value(inode, holder, size, &found.name, hash)
                .map_err(|e| e.in_inode(holder)),
        }
    }

    /// Reads a value that has an inode of its own, and checks that it is the one that was written for this attribute.
    fn read_value(
        &self,
        owner: &Inode,
        holder: InodeNumber,
        size: u32,
        name: &[u8],
        hash: u32,
    ) -> Result<Vec<u8>> {
        let holder = value_inode(self, holder)?;
        let raw = holder.image();
        let stored = raw.size_bytes(&self.geo)?;
        if stored != u64::from(size) {
            return Err(Error::corrupt(format!(
                "an attribute's value has {stored} bytes, not {size}"
            )));
        }
        let block_bytes = self.geo.block_bytes as usize;
        let mut value = Vec::new();
        for at in 0..size.div_ceil(self.geo.block_bytes) {
            let (block, _) = map::lookup_block_run(self, &holder, FileBlock(at), 1)?
                .ok_or_else(|| Error::corrupt("an attribute's value has a hole"))?;
            let bytes = self.read(block)?;
            let left = (size as usize).saturating_sub(value.len());
            value.extend_from_slice(bytes.get(..left.min(block_bytes)).unwrap_or_default());
        }
        let value_hash = crc32c(self.xattr_seed(), &value);
        let entry_hash = format::entry_hash(name, &value_hash.to_le_bytes());
        // The value's hash is where other inodes have their access time. Kernels hashed names over 127 as signed bytes
        // or unsigned ones, depending on the machine.
        let right =
            raw.base().i_atime.get() == value_hash && (entry_hash == hash || !name.is_ascii());
        // An older way (Lustre): no hash, but the value's inode names its owner.
        let owned = raw.base().i_mtime.get() == owner.ino.0
            && raw.generation() == owner.image().generation();
        if right || owned {
            return Ok(value);
        }
        Err(Error::corrupt(
            "an attribute's value does not match its hash",
        ))
    }

    /// Seed of the hashes of values: the volume's checksum seed, which it has for these even without checksums.
    fn xattr_seed(&self) -> u32 {
        if let Some(seed) = self.geo.csum_seed {
            return seed;
        }
        if self.geo.incompat.contains(Incompat::CSUM_SEED) {
            return self.superblock().s_checksum_seed.get();
        }
        crc32c(CRC32C_INIT, &self.geo.uuid)
    }
}

fn is_inline_data(attribute: &Attribute) -> bool {
    attribute.name_index == inline_data::XATTR_NAME_INDEX
        && attribute.name == inline_data::XATTR_NAME
}

/// All attributes: the inode's own, then the block's.
fn attributes(fs: &Fs, inode: &Inode) -> Result<Vec<Attribute>> {
    let raw = inode.image();
    let mut list =
        format::read_ibody(raw.xattr_area()).map_err(|e| Error::from(e).in_inode(inode.ino))?;
    if let Some((_, block)) = block(fs, inode)? {
        list.extend(format::read_block(&block).map_err(|e| Error::from(e).in_inode(inode.ino))?);
    }
    Ok(list)
}

/// The block of an inode's attributes, if it has one.
fn block(fs: &Fs, inode: &Inode) -> Result<Option<(FsBlock, Block)>> {
    let at = inode.raw.read().file_acl(&fs.geo);
    if at == FsBlock(0) {
        return Ok(None);
    }
    let read = || {
        fs.check_data_range(at, 1)?;
        fs.read_checked(at, |bytes| {
            format::header(bytes)?;
            format::verify_checksum(bytes, at, fs.geo.csum_seed)
        })
    };
    let bytes = read().map_err(|e| e.in_inode(inode.ino).in_block(at))?;
    Ok(Some((at, bytes)))
}

/// The inode of a value.
fn value_inode(fs: &Fs, ino: InodeNumber) -> Result<Arc<Inode>> {
    let inode = match fs.inode(ino) {
        Err(Error::Caller(Reason::NotFound)) => {
            return Err(Error::corrupt("an attribute's value is in a free inode").in_inode(ino));
        }
        other => other?,
    };
    if ino >= fs.geo.first_ino && inode.raw.read().flags().contains(InodeFlags::EA_INODE) {
        return Ok(inode);
    }
    Err(Error::corrupt("an attribute's value is in an inode that is not for values").in_inode(ino))
}

/// Values in inodes of their own that one transaction gives back, each with its inode and what the orphans are in.
const VALUES_PER_STEP: usize = 16;
/// Blocks that [`release`] may touch beside the inode: the attribute block and its bits, and the values'.
pub(crate) const RELEASE_CREDITS: u32 =
    1 + GROUP_CREDITS + VALUES_PER_STEP as u32 * (1 + ORPHAN_CREDITS);

/// What [`release`] gave back.
pub(crate) struct Released {
    /// Inodes of values that nobody uses any more, to be freed.
    pub(crate) unused: Vec<Arc<Inode>>,
    /// Whether that was all.
    pub(crate) all: bool,
}

/// Gives back what holds the attributes of an inode that is being freed: its share of the block, and of the inodes of
/// values. Where these are many it takes some of the attributes out, and wants to be called again in another transaction.
/// Reads and checks all before it changes. The caller stores the inode.
pub(crate) fn release(fs: &Fs, h: &mut Handle<'_>, inode: &Inode) -> Result<Released> {
    // Blocks are shared: between the look at a count and its change nobody else may take his share away.
    let _shares = fs.orphans.attribute_shares();
    let in_inode = |e: throughline_extfmt::Corrupt| Error::from(e).in_inode(inode.ino);
    let mut own = format::read_ibody(inode.image().xattr_area()).map_err(in_inode)?;
    let block = block(fs, inode)?;
    let (mut shared, mut in_block) = (0, Vec::new());
    if let Some((_, bytes)) = &block {
        let users = format::header(bytes).map_err(in_inode)?.h_refcount.get();
        shared = users.saturating_sub(1);
        if shared == 0 {
            in_block = format::read_block(bytes).map_err(in_inode)?;
        }
    }
    let mut values = take_values(fs, &mut own, VALUES_PER_STEP)?;
    let from_own = !values.is_empty();
    let rest = VALUES_PER_STEP - values.len();
    values.extend(take_values(fs, &mut in_block, rest)?);
    let from_block = values.len() > VALUES_PER_STEP - rest;
    let all = !own.iter().chain(&in_block).any(is_in_inode);
    match block {
        Some((at, bytes)) if all => {
            // The snapshot goes first, or the change would have to copy the block.
            drop(bytes);
            release_block(fs, h, inode, at, shared)?;
        }
        Some((at, bytes)) if from_block => {
            drop(bytes);
            let written = h.modify(at, |bytes| {
                let written = format::write_block(bytes, &in_block);
                format::update_checksum(bytes, at, fs.geo.csum_seed);
                written
            })?;
            must_fit(written, inode)?;
        }
        _ => {}
    }
    if from_own {
        let written = format::write_ibody(inode.raw.write().xattr_area_mut(), &own);
        must_fit(written, inode)?;
    }
    let unused = values
        .into_iter()
        .filter_map(|value| release_value(fs, h, value).transpose())
        .collect::<Result<_>>()?;
    Ok(Released { unused, all })
}

fn is_in_inode(attribute: &Attribute) -> bool {
    matches!(attribute.value, Value::Inode { .. })
}

/// Takes up to `most` attributes whose values are in inodes out of a list; those inodes.
fn take_values(fs: &Fs, list: &mut Vec<Attribute>, most: usize) -> Result<Vec<Arc<Inode>>> {
    let mut values = Vec::new();
    let mut kept = Vec::with_capacity(list.len());
    for attribute in list.drain(..) {
        match attribute.value {
            Value::Inode { inode: holder, .. } if values.len() < most => {
                values.push(value_inode(fs, holder)?);
            }
            _ => kept.push(attribute),
        }
    }
    *list = kept;
    Ok(values)
}

fn must_fit(written: bool, inode: &Inode) -> Result<()> {
    if written {
        return Ok(());
    }
    Err(Error::corrupt("attributes do not fit where they came from").in_inode(inode.ino))
}

fn release_block(
    fs: &Fs,
    h: &mut Handle<'_>,
    inode: &Inode,
    at: FsBlock,
    shared: u32,
) -> Result<()> {
    inode.raw.write().set_file_acl(&fs.geo, FsBlock(0));
    map::add_blocks(fs, inode, -1)?;
    if shared == 0 {
        h.forget(at);
        return fs.free(h, at, 1);
    }
    h.modify(at, |bytes| {
        format::set_refcount(bytes, shared);
        format::update_checksum(bytes, at, fs.geo.csum_seed);
    })
}

/// One attribute less uses this value; the value's inode, if it was the last.
fn release_value(fs: &Fs, h: &mut Handle<'_>, value: Arc<Inode>) -> Result<Option<Arc<Inode>>> {
    let left = {
        let mut raw = value.raw.write();
        let left = format::value_refcount(&raw).saturating_sub(1);
        format::set_value_refcount(&mut raw, left);
        if left == 0 {
            raw.set_links_count(0);
        }
        left
    };
    if left > 0 {
        fs.store(h, &value)?;
        return Ok(None);
    }
    orphan::add(fs, h, &value)?;
    Ok(Some(value))
}
