//! Files that were emptied to be written anew, while the disk still shows what they held: so that a crash leaves the old
//! content or the new one, whole, though nobody syncs.
//!
//! ```text
//!   truncate to 0 ──► in memory: no blocks, size 0 ──► writes are staged ──► write-back, one run, one transaction:
//!                     on the disk: as before (every store of the inode says so)     old blocks freed, new ones entered, new size
//! ```
//!
//! The truncation takes effect on the disk together with the first blocks that the file gets, or by itself: after a time
//! ([`throughline_fileio::Writeback::age`], as staged data), by a sync, before the file gets another name, before its blocks
//! are allocated otherwise than by a write, and where room is short. Write-back takes what is staged of such a file as one
//! run, up to [`WHOLE_BYTES`].
//!
//! Not held back is a truncation of a file with more runs of blocks than [`MOST_RUNS`] (nodes of its map likewise), or whose
//! freeing is too much for one transaction; of a file whose bytes are in its inode; of a volume with every change synchronous.
//!
//! Invariants:
//! - While an inode has an [`Emptied`], its mapping in memory is empty. A transaction that changes the mapping frees the old
//!   blocks first ([`end`]).
//! - What it holds is allocated on the disk and in memory, and nothing else refers to it.
//! - The volume keeps such inodes in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use throughline_extfmt::inode::FileType;
use throughline_extfmt::{FsBlock, InodeImage, InodeNumber};

use crate::balloc::GROUP_CREDITS;
use crate::coherent;
use crate::error::Result;
use crate::file::{self, INODE_CREDITS};
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::map::{self, Format};

/// So much of a file that is written anew is committed at once; a longer one is cut where it is written back.
pub(crate) const WHOLE_BYTES: u64 = 8 << 20;

/// Runs of blocks of a file that is emptied, and nodes of its map, at most.
const MOST_RUNS: usize = 64;

/// Inodes of a volume, at most.
const MOST_FILES: usize = 1024;

/// After a failure it is tried again so much later.
const RETRY: Duration = Duration::from_secs(1);

/// What the disk still shows of an inode.
struct Emptied {
    /// `i_block`.
    root: [u8; 60],
    size: u64,
    /// What of its blocks the mapping had, in units of 512 bytes.
    sectors: u64,
    data: Vec<(FsBlock, u32)>,
    nodes: Vec<FsBlock>,
    /// What freeing it touches.
    credits: u32,
}

/// The place for it in an inode in memory.
#[derive(Default)]
pub(crate) struct OfInode {
    /// Whether there is one; looked at without the lock.
    is: AtomicBool,
    what: Mutex<Option<Box<Emptied>>>,
}

impl OfInode {
    /// Whether the disk shows what the file held before it was emptied.
    pub(crate) fn is_some(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }

    /// The inode as the disk has to show it, if that is not `raw`. The lock of the image is held.
    pub(crate) fn shown(&self, fs: &Fs, raw: &InodeImage) -> Option<InodeImage> {
        if !self.is_some() {
            return None;
        }
        let what = self.what.lock();
        let old = what.as_ref()?;
        let mut image = raw.clone();
        *image.i_block_mut() = old.root;
        image.set_size_bytes(old.size);
        let sectors = raw.blocks_512(&fs.geo).saturating_add(old.sectors);
        let is_counted = image.set_blocks_512(&fs.geo, sectors);
        debug_assert!(is_counted, "as many blocks as before can be counted");
        Some(image)
    }

    /// Credits to free it; `None` where there is nothing.
    pub(crate) fn credits(&self) -> Option<u32> {
        if !self.is_some() {
            return None;
        }
        self.what.lock().as_ref().map(|old| old.credits)
    }

    fn set(&self, old: Emptied) {
        *self.what.lock() = Some(Box::new(old));
        self.is.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<Box<Emptied>> {
        let taken = self.what.lock().take();
        self.is.store(false, Ordering::Release);
        taken
    }
}

/// Those of a volume.
pub(crate) struct OfVolume {
    /// Whether files that are replaced are to be whole (`auto_da_alloc`).
    is_on: bool,
    me: OnceLock<Weak<Fs>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    files: HashMap<InodeNumber, File>,
    /// Blocks that they hold.
    blocks: u64,
    thread: Option<JoinHandle<()>>,
    is_running: bool,
    is_stopping: bool,
}

struct File {
    inode: Arc<Inode>,
    blocks: u64,
    due: Instant,
}

impl OfVolume {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            me: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Whether files that are replaced are to be whole.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Blocks that will be free.
    pub(crate) fn blocks(&self) -> u64 {
        self.state.lock().blocks
    }

    /// Whether there is any.
    pub(crate) fn is_any(&self) -> bool {
        !self.state.lock().files.is_empty()
    }

    fn has_room(&self) -> bool {
        let state = self.state.lock();
        state.files.len() < MOST_FILES && !state.is_stopping
    }

    fn add(&self, inode: Arc<Inode>, blocks: u64, due: Instant) {
        let mut state = self.state.lock();
        state.blocks += blocks;
        let ino = inode.ino;
        state.files.insert(ino, File { inode, blocks, due });
        if !state.is_running && !state.is_stopping && self.start(&mut state).is_err() {
            // A sync, or the next write-back of the file, ends it.
            tracing::warn!("no thread to end truncations that were held back");
        }
        drop(state);
        self.changed.notify_all();
    }

    fn start(&self, state: &mut State) -> std::io::Result<()> {
        let Some(me) = self.me.get().cloned() else {
            return Ok(());
        };
        let run = move || run(&me);
        let thread = thread::Builder::new()
            .name("tl-emptied".into())
            .spawn(run)?;
        state.thread = Some(thread);
        state.is_running = true;
        Ok(())
    }

    fn remove(&self, ino: InodeNumber) {
        let mut state = self.state.lock();
        if let Some(file) = state.files.remove(&ino) {
            state.blocks -= file.blocks;
        }
    }

    fn inodes(&self) -> Vec<Arc<Inode>> {
        let state = self.state.lock();
        state.files.values().map(|f| Arc::clone(&f.inode)).collect()
    }

    /// Ends the thread. No file is held back from now on.
    pub(crate) fn stop(&self) {
        let thread = {
            let mut state = self.state.lock();
            state.is_stopping = true;
            state.thread.take()
        };
        self.changed.notify_all();
        // The thread itself may let the last of the volume go: it ends on its own.
        if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }

    /// Waits until one is due; `None` when the thread has to end: there is none any more, or the volume is closed.
    fn wait(&self) -> Option<Arc<Inode>> {
        let mut state = self.state.lock();
        loop {
            let first = state.files.values().min_by_key(|file| file.due);
            let Some(first) = first.filter(|_| !state.is_stopping) else {
                state.is_running = false;
                return None;
            };
            let (now, due, ino) = (Instant::now(), first.due, first.inode.ino);
            if due <= now {
                let file = state.files.get_mut(&ino)?;
                file.due = now + RETRY;
                return Some(Arc::clone(&file.inode));
            }
            self.changed.wait_until(&mut state, due);
        }
    }
}

/// The thread that ends what is due. It keeps the volume in memory; whoever closes that ends it ([`OfVolume::stop`]).
fn run(me: &Weak<Fs>) {
    let Some(fs) = me.upgrade() else {
        return;
    };
    while let Some(inode) = fs.emptied.wait() {
        if let Err(error) = finish(&fs, &inode) {
            tracing::debug!(ino = inode.ino.0, %error, "a file that was emptied stays as it was");
        }
    }
}

impl Fs {
    /// Has truncations held back where that keeps files whole that are written anew: needs what the volume's own thread can
    /// ask for it.
    pub fn hold_back(self: &Arc<Self>) {
        let _ = self.emptied.me.set(Arc::downgrade(self));
    }

    /// Before a name comes to stand for a file: all of it that is in memory goes to the device and into the running
    /// transaction, which is no later than the name's. Where there is no journal and the name `replaces` another file, it is
    /// durable when this returns: nothing else says in which order blocks go home.
    ///
    /// # Errors
    /// What write-back met; those of the journal.
    pub(crate) fn data_before_name(&self, inode: &Inode, replaces: bool) -> Result<()> {
        if !self.emptied.is_on() || inode.kind != Some(FileType::Regular) {
            return Ok(());
        }
        finish(self, inode)?;
        let last = inode.changes.last(false);
        if replaces && !self.has_log() && last.is_after(self.journal.committed()) {
            self.sync_metadata()?;
        }
        Ok(())
    }

    /// Carries out all truncations that are held back: their room is needed. What is staged of the files comes later.
    ///
    /// # Errors
    /// As [`settle`].
    pub(crate) fn settle_emptied(&self) -> Result<()> {
        let inodes = self.emptied.inodes();
        inodes.iter().try_for_each(|inode| settle(self, inode))
    }

    /// Writes back every file whose truncation is held back, and carries out the truncation with it.
    ///
    /// # Errors
    /// The first that was met; the others are tried all the same.
    pub(crate) fn finish_emptied(&self) -> Result<()> {
        let inodes = self.emptied.inodes();
        let done = inodes.iter().map(|inode| finish(self, inode));
        done.fold(Ok(()), Result::and)
    }
}

/// Empties a file in memory, and holds the truncation back; `false` where it has to be carried out. The I/O lock is held
/// exclusively, nothing of the file is cached, and background work is kept out.
pub(crate) fn hold(fs: &Fs, inode: &Inode) -> Result<bool> {
    if inode.emptied.is_some() {
        // Its mapping is empty.
        let _map = inode.map_exclusive();
        map::set_size(inode, 0);
        file::touch(fs, inode);
        return Ok(true);
    }
    let all = &fs.emptied;
    let is_fit = all.is_on() && all.me.get().is_some() && !fs.is_all_synchronous();
    if !is_fit || !all.has_room() || map::is_metadata(inode) {
        return Ok(false);
    }
    let size = map::size(fs, inode)?;
    if size == 0 || Format::of(&inode.raw.read()) == Format::None {
        return Ok(false);
    }
    let Some(found) = map::survey(fs, inode, size, MOST_RUNS)? else {
        return Ok(false);
    };
    let blocks = found.blocks();
    let credits = credits(fs, &found);
    if blocks == 0 || credits > fs.step_credits() / 2 {
        return Ok(false);
    }
    let held = fs.inode(inode.ino)?;
    {
        let _map = inode.map_exclusive();
        let sectors = blocks.saturating_mul(u64::from(fs.geo.block_bytes / 512));
        map::empty(fs, inode, sectors, |raw| {
            inode.emptied.set(Emptied {
                root: *raw.i_block(),
                size,
                sectors,
                data: found.data,
                nodes: found.nodes,
                credits,
            });
        });
    }
    file::touch(fs, inode);
    fs.emptied
        .add(held, blocks, Instant::now() + fs.cache.writeback().age());
    Ok(true)
}

/// The bits of each run in its groups, and nodes that are forgotten.
fn credits(fs: &Fs, found: &map::Survey) -> u32 {
    let per_group = u64::from(fs.geo.blocks_per_group.max(1));
    let groups = |len: u32| u64::from(len) / per_group + 2;
    let runs = found.data.iter().map(|(_, len)| groups(*len));
    let groups = runs.sum::<u64>() + found.nodes.len() as u64;
    let most = u64::from(fs.geo.groups).min(groups);
    let blocks = most * u64::from(GROUP_CREDITS) + found.nodes.len() as u64;
    u32::try_from(blocks).unwrap_or(u32::MAX)
}

/// Frees what the disk still shows of an inode, if it does: part of a change that stores the inode in the end. Credits:
/// [`OfInode::credits`]. The mapping lock is held exclusively.
///
/// # Errors
/// Those of the journal; `Corrupt` where blocks cannot be its own.
pub(crate) fn end(fs: &Fs, h: &mut Handle<'_>, inode: &Inode) -> Result<()> {
    let Some(old) = inode.emptied.take() else {
        return Ok(());
    };
    fs.emptied.remove(inode.ino);
    for node in old.nodes {
        h.forget(node);
        fs.free(h, node, 1).map_err(|e| e.in_inode(inode.ino))?;
    }
    for (start, len) in old.data {
        fs.free(h, start, len.into())
            .map_err(|e| e.in_inode(inode.ino))?;
    }
    Ok(())
}

/// Has the disk show the inode as it is in memory. No handle is open.
///
/// # Errors
/// As [`end`].
pub(crate) fn settle(fs: &Fs, inode: &Inode) -> Result<()> {
    let Some(credits) = inode.emptied.credits() else {
        return Ok(());
    };
    fs.transact(credits + INODE_CREDITS, |h| {
        let _map = inode.map_exclusive();
        end(fs, h, inode)?;
        fs.store(h, inode)
    })
}

/// Writes back what is in memory only, and has the disk show the inode as it is then. Where the data cannot be written, the
/// disk goes on showing what it did.
///
/// # Errors
/// What write-back met; as [`settle`].
pub(crate) fn finish(fs: &Fs, inode: &Inode) -> Result<()> {
    coherent::flush(inode, coherent::ALL)?;
    settle(fs, inode)
}
