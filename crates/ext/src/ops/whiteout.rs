//! Whiteouts: entries that a rename may leave at the old name, for overlay file systems, to mark the name as
//! absent. A whiteout is the character device 0, 0 without permissions. It inherits from its directory as
//! every new inode does: the group, and the default ACL.

use super::{NewInode, NewKind, RenameMode};
use crate::error::Result;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::names::Names;

/// Blocks that creating one changes in addition to the rename: the inode, its bitmap and descriptor.
const CREDITS: u32 = 3;

impl Names {
    /// Runs the changes of a rename in a transaction; creates the whiteout for the old name in `dir` if
    /// `mode` requests one. `change` may refuse only before its first change. The directory's lock is held,
    /// no handle is open.
    pub(super) fn with_whiteout(
        &self,
        credits: u32,
        dir: &Inode,
        mode: RenameMode,
        change: impl FnOnce(&mut Handle<'_>, Option<&Inode>) -> Result<()>,
    ) -> Result<()> {
        let RenameMode::Whiteout { uid, gid, .. } = mode else {
            return self.transact(credits, |h| change(h, None));
        };
        let device = NewKind::CharDevice { major: 0, minor: 0 };
        let new = NewInode {
            permissions: 0,
            uid,
            gid,
            umask: 0,
        };
        let credits = credits + CREDITS;
        let made = self.make(dir, device, new, credits, |h, whiteout| {
            change(h, Some(whiteout))
        });
        made.map(drop)
    }
}
