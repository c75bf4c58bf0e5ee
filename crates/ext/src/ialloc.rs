//! The inode allocator.

use std::sync::Arc;

use crate::error::Result;
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;

impl Fs {
    /// A fresh inode: number taken in the bitmap, image initialised and stored (times now, one link for files and two for
    /// directories set by the caller, inherited flags, `i_extra_isize`, generation; an empty extent root or empty
    /// indirect map), object in the table. `mode` carries the type bits.
    ///
    /// # Errors
    /// `NoSpace` when no inode is free; those of the journal; `Corrupt`.
    pub(crate) fn new_inode(&self, h: &mut Handle<'_>, parent: &Inode, mode: u16, uid: u32, gid: u32) -> Result<Arc<Inode>>;

    /// Gives an inode back: no names, no blocks left (the caller truncated it). Sets the deletion time, clears the bit.
    ///
    /// # Errors
    /// Those of the journal; `Corrupt` for one that is free already.
    pub(crate) fn free_inode(&self, h: &mut Handle<'_>, inode: &Inode) -> Result<()>;
}
