//! The orphan file (`orphan_file`): blocks of slots that name orphans, where other writers of the format put them.

use throughline_extfmt::features::{Compat, RoCompat};
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber, orphan as format};

use super::{orphan_inode, settle};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::map;

/// Ends what the orphans in the file were in the middle of, and empties it.
pub(super) fn recover(fs: &Fs) -> Result<()> {
    let sb = fs.superblock();
    if !sb.ro_compat().contains(RoCompat::ORPHAN_PRESENT)
        || !sb.compat().contains(Compat::ORPHAN_FILE)
    {
        return Ok(());
    }
    let file = fs.inode(InodeNumber(sb.s_orphan_file_inum.get()))?;
    let size = file.raw.read().size_bytes(&fs.geo)?;
    let blocks = u32::try_from(size >> fs.geo.block_log).unwrap_or(u32::MAX);
    for at in (0..blocks).map(FileBlock) {
        let found = map::lookup_block_run(fs, &file, at, 1)?;
        let (block, _) = found.ok_or_else(|| {
            Error::corrupt(format!("block {at} of the orphan file is a hole")).in_inode(file.ino)
        })?;
        recover_block(fs, &file, block).map_err(|e| e.in_inode(file.ino).in_block(block))?;
    }
    let mut h = fs.begin(1)?;
    fs.update_super(&mut h, |sb| {
        let present = RoCompat::ORPHAN_PRESENT.bits();
        sb.s_feature_ro_compat
            .set(sb.s_feature_ro_compat.get() & !present);
    })?;
    h.stop()
}

fn recover_block(fs: &Fs, file: &Inode, block: FsBlock) -> Result<()> {
    let check = |bytes: &[u8]| format::check(bytes, block, fs.geo.inodes, file.csum_seed);
    let used: Vec<_> = format::orphans(&fs.read_checked(block, check)?)?.collect();
    for (slot, ino) in used {
        let inode = orphan_inode(fs, ino)?;
        // On the list first: at no moment is it in neither place.
        let mut h = fs.begin(4)?;
        super::add(fs, &mut h, &inode)?;
        h.modify(block, |bytes| {
            format::set_slot(bytes, slot, InodeNumber::NONE, block, file.csum_seed)
        })??;
        h.stop()?;
        settle(fs, &inode)?;
    }
    Ok(())
}
