//! [`KernelPages`]: what the kernel's cache may hold of a file, and changes of the file that bypass that
//! cache. **All rules of their coherence are here.**
//!
//! A page of the kernel's cache is filled by a READ request (a *fill*), may be stored to through a mapping,
//! and is then written back whole. If a page is filled before a change of the file is applied, and is stored
//! to or kept after it, old bytes return to the file, or readers keep seeing them. The kernel drops the pages
//! of a direct write before it sends the write, but not after it. In between, a page may be filled again.
//!
//! 1. *A change that bypasses the kernel's cache is applied while that cache holds no page of its range.*
//!    Before the first fill since the file was opened, this always holds: the kernel has dropped its pages.
//!    A file that the kernel may have used before it was opened here (`unopened.rs`) counts as filled.
//! 2. After the first fill, each change opens a *window*: it makes the kernel drop the range, which writes
//!    back dirty pages in it. If no fill of the range was let through meanwhile, the change is applied;
//!    otherwise it starts again. A fill that arrives in between waits until the change is applied, and so
//!    reads the new data.
//! 3. Such a fill holds its page locked in the kernel, and the kernel may be waiting for that lock in order
//!    to drop the page. So a fill waits no longer than [`PATIENCE`], then proceeds, and the change starts
//!    again.
//! 4. Dropping pages waits for page locks, and these wait for fills. No lock is held during that time, and
//!    [`Turns`] leaves enough threads to serve the fills.
//! 5. For a request during which the kernel keeps its pages (`fallocate`), a change always opens a window. A
//!    request after which the kernel drops pages even if they were stored to (`copy_file_range`) is refused
//!    if a store is possible; the kernel then copies by reads and writes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use foldhash::HashMap;
use throughline_locks::{Condvar, Mutex, Rank, RwLock};

use crate::channel::Channel;
use crate::nodes::nodeid_of;
use crate::turns::Turns;

/// How long a fill waits for a change whose window is not clear yet.
const PATIENCE: Duration = Duration::from_millis(2);
/// The maximum number of times that a change makes the kernel drop its range. Because fills wait, a few
/// suffice; this bounds the case that the kernel keeps a page.
const ROUNDS: usize = 100;
pub(crate) const PAGE_BYTES: u64 = 4096;
/// All bytes of a file.
pub(crate) const ALL_BYTES: Range<u64> = 0..u64::MAX;
const SHARDS: usize = 16;

/// See the head of this file.
pub(crate) struct KernelPages {
    nodeid: u64,
    state: RwLock<State>,
    windows: Mutex<Vec<Window>>,
    /// Notified when a window is closed.
    changed: Condvar,
    /// The number of windows, readable without the lock.
    open: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// A page was filled since the file was opened.
    filled: bool,
    /// Read-write handles.
    read_write: usize,
    /// Those of them that the kernel's cache serves.
    through_cache: usize,
}

/// A change that is not applied yet.
struct Window {
    pages: Range<u64>,
    /// A page of it was filled since the kernel was last asked to drop the range.
    filled: bool,
    /// The change is being applied: fills wait until it is done.
    applying: bool,
    /// Identifies the window.
    number: usize,
}

/// What the kernel did with its pages of the range before it sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// It dropped them: a direct write.
    Dropped,
    /// It only wrote them back.
    WrittenBack,
}

/// The change has to wait for a turn; nothing was applied.
#[derive(Debug)]
pub(crate) struct Later;

/// The range, widened to whole pages.
fn pages(range: &Range<u64>) -> Range<u64> {
    let end = range.end.checked_next_multiple_of(PAGE_BYTES);
    range.start / PAGE_BYTES * PAGE_BYTES..end.unwrap_or(u64::MAX)
}

/// Runs `run`, which reads and changes these files, if no page of them in the kernel's cache can be newer
/// than the file. While it runs, none can become newer. `None` if a page may be newer.
pub(crate) fn while_clean<T>(of: [&KernelPages; 2], run: impl FnOnce() -> T) -> Option<T> {
    let [mut one, mut other] = of;
    // Lock order: by node id, so that opposite copies do not deadlock.
    if one.nodeid > other.nodeid {
        std::mem::swap(&mut one, &mut other);
    }
    let first = one.state.read();
    let second = (one.nodeid != other.nodeid).then(|| other.state.read());
    let dirty = first.may_be_dirty() || second.as_ref().is_some_and(|state| state.may_be_dirty());
    (!dirty).then(run)
}

impl State {
    /// Whether the kernel may hold pages stored to through a mapping.
    fn may_be_dirty(&self) -> bool {
        self.through_cache > 0 || (self.filled && self.read_write > 0)
    }
}

impl KernelPages {
    fn new(ino: u64) -> KernelPages {
        KernelPages {
            nodeid: nodeid_of(ino),
            state: RwLock::numbered(Rank::KernelPages, nodeid_of(ino), State::default()),
            windows: Mutex::default(),
            changed: Condvar::new(),
            open: AtomicUsize::new(0),
        }
    }

    /// The kernel reads the range into its cache. Returns when the file may be read for it.
    pub(crate) fn fill(&self, range: Range<u64>) {
        if !self.state.read().filled {
            // The lock waits for changes in progress without a window.
            self.state.write().filled = true;
        }
        // A window opened after this finds the page locked.
        if self.open.load(Ordering::SeqCst) == 0 {
            return;
        }
        let range = pages(&range);
        let end = Instant::now() + PATIENCE;
        let mut windows = self.windows.lock();
        loop {
            let meets = |w: &&mut Window| w.pages.start < range.end && range.start < w.pages.end;
            let mut met = windows.iter_mut().filter(meets);
            let (mut applying, mut any) = (false, false);
            let late = Instant::now() >= end;
            met.by_ref().for_each(|window| {
                any = true;
                applying |= window.applying;
                window.filled |= late;
            });
            if applying {
                self.changed.wait(&mut windows);
            } else if any && !late {
                self.changed.wait_until(&mut windows, end);
            } else {
                return;
            }
        }
    }

    /// Applies a change of the range that bypasses the kernel's cache.
    ///
    /// # Errors
    /// [`Later`] if it needs a turn and none is free, or the channel takes none: nothing is applied.
    pub(crate) fn change<T>(
        &self,
        (channel, turns): (&Channel, &Turns),
        range: Range<u64>,
        before: Before,
        apply: impl FnOnce() -> T,
    ) -> Result<T, Later> {
        let state = self.state.read();
        if !state.filled && before == Before::Dropped {
            // Under the lock: the first fill waits for it.
            return Ok(apply());
        }
        drop(state);
        let turn = channel.takes_turns().then(|| turns.take()).flatten();
        let _turn = turn.ok_or(Later)?;
        let window = self.open_window(pages(&range));
        window.clear(channel);
        let applied = apply();
        drop(window);
        Ok(applied)
    }

    fn open_window(&self, pages: Range<u64>) -> OpenWindow<'_> {
        let mut windows = self.windows.lock();
        let number = windows.iter().map(|w| w.number + 1).max().unwrap_or(0);
        windows.push(Window {
            pages: pages.clone(),
            filled: false,
            applying: false,
            number,
        });
        self.open.fetch_add(1, Ordering::SeqCst);
        OpenWindow {
            of: self,
            pages,
            number,
        }
    }
}

/// An open window; dropping it closes it.
struct OpenWindow<'a> {
    of: &'a KernelPages,
    pages: Range<u64>,
    number: usize,
}

impl OpenWindow<'_> {
    /// Returns when the kernel holds no page of the range. No page of it is filled until this window is
    /// dropped.
    fn clear(&self, channel: &Channel) {
        for round in 1.. {
            if let Err(error) = channel.pages_are_old(self.of.nodeid, &self.pages) {
                tracing::warn!(%error, "asking the kernel to drop pages");
            }
            let mut windows = self.of.windows.lock();
            let window = windows.iter_mut().find(|w| w.number == self.number);
            let Some(window) = window else { return };
            if !std::mem::take(&mut window.filled) || round >= ROUNDS {
                window.applying = true;
                return;
            }
        }
    }
}

impl Drop for OpenWindow<'_> {
    fn drop(&mut self) {
        let mut windows = self.of.windows.lock();
        windows.retain(|window| window.number != self.number);
        self.of.open.fetch_sub(1, Ordering::SeqCst);
        drop(windows);
        self.of.changed.notify_all();
    }
}

/// The [`KernelPages`] of all open files.
#[derive(Default)]
pub(crate) struct OpenInodes {
    shards: [Mutex<HashMap<u64, OpenInode>>; SHARDS],
}

/// One of them, and its number of handles.
struct OpenInode {
    handles: usize,
    pages: Arc<KernelPages>,
}

/// How a handle was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    /// Read-write: it can be mapped for writing.
    pub(crate) read_write: bool,
    /// Its reads and writes go through the kernel's cache.
    pub(crate) through_cache: bool,
    /// The kernel's cache may hold pages of it already.
    pub(crate) may_be_filled: bool,
}

impl OpenInodes {
    /// A handle of the file is opened.
    pub(crate) fn open(self: &Arc<OpenInodes>, ino: u64, opening: Opening) -> Opened {
        let pages = {
            let mut shard = self.shards[ino as usize % SHARDS].lock();
            let open = shard.entry(ino).or_insert_with(|| OpenInode {
                handles: 0,
                pages: Arc::new(KernelPages::new(ino)),
            });
            open.handles += 1;
            Arc::clone(&open.pages)
        };
        if opening.read_write || opening.may_be_filled {
            let mut state = pages.state.write();
            state.filled |= opening.may_be_filled;
            state.read_write += usize::from(opening.read_write);
            state.through_cache += usize::from(opening.read_write && opening.through_cache);
        }
        Opened {
            inodes: Arc::clone(self),
            ino,
            opening,
            pages,
        }
    }
}

/// An open handle in the counts of its file; dropping it removes it.
pub(crate) struct Opened {
    inodes: Arc<OpenInodes>,
    ino: u64,
    opening: Opening,
    pages: Arc<KernelPages>,
}

impl Opened {
    /// The pages of its file.
    pub(crate) fn pages(&self) -> &KernelPages {
        &self.pages
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.opening.read_write {
            let mut state = self.pages.state.write();
            state.read_write -= 1;
            state.through_cache -= usize::from(self.opening.through_cache);
        }
        let mut shard = self.inodes.shards[self.ino as usize % SHARDS].lock();
        if let Some(open) = shard.get_mut(&self.ino) {
            open.handles -= 1;
            if open.handles == 0 {
                shard.remove(&self.ino);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::turns::MAX_TURNS;

    /// A channel that discards notifications.
    fn channel() -> Channel {
        let null = File::options().write(true).open("/dev/null");
        Channel::new(null.expect("/dev/null").into())
    }

    fn opened(inodes: &Arc<OpenInodes>, read_write: bool, through_cache: bool) -> Opened {
        let opening = Opening {
            read_write,
            through_cache,
            may_be_filled: false,
        };
        inodes.open(12, opening)
    }

    #[test]
    fn without_a_fill_a_change_needs_no_turn_and_with_one_it_does() {
        let (channel, turns, inodes) = (channel(), Turns::default(), Arc::default());
        let file = opened(&inodes, false, false);
        let taken: Vec<_> = (0..MAX_TURNS).map(|_| turns.take().unwrap()).collect();
        assert!(turns.take().is_none());
        let change = |before| {
            let kernel = (&channel, &turns);
            file.pages().change(kernel, 0..100, before, || 7)
        };
        assert_eq!(change(Before::Dropped).unwrap(), 7);
        assert!(change(Before::WrittenBack).is_err());
        file.pages().fill(8192..12288);
        assert!(change(Before::Dropped).is_err());
        drop(taken);
        assert_eq!(change(Before::Dropped).unwrap(), 7);
        let null = File::options().write(true).open("/dev/null").unwrap();
        let kernel = (&Channel::without_turns(null.into()), &turns);
        let refused = file
            .pages()
            .change(kernel, 0..100, Before::Dropped, || unreachable!());
        assert!(refused.is_err());
        // The next open starts without fills.
        drop(file);
        assert!(!opened(&inodes, false, false).pages().state.read().filled);
    }

    #[test]
    fn only_a_fill_of_the_range_waits_for_the_change() {
        let (channel, turns, inodes) = (channel(), Turns::default(), Arc::default());
        let file = opened(&inodes, true, true);
        file.pages().fill(0..1);
        let changed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let apply = || {
                let filler = scope.spawn(|| {
                    file.pages().fill(4096..4097);
                    changed.load(Ordering::SeqCst)
                });
                // Next to the range, not in it; otherwise this would never return.
                file.pages().fill(8192..8193);
                file.pages().fill(0..4096);
                changed.store(true, Ordering::SeqCst);
                filler
            };
            let kernel = (&channel, &turns);
            let filler = file
                .pages()
                .change(kernel, 5000..6000, Before::Dropped, apply);
            assert!(
                filler.unwrap().join().unwrap(),
                "it returned before the change"
            );
        });
    }

    #[test]
    fn a_fill_that_the_kernel_waits_for_proceeds_and_the_change_starts_again() {
        let inodes = Arc::default();
        let file = opened(&inodes, true, true);
        let window = file.pages().open_window(0..4096);
        // Returns although the window is not clear.
        file.pages().fill(0..4096);
        assert!(file.pages().windows.lock()[0].filled);
        window.clear(&channel());
        assert!(file.pages().windows.lock()[0].applying);
        drop(window);
        assert!(file.pages().windows.lock().is_empty());
    }

    #[test]
    fn a_copy_is_refused_if_a_mapping_may_be_stored_to() {
        let inodes = Arc::default();
        let clean = |of: [&Opened; 2]| while_clean(of.map(Opened::pages), || ()).is_some();
        let direct = opened(&inodes, true, false);
        assert!(clean([&direct, &direct]));
        direct.pages().fill(0..1);
        assert!(!clean([&direct, &direct]));
        let other = inodes.open(
            13,
            Opening {
                read_write: true,
                through_cache: true,
                may_be_filled: false,
            },
        );
        assert!(!clean([&other, &other]));
        drop(direct);
        let reader = opened(&inodes, false, true);
        reader.pages().fill(0..1);
        assert!(clean([&reader, &reader]));
        assert!(!clean([&other, &reader]) && !clean([&reader, &other]));
    }
}
