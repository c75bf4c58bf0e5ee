//! [`Files`], the open files of a mount, and [`OpenFile`], one of them.
//!
//! Invariants:
//! - A handle number means the same open file from OPEN to RELEASE, and is reused only after that.
//! - The table is sharded. A request locks its handle's shard, shared, only while it copies a pointer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::OFlags;
use throughline::internal::{OpenGranted, VolumeLayers};
use throughline::{Advice, Caller, File, FileOptions, Node, Result};
use throughline_locks::RwLock;

use crate::coherence::{KernelPages, OpenInodes, Opened, Opening};
use crate::options::Choices;
use crate::policy::Policy;
use crate::streak::Streak;
use crate::unopened::{Key, Unopened};
use crate::wire::{OpenOut, open_flags};

const SHARDS: usize = 16;
/// The unit in which our cache is dropped behind a reader whose data the kernel caches: the largest folio.
const GIVE_BACK_BYTES: u64 = 2 << 20;

/// `O_DIRECT` of x86 and most others.
const O_DIRECT: u32 = OFlags::DIRECT.bits();
const O_ACCMODE: u32 = OFlags::RWMODE.bits();
const O_RDONLY: u32 = OFlags::RDONLY.bits();
const O_RDWR: u32 = OFlags::RDWR.bits();
const O_TRUNC: u32 = OFlags::TRUNC.bits();
const O_NOATIME: u32 = OFlags::NOATIME.bits();

/// What a change of a file waits for, by the flags of the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    Later,
    /// `O_DSYNC`.
    Data,
    /// `O_SYNC`.
    All,
}

impl Durable {
    pub(crate) fn of(flags: u32) -> Durable {
        let flags = OFlags::from_bits_retain(flags);
        if flags.contains(OFlags::SYNC) {
            Durable::All
        } else if flags.intersects(OFlags::DSYNC) {
            // In rustix, `OFlags::DSYNC` is `O_SYNC`, whose bits include that of `O_DSYNC`.
            Durable::Data
        } else {
            Durable::Later
        }
    }

    /// Returns when the changes of a file are as durable as this requires.
    ///
    /// # Errors
    /// As [`throughline::Handle::sync_all`].
    pub(crate) fn wait(self, file: &File) -> Result<()> {
        match self {
            Durable::Later => Ok(()),
            Durable::Data => file.sync_data(),
            Durable::All => file.sync_all(),
        }
    }
}

/// An open file of the mount.
pub(crate) struct OpenFile {
    node: Node,
    buffered: File,
    /// For requests with `O_DIRECT`: opened by the first one. Boxed, because most files have none.
    direct: OnceLock<Box<File>>,
    no_access_time: bool,
    /// It was opened for writing.
    writes: bool,
    /// What its changes wait for, of requests that do not bring the flags of their descriptor.
    durable: Durable,
    /// Who opened it, if it was opened for writing by a request.
    opener: Option<Caller>,
    /// The kernel caches what is read through this handle, so our cache drops it.
    gives_back: bool,
    /// The sequence of its reads with `O_DIRECT`.
    streak: Streak,
    opened: Opened,
}

impl OpenFile {
    /// An open file, and the flags of the reply to OPEN.
    ///
    /// # Errors
    /// As [`Node::open`].
    fn new(
        node: Node,
        flags: u32,
        choices: &Choices,
        inodes: &Arc<OpenInodes>,
    ) -> Result<(OpenFile, u32)> {
        let no_access_time = flags & O_NOATIME != 0;
        let buffered = open(&node, no_access_time, false)?;
        let empty = flags & O_TRUNC != 0 || buffered.size()? == 0;
        let policy = Policy::of(flags, empty, choices);
        let opening = Opening {
            read_write: flags & O_ACCMODE == O_RDWR,
            through_cache: policy.answer & open_flags::DIRECT_IO == 0,
            may_be_filled: false,
        };
        let writes = flags & O_ACCMODE != O_RDONLY;
        let lasting = || Caller::current().lasting(node.volume().fs());
        let file = OpenFile {
            opener: writes.then(lasting),
            opened: inodes.open(node.ino(), opening),
            buffered,
            direct: OnceLock::new(),
            no_access_time,
            writes,
            durable: Durable::of(flags),
            node,
            gives_back: policy.kernel_caches,
            streak: Streak::default(),
        };
        Ok((file, policy.answer))
    }

    /// A file that the kernel uses without having opened it.
    ///
    /// # Errors
    /// As [`Node::open`].
    fn unopened(
        node: Node,
        no_access_time: bool,
        opening: Opening,
        inodes: &Arc<OpenInodes>,
    ) -> Result<OpenFile> {
        Ok(OpenFile {
            buffered: open(&node, no_access_time, false)?,
            opened: inodes.open(node.ino(), opening),
            direct: OnceLock::new(),
            no_access_time,
            opener: None,
            writes: opening.read_write,
            // Any program may have it open with `O_SYNC`.
            durable: Durable::All,
            node,
            gives_back: true,
            streak: Streak::default(),
        })
    }

    /// The inode.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    /// Who opened it for writing; `None` if no request did.
    pub(crate) fn opener(&self) -> Option<Caller> {
        self.opener
    }

    /// What the kernel's cache may hold of it.
    pub(crate) fn kernel_pages(&self) -> &KernelPages {
        self.opened.pages()
    }

    /// Call after a change by a request that does not bring the flags of its descriptor: syncs if it was
    /// opened with `O_SYNC` or `O_DSYNC`, or if that is not known.
    ///
    /// # Errors
    /// As [`throughline::Handle::sync_all`].
    pub(crate) fn changed(&self) -> Result<()> {
        self.durable.wait(&self.buffered)
    }

    /// The file through our cache.
    pub(crate) fn buffered(&self) -> &File {
        &self.buffered
    }

    /// The file, bypassing our cache.
    fn direct(&self) -> Result<&File> {
        if self.direct.get().is_none() {
            // If two threads race here, one of the opened files is dropped.
            let direct = open(&self.node, self.no_access_time, true)?;
            let _ = self.direct.set(Box::new(direct));
        }
        Ok(self.direct.get().map_or(&self.buffered, |direct| direct))
    }

    /// The file to use for a request with these open flags.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub(crate) fn with_flags(&self, flags: u32) -> Result<&File> {
        if flags & O_DIRECT != 0 {
            self.direct()
        } else {
            Ok(&self.buffered)
        }
    }

    /// Reads, and drops from our cache what the kernel's cache now holds.
    ///
    /// # Errors
    /// As [`throughline::Handle::read_at`].
    pub(crate) fn read(&self, flags: u32, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if flags & O_DIRECT != 0 {
            return self.read_direct(offset, buf);
        }
        let read = self.buffered.read_at(buf, offset)?;
        if self.gives_back {
            self.give_back(offset, offset + read as u64)?;
        }
        Ok(read)
    }

    fn read_direct(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let end = offset.saturating_add(buf.len() as u64);
        let Some(behind) = self.streak.read(offset..end) else {
            return self.direct()?.read_at(buf, offset);
        };
        let read = self.buffered.read_at(buf, offset)?;
        if !behind.is_empty() {
            let len = behind.end - behind.start;
            self.buffered.advise(Advice::DontNeed, behind.start, len)?;
        }
        Ok(read)
    }

    /// Drops one folio at a time, once the reader has passed it.
    fn give_back(&self, start: u64, end: u64) -> Result<()> {
        let (first, last) = (start / GIVE_BACK_BYTES, end / GIVE_BACK_BYTES);
        if first == last {
            return Ok(());
        }
        let (from, to) = (first * GIVE_BACK_BYTES, last * GIVE_BACK_BYTES);
        self.buffered.advise(Advice::DontNeed, from, to - from)
    }
}

fn open(node: &Node, no_access_time: bool, direct: bool) -> Result<File> {
    let mut options = FileOptions::new();
    // Write access was checked when the handle was opened, here and by the kernel.
    options.granted(true);
    options.no_access_time(no_access_time);
    node.open(options.direct(direct))
}

/// See the head of this file.
pub(crate) struct Files {
    choices: Choices,
    shards: Box<[RwLock<Shard>]>,
    inodes: Arc<OpenInodes>,
    next: AtomicUsize,
    unopened: Unopened,
    /// Unopened files may be written.
    writable: bool,
}

#[derive(Default)]
struct Shard {
    open: Vec<Option<Arc<OpenFile>>>,
    free: Vec<usize>,
}

impl Files {
    /// `writable`: files that are used without having been opened may be written.
    pub(crate) fn new(choices: &Choices, writable: bool) -> Files {
        Files {
            writable,
            choices: *choices,
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            inodes: Arc::default(),
            next: AtomicUsize::new(0),
            unopened: Unopened::default(),
        }
    }

    /// Opens a file with these open flags; returns the reply to OPEN.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub(crate) fn open(&self, node: Node, flags: u32) -> Result<OpenOut> {
        let (file, open_flags) = OpenFile::new(node, flags, &self.choices, &self.inodes)?;
        Ok(OpenOut {
            fh: self.add(file),
            open_flags,
            backing_id: 0,
        })
    }

    /// The file of a node id, for requests without a handle; `node` is its inode. `flags` are the open flags
    /// of the program's descriptor, where the request has them.
    ///
    /// # Errors
    /// Those of `node`; as [`Node::open`].
    pub(crate) fn without_handle(
        &self,
        nodeid: u64,
        flags: u32,
        node: impl FnOnce() -> Result<Node>,
    ) -> Result<Arc<OpenFile>> {
        self.open_unopened(nodeid, flags, self.writable, node)
    }

    /// A new file, for requests without a handle; returns the reply to the request that creates it.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub(crate) fn created(&self, nodeid: u64, node: Node, flags: u32) -> Result<OpenOut> {
        // The kernel has no page of a new file. An inode number may have been used before.
        self.unopened.close(nodeid);
        self.open_unopened(nodeid, flags, false, || Ok(node))?;
        Ok(OpenOut {
            fh: 0,
            open_flags: Policy::of(flags, true, &self.choices).answer,
            backing_id: 0,
        })
    }

    fn open_unopened(
        &self,
        nodeid: u64,
        flags: u32,
        may_be_filled: bool,
        node: impl FnOnce() -> Result<Node>,
    ) -> Result<Arc<OpenFile>> {
        let key = Key {
            nodeid,
            no_access_time: flags & O_NOATIME != 0,
        };
        // Any program may have the file open for writing, and mapped.
        let opening = Opening {
            read_write: self.writable,
            through_cache: true,
            may_be_filled,
        };
        let inodes = &self.inodes;
        self.unopened.get(key, || {
            OpenFile::unopened(node()?, key.no_access_time, opening, inodes)
        })
    }

    /// The kernel forgets an inode: no program has it open.
    pub(crate) fn forgotten(&self, nodeid: u64) {
        self.unopened.close(nodeid);
    }

    /// Adds an open file; returns its handle.
    fn add(&self, file: OpenFile) -> u64 {
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let file = Some(Arc::new(file));
        let mut entries = self.shards[shard].write();
        let index = match entries.free.pop() {
            Some(index) => {
                entries.open[index] = file;
                index
            }
            None => {
                entries.open.push(file);
                entries.open.len() - 1
            }
        };
        // 0 is not used for files: directories have it.
        (index * SHARDS + shard + 1) as u64
    }

    fn place(fh: u64) -> Option<(usize, usize)> {
        let number = usize::try_from(fh.checked_sub(1)?).ok()?;
        Some((number % SHARDS, number / SHARDS))
    }

    /// The open file of a handle.
    pub(crate) fn get(&self, fh: u64) -> Option<Arc<OpenFile>> {
        let (shard, index) = Files::place(fh)?;
        self.shards[shard].read().open.get(index)?.clone()
    }

    /// Removes a handle; returns its open file.
    pub(crate) fn remove(&self, fh: u64) -> Option<Arc<OpenFile>> {
        let (shard, index) = Files::place(fh)?;
        let mut entries = self.shards[shard].write();
        let file = entries.open.get_mut(index)?.take()?;
        entries.free.push(index);
        Some(file)
    }

    /// Whether every program that has a file open for writing has a handle.
    pub(crate) fn knows_writers(&self) -> bool {
        !self.writable
    }

    /// Whether any program may have that inode open for writing. Scans all handles.
    pub(crate) fn has_writer(&self, ino: u64) -> bool {
        if !self.knows_writers() {
            return true;
        }
        let writes = |file: &Arc<OpenFile>| file.writes && file.node.ino() == ino;
        let mut shards = self.shards.iter();
        shards.any(|shard| shard.read().open.iter().flatten().any(writes))
    }

    /// The number of open handles.
    pub(crate) fn len(&self) -> usize {
        let used = |shard: &RwLock<Shard>| {
            let shard = shard.read();
            shard.open.len() - shard.free.len()
        };
        self.shards.iter().map(used).sum()
    }

    /// Drops all handles, once the mount is gone.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let open = std::mem::take(&mut *shard.write());
            drop(open);
        }
        self.unopened.clear();
    }
}
