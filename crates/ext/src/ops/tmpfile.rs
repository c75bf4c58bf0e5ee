//! Files without a name, made so (`O_TMPFILE`).
//!
//! Such a file is an orphan from the transaction on that makes it, so a crash leaves nothing of it; [`Names::link`] gives it a
//! name, once, and takes it off the orphans in the same transaction.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{NewInode, NewKind, need_dir};
use crate::error::Result;
use crate::inode::Inode;
use crate::names::Names;

impl Names {
    /// Makes a regular file without a name, as one in `dir` would be. Where it is `linkable`, [`Names::link`] may give it its
    /// first name. Open it ([`crate::Attrs::open_inode`]): it goes when it is closed, or with the volume.
    ///
    /// # Errors
    /// `NotDir`, `NotFound` (the directory was removed), `NoSpace`, `Permission` (an immutable directory), `ReadOnly`.
    pub fn tmpfile(&self, dir: &Arc<Inode>, new: NewInode, linkable: bool) -> Result<Arc<Inode>> {
        need_dir(dir)?;
        let inode = self.with_room(|| self.try_create(dir, None, NewKind::File, new))?;
        inode.linkable.store(linkable, Ordering::Release);
        Ok(inode)
    }
}
