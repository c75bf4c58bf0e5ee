//! Whiteouts: what a rename may leave at the old name, for file systems that lie over this one and show that there is
//! nothing there. One is the character device 0, 0.

use std::sync::Arc;

use throughline_extfmt::inode::FileType;

use super::create::SETGID;
use super::{NewKind, RenameMode};
use crate::error::Result;
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;

/// Blocks that making one may change beside what the rename does: the inode, its bitmap and descriptor.
const CREDITS: u32 = 3;

impl Fs {
    /// Runs the changes of a rename in a transaction, with the whiteout that takes the old name in `dir` where `mode` asks
    /// for one. `change` may refuse only before its first change.
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
        let (whiteout, done) = self.transact(credits + CREDITS, |h| {
            let whiteout = self.make_whiteout(h, dir, (uid, gid))?;
            let done = change(h, Some(&whiteout));
            self.unless_refused(h, whiteout, done)
        })?;
        if done.is_err() {
            self.free_if_unused(&whiteout)?;
        }
        done
    }

    fn make_whiteout(
        &self,
        h: &mut Handle<'_>,
        dir: &Inode,
        (uid, gid): (u32, u32),
    ) -> Result<Arc<Inode>> {
        let gid = {
            let raw = dir.raw.read();
            if raw.mode() & SETGID == 0 {
                gid
            } else {
                raw.gid()
            }
        };
        let inode = self.new_inode(h, dir, FileType::CharDevice.mode_bits(), uid, gid)?;
        let device = NewKind::CharDevice { major: 0, minor: 0 };
        self.fill(h, &inode, dir, device)?;
        Ok(inode)
    }
}
