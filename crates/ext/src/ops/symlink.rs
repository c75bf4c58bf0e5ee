//! Symbolic links: targets of up to 59 bytes in the inode, longer ones in a block of their own.

use throughline_extfmt::FileBlock;
use throughline_extfmt::hash::NameHash;
use throughline_extfmt::inode::{FAST_SYMLINK_MAX, InodeFlags};
use throughline_extfmt::nokey as format;

use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::{Inode, Inodes};
use crate::names::Names;
use crate::{inline, map};

/// Checks a symbolic link's target.
pub(super) fn check_target(target: &[u8], block_bytes: u32) -> Result<()> {
    if target.is_empty() {
        return Err(Reason::NotFound.into());
    }
    if target.contains(&0) {
        return Err(Reason::Invalid("a link's target must not contain NUL").into());
    }
    if target.len() >= block_bytes as usize {
        return Err(Reason::NameTooLong.into());
    }
    Ok(())
}

impl Names {
    /// Stores the target in a new inode; the caller stores the inode.
    pub(super) fn fill_symlink(
        &self,
        h: &mut Handle<'_>,
        inode: &Inode,
        target: &[u8],
    ) -> Result<()> {
        {
            let mut raw = inode.raw.write();
            raw.set_size_bytes(target.len() as u64);
            if target.len() <= FAST_SYMLINK_MAX {
                let flags = raw.flags() - InodeFlags::EXTENTS;
                raw.set_flags(flags);
                let area = raw.i_block_mut();
                area.fill(0);
                area[..target.len()].copy_from_slice(target);
                return Ok(());
            }
        }
        let block = {
            let _map = inode.map_exclusive();
            map::add_block(self, h, inode, FileBlock(0))?
        };
        h.create(block, |bytes| bytes[..target.len()].copy_from_slice(target))
    }

    /// The target of a symbolic link; for an encrypted one, its form without the key.
    ///
    /// # Errors
    /// `Invalid` if it is not a symbolic link; `NotFound` if it was removed and its block freed; `Corrupt`;
    /// device errors.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        if !inode.is_symlink() {
            return Err(Reason::Invalid("not a symbolic link").into());
        }
        let target = self.shown_target(inode)?;
        self.note_access(inode);
        Ok(target)
    }

    /// As [`Names::read_link`], without recording an access.
    pub(crate) fn shown_target(&self, link: &Inode) -> Result<Vec<u8>> {
        let content = read_target(self, link)?;
        if !self.is_encrypted(link) {
            return Ok(content);
        }
        let stored = format::target(&content).map_err(|e| Error::from(e).in_inode(link.ino))?;
        // Not hashed by a directory.
        let hash = NameHash { major: 0, minor: 0 };
        Ok(format::show(hash, stored).into())
    }
}

fn read_target(fs: &Inodes, inode: &Inode) -> Result<Vec<u8>> {
    // Keeps its block from being freed.
    let _io = inode.io_shared();
    let raw = inode.image();
    if raw.links_count() == 0 && raw.size_bytes(&fs.geo).is_ok_and(|size| size == 0) {
        return Err(Reason::NotFound.into());
    }
    if let Some(target) = raw.fast_symlink_target() {
        return Ok(target.to_vec());
    }
    let corrupt = |what: &str| Error::corrupt(what).in_inode(inode.ino);
    let size = raw
        .size_bytes(&fs.geo)
        .map_err(|e| Error::from(e).in_inode(inode.ino))?;
    let len = usize::try_from(size)
        .ok()
        .filter(|&len| len < fs.geo.block_bytes as usize);
    let len = len.ok_or_else(|| corrupt("the target of a symbolic link is longer than a block"))?;
    if raw.flags().contains(InodeFlags::INLINE_DATA) {
        let mut target = vec![0; len];
        inline::read(fs, inode, 0, &mut target)?;
        return Ok(target);
    }
    let (block, _) = map::lookup_block_run(fs, inode, FileBlock(0), 1)?
        .ok_or_else(|| corrupt("the target of a symbolic link is a hole"))?;
    let bytes = fs.read(block).map_err(|e| e.in_inode(inode.ino))?;
    Ok(bytes.get(..len).unwrap_or_default().to_vec())
}
