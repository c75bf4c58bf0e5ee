//! Requests over io_uring: threads that each have one entry of one CPU's queue.
//!
//! ```text
//!  program on CPU 1 ── request ──► queue 1 of the kernel ──► its entry that became free last
//!                                                                       │
//!  thread of that entry, bound to CPU 1:  wait ─► serve ─► commit and wait, in one system call
//!
//!  the first request of an entry:  thread of the reserve ─► a spare thread, which keeps the entry
//!                                                       └► none left: served here, or if it needs a turn, by
//!                                                          the thread for late requests, and committed here
//! ```
//!
//! So a request is served on the CPU that made it, and no other CPU is woken. A thread that
//! blocks (for the device, a lock, a commit) blocks only its own request: the kernel passes the next one to
//! another entry.
//!
//! Invariants:
//! - The rings of all threads, up to [`MAX_THREADS`], are made before the transport is agreed on ([`Able`]).
//!   What other processes take later, of a limit that is shared with them, fails no request.
//! - The kernel has all entries of a queue from the start ([`FuseReserve`]). An entry gets its thread with
//!   the first request. So a request stays queued only while each entry of the queue has another one. The
//!   kernel looks at the queue when an entry is committed, not when one is registered.
//! - An entry whose request waits for a turn is replaced (`added.rs`), however many they are. Each queue
//!   keeps an entry whose request neither has a turn nor waits for one: who has a turn waits for the kernel,
//!   which may wait for a request.
//! - A thread that has an entry does nothing but wait while its entry is with the kernel. In particular,
//!   notifications for which the kernel may wait for requests are sent by a thread without an entry.
//! - It never ends before the connection: closing its ring would lose a request that arrives meanwhile.
//!   Surplus threads sleep.
//! - The kernel uses no ring before all queues have an entry. If one gets none, the kernel is made to use
//!   `/dev/fuse`. After that, it cannot any more, and the queues go on with the entries that they have.
//! - The thread of the reserve serves a request if all threads have one, or the process may have no more
//!   threads. It takes no turn and waits for none, as the kernel may wait for requests that only this thread
//!   can pass on: another thread, without an entry, does that (`spares.rs`). If it waits for the device, the
//!   first requests of all entries wait with it.

use std::io;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::Scope;

use crossbeam_utils::CachePadded;
use throughline_device::{
    Background, FuseEntry, FuseReserve, FuseWaker, PAYLOAD_AT, bind_thread, free_thread,
    leave_background, restore_slice,
};
use throughline_locks::Mutex;

use crate::bell::Bell;
use crate::channel::{Channel, Scratch};
use crate::options::Choices;
use crate::placement::Placement;
use crate::service::Service;
use crate::watch::Watch;
use crate::workers::{MAX_THREADS, STACK_BYTES};

mod able;
mod added;
mod spares;

pub(crate) use able::Able;
use added::{Queue, Wanted};

/// The maximum number of entries that keep the memory of a large request.
const LARGE_ENTRIES: usize = 8;
/// The memory that each entry keeps, in bytes.
const SMALL_BYTES: usize = 64 << 10;

/// Whether this process may give its threads the policy `SCHED_IDLE`.
fn may_be_idle() -> bool {
    let background = Background::new();
    background
        .inspect_err(|error| tracing::info!(%error, "threads keep their usual policy"))
        .is_ok()
}

/// See the head of this file.
pub(crate) struct Rings<'a> {
    server: &'a dyn Service,
    connection: Arc<Channel>,
    payload_bytes: usize,
    queues: Vec<CachePadded<Queue>>,
    /// For the thread of the reserve: what it is to add and to commit.
    wanted: Mutex<Vec<Wanted>>,
    late: Mutex<Vec<Scratch>>,
    waker: FuseWaker,
    /// The number of entries of each queue that the kernel has from the start.
    entries: usize,
    /// Entries that keep the memory of a large request.
    large: AtomicUsize,
    /// Gives threads the policy `SCHED_IDLE` ([`crate::placement`]), if it may.
    watch: Option<Watch>,
    ended: AtomicBool,
    /// The log says that a thread could not be added.
    warned: AtomicBool,
    notices: Bell,
    /// The number of nudges.
    nudges: AtomicU64,
}

impl<'a> Rings<'a> {
    pub(crate) fn new(
        server: &'a dyn Service,
        connection: Arc<Channel>,
        payload_bytes: usize,
        able: &Able,
        choices: &Choices,
    ) -> Rings<'a> {
        let queue = |processor: &u16| CachePadded::new(Queue::new(*processor, able.entries));
        Rings {
            server,
            connection,
            payload_bytes,
            queues: able.processors.iter().map(queue).collect(),
            wanted: Mutex::default(),
            late: Mutex::default(),
            waker: able.reserve.waker(),
            entries: able.entries,
            large: AtomicUsize::new(0),
            watch: (choices.idle_policy && may_be_idle()).then(Watch::default),
            ended: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            notices: Bell::default(),
            nudges: AtomicU64::new(0),
        }
    }

    /// Hands the entries of all queues to the kernel. Returns whether it uses the rings from now on; if not,
    /// it uses `/dev/fuse`.
    ///
    /// # Errors
    /// The kernel uses neither, so requests get no reply.
    pub(crate) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        able: Able,
    ) -> io::Result<bool> {
        // A thread that cannot be started must not take the reserve with it.
        let (give, given) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        if let Err(error) = self.start_threads(scope, given, tell) {
            return self.refuse(able.reserve, &error);
        }
        // The thread waits for it.
        let _ = give.send(able.reserve);
        let ended = |_| Err(io::Error::other("a thread ended"));
        told.recv().unwrap_or_else(ended)
    }

    fn start_threads<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        given: mpsc::Receiver<FuseReserve>,
        tell: mpsc::Sender<io::Result<bool>>,
    ) -> io::Result<()> {
        std::thread::Builder::new()
            .name("fuse-notices".to_owned())
            .spawn_scoped(scope, || self.send_notices())?;
        let (park, parked) = mpsc::channel();
        std::thread::Builder::new()
            .name("fuse-late".to_owned())
            .spawn_scoped(scope, move || self.serve_late(parked))?;
        if let Some(watch) = &self.watch {
            std::thread::Builder::new()
                .name("fuse-watch".to_owned())
                .spawn_scoped(scope, || watch.run(self.server.transport()))?;
        }
        std::thread::Builder::new()
            .name("fuse-reserve".to_owned())
            .spawn_scoped(scope, move || {
                let Ok(mut reserve) = given.recv() else {
                    return;
                };
                let started = self.start_spares(scope, &reserve, park);
                let registered = started.and_then(|spares| {
                    self.register(&mut reserve)?;
                    Ok(spares)
                });
                // The receiver waits for it.
                match registered {
                    Ok(spares) => {
                        let _ = tell.send(Ok(true));
                        self.serve_reserve(scope, reserve, spares);
                    }
                    Err(error) => drop(tell.send(self.refuse(reserve, &error))),
                }
            })?;
        Ok(())
    }

    /// Makes the kernel use `/dev/fuse`.
    fn refuse(&self, reserve: FuseReserve, why: &io::Error) -> io::Result<bool> {
        tracing::warn!(error = %why, "requests come through /dev/fuse: starting io_uring failed");
        self.end();
        reserve.refuse(self.connection.as_fd())?;
        Ok(false)
    }

    fn register(&self, reserve: &mut FuseReserve) -> io::Result<()> {
        let processors: Vec<u16> = self.queues.iter().map(|queue| queue.processor).collect();
        let queues = processors.len();
        bind_thread(processors[queues - 1]);
        let connection = self.connection.as_fd();
        let taken = reserve.register(connection, &processors, self.entries, self.payload_bytes);
        free_thread();
        let entries = taken?;
        tracing::info!(queues, entries, "requests come over io_uring");
        let bytes = self.payload_bytes + PAYLOAD_AT;
        self.server.transport().set(queues, MAX_THREADS, bytes);
        Ok(())
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.notices.ring();
        self.waker.wake();
        self.watch.iter().for_each(Watch::end);
    }

    fn queue_of(&self, entry: &FuseEntry) -> &Queue {
        let queue = (self.queues.iter()).find(|queue| queue.processor == entry.queue());
        queue.expect("the entries are of our queues")
    }

    /// Starts a thread. `begin` gets its queue, and its entry with the first request in it.
    fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        begin: impl FnOnce() -> Option<(&'scope Queue, Scratch)> + Send + 'scope,
    ) -> io::Result<()> {
        leave_background();
        std::thread::Builder::new()
            .name("fuse-ring".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, move || {
                // The thread that started this one may be bound to a CPU, or in the background.
                free_thread();
                restore_slice();
                if let Some((queue, scratch)) = begin() {
                    self.server.transport().begin_thread();
                    self.work(queue, scratch);
                    self.server.transport().end_thread();
                }
            })
            .map(drop)
    }

    /// Logs a warning, but only the first one: the existing threads go on serving, and later requests try
    /// again.
    fn warn_once(&self, what: &str, error: &io::Error) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "{what}");
        }
    }

    /// Serves the request in `scratch`, and those that follow, until the connection ends.
    fn work(&self, queue: &Queue, mut scratch: Scratch) {
        let mut keeps = false;
        let watching = self.watch.as_ref().and_then(|watch| {
            let background = Background::new().ok()?;
            Some(watch.add(background))
        });
        let mut placement = Placement::new(queue.processor, watching);
        loop {
            self.serve(queue, &mut scratch);
            self.limit_memory(&mut scratch, &mut keeps);
            placement.served(scratch.reply_bytes());
            if self.server.has_notices() {
                // The notifications must follow the reply.
                if let Err(error) = scratch.commit() {
                    tracing::error!(%error, "answering a request");
                }
                self.notices.ring();
            }
            match scratch.wait() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // This entry is lost.
                    tracing::error!(%error, "waiting for a request");
                    self.is_absent(queue, None);
                    return;
                }
            }
        }
    }

    fn serve(&self, queue: &Queue, scratch: &mut Scratch) {
        contain(|| {
            scratch.take_from_entry()?;
            while !scratch.is_nudge() && !self.server.serve_entry(&self.connection, scratch)? {
                self.is_absent(queue, scratch.header().map(|header| header.nodeid));
                self.server.await_turn();
                queue.returned();
            }
            Ok(())
        });
    }

    /// Returns the memory of a large request to the system, unless this entry is one of the [`LARGE_ENTRIES`]
    /// that keep theirs (`keeps`).
    fn limit_memory(&self, scratch: &mut Scratch, keeps: &mut bool) {
        if *keeps || scratch.touched_bytes() <= SMALL_BYTES {
            return;
        }
        let kept = self.large.load(Ordering::Relaxed);
        *keeps = kept < LARGE_ENTRIES
            && (self.large)
                .compare_exchange(kept, kept + 1, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !*keeps {
            scratch.discard(SMALL_BYTES);
        }
    }

    /// Sends notifications until the connection ends.
    fn send_notices(&self) {
        while !self.ended.load(Ordering::Acquire) {
            self.server.send_notices(&self.connection);
            self.notices.wait();
        }
    }
}

/// Serves a request. A panic is a bug of ours; it fails its own request only, by the reply that is prepared.
fn contain(serve: impl FnOnce() -> io::Result<()>) {
    match std::panic::catch_unwind(AssertUnwindSafe(serve)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "answering a request"),
        Err(_) => tracing::error!("a request panicked: this is a bug"),
    }
}
