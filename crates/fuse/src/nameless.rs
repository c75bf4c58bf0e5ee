//! [`Nameless`]: inodes that have lost their last name, which are freed once the kernel has forgotten them.
//!
//! Freeing one takes as long as removing its name. The thread that serves a program's requests does not do
//! it, because the program's next request would wait: a thread of its own frees what has come together in
//! [`GATHER`], so that it is woken for many inodes at once.
//!
//! Invariants:
//! - What is to be freed is bounded ([`MAX_QUEUED`]); beyond that, who brings an inode frees it.
//! - The thread starts with the first inode, and sleeps while there is none. After [`Nameless::end`] it is
//!   gone, and every inode is freed at once.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use throughline::Node;

/// How long inodes are gathered.
const GATHER: Duration = Duration::from_millis(2);

const MAX_QUEUED: usize = 256;

/// The maximum number of requests that wait for space at the same time. Each blocks one of the mount's
/// threads.
const MAX_ROOM_WAITERS: usize = 4;

/// See the head of this file.
pub(crate) struct Nameless {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something is to be freed, somebody waits for it, or the end has come.
    wanted: Condvar,
    /// Some inodes were freed.
    freed: Condvar,
}

#[derive(Default)]
struct State {
    /// Inodes that the kernel references.
    held: usize,
    /// Inodes to be freed.
    queue: Vec<Node>,
    /// Inodes that are being freed.
    in_work: usize,
    /// Inodes freed so far.
    gone: u64,
    /// Requests that wait for the space of such an inode.
    room_waiters: usize,
    /// Whether somebody waits, so that nothing more is gathered.
    hurry: bool,
    ended: bool,
}

impl Nameless {
    pub(crate) fn new() -> Nameless {
        Nameless {
            shared: Arc::default(),
            thread: Mutex::default(),
        }
    }

    /// One more inode has no name, and is referenced by the kernel.
    pub(crate) fn hold(&self) {
        self.shared.state.lock().held += 1;
    }

    /// The kernel has forgotten an inode that was held.
    pub(crate) fn free(&self, node: Node) {
        let mut state = self.shared.state.lock();
        state.held = state.held.saturating_sub(1);
        let is_full = state.ended || state.queue.len() >= MAX_QUEUED;
        if is_full || !self.has_thread() {
            state.in_work += 1;
            drop(state);
            drop(node);
            self.shared.done(1);
            return;
        }
        state.queue.push(node);
        if state.queue.len() == 1 {
            self.shared.wanted.notify_one();
        }
    }

    /// Starts the thread unless it runs. Whether it runs.
    fn has_thread(&self) -> bool {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("fuse-free".to_owned());
            match builder.spawn(move || shared.work()) {
                Ok(started) => *thread = Some(started),
                Err(error) => tracing::warn!(%error, "starting a thread"),
            }
        }
        thread.is_some()
    }

    /// The number of inodes freed so far.
    pub(crate) fn gone(&self) -> u64 {
        self.shared.state.lock().gone
    }

    /// Waits, at most until `end`, until more than `seen` inodes have been freed. Returns the new number, or
    /// `None` if none is left to wait for, none was freed in time, or [`MAX_ROOM_WAITERS`] requests already
    /// wait. An inode that lost its last name is freed when the kernel forgets it, slightly after the request
    /// that removed the name; a request that finds the volume full in between retries.
    pub(crate) fn await_room(&self, seen: u64, end: Instant) -> Option<u64> {
        let mut state = self.shared.state.lock();
        if state.gone == seen && state.room_waiters >= MAX_ROOM_WAITERS {
            return None;
        }
        state.room_waiters += 1;
        let mut late = false;
        while state.gone == seen && (state.held > 0 || state.is_at_work()) && !late {
            self.shared.hurry(&mut state);
            late = self.shared.freed.wait_until(&mut state, end).timed_out();
        }
        state.room_waiters -= 1;
        (state.gone != seen).then_some(state.gone)
    }

    /// Returns when all inodes are freed that the kernel had forgotten before; at `end` at the latest.
    pub(crate) fn settle(&self, end: Instant) {
        let mut state = self.shared.state.lock();
        let all = state.gone + (state.queue.len() + state.in_work) as u64;
        let mut late = false;
        while state.gone < all && !late {
            self.shared.hurry(&mut state);
            late = self.shared.freed.wait_until(&mut state, end).timed_out();
        }
    }

    /// Frees all that is left, and ends the thread.
    pub(crate) fn end(&self) {
        let mut state = self.shared.state.lock();
        state.ended = true;
        self.shared.hurry(&mut state);
        drop(state);
        let thread = self.thread.lock().take();
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!("the thread that frees inodes has panicked");
        }
    }
}

impl Drop for Nameless {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    fn is_at_work(&self) -> bool {
        !self.queue.is_empty() || self.in_work > 0
    }
}

impl Shared {
    /// The thread frees what there is now.
    fn hurry(&self, state: &mut MutexGuard<'_, State>) {
        state.hurry = true;
        self.wanted.notify_one();
    }

    fn done(&self, many: usize) {
        let mut state = self.state.lock();
        state.in_work -= many;
        state.gone += many as u64;
        self.freed.notify_all();
    }

    /// Frees what is queued, until the end.
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            while state.queue.is_empty() {
                if state.ended {
                    return;
                }
                state.hurry = false;
                self.wanted.wait(&mut state);
            }
            if !state.hurry {
                let until = Instant::now() + GATHER;
                while !state.hurry && !self.wanted.wait_until(&mut state, until).timed_out() {}
            }
            let batch = std::mem::take(&mut state.queue);
            state.in_work += batch.len();
            drop(state);
            for node in batch {
                drop(node);
                self.done(1);
            }
            state = self.state.lock();
        }
    }
}

#[cfg(test)]
mod tests {
    use throughline::{Memory, MkfsOptions, OpenOptions, Volume};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn volume() -> Volume {
        let memory = Memory::zeroed(8 << 20);
        Volume::make_on(memory.clone(), &MkfsOptions::new()).unwrap();
        let volume = OpenOptions::new().write(true).open_device(memory);
        volume.unwrap()
    }

    fn removed(volume: &Volume, name: usize) -> Node {
        let path = format!("/file-{name}");
        volume.write(&path, "contents").unwrap();
        let node = volume.node(&path).unwrap();
        volume.remove_file(&path).unwrap();
        node
    }

    #[test]
    fn what_is_forgotten_is_freed_and_the_volume_can_be_closed() {
        let volume = volume();
        let before = volume.stat_fs().unwrap().free_inodes;
        let nameless = Nameless::new();
        let many = MAX_QUEUED + 50;
        let nodes: Vec<_> = (0..many).map(|name| removed(&volume, name)).collect();
        assert_eq!(
            volume.stat_fs().unwrap().free_inodes as usize + many,
            before as usize
        );
        for node in nodes {
            nameless.hold();
            nameless.free(node);
        }
        nameless.settle(Instant::now() + LONG);
        assert_eq!(nameless.gone(), many as u64);
        assert_eq!(volume.stat_fs().unwrap().free_inodes, before);
        nameless.end();
        nameless.hold();
        nameless.free(removed(&volume, 0));
        assert_eq!(nameless.gone(), many as u64 + 1, "after the end, at once");
        volume.close().expect("no inode is held");
    }

    #[test]
    fn who_waits_for_room_waits_until_an_inode_is_freed_or_none_is_left() {
        let volume = volume();
        let nameless = Nameless::new();
        let end = || Instant::now() + LONG;
        assert_eq!(nameless.await_room(0, end()), None, "nothing is held");
        nameless.hold();
        let node = removed(&volume, 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| nameless.await_room(0, end()));
            nameless.free(node);
            assert_eq!(waits.join().unwrap(), Some(1));
        });
        assert_eq!(nameless.await_room(0, end()), Some(1));
        assert_eq!(nameless.await_room(1, end()), None);
        nameless.hold();
        assert_eq!(nameless.await_room(1, Instant::now()), None, "it is late");
    }

    #[test]
    fn the_end_frees_what_is_left() {
        let volume = volume();
        let before = volume.stat_fs().unwrap().free_inodes;
        let nameless = Nameless::new();
        nameless.hold();
        nameless.free(removed(&volume, 0));
        drop(nameless);
        assert_eq!(volume.stat_fs().unwrap().free_inodes, before);
        volume.close().expect("no inode is held");
    }
}
