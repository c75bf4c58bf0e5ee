//! Requests over io_uring: threads that each have one entry of one processor's queue.
//!
//! ```text
//!  program on processor 1 ── request ──► queue 1 of the kernel ──► its entry that became free last
//!                                                                       │
//!  thread of that entry, bound to processor 1:  wait ─► serve ─► commit and wait, in one system call
//! ```
//!
//! So a request is served on the processor that made it, and no other processor is woken. A thread that
//! blocks (for the device, a lock, a commit) blocks only its own request: the kernel passes the next one to
//! another entry.
//!
//! Invariants:
//! - While a request is served, another entry of its queue is free, or about to be. A thread that takes a
//!   request when there is none starts another thread, up to a bound for each queue.
//! - No request stays queued while an entry is free. The kernel looks at its queue only when an entry is
//!   committed, not when one is registered. So a request that was queued while no entry was free would stay
//!   there, although a new thread is idle, until another thread commits: for ever if that thread waits for
//!   the request itself, as a change does that makes the kernel write back pages ([`crate::coherence`]). A
//!   new thread therefore nudges the kernel: it causes a request on its own queue that needs no service, and
//!   the commit of that fetches what is queued. The kernel accepts the nudge only for a regular file that it
//!   knows. It is the one that a request of the queue named last: that request either is still served, so
//!   the kernel knows the file, or its commit has fetched what was queued. If the queue has had requests of
//!   directories only, a file of another queue will do.
//! - A thread that waits for a turn ([`crate::turns`]) does not count towards the bound. The holders of
//!   turns wait for the kernel, which may wait for other requests, and the bound is larger than their number.
//! - A thread whose entry is with the kernel does nothing but wait. In particular, notifications for which
//!   the kernel may wait for requests are sent by a thread without an entry.
//! - A thread never ends before the connection: closing its ring would lose a request that arrives meanwhile.
//!   Surplus threads sleep.
//! - The kernel uses no ring before all queues have an entry. Until then, no thread serves requests. If a
//!   queue gets no entry, the kernel is made to use `/dev/fuse`.

use std::io;
use std::iter;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::Scope;

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};
use throughline_device::{
    Background, FuseEntry, FuseRefusal, PAYLOAD_AT, bind_thread, clone_fuse_connection,
    free_thread, possible_processors,
};

use crate::channel::{Channel, Scratch};
use crate::options::Choices;
use crate::placement::Placement;
use crate::service::Service;
use crate::turns::MAX_TURNS;
use crate::wire::Opcode;

/// The maximum number of threads of all queues that serve at the same time, unless the minimum of
/// [`QUEUE_THREADS`] requires more.
const ALL_THREADS: usize = 128;
/// The smallest and largest bound for one queue.
const QUEUE_THREADS: (usize, usize) = (8, 16);
const _: () = assert!(QUEUE_THREADS.0 > MAX_TURNS + 1);
/// The number of threads waiting for a turn for which there are entries in a sandbox, which makes no more.
/// Without one, the limit of open files allows about as many.
const WAITING: usize = 256;
/// The maximum number of entries that keep the memory of a large request.
const LARGE_ENTRIES: usize = 8;
/// The memory that each entry keeps, in bytes.
const SMALL_BYTES: usize = 64 << 10;

/// Whether root has switched the transport on in the kernel.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// What the transport needs, determined before it is negotiated with the kernel.
pub(crate) struct Able {
    refusal: FuseRefusal,
    processors: Vec<u16>,
}

impl Able {
    /// Determines whether this process can use the transport.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn new() -> io::Result<Able> {
        // Where there is no switch, the kernel says in INIT whether it has the transport.
        if std::fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() == "N") {
            return Err(io::Error::other(format!("{SWITCH} is off")));
        }
        Ok(Able {
            refusal: FuseRefusal::new()?,
            processors: possible_processors()?,
        })
    }

    /// The maximum number of threads of a queue that serve at the same time.
    fn bound(&self) -> usize {
        let (least, most) = QUEUE_THREADS;
        (ALL_THREADS / self.processors.len()).clamp(least, most)
    }

    /// The number of entries of all queues that suffices, with room for threads that wait for a turn.
    pub(crate) fn max_entries(&self) -> usize {
        self.processors.len() * self.bound() + WAITING
    }
}

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
    /// The maximum number of threads of a queue that serve at the same time.
    bound: usize,
    start: Start,
    /// Entries that keep the memory of a large request.
    large: AtomicUsize,
    /// Threads have the policy `SCHED_IDLE` ([`crate::placement`]).
    idle_policy: bool,
    ended: AtomicBool,
    /// The log says that a thread could not be added.
    warned: AtomicBool,
    notices: Bell,
    /// The number of nudges.
    nudges: AtomicU64,
}

/// The threads of one processor's queue.
struct Queue {
    processor: u16,
    /// The threads that wait for a request, or are about to.
    waiting: AtomicUsize,
    /// All threads except those that wait for a turn.
    threads: AtomicUsize,
    /// The node id of the regular file that a request named last, or 0.
    regular: AtomicU64,
}

/// Whether all queues have an entry. Unknown at first.
#[derive(Default)]
struct Start {
    known: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Start {
    fn set(&self, complete: bool) {
        *self.known.lock() = Some(complete);
        self.changed.notify_all();
    }

    fn wait(&self) -> bool {
        let mut known = self.known.lock();
        loop {
            match *known {
                Some(complete) => return complete,
                None => self.changed.wait(&mut known),
            }
        }
    }
}

/// Wakes the thread that sends notifications.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock();
        while !*rung {
            self.changed.wait(&mut rung);
        }
        *rung = false;
    }
}

impl<'a> Rings<'a> {
    pub(crate) fn new(
        server: &'a dyn Service,
        connection: Arc<Channel>,
        payload_bytes: usize,
        able: &Able,
        choices: &Choices,
    ) -> Rings<'a> {
        let queue = |processor: &u16| {
            CachePadded::new(Queue {
                processor: *processor,
                waiting: AtomicUsize::new(0),
                threads: AtomicUsize::new(0),
                regular: AtomicU64::new(0),
            })
        };
        Rings {
            server,
            connection,
            payload_bytes,
            queues: able.processors.iter().map(queue).collect(),
            bound: able.bound(),
            start: Start::default(),
            large: AtomicUsize::new(0),
            idle_policy: choices.idle_policy && may_be_idle(),
            ended: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            notices: Bell::default(),
            nudges: AtomicU64::new(0),
        }
    }

    /// Starts the first thread of each queue. Returns whether the kernel uses the rings from now on; if not,
    /// it uses `/dev/fuse`.
    ///
    /// # Errors
    /// The kernel uses neither, so requests get no reply.
    pub(crate) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        able: Able,
    ) -> io::Result<bool> {
        let started = self.start_all(scope);
        self.start.set(started.is_ok());
        match started {
            Ok(()) => {
                let queues = self.queues.len();
                tracing::info!(queues, "requests come over io_uring");
                let bytes = self.payload_bytes + PAYLOAD_AT;
                (self.server.transport()).set(queues, queues * self.bound, bytes);
                Ok(true)
            }
            Err(error) => {
                tracing::warn!(%error, "requests come through /dev/fuse: starting io_uring failed");
                self.end();
                able.refusal.refuse(self.connection.as_fd())?;
                Ok(false)
            }
        }
    }

    fn start_all<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) -> io::Result<()> {
        std::thread::Builder::new()
            .name("fuse-notices".to_owned())
            .spawn_scoped(scope, || self.send_notices())?;
        let (tell, told) = mpsc::channel();
        for queue in &self.queues {
            let tell = tell.clone();
            self.spawn(scope, queue, move |scratch| {
                let (registered, scratch) = match scratch {
                    Ok(scratch) => (Ok(()), Some(scratch)),
                    Err(error) => (Err(error), None),
                };
                // The receiver stops at the first error.
                let _ = tell.send(registered);
                // The receiver waits until all senders are dropped.
                drop(tell);
                scratch.filter(|_| self.start.wait())
            })?;
        }
        drop(tell);
        let registered: Vec<()> = told.into_iter().collect::<io::Result<_>>()?;
        match registered.len() == self.queues.len() {
            true => Ok(()),
            false => Err(io::Error::other("a thread ended")),
        }
    }

    /// The connection has ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.notices.ring();
    }

    /// Starts a thread for `queue`. `ready` gets the memory of its entry, which the kernel has accepted, and
    /// returns it if the thread is to serve.
    fn spawn<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        queue: &'scope Queue,
        ready: impl FnOnce(io::Result<Scratch>) -> Option<Scratch> + Send + 'scope,
    ) -> io::Result<()> {
        queue.waiting.fetch_add(1, Ordering::Relaxed);
        queue.threads.fetch_add(1, Ordering::Relaxed);
        let started = std::thread::Builder::new()
            .name("fuse-ring".to_owned())
            .spawn_scoped(scope, move || {
                // The thread that started this one may be in the background.
                free_thread();
                bind_thread(queue.processor);
                if let Some(scratch) = ready(self.new_entry(queue)) {
                    self.server.transport().begin_thread();
                    self.work(scope, queue, scratch);
                    self.server.transport().end_thread();
                }
                queue.end();
            });
        started.map(drop).inspect_err(|_| queue.end())
    }

    fn new_entry(&self, queue: &Queue) -> io::Result<Scratch> {
        let connection = self.connection.as_fd();
        // A descriptor of its own, because threads that share one contend for its reference count.
        let own = clone_fuse_connection(connection).or_else(|_| connection.try_clone_to_owned())?;
        let mut entry = FuseEntry::new(own, queue.processor, self.payload_bytes)?;
        entry.register()?;
        Ok(Scratch::of_entry(entry))
    }

    /// Starts another thread for the queue if none of them waits for requests.
    fn ensure_waiter<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, queue: &'scope Queue) {
        if queue.waiting.load(Ordering::Relaxed) > 0
            || queue.threads.load(Ordering::Relaxed) >= self.bound
            || self.ended.load(Ordering::Acquire)
        {
            return;
        }
        let started = self.spawn(scope, queue, |scratch| {
            let added =
                scratch.inspect_err(|error| self.warn_once("adding an entry of a ring", error));
            added.ok().inspect(|_| self.nudge(queue))
        });
        if let Err(error) = started {
            self.warn_once("starting a thread", &error);
        }
    }

    /// Makes the kernel pass on the requests that were queued before it got the current thread's entry.
    fn nudge(&self, queue: &Queue) {
        let named = |queue: &Queue| queue.regular.load(Ordering::Relaxed);
        let others = self.queues.iter().map(|other| named(other));
        let files = iter::once(named(queue)).chain(others);
        for file in files.filter(|file| *file != 0) {
            let number = self.nudges.fetch_add(1, Ordering::Relaxed);
            match self.connection.nudge(file, number) {
                Ok(true) => return,
                // The kernel does not know the file any more.
                Ok(false) => {}
                Err(error) => self.warn_once("nudging the kernel", &error),
            }
        }
    }

    /// Logs a warning, but only the first one: the existing threads go on serving, and every request tries
    /// again to add a thread.
    fn warn_once(&self, what: &str, error: &io::Error) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "{what}");
        }
    }

    /// Serves requests of the queue until the connection ends.
    fn work<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        queue: &'scope Queue,
        mut scratch: Scratch,
    ) {
        let mut keeps = false;
        let background = self.idle_policy.then(Background::new);
        let background = background.and_then(Result::ok);
        let mut placement = Placement::new(queue.processor, background, self.server.transport());
        loop {
            match scratch.wait() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // This entry is lost, but its queue needs one.
                    tracing::error!(%error, "waiting for a request");
                    queue.waiting.fetch_sub(1, Ordering::Relaxed);
                    self.ensure_waiter(scope, queue);
                    queue.waiting.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
            queue.waiting.fetch_sub(1, Ordering::Relaxed);
            queue.notes(&scratch);
            self.ensure_waiter(scope, queue);
            self.serve(scope, queue, &mut scratch);
            self.limit_memory(&mut scratch, &mut keeps);
            placement.served(scratch.reply_bytes());
            queue.waiting.fetch_add(1, Ordering::Relaxed);
            if self.server.has_notices() {
                // The notifications must follow the reply.
                if let Err(error) = scratch.commit() {
                    tracing::error!(%error, "answering a request");
                }
                self.notices.ring();
            }
        }
    }

    fn serve<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        queue: &'scope Queue,
        scratch: &mut Scratch,
    ) {
        // A panic is a bug of ours; it fails its own request only, by the reply that is prepared.
        let served = std::panic::catch_unwind(AssertUnwindSafe(|| {
            scratch.take_from_entry()?;
            while !scratch.is_nudge() && !self.server.serve_entry(&self.connection, scratch)? {
                queue.threads.fetch_sub(1, Ordering::Relaxed);
                self.ensure_waiter(scope, queue);
                self.server.await_turn();
                queue.threads.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }));
        match served {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error: io::Error = error;
                tracing::warn!(%error, "answering a request");
            }
            Err(_) => tracing::error!("a request panicked: this is a bug"),
        }
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

impl Queue {
    /// Notes the file of a request that has arrived.
    fn notes(&self, scratch: &Scratch) {
        let named = scratch
            .arrived()
            .filter(|header| Opcode::of(header.opcode).is_some_and(Opcode::is_of_regular_file));
        if let Some(header) = named {
            self.regular.store(header.nodeid, Ordering::Relaxed);
        }
    }

    /// One of its threads ends.
    fn end(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }
}
