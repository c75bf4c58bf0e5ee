//! The threads that serve a mount.
//!
//! Invariants:
//! - While a request is served, another thread waits for the next request, or watches ([`Pace`]). A thread
//!   that takes a request when there is neither starts another thread, up to [`USUAL_THREADS`]. If these all
//!   have a request and none completes for a while, more are started, up to [`MAX_THREADS`]. So requests that
//!   wait for the device, or for each other, do not stop the mount, and programs that keep the CPUs
//!   busy do not cause more threads.
//! - A thread that finds enough others waiting ends. Without requests, all threads sleep.

use std::io;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Scope;
use std::time::{Duration, Instant};

use throughline_device::{
    allow_fuse_threads, clone_fuse_connection, free_thread, free_workers, leave_background,
};
use throughline_locks::Mutex;

use crate::beside::{self, Beside, Next, Policy};
use crate::channel::{Channel, Received, Scratch};
use crate::options::Choices;
use crate::pace::{Find, Finds, Mode, Pace, SPIN};
use crate::rings::{Able, Rings};
use crate::service::Service;
use crate::wire::Opcode;

/// The maximum number of threads.
pub(crate) const MAX_THREADS: usize = 256;
/// The number of threads up to which one that finds no other waiting starts another.
const USUAL_THREADS: usize = 20;
/// If no request completes for this long while no thread waits, more threads are started: each time, a
/// [`GROWTH`]th of them.
const STUCK: Duration = Duration::from_millis(10);
const GROWTH: usize = 4;
/// The address space of a thread's stack, in bytes.
pub(crate) const STACK_BYTES: usize = 2 << 20;
/// The shortest interval at which memory is returned to the system.
const GIVE_EVERY: Duration = Duration::from_secs(5);
/// The maximum number of threads that wait for requests; surplus threads end.
const MAX_WAITING: usize = 8;

struct Workers<'a> {
    server: &'a dyn Service,
    connection: Arc<Channel>,
    request_bytes: usize,
    pace: Pace,
    /// A thread may serve on its caller's CPU ([`Beside`]), because that pays.
    may_be_beside: AtomicBool,
    /// The thread of [`Mode::Beside`] was started.
    has_beside: AtomicBool,
    /// Its policy.
    beside: OnceLock<Arc<Policy>>,
    threads: AtomicUsize,
    max_threads: AtomicUsize,
    /// Looks whether requests complete, once all usual threads have one.
    stuck: Stuck,
    waiting: AtomicUsize,
    working: AtomicUsize,
    ended: AtomicBool,
    /// A thread was refused, and the log says so.
    warned: AtomicBool,
    failure: Mutex<Option<io::Error>>,
    /// When memory was last returned to the system.
    memory_given: Mutex<Option<Instant>>,
}

/// What the thread that starts more threads than usual goes by.
#[derive(Default)]
struct Stuck {
    /// It runs, or starts to.
    is_watched: AtomicBool,
    /// A request was completed since it last looked.
    completed: AtomicBool,
}

/// Serves requests until the mount is gone. With `able`, the kernel waits for rings.
///
/// # Errors
/// The system's, when a request is read.
pub(crate) fn run(
    server: &dyn Service,
    connection: Channel,
    request_bytes: usize,
    choices: &Choices,
    able: Option<Able>,
) -> io::Result<()> {
    // On a single CPU, no program can make a request while a thread spins.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let connection = Arc::new(connection);
    let rings = able.as_ref().map(|able| {
        Rings::new(
            server,
            Arc::clone(&connection),
            request_bytes,
            able,
            choices,
        )
    });
    let workers = Workers {
        server,
        connection,
        request_bytes,
        pace: Pace::new(processors > 1),
        may_be_beside: AtomicBool::new(false),
        has_beside: AtomicBool::new(false),
        beside: OnceLock::new(),
        threads: AtomicUsize::new(1),
        max_threads: AtomicUsize::new(MAX_THREADS),
        stuck: Stuck::default(),
        waiting: AtomicUsize::new(0),
        working: AtomicUsize::new(0),
        ended: AtomicBool::new(false),
        warned: AtomicBool::new(false),
        failure: Mutex::new(None),
        memory_given: Mutex::new(None),
    };
    server.transport().set(0, MAX_THREADS, request_bytes);
    if let Err(error) = allow_fuse_threads(MAX_THREADS) {
        tracing::info!(%error, "threads may share a descriptor of the connection");
    }
    std::thread::scope(|scope| {
        if let (Some(rings), Some(able)) = (&rings, able) {
            match rings.start(scope, able) {
                Ok(true) => workers.only_forgets(),
                Ok(false) => {}
                Err(error) => workers.end(Some(error)),
            }
        }
        if choices.idle_policy && workers.pace.may_be_alone() {
            workers.measure(scope);
        }
        workers.work(scope);
        rings.iter().for_each(Rings::end);
    });
    workers.failure.into_inner().map_or(Ok(()), Err)
}

/// The channel and the memory with which a thread reads requests.
struct Reader {
    channel: Arc<Channel>,
    scratch: Scratch,
    /// Reads of the channel block.
    waits: bool,
    finds: Finds,
}

impl Reader {
    fn set_waits(&mut self, waits: bool) -> io::Result<()> {
        if self.waits != waits {
            self.channel.set_waits(waits)?;
            self.waits = waits;
        }
        Ok(())
    }

    /// Blocks until a request arrives.
    fn receive(&mut self) -> io::Result<Received> {
        self.set_waits(true)?;
        self.channel.receive(&mut self.scratch)
    }

    /// For the thread that reads alone: spins for a request before it blocks.
    fn receive_alone(&mut self, pace: &Pace) -> io::Result<Received> {
        self.set_waits(false)?;
        let begun = Instant::now();
        let mut find = Find::AtOnce;
        while find != Find::NotYet {
            let received = self.channel.receive(&mut self.scratch)?;
            if received != Received::Nothing {
                pace.found(&mut self.finds, find);
                return Ok(received);
            }
            std::hint::spin_loop();
            find = match begun.elapsed() < SPIN {
                true => Find::Soon,
                false => Find::NotYet,
            };
        }
        pace.found(&mut self.finds, find);
        self.receive()
    }
}

impl Workers<'_> {
    /// Other requests come over rings: one thread, which does not spin, serves those that need no reply.
    fn only_forgets(&self) {
        self.pace.disable();
        self.max_threads.store(1, Ordering::Relaxed);
    }

    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let mut reader = self.reader();
        self.server.transport().begin_thread();
        while !self.ended.load(Ordering::Acquire) {
            let waits = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
            let mode = self.pace.mode();
            let most = match mode {
                Mode::All => MAX_WAITING,
                Mode::Spinning => 1,
                Mode::Beside => 0,
            };
            if waits > most {
                self.waiting.fetch_sub(1, Ordering::Relaxed);
                if mode == Mode::All {
                    break;
                }
                self.pace.park(|| self.take_policy());
                continue;
            }
            let received = match mode {
                Mode::Spinning => reader.receive_alone(&self.pace),
                Mode::All | Mode::Beside => reader.receive(),
            };
            let others = self.waiting.fetch_sub(1, Ordering::SeqCst) - 1;
            match received {
                Ok(Received::Request) => self.serve(scope, &mut reader, others),
                Ok(Received::Nothing) => {}
                Ok(Received::Ended) => self.end(None),
                Err(error) => self.end(Some(error)),
            }
        }
        self.threads.fetch_sub(1, Ordering::Relaxed);
        self.server.transport().end_thread();
        drop(reader);
        self.give_memory_back();
    }

    /// Serves the request that was read; `others` threads wait for the next.
    fn serve<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        reader: &mut Reader,
        others: usize,
    ) {
        if others == 0 && !self.pace.is_watched() {
            self.add_thread(scope);
        }
        let turn = self.pace.take(self.working.fetch_add(1, Ordering::Relaxed));
        self.answer(&reader.channel, &mut reader.scratch);
        self.working.fetch_sub(1, Ordering::Relaxed);
        // Written at most once between two looks.
        if !self.stuck.completed.load(Ordering::Relaxed) {
            self.stuck.completed.store(true, Ordering::Relaxed);
        }
        self.pace.done(&turn);
        if self.may_be_beside.load(Ordering::Relaxed) && self.pace.mode() == Mode::Spinning {
            self.start_beside(scope);
        }
    }

    /// Finds out whether [`Mode::Beside`] pays: now, while no program keeps a CPU busy with requests.
    fn measure<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let started = std::thread::Builder::new()
            .name("fuse-measure".to_owned())
            .spawn_scoped(scope, || {
                self.may_be_beside.store(beside::pays(), Ordering::Relaxed);
            });
        if let Err(error) = started {
            tracing::warn!(%error, "starting a thread");
        }
    }

    /// Starts the thread of [`Mode::Beside`] if there is none yet.
    fn start_beside<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        if self.has_beside.swap(true, Ordering::Relaxed) {
            return;
        }
        let started = std::thread::Builder::new()
            .name("fuse-beside".to_owned())
            .spawn_scoped(scope, || match Beside::new() {
                Ok(beside) => self.work_beside(scope, beside),
                Err(error) => tracing::info!(%error, "no thread serves on its caller's CPU"),
            });
        if let Err(error) = started {
            tracing::warn!(%error, "starting a thread");
        }
    }

    /// Serves requests on the CPU of their caller, while that mode lasts.
    fn work_beside<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, mut beside: Beside) {
        let mut reader = self.reader();
        self.server.transport().begin_thread();
        let _ = self.beside.set(Arc::clone(beside.policy()));
        self.pace.allow_beside(Duration::ZERO);
        while !self.ended.load(Ordering::Acquire) {
            if !self.is_beside(&beside) {
                beside.leave();
                self.show_policy();
                self.pace.await_beside();
                continue;
            }
            match reader.receive() {
                Ok(Received::Request) => self.serve_beside(scope, &mut reader, &mut beside),
                Ok(Received::Nothing) => {}
                Ok(Received::Ended) => self.end(None),
                Err(error) => self.end(Some(error)),
            }
        }
        beside.leave();
        self.show_policy();
        self.server.transport().end_thread();
    }

    /// Whether the mode lasts. Its thread then has the policy, and is watched.
    fn is_beside(&self, beside: &Beside) -> bool {
        let lasts = || self.pace.mode() == Mode::Beside;
        if !lasts() {
            return false;
        }
        match beside.enter() {
            Ok(false) => true,
            Ok(true) => {
                self.show_policy();
                lasts()
            }
            Err(error) => {
                tracing::warn!(%error, "entering the policy of a thread");
                true
            }
        }
    }

    fn serve_beside<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        reader: &mut Reader,
        beside: &mut Beside,
    ) {
        if let Some(header) = reader.scratch.header() {
            beside.follow(header.pid);
            if Opcode::of(header.opcode).is_some_and(Opcode::waits_for_device) {
                beside.leave();
                self.pace.end_alone();
            }
        }
        self.serve(scope, reader, self.waiting.load(Ordering::Relaxed));
        match beside.served() {
            Next::On => {}
            Next::End => self.pace.end_alone(),
            Next::Pause(pause) => {
                self.pace.allow_beside(pause);
                self.pace.end_alone();
            }
        }
    }

    /// The watcher has ended a mode: its thread may be waiting for its CPU.
    fn take_policy(&self) {
        if let Some(policy) = self.beside.get()
            && policy.take()
            && let Err(error) = free_workers(&[])
        {
            tracing::warn!(%error, "changing the policy of workers");
        }
    }

    fn show_policy(&self) {
        let is_entered = self.beside.get().is_some_and(|policy| policy.is_entered());
        self.server.transport().set_idle_policy(is_entered.into());
    }

    fn end(&self, failure: Option<io::Error>) {
        self.ended.store(true, Ordering::Release);
        if let Some(error) = failure {
            self.failure.lock().get_or_insert(error);
        }
        self.pace.end();
    }

    /// A thread ends because there is less work: returns the allocator's free memory to the system,
    /// rate-limited.
    fn give_memory_back(&self) {
        if let Some(mut last) = self.memory_given.try_lock()
            && last.is_none_or(|last| last.elapsed() >= GIVE_EVERY)
        {
            throughline_device::give_memory_back();
            *last = Some(Instant::now());
        }
    }

    /// A panic is a bug of ours; it fails its own request only.
    fn answer(&self, channel: &Arc<Channel>, scratch: &mut Scratch) {
        let unique = scratch.header().map(|header| header.unique);
        let served =
            std::panic::catch_unwind(AssertUnwindSafe(|| self.server.serve(channel, scratch)));
        let result = served.unwrap_or_else(|_| {
            tracing::error!("a request panicked: this is a bug");
            unique.map_or(Ok(()), |unique| {
                channel.refuse(unique, rustix::io::Errno::IO)
            })
        });
        if let Err(error) = result {
            tracing::warn!(%error, "answering a request");
        }
    }

    fn reader(&self) -> Reader {
        Reader {
            channel: self.channel(),
            scratch: Scratch::new(self.request_bytes),
            waits: true,
            finds: Finds::default(),
        }
    }

    fn channel(&self) -> Arc<Channel> {
        match clone_fuse_connection(self.connection.as_fd()) {
            Ok(fd) => Arc::new(Channel::new(fd)),
            // Without permission to open /dev/fuse, all threads share the first descriptor.
            Err(error) => {
                tracing::debug!(%error, "cannot clone the connection for a thread");
                self.pace.disable();
                Arc::clone(&self.connection)
            }
        }
    }

    /// No thread waits for the next request.
    fn add_thread<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let most = self.max_threads.load(Ordering::Relaxed);
        if self.threads.load(Ordering::Relaxed) < USUAL_THREADS.min(most) {
            self.start_another(scope);
        } else if most > USUAL_THREADS && !self.stuck.is_watched.swap(true, Ordering::SeqCst) {
            leave_background();
            let started = std::thread::Builder::new()
                .name("fuse-stuck".to_owned())
                .spawn_scoped(scope, || {
                    free_thread();
                    self.unstick(scope);
                });
            if let Err(error) = started {
                self.stuck.is_watched.store(false, Ordering::SeqCst);
                self.warn_once(&error);
            }
        }
    }

    /// Starts more threads than usual as long as none waits and no request completes.
    fn unstick<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let threads = || self.threads.load(Ordering::Relaxed);
        let is_needed = || {
            self.waiting.load(Ordering::SeqCst) == 0
                && threads() < MAX_THREADS
                && !self.ended.load(Ordering::Acquire)
        };
        loop {
            while is_needed() {
                self.stuck.completed.store(false, Ordering::Relaxed);
                std::thread::sleep(STUCK);
                if is_needed() && !self.stuck.completed.load(Ordering::Relaxed) {
                    (0..threads() / GROWTH).for_each(|_| self.start_another(scope));
                }
            }
            self.stuck.is_watched.store(false, Ordering::SeqCst);
            // A thread that took the last place meanwhile has seen this one.
            if !is_needed() || self.stuck.is_watched.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }

    /// The existing threads go on serving, and each request tries again to add one.
    fn warn_once(&self, error: &io::Error) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "starting a thread");
        }
    }

    fn start_another<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        let most = self.max_threads.load(Ordering::Relaxed);
        if self.threads.fetch_add(1, Ordering::Relaxed) >= most {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        leave_background();
        let started = std::thread::Builder::new()
            .name("fuse".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || {
                // The thread that started this one may be bound, with a policy of its own.
                free_thread();
                self.work(scope);
            });
        if let Err(error) = started {
            self.warn_once(&error);
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
