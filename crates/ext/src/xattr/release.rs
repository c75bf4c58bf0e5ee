//! Releases the attributes of an inode that is being freed.

use std::sync::Arc;

use throughline_extfmt::FsBlock;
use throughline_extfmt::features::Incompat;
use throughline_extfmt::xattr::{self as format, Attribute, Value};

use crate::attrs::Attrs;
use crate::balloc::GROUP_CREDITS;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::{Inode, Inodes};
use crate::map;

use super::shared::Known;
use super::values::{self, COUNT_CREDITS};
use super::{attributes_of_body, block, check_block};

/// Value inodes released in one transaction, each with its inode and orphan record.
pub(super) const VALUES_PER_STEP: usize = 16;
/// Blocks that [`release`] may change in addition to the inode: the attribute block and its bits, and those
/// of the values.
pub(crate) const RELEASE_CREDITS: u32 = 1 + GROUP_CREDITS + VALUES_PER_STEP as u32 * COUNT_CREDITS;

/// The result of [`release`].
pub(crate) struct Released {
    /// Value inodes that lost their last user, to be freed.
    pub(crate) unused: Vec<Arc<Inode>>,
    /// Whether all attributes are released.
    pub(crate) all: bool,
}

/// Releases the attributes of an inode that is being freed: its references to the block and to value inodes.
/// If there are many values, it removes only some attributes and must be called again in another transaction.
/// Reads and checks everything before the first change. The caller stores the inode.
pub(crate) fn release(fs: &Attrs, h: &mut Handle<'_>, inode: &Inode) -> Result<Released> {
    // Blocks are shared: a count must not change between reading and updating it.
    let mut known = fs.xattrs.known();
    let in_inode = |e: throughline_extfmt::Corrupt| Error::from(e).in_inode(inode.ino);
    let mut own = attributes_of_body(inode)?;
    let block = block(fs, inode)?;
    let (mut users, mut hash, mut in_block) = (0, 0, Vec::new());
    if let Some((_, bytes)) = &block {
        let header = format::header(bytes).map_err(in_inode)?;
        (users, hash) = (header.h_refcount.get(), header.h_hash.get());
        if users <= 1 {
            in_block = format::read_block(bytes).map_err(in_inode)?;
        }
    }
    let before = count_values(fs, inode)?;
    let mut values = take_values(fs, &mut own, VALUES_PER_STEP)?;
    let from_own = !values.is_empty();
    let rest = VALUES_PER_STEP - values.len();
    values.extend(take_values(fs, &mut in_block, rest)?);
    let from_block = values.len() > VALUES_PER_STEP - rest;
    let all = !own.iter().chain(&in_block).any(is_in_inode);
    inode
        .usage
        .set_values(before, before.saturating_sub(values.len() as u64));
    match block {
        Some((at, bytes)) if all => {
            // Drop the snapshot first, else the change would copy the block.
            drop(bytes);
            release_block(fs, h, inode, (at, users, hash), &mut known)?;
        }
        Some((at, bytes)) if from_block => {
            drop(bytes);
            known.forget_block(hash, at);
            let check = |bytes: &[u8]| check_block(fs, at, bytes);
            let written = h.modify_checked(at, check, |bytes| {
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
        .filter_map(|value| values::drop_user(fs, h, &mut known, value).transpose())
        .collect::<Result<_>>()?;
    Ok(Released { unused, all })
}

/// Counts the inode's attributes whose values are in inodes, if its usage needs that.
pub(crate) fn count_values(fs: &Inodes, inode: &Inode) -> Result<u64> {
    if !fs.quotas.is_on() || !fs.geo.incompat.contains(Incompat::EA_INODE) {
        return Ok(0);
    }
    let mut all = attributes_of_body(inode)?;
    if let Some((at, bytes)) = block(fs, inode)? {
        let listed = format::read_block(&bytes);
        all.extend(listed.map_err(|e| Error::from(e).in_inode(inode.ino).in_block(at))?);
    }
    Ok(all.iter().filter(|a| is_in_inode(a)).count() as u64)
}

fn is_in_inode(attribute: &Attribute) -> bool {
    matches!(attribute.value, Value::Inode { .. })
}

/// Removes up to `most` attributes with values in inodes from a list; returns those inodes.
fn take_values(fs: &Inodes, list: &mut Vec<Attribute>, most: usize) -> Result<Vec<Arc<Inode>>> {
    let mut values = Vec::new();
    let mut kept = Vec::with_capacity(list.len());
    for attribute in list.drain(..) {
        match attribute.value {
            Value::Inode { inode: holder, .. } if values.len() < most => {
                values.push(values::inode(fs, holder)?);
            }
            _ => kept.push(attribute),
        }
    }
    *list = kept;
    Ok(values)
}

/// Fails if a checked list does not fit, which cannot happen on an intact volume.
pub(super) fn must_fit(written: bool, inode: &Inode) -> Result<()> {
    if written {
        return Ok(());
    }
    Err(Error::corrupt("attributes do not fit where they came from").in_inode(inode.ino))
}

/// Drops an inode's reference to a block, given its users and hash. Frees the block with the last reference.
pub(super) fn release_block(
    fs: &Attrs,
    h: &mut Handle<'_>,
    inode: &Inode,
    (at, users, hash): (FsBlock, u32, u32),
    known: &mut Known,
) -> Result<()> {
    inode.raw.write().set_file_acl(&fs.geo, FsBlock(0));
    map::add_blocks(fs, inode, -1)?;
    if users <= 1 {
        known.forget_block(hash, at);
        h.forget(at);
        return fs.free(h, at, 1);
    }
    let check = |bytes: &[u8]| check_block(fs, at, bytes);
    h.modify_checked(at, check, |bytes| {
        format::set_refcount(bytes, users - 1);
        format::update_checksum(bytes, at, fs.geo.csum_seed);
    })
}
