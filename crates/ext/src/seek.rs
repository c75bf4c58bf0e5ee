//! Location of a file's data: `SEEK_DATA`, `SEEK_HOLE`, `FIBMAP`.

use throughline_extfmt::{FileBlock, FsBlock};

use crate::coherent;
use crate::data::Data;
use crate::error::Result;
use crate::inode::{Inode, Inodes};
use crate::map::{self, Kind};
use crate::regular;

impl Data {
    /// The first byte at or after `offset` that is not in a hole; `None` if only holes follow. Unwritten
    /// blocks are holes.
    ///
    /// # Errors
    /// `IsDir`, `Invalid` if it is not a regular file; `Corrupt`; device errors.
    pub fn seek_data(&self, inode: &Inode, offset: u64) -> Result<Option<u64>> {
        seek(self, inode, offset, true)
    }

    /// The first byte at or after `offset` that is in a hole; the end of the file counts as one. `None` if
    /// `offset` is past the last byte.
    ///
    /// # Errors
    /// As [`Data::seek_data`].
    pub fn seek_hole(&self, inode: &Inode, offset: u64) -> Result<Option<u64>> {
        let size = file_size(self, inode)?;
        if offset >= size {
            return Ok(None);
        }
        Ok(Some(seek(self, inode, offset, false)?.unwrap_or(size)))
    }

    /// The volume block of a file block, after its dirty data is written back; `None` for a hole, an
    /// unwritten block, and inline data.
    ///
    /// # Errors
    /// As [`Data::seek_data`].
    pub fn block_at(&self, inode: &Inode, block: u64) -> Result<Option<FsBlock>> {
        regular::check_regular(inode)?;
        let _io = inode.io_shared();
        let Some(block) = u32::try_from(block).ok().filter(|block| *block < u32::MAX) else {
            return Ok(None);
        };
        if regular::is_inline(inode) {
            return Ok(None);
        }
        let start = u64::from(block) << self.geo.block_log;
        coherent::flush(inode, start..start + u64::from(self.geo.block_bytes))?;
        let found = map::lookup_block_run(self, inode, FileBlock(block), 1)?;
        Ok(found.map(|(first, _)| first))
    }
}

fn seek(fs: &Data, inode: &Inode, offset: u64, data: bool) -> Result<Option<u64>> {
    regular::check_regular(inode)?;
    let _io = inode.io_shared();
    let size = coherent::size(fs, inode)?;
    if regular::is_inline(inode) {
        return Ok((data && offset < size).then_some(offset));
    }
    if !coherent::is_clean(inode) {
        // Dirty data has no blocks yet.
        coherent::flush_promised(inode, offset..u64::MAX)?;
    }
    let mut at = offset;
    while at < size {
        let Some(block) = u32::try_from(at >> fs.geo.block_log)
            .ok()
            .filter(|b| *b < u32::MAX)
        else {
            return Ok((!data).then_some(at));
        };
        let found = map::lookup(fs, inode, FileBlock(block), u32::MAX - block)?;
        let end = (u64::from(block) + u64::from(found.len_blocks)) << fs.geo.block_log;
        let is_data = matches!(found.kind, Kind::Data(_));
        // Bytes that are in memory only, because there is no space for them, are data.
        match coherent::first_kept(inode, &(at..end)).filter(|_| !is_data) {
            Some(kept) if data => return Ok(Some(kept.start)),
            Some(kept) if kept.start == at => at = kept.end,
            _ if is_data == data => return Ok(Some(at)),
            _ => at = end,
        }
    }
    Ok(None)
}

fn file_size(fs: &Inodes, inode: &Inode) -> Result<u64> {
    regular::check_regular(inode)?;
    coherent::size(fs, inode)
}
