//! [`Tree`]: the inodes of the null server.
//!
//! Invariants:
//! - An inode exists as long as it has a name or the kernel references it.
//! - No two inodes are locked at the same time. So a change of several is not atomic, which is enough for
//!   measurements.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use rustix::fs::FileType as Kind;
use rustix::io::Errno;
use throughline_locks::Mutex;

/// The number of the root.
const ROOT: u64 = 1;
const SHARDS: usize = 64;

type Shard = CachePadded<Mutex<HashMap<u64, Inode>>>;

/// See the head of this file.
pub(super) struct Tree {
    shards: Vec<Shard>,
    next: AtomicU64,
}

/// One inode.
pub(super) struct Inode {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// The number of its names.
    pub(super) links: u32,
    /// Look-ups reported to the kernel, less those it has forgotten.
    pub(super) lookups: u64,
    pub(super) content: Content,
}

/// What an inode holds.
pub(super) enum Content {
    File(Vec<u8>),
    /// Names, and their inodes.
    Directory(HashMap<Vec<u8>, u64>),
}

impl Inode {
    pub(super) fn new(mode: u32, uid: u32, gid: u32) -> Inode {
        let is_directory = Kind::from_raw_mode(mode) == Kind::Directory;
        Inode {
            mode,
            uid,
            gid,
            links: if is_directory { 2 } else { 1 },
            lookups: 0,
            content: match is_directory {
                true => Content::Directory(HashMap::new()),
                false => Content::File(Vec::new()),
            },
        }
    }

    /// The length of a file in bytes.
    pub(super) fn len(&self) -> u64 {
        match &self.content {
            Content::File(data) => data.len() as u64,
            Content::Directory(_) => 0,
        }
    }

    fn names(&mut self) -> Result<&mut HashMap<Vec<u8>, u64>, Errno> {
        match &mut self.content {
            Content::File(_) => Err(Errno::NOTDIR),
            Content::Directory(names) => Ok(names),
        }
    }
}

impl Default for Tree {
    fn default() -> Tree {
        let tree = Tree {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            next: AtomicU64::new(ROOT + 1),
        };
        let mut root = Inode::new(Kind::Directory.as_raw_mode() | 0o755, 0, 0);
        root.lookups = 1;
        tree.shard(ROOT).lock().insert(ROOT, root);
        tree
    }
}

impl Tree {
    fn shard(&self, nodeid: u64) -> &Shard {
        &self.shards[nodeid as usize % SHARDS]
    }

    /// Calls `work` with an inode, which is locked.
    pub(super) fn with<T>(
        &self,
        nodeid: u64,
        work: impl FnOnce(&mut Inode) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        work(
            self.shard(nodeid)
                .lock()
                .get_mut(&nodeid)
                .ok_or(Errno::STALE)?,
        )
    }

    /// The inode of a name.
    pub(super) fn find(&self, dir: u64, name: &[u8]) -> Result<Option<u64>, Errno> {
        self.with(dir, |dir| Ok(dir.names()?.get(name).copied()))
    }

    /// Adds an inode with a name.
    pub(super) fn add(&self, dir: u64, name: &[u8], inode: Inode) -> Result<u64, Errno> {
        let nodeid = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(nodeid).lock().insert(nodeid, inode);
        let named = self.with(dir, |dir| {
            let names = dir.names()?;
            if names.contains_key(name) {
                return Err(Errno::EXIST);
            }
            names.insert(name.to_vec(), nodeid);
            Ok(nodeid)
        });
        if named.is_err() {
            self.shard(nodeid).lock().remove(&nodeid);
        }
        named
    }

    /// Removes a name, and its inode if the kernel does not reference it.
    pub(super) fn remove(&self, dir: u64, name: &[u8]) -> Result<(), Errno> {
        let nodeid = self.find(dir, name)?.ok_or(Errno::NOENT)?;
        self.with(nodeid, |inode| match &inode.content {
            Content::Directory(names) if !names.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        })?;
        self.with(dir, |dir| {
            dir.names()?.remove(name).map(drop).ok_or(Errno::NOENT)
        })?;
        self.change(nodeid, |inode| inode.links = 0);
        Ok(())
    }

    /// The kernel forgets this many look-ups.
    pub(super) fn forget(&self, nodeid: u64, lookups: u64) {
        self.change(nodeid, |inode| {
            inode.lookups = inode.lookups.saturating_sub(lookups);
        });
    }

    fn change(&self, nodeid: u64, work: impl FnOnce(&mut Inode)) {
        let mut shard = self.shard(nodeid).lock();
        let Some(inode) = shard.get_mut(&nodeid) else {
            return;
        };
        work(inode);
        if nodeid != ROOT && inode.links == 0 && inode.lookups == 0 {
            shard.remove(&nodeid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Inode {
        Inode::new(Kind::RegularFile.as_raw_mode() | 0o644, 0, 0)
    }

    fn directory() -> Inode {
        Inode::new(Kind::Directory.as_raw_mode() | 0o755, 0, 0)
    }

    #[test]
    fn names_are_added_and_removed() {
        let tree = Tree::default();
        let dir = tree.add(ROOT, b"dir", directory()).unwrap();
        let a = tree.add(dir, b"a", file()).unwrap();
        assert_eq!(tree.add(dir, b"a", file()), Err(Errno::EXIST));
        assert_eq!(tree.add(a, b"b", file()), Err(Errno::NOTDIR));
        assert_eq!(tree.find(dir, b"a"), Ok(Some(a)));
        let b = tree.add(dir, b"b", file()).unwrap();
        assert_eq!(tree.remove(ROOT, b"dir"), Err(Errno::NOTEMPTY));
        tree.remove(dir, b"a").unwrap();
        tree.remove(dir, b"b").unwrap();
        assert_eq!(tree.with(b, |_| Ok(())), Err(Errno::STALE));
        tree.remove(ROOT, b"dir").unwrap();
        assert_eq!(tree.remove(ROOT, b"dir"), Err(Errno::NOENT));
    }

    #[test]
    fn an_inode_stays_until_the_kernel_forgets_it() {
        let tree = Tree::default();
        let nodeid = tree.add(ROOT, b"a", file()).unwrap();
        tree.with(nodeid, |inode| {
            inode.lookups = 2;
            Ok(())
        })
        .unwrap();
        tree.remove(ROOT, b"a").unwrap();
        tree.forget(nodeid, 1);
        assert_eq!(tree.with(nodeid, |inode| Ok(inode.links)), Ok(0));
        tree.forget(nodeid, 1);
        assert_eq!(tree.with(nodeid, |_| Ok(())), Err(Errno::STALE));
    }
}
