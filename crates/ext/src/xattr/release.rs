//! Giving back what holds the attributes of an inode that goes.

use std::sync::Arc;

use throughline_extfmt::FsBlock;
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

/// Values in inodes of their own that one transaction gives back, each with its inode and what the orphans are in.
pub(super) const VALUES_PER_STEP: usize = 16;
/// Blocks that [`release`] may touch beside the inode: the attribute block and its bits, and the values'.
pub(crate) const RELEASE_CREDITS: u32 = 1 + GROUP_CREDITS + VALUES_PER_STEP as u32 * COUNT_CREDITS;

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
pub(crate) fn release(fs: &Attrs, h: &mut Handle<'_>, inode: &Inode) -> Result<Released> {
    // Blocks are shared: between the look at a count and its change nobody else may take his share away.
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

fn is_in_inode(attribute: &Attribute) -> bool {
    matches!(attribute.value, Value::Inode { .. })
}

/// Takes up to `most` attributes whose values are in inodes out of a list; those inodes.
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

/// Refuses what a list that was checked cannot be: too long.
pub(super) fn must_fit(written: bool, inode: &Inode) -> Result<()> {
    if written {
        return Ok(());
    }
    Err(Error::corrupt("attributes do not fit where they came from").in_inode(inode.ino))
}

/// Gives an inode's share of a block up: the block, its users, and its hash. Frees it with the last.
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
