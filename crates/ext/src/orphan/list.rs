//! The orphan list: a chain of inodes from `s_last_orphan` through `i_dtime`, newest first.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_extfmt::InodeNumber;

use crate::error::Result;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::inode::Inodes;

/// The list in memory.
#[derive(Default)]
pub(crate) struct List {
    links: HashMap<u32, Link>,
    /// The value of `s_last_orphan`.
    head: u32,
}

struct Link {
    inode: Arc<Inode>,
    /// The inode that points to this one; `None` for the head.
    above: Option<u32>,
    /// The next inode: in memory, or an earlier orphan that was left alone, or 0.
    below: u32,
}

impl List {
    /// A list whose head is not in memory, or is 0 for an empty list.
    pub(crate) fn starting_at(head: u32) -> Self {
        Self {
            head,
            ..Self::default()
        }
    }

    /// All inodes of the list that are in memory.
    pub(crate) fn held(&self) -> Vec<Arc<Inode>> {
        self.links
            .values()
            .map(|link| Arc::clone(&link.inode))
            .collect()
    }

    /// Takes the head, as found on disk, into memory; it points to `below`.
    pub(crate) fn adopt(&mut self, inode: &Arc<Inode>, below: u32) {
        let link = Link {
            inode: Arc::clone(inode),
            above: None,
            below,
        };
        self.head = inode.ino.0;
        self.links.insert(inode.ino.0, link);
    }

    /// Adds an inode at the head. Stores the superblock, but not the inode.
    pub(crate) fn push(
        &mut self,
        fs: &Inodes,
        h: &mut Handle<'_>,
        inode: &Arc<Inode>,
    ) -> Result<()> {
        let ino = inode.ino.0;
        inode.raw.write().set_dtime(self.head);
        fs.update_super(h, |sb| sb.s_last_orphan.set(ino))?;
        if let Some(below) = self.links.get_mut(&self.head) {
            below.above = Some(ino);
        }
        self.adopt(inode, self.head);
        Ok(())
    }

    /// Removes an inode and resets its deletion time to 0. Stores its predecessor, but not the inode.
    pub(crate) fn take_out(
        &mut self,
        fs: &Inodes,
        h: &mut Handle<'_>,
        ino: InodeNumber,
    ) -> Result<()> {
        let Some(Link {
            inode,
            above,
            below,
        }) = self.links.remove(&ino.0)
        else {
            return Ok(());
        };
        if let Some(link) = self.links.get_mut(&below) {
            link.above = above;
        }
        match above.and_then(|above| self.links.get_mut(&above)) {
            None => {
                self.head = below;
                fs.update_super(h, |sb| sb.s_last_orphan.set(below))?;
            }
            Some(link) => {
                link.below = below;
                link.inode.raw.write().set_dtime(below);
                fs.store(h, &link.inode)?;
            }
        }
        inode.raw.write().set_dtime(0);
        Ok(())
    }
}
