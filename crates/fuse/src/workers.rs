//! The threads that serve a mount.
//!
//! Invariants:
//! - While a request is worked at, somebody waits for the next: a thread that takes one and leaves nobody waiting starts
//!   another, up to a bound, so that requests that wait for the device, or for each other, never stop the mount.
//! - A thread that finds enough others waiting ends. Threads sleep in the kernel; nothing spins.

use std::io;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use throughline_device::clone_fuse_connection;

use crate::channel::{Channel, Scratch};
use crate::server::Server;

/// Threads at most.
const MAX_THREADS: usize = 20;
/// Memory is given back to the system this often at the most.
const GIVE_EVERY: Duration = Duration::from_secs(5);
/// Threads that may wait for requests; more end.
const MAX_WAITING: usize = 8;

struct Workers<'a> {
    server: &'a Server,
    connection: Arc<Channel>,
    request_bytes: usize,
    clone_fd: bool,
    threads: AtomicUsize,
    waiting: AtomicUsize,
    ended: AtomicBool,
    failure: Mutex<Option<io::Error>>,
    /// When memory was last given back to the system.
    memory_given: Mutex<Option<Instant>>,
}

/// Serves requests until the mount has gone.
///
/// # Errors
/// What the system says when a request is read.
pub(crate) fn run(
    server: &Server,
    connection: Channel,
    request_bytes: usize,
    clone_fd: bool,
) -> io::Result<()> {
    let workers = Workers {
        server,
        connection: Arc::new(connection),
        request_bytes,
        clone_fd,
        threads: AtomicUsize::new(1),
        waiting: AtomicUsize::new(0),
        ended: AtomicBool::new(false),
        failure: Mutex::new(None),
        memory_given: Mutex::new(None),
    };
    std::thread::scope(|scope| workers.work(scope));
    workers.failure.into_inner().map_or(Ok(()), Err)
}

impl Workers<'_> {
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let channel = self.channel();
        let mut scratch = Scratch::new(self.request_bytes);
        let mut waits = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        while waits <= MAX_WAITING {
            match channel.receive(&mut scratch) {
                Ok(true) => {}
                Ok(false) => {
                    self.ended.store(true, Ordering::Release);
                    break;
                }
                Err(error) => {
                    self.ended.store(true, Ordering::Release);
                    self.failure.lock().get_or_insert(error);
                    break;
                }
            }
            if self.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.start_another(scope);
            }
            self.serve(&channel, &mut scratch);
            waits = self.waiting.fetch_add(1, Ordering::Relaxed) + 1;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.threads.fetch_sub(1, Ordering::Relaxed);
        drop(scratch);
        self.give_memory_back();
    }

    /// The work of a thread that ends is less than it was: what the allocator keeps of it goes back, not too often.
    fn give_memory_back(&self) {
        if let Some(mut last) = self.memory_given.try_lock()
            && last.is_none_or(|last| last.elapsed() >= GIVE_EVERY)
        {
            throughline::give_memory_back();
            *last = Some(Instant::now());
        }
    }

    /// A request that panics is a bug of ours, and ends with an error of its own and no more.
    fn serve(&self, channel: &Channel, scratch: &mut Scratch) {
        let unique = scratch.header().map(|header| header.unique);
        let served =
            std::panic::catch_unwind(AssertUnwindSafe(|| self.server.serve(channel, scratch)));
        let result = served.unwrap_or_else(|_| {
            tracing::error!("a request met a bug of this program");
            unique.map_or(Ok(()), |unique| {
                channel.refuse(unique, rustix::io::Errno::IO)
            })
        });
        if let Err(error) = result {
            tracing::warn!(%error, "answering a request");
        }
    }

    fn channel(&self) -> Arc<Channel> {
        if !self.clone_fd {
            return Arc::clone(&self.connection);
        }
        match clone_fuse_connection(self.connection.as_fd()) {
            Ok(fd) => Arc::new(Channel::new(fd)),
            // Without a right to open /dev/fuse: the first descriptor serves all.
            Err(error) => {
                tracing::debug!(%error, "no descriptor of its own for a thread");
                Arc::clone(&self.connection)
            }
        }
    }

    fn start_another<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        if self.ended.load(Ordering::Acquire) {
            return;
        }
        if self.threads.fetch_add(1, Ordering::Relaxed) >= MAX_THREADS {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let started = std::thread::Builder::new()
            .name("fuse".to_owned())
            .spawn_scoped(scope, || self.work(scope));
        if let Err(error) = started {
            // Those who are there serve on.
            tracing::warn!(%error, "starting a thread");
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
