//! Creates, changes and frees inodes.

use std::sync::Arc;

use throughline_extfmt::extent::NodeMut;
use throughline_extfmt::inode::{FileType, InodeFlags};
use throughline_extfmt::{FsBlock, InodeImage, InodeNumber};

use super::{CREDITS, Replay};
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::map::Format;
use crate::xattr;

impl Replay<'_> {
    /// Sets an inode to its `logged` state, except for its mapping.
    pub(super) fn set_inode(&mut self, ino: InodeNumber, logged: &[u8]) -> Result<()> {
        let corrupt = |what: &str| Error::corrupt(format!("fast commit: {what}")).in_inode(ino);
        if ino < self.fs.geo.first_ino && ino != InodeNumber::ROOT {
            return Err(corrupt("a reserved inode"));
        }
        let there = self.find(ino)?;
        let logged = self.image(ino, logged)?;
        if logged.links_count() == 0 {
            // It lost its names. Orphans listed on disk are left to the next open of the volume.
            return match there {
                Some(inode) if inode.raw.read().links_count() > 0 => self.free(&inode),
                _ => Ok(()),
            };
        }
        match there {
            Some(inode) if inode.raw.read().generation() == logged.generation() => {
                if FileType::from_mode(logged.mode()) != inode.kind {
                    return Err(corrupt("the type of an inode changes"));
                }
                self.merge(&inode, logged)
            }
            Some(inode) => {
                self.empty(&inode)?;
                let is_dir = inode.is_dir();
                self.make(ino, logged, Some(is_dir))
            }
            None => self.make(ino, logged, None),
        }
    }

    /// Extends the logged front of an inode to a whole one.
    fn image(&self, ino: InodeNumber, logged: &[u8]) -> Result<InodeImage> {
        let mut bytes = vec![0; self.fs.geo.inode_bytes.into()];
        let len = logged.len().min(bytes.len());
        bytes[..len].copy_from_slice(&logged[..len]);
        let image = InodeImage::read(&bytes).map_err(|e| Error::from(e).in_inode(ino))?;
        image
            .file_type()
            .map_err(|e| Error::from(e).in_inode(ino))?;
        Ok(image)
    }

    /// Changes an existing inode.
    fn merge(&mut self, inode: &Arc<Inode>, logged: InodeImage) -> Result<()> {
        let mut formats = (Format::of(&inode.raw.read()), Format::of(&logged));
        if inode.is_dir() {
            // Its contents are derived from the replayed names.
            formats.1 = formats.0;
        }
        if formats.0 != formats.1 {
            self.unmap_all(inode)?;
        }
        let old = inode.image();
        let mut bytes = old.as_bytes().to_vec();
        // Keep the attributes after the logged part.
        let front = 128_usize.saturating_add(old.extra_isize().into());
        let inline = logged.flags().contains(InodeFlags::INLINE_DATA) && !inode.is_dir();
        let front = if inline {
            bytes.len()
        } else {
            front.min(bytes.len())
        };
        bytes[..front].copy_from_slice(&logged.as_bytes()[..front]);
        let mut image = InodeImage::read(&bytes).map_err(|e| Error::from(e).in_inode(inode.ino))?;
        if formats.1 != Format::None || inode.is_dir() {
            image.i_block_mut().copy_from_slice(old.i_block());
            if formats.0 != formats.1 {
                init_mapping(&mut image, formats.1);
            }
        }
        if inode.is_dir() {
            image.set_links_count(old.links_count());
            image.set_size_bytes(old.size_bytes(&self.fs.geo)?);
            let kept = InodeFlags::INDEX | InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
            let flags = (image.flags() - kept) | (old.flags() & kept);
            image.set_flags(flags);
        }
        let blocks = inode.raw.read().blocks_512(&self.fs.geo);
        self.set_blocks(&mut image, blocks)?;
        image.set_dtime(old.dtime());
        self.put(inode.ino, image)
    }

    /// Creates an inode. `was`: whether its number is already in use by a directory or by something else.
    fn make(&mut self, ino: InodeNumber, mut image: InodeImage, was: Option<bool>) -> Result<()> {
        let fs = self.fs;
        let is_dir = FileType::from_mode(image.mode()) == Some(FileType::Directory);
        if was != Some(is_dir) {
            fs.transact(CREDITS, |h| {
                if let Some(was_dir) = was {
                    fs.give_number(h, ino, was_dir)?;
                }
                fs.take_number(h, ino, is_dir)
            })?;
        }
        let inline = image.flags().contains(InodeFlags::INLINE_DATA);
        let format = Format::of(&image);
        if is_dir && !inline {
            image.set_links_count(2);
            image.set_size_bytes(0);
            let flags = image.flags() - InodeFlags::INDEX;
            image.set_flags(flags);
            self.unfilled.insert(ino);
        }
        self.nameless.insert(ino);
        if format != Format::None {
            init_mapping(&mut image, format);
        }
        let attributes = if image.file_acl(&fs.geo) == FsBlock(0) {
            0
        } else {
            1
        };
        self.set_blocks(
            &mut image,
            attributes * (u64::from(fs.geo.block_bytes / 512) << fs.geo.cluster_ratio_log),
        )?;
        let next_orphan = self.find_orphan(ino)?.unwrap_or_default();
        image.set_dtime(next_orphan);
        self.put(ino, image)
    }

    /// Sets the block count, which depends on the mapping built here, not on the logged count.
    fn set_blocks(&self, image: &mut InodeImage, sectors: u64) -> Result<()> {
        if image.set_blocks_512(&self.fs.geo, sectors) {
            return Ok(());
        }
        Err(Error::corrupt(
            "fast commit: the block count of an inode does not fit its field",
        ))
    }

    /// The link to the next orphan, for an inode on the on-disk list.
    fn find_orphan(&self, ino: InodeNumber) -> Result<Option<u32>> {
        if !self.orphans.contains(&ino) {
            return Ok(None);
        }
        Ok(self.find(ino)?.map(|inode| inode.raw.read().dtime()))
    }

    /// Writes an image to the inode table, and replaces the inode in memory.
    fn put(&mut self, ino: InodeNumber, image: InodeImage) -> Result<()> {
        self.changed.insert(ino);
        let fs = self.fs;
        let old = self.find(ino)?;
        fs.transact(CREDITS, |h| {
            let inode = fs.insert_inode(h, ino, image)?;
            if let Some(old) = &old {
                inode.usage.take_over(&old.usage);
            }
            fs.store(h, &inode)
        })
    }

    /// Frees the blocks and attributes of an inode.
    fn empty(&mut self, inode: &Arc<Inode>) -> Result<()> {
        self.unmap_all(inode)?;
        let fs = self.fs;
        loop {
            let released = fs.transact(CREDITS, |h| {
                let released = xattr::release(fs, h, inode)?;
                fs.store(h, inode)?;
                Ok(released)
            })?;
            for value in &released.unused {
                fs.free_if_unused(value)?;
            }
            if released.all {
                return Ok(());
            }
        }
    }

    /// Frees an inode that lost its last name, unless it is in the on-disk orphan list; then it stays there.
    pub(super) fn free(&mut self, inode: &Arc<Inode>) -> Result<()> {
        let fs = self.fs;
        if self.orphans.contains(&inode.ino) {
            inode.raw.write().set_links_count(0);
            return fs.transact(CREDITS, |h| fs.store(h, inode));
        }
        self.empty(inode)?;
        self.changed.remove(&inode.ino);
        self.directories.remove(&inode.ino);
        self.unfilled.remove(&inode.ino);
        self.nameless.remove(&inode.ino);
        fs.transact(CREDITS, |h| fs.free_inode(h, inode))
    }

    /// Frees new inodes without a name.
    pub(super) fn drop_nameless(&mut self) -> Result<()> {
        for ino in std::mem::take(&mut self.nameless) {
            if let Some(inode) = self.find(ino)? {
                self.free(&inode)?;
            }
        }
        Ok(())
    }
}

/// Initializes an empty mapping.
fn init_mapping(image: &mut InodeImage, format: Format) {
    image.i_block_mut().fill(0);
    if format == Format::Extents {
        // 60 bytes always have room for a node.
        let _ = NodeMut::init(image.i_block_mut(), 0);
    }
}
