//! Files created without a name (`O_TMPFILE`).
//!
//! Such a file is an orphan from the transaction that creates it, so a crash leaves nothing of it.
//! [`Names::link`] gives it a name, once, and ends the orphan state in the same transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{NewInode, NewKind, need_dir};
use crate::error::Result;
use crate::inode::Inode;
use crate::names::Names;

impl Names {
    /// Creates a regular file without a name, with the attributes that a file in `dir` would get. If it is
    /// `linkable`, [`Names::link`] can give it its first name. The caller must open it
    /// ([`crate::Attrs::open_inode`]): it is freed when closed, or with the volume.
    ///
    /// # Errors
    /// `NotDir`, `NotFound` (the directory was removed), `NoSpace`, `Permission` (an immutable directory),
    /// `ReadOnly`.
    pub fn tmpfile(&self, dir: &Arc<Inode>, new: NewInode, linkable: bool) -> Result<Arc<Inode>> {
        need_dir(dir)?;
        let inode = self.with_room(|| self.try_create(dir, None, NewKind::File, new))?;
        inode.linkable.store(linkable, Ordering::Release);
        Ok(inode)
    }
}
