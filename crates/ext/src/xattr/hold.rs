//! Changes of the attributes of a file whose truncation is deferred ([`crate::emptied`]): they stay in
//! memory, and reach the disk in the transaction that carries out the truncation.
//!
//! The body is part of the inode's image, which waits as a whole. The new contents of the block wait beside
//! it. They will overwrite the old block, so this must be the inode's own by then: a shared block is copied
//! first, and one that is not shared is removed from the table of blocks to share.

use throughline_extfmt::FsBlock;
use throughline_extfmt::xattr::{self as format, Attribute};

use crate::attrs::Attrs;
use crate::balloc::Run;
use crate::emptied;
use crate::emptied::inode::List;
use crate::error::Result;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::map;
use crate::quota::limit::Hold;

use super::change::{Prepared, note_feature};
use super::place::{NewBlock, Place, put_block};
use super::read_block;
use super::release::must_fit;
use super::shared::Known;

/// What a change of the block needs.
struct Needs {
    list: List,
    /// A copy of the old block, which is shared.
    copy: Option<NewBlock>,
    /// The hash of the old block, which may be found for sharing.
    hash: u32,
    held: Option<Hold>,
}

impl Prepared {
    /// Counts of values in inodes cannot wait for a truncation: carries out a deferred one if they change.
    /// The I/O lock is held exclusively, and no handle is open.
    pub(super) fn may_wait(&self, fs: &Attrs, inode: &Inode) -> Result<()> {
        match self.uses_values() && inode.emptied.is_some() {
            true => emptied::finish(fs, inode),
            false => Ok(()),
        }
    }

    /// As [`Prepared::enter`], while a truncation is deferred: changes the attributes in memory. The mapping
    /// lock is held exclusively.
    pub(super) fn hold(
        &self,
        h: &mut Handle<'_>,
        fs: &Attrs,
        inode: &Inode,
        known: &mut Known,
    ) -> Result<()> {
        let needs = match self.layout.block_changed {
            true => Some(self.needs(fs, inode)?),
            false => None,
        };
        // Nothing can be refused from here on.
        inode.raw.count_edit();
        if self.layout.body_changed {
            let mut raw = inode.raw.write();
            let written = format::write_ibody(raw.xattr_area_mut(), &self.layout.body);
            must_fit(written, inode)?;
        }
        if let Some(needs) = needs {
            self.hold_block(h, fs, inode, needs, known)?;
        }
        if self.layout.body_changed || self.layout.block_changed {
            note_feature(fs, h)?;
        }
        Ok(())
    }

    /// Claims everything, and counts it. If that is refused, nothing has changed.
    fn needs(&self, fs: &Attrs, inode: &Inode) -> Result<Needs> {
        let at = inode.raw.read().file_acl(&fs.geo);
        let is_there = at != FsBlock(0);
        let more = i64::from(!self.layout.block.is_empty()) - i64::from(is_there);
        let held = fs.hold_clusters(inode, more.max(0).cast_unsigned(), 0)?;
        let before = inode.emptied.list();
        let is_first = before.is_none();
        let mut needs = Needs {
            list: before.unwrap_or_default(),
            copy: None,
            hash: 0,
            held,
        };
        let mut run = None;
        if is_first && is_there {
            let bytes = read_block(fs, at).map_err(|e| e.in_inode(inode.ino))?;
            let header = format::header(&bytes)?;
            let (users, hash) = (header.h_refcount.get(), header.h_hash.get());
            needs.hash = hash;
            needs.list.old = Some(at);
            if users > 1 {
                let list = format::read_block(&bytes)?;
                let own = fs.claim(fs.goal_for(inode), 1)?;
                needs.copy = Some(NewBlock {
                    bytes: Self::block_of(fs, inode, &list)?,
                    place: Place::New(own, Vec::new()),
                    old: Some((at, users, hash)),
                });
                needs.list.old = Some(own.start);
                run = Some(own);
            }
        }
        let list = &mut needs.list;
        if !self.layout.block.is_empty() && list.old.is_none() && list.claimed.is_none() {
            let own = fs.claim(fs.goal_for(inode), 1)?;
            list.claimed = Some((own.start, own.len));
            run = Some(own);
        }
        if more > 0
            && let Err(error) = map::add_blocks(fs, inode, more)
        {
            run.into_iter().for_each(|run| fs.release(run));
            return Err(error);
        }
        Ok(needs)
    }

    /// Keeps the new contents of the block.
    fn hold_block(
        &self,
        h: &mut Handle<'_>,
        fs: &Attrs,
        inode: &Inode,
        needs: Needs,
        known: &mut Known,
    ) -> Result<()> {
        let Needs {
            mut list,
            copy,
            hash,
            held,
        } = needs;
        let is_copied = copy.is_some();
        if let Some(copy) = copy {
            put_block(fs, h, inode, copy, known)?;
        }
        if let Some(old) = list.old {
            known.forget_block(hash, old);
        }
        let place = list.old.or(list.claimed.map(|(start, _)| start));
        let place = place.filter(|_| !self.layout.block.is_empty());
        list.new = match place {
            Some(at) => {
                let mut bytes = Self::block_of(fs, inode, &self.layout.block)?;
                format::update_checksum(&mut bytes, at, fs.geo.csum_seed);
                Some(bytes.into())
            }
            None => {
                let unused = list.claimed.take();
                unused
                    .into_iter()
                    .for_each(|(start, len)| fs.release(Run { start, len }));
                None
            }
        };
        let (old, at) = (list.old, place.unwrap_or(FsBlock(0)));
        if at == FsBlock(0) && inode.raw.read().file_acl(&fs.geo) != at {
            // Not before the copy, which also counts the old block less.
            map::add_blocks(fs, inode, -1)?;
        }
        inode.emptied.set_list(list, held, |image| {
            if let Some(old) = old.filter(|_| is_copied) {
                image.set_file_acl(&fs.geo, old);
            }
        });
        inode.raw.write().set_file_acl(&fs.geo, at);
        Ok(())
    }

    /// A block with this list, without its checksum.
    fn block_of(fs: &Attrs, inode: &Inode, list: &[Attribute]) -> Result<Vec<u8>> {
        let mut bytes = vec![0; fs.geo.block_bytes as usize];
        must_fit(format::write_block(&mut bytes, list), inode)?;
        Ok(bytes)
    }
}
