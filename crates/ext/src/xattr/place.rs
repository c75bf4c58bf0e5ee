//! Where a changed attribute block is stored: in place, in a shared block with the same contents, or in a
//! new one.

use std::sync::Arc;

use throughline_extfmt::FsBlock;
use throughline_extfmt::xattr::{self as format, REFCOUNT_MAX, Value};

use crate::attrs::Attrs;
use crate::balloc::Run;
use crate::error::Result;
use crate::handle::Handle;
use crate::inode::{Inode, Inodes};
use crate::map;

use super::change::{Prepared, is_in_inode};
use super::release::{must_fit, release_block};
use super::shared::Known;
use super::{check_block, read_block, values};

/// Where the block's list is stored.
pub(super) enum Place {
    /// Nowhere: the list is empty.
    Dropped,
    /// In the same block.
    There(FsBlock),
    /// In another block with the same contents, whose current user count this is.
    Shared(FsBlock, u32),
    /// In a new block; includes the values named by both it and the old one.
    New(Run, Vec<Arc<Inode>>),
}

/// The new list of the block, and where it goes.
pub(super) struct NewBlock {
    pub(super) bytes: Vec<u8>,
    pub(super) place: Place,
    /// The old block, its user count and its hash.
    pub(super) old: Option<(FsBlock, u32, u32)>,
}

impl Prepared {
    /// Builds the block's list and finds a place for it.
    pub(super) fn new_block(&self, fs: &Attrs, inode: &Inode, known: &Known) -> Result<NewBlock> {
        let list = &self.layout.block;
        let old = match self.old_block {
            None => None,
            Some(at) => {
                let bytes = read_block(fs, at).map_err(|e| e.in_inode(inode.ino))?;
                let header = format::header(&bytes)?;
                Some((at, header.h_refcount.get(), header.h_hash.get()))
            }
        };
        let mut bytes = vec![0; fs.geo.block_bytes as usize];
        must_fit(format::write_block(&mut bytes, list), inode)?;
        let place = self.place(fs, inode, (&bytes, old), known)?;
        Ok(NewBlock { bytes, place, old })
    }

    fn place(
        &self,
        fs: &Attrs,
        inode: &Inode,
        (bytes, old): (&[u8], Option<(FsBlock, u32, u32)>),
        known: &Known,
    ) -> Result<Place> {
        let list = &self.layout.block;
        if list.is_empty() {
            return Ok(Place::Dropped);
        }
        if !list.iter().any(is_in_inode)
            && let Some((at, users)) = find_equal(fs, bytes, known)
            && old.is_none_or(|(old, ..)| old != at)
        {
            return Ok(Place::Shared(at, users));
        }
        let mut named = Vec::new();
        match old {
            Some((at, 0 | 1, _)) => return Ok(Place::There(at)),
            Some(_) => {
                for attribute in list {
                    if let Value::Inode { inode: holder, .. } = attribute.value
                        && !self.edited.iter().any(|(i, n)| attribute.is_named(*i, n))
                    {
                        named.push(values::inode(fs, holder)?);
                    }
                }
            }
            None => {}
        }
        Ok(Place::New(fs.claim(fs.goal_for(inode), 1)?, named))
    }
}

/// A block with the same list that can take another user; its current user count.
fn find_equal(fs: &Inodes, bytes: &[u8], known: &Known) -> Option<(FsBlock, u32)> {
    let hash = format::header(bytes).ok()?.h_hash.get();
    let at = known.block(hash)?;
    let other = read_block(fs, at).ok()?;
    let users = format::header(&other).ok()?.h_refcount.get();
    let same = format::is_same_list(bytes, &other);
    (same && users < REFCOUNT_MAX).then_some((at, users))
}

/// Stores the block's list, and drops the reference to the old block.
pub(super) fn put_block(
    fs: &Attrs,
    h: &mut Handle<'_>,
    inode: &Inode,
    NewBlock { bytes, place, old }: NewBlock,
    known: &mut Known,
) -> Result<()> {
    let seed = fs.geo.csum_seed;
    let hash = format::header(&bytes)?.h_hash.get();
    if let (Place::There(at), Some((_, _, old_hash))) = (&place, old) {
        known.forget_block(old_hash, *at);
        known.add_block(hash, *at);
        return h.modify(*at, |block| {
            block.copy_from_slice(&bytes);
            format::update_checksum(block, *at, seed);
        });
    }
    if let Some((at, users, old_hash)) = old {
        release_block(fs, h, inode, (at, users, old_hash), known)?;
    }
    let at = match place {
        Place::Dropped | Place::There(_) => return Ok(()),
        Place::Shared(at, users) => {
            let check = |bytes: &[u8]| check_block(fs, at, bytes);
            h.modify_checked(at, check, |block| {
                format::set_refcount(block, users.saturating_add(1));
                format::update_checksum(block, at, seed);
            })?;
            at
        }
        Place::New(run, named) => {
            fs.confirm(h, run)?;
            h.create(run.start, |block| {
                block.copy_from_slice(&bytes);
                format::update_checksum(block, run.start, seed);
            })?;
            for value in named {
                values::add_user(fs, h, &value)?;
            }
            known.add_block(hash, run.start);
            run.start
        }
    };
    if old.is_some() {
        // The old block was subtracted from the count.
        map::add_blocks(fs, inode, 1)?;
    }
    inode.raw.write().set_file_acl(&fs.geo, at);
    Ok(())
}
