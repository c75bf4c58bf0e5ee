//! [`FuseReserve`]: entries that the kernel has before there are threads for them.
//!
//! ```text
//!             ┌── queue 1: entry entry entry … ◄── request, when no thread's entry is free
//!  one ring ──┤                                       │
//!             └── queue 2: entry entry entry …        └─► wait() ─► give_ring(): another thread, begin()
//!                                                               └► or, if there is none: commit()
//! ```
//!
//! The kernel leaves a request queued if no entry is free when it comes, and looks at the queue again only
//! when an entry of it is committed. An entry that is registered later does not get it. With the reserve,
//! there is a free entry, however long a thread takes to start.
//!
//! The rings of the threads are made with the reserve, before the transport is agreed on: a limit that other
//! processes use up later (`RLIMIT_MEMLOCK` counts for all processes of a user) cannot take them away.
//!
//! Invariants: those of [`crate::fuse_entry`]. The thread that registers the entries is the one that waits.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use io_uring::squeue;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::fuse::own_connection;
use crate::fuse_entry::FuseEntry;
use crate::fuse_ring::{enter, new_ring, readable, refused_command, reserve_ring};
use crate::rings::FuseRing as Ring;

/// The `user_data` of the command that the kernel refuses.
const REFUSED: u64 = u64::MAX;
/// The `user_data` of the poll of the waker.
const WOKEN: u64 = u64::MAX - 1;

/// Wakes the thread that waits for a reserve.
#[derive(Clone)]
pub struct FuseWaker(Arc<OwnedFd>);

impl FuseWaker {
    /// Makes [`FuseReserve::wait`] return [`FuseEvent::Woken`], now or when it is called next.
    pub fn wake(&self) {
        // It fails only if the waker was rung 2^64 times and nobody came.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// What a reserve has waited for.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum FuseEvent {
    /// This entry holds a request: give it a ring and a thread, or [commit](FuseReserve::commit) it.
    Request(FuseEntry),
    /// Another thread has used the [`FuseWaker`].
    Woken,
    /// The ring cannot be used any more.
    Ended,
}

/// See the head of this file.
pub struct FuseReserve {
    ring: Ring,
    /// For the threads that get entries.
    rings: Vec<Ring>,
    /// What new entries are made of.
    origin: Option<(Arc<OwnedFd>, usize)>,
    waker: FuseWaker,
    /// The ring waits for the waker.
    is_polled: bool,
    is_woken: bool,
    enabled: bool,
    /// The ring cannot be used any more. The memory of the entries is left to the kernel.
    failed: bool,
    /// The entries whose commands this ring has sent; the index is the command's `user_data`.
    with_kernel: Vec<Option<FuseEntry>>,
    /// The indices without an entry.
    free: Vec<usize>,
    /// Entries that hold a request and were not returned yet.
    arrived: VecDeque<FuseEntry>,
    /// Why entries were lost.
    errors: VecDeque<io::Error>,
}

impl FuseReserve {
    /// Makes a ring, for about so many entries, and the rings of so many threads. They prove that this
    /// process may use io_uring, and are made before that transport is agreed on with the kernel, because
    /// after that, all requests wait until it is in use or [refused](FuseReserve::refuse).
    ///
    /// # Errors
    /// System errors: io_uring is forbidden, disabled or too old, or takes more memory than is allowed.
    pub fn new(entries: usize, threads: usize) -> io::Result<FuseReserve> {
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(FuseReserve {
            ring: reserve_ring(u32::try_from(entries).unwrap_or(u32::MAX >> 1))?,
            rings: (0..threads)
                .map(|_| new_ring())
                .collect::<io::Result<_>>()?,
            origin: None,
            waker: FuseWaker(Arc::new(waker)),
            is_polled: false,
            is_woken: false,
            enabled: false,
            failed: false,
            with_kernel: Vec::new(),
            free: Vec::new(),
            arrived: VecDeque::new(),
            errors: VecDeque::new(),
        })
    }

    /// Wakes the thread that waits, from another one.
    pub fn waker(&self) -> FuseWaker {
        self.waker.clone()
    }

    /// The number of threads that can still get a ring.
    pub fn rings_left(&self) -> usize {
        self.rings.len()
    }

    /// Gives an entry that [`FuseReserve::wait`] returned a ring, for a thread that is to call
    /// [`FuseEntry::begin`]. Returns false if there is none left.
    ///
    /// # Errors
    /// System errors; the entry is as before.
    pub fn give_ring(&mut self, entry: &mut FuseEntry) -> io::Result<bool> {
        if self.rings.is_empty() {
            return Ok(false);
        }
        let connection = entry.another_connection()?;
        let ring = self
            .rings
            .pop()
            .map(|ring| entry.give_ring(ring, connection));
        Ok(ring.is_some())
    }

    /// Hands `entries` entries of each of `queues` to the kernel, and returns how many it has taken.
    /// `payload_bytes` is at least the largest request and reply that were agreed on. The kernel uses the
    /// entries as soon as the last queue has one. Call this on the CPU of that queue, so that no
    /// program makes a request there before it has all.
    ///
    /// # Errors
    /// System errors; the kernel uses no entry, and the transport is to be [refused](FuseReserve::refuse). If
    /// the kernel refuses some entries of the last queue, [`FuseReserve::wait`] returns that later.
    pub fn register(
        &mut self,
        connection: BorrowedFd<'_>,
        queues: &[u16],
        entries: usize,
        payload_bytes: usize,
    ) -> io::Result<usize> {
        self.enable()?;
        let connection = Arc::new(own_connection(connection)?);
        self.origin = Some((Arc::clone(&connection), payload_bytes));
        let entry = |queue| FuseEntry::new(Arc::clone(&connection), queue, payload_bytes);
        // Memory that is missing is noticed before the kernel uses any entry.
        let made = queues.iter().map(|queue| {
            let of_queue = (0..entries).map(|_| entry(*queue));
            of_queue.collect::<io::Result<Vec<_>>>()
        });
        let made = made.collect::<io::Result<Vec<_>>>()?;
        for (entries, left) in made.into_iter().zip((0..queues.len()).rev()) {
            let (count, before) = (entries.len(), self.taken());
            for mut entry in entries {
                let command = entry.registration();
                self.push(entry, command)?;
            }
            self.enter(0)?;
            self.take_completions();
            let accepted = self.taken().saturating_sub(before);
            if accepted < count && (left > 0 || accepted == 0) {
                let first = self.errors.drain(..).next();
                return Err(first.unwrap_or(Errno::NOTCONN.into()));
            }
        }
        Ok(self.taken())
    }

    /// Hands one more entry of a queue to the kernel. If that refuses it, [`FuseReserve::wait`] returns that.
    ///
    /// # Errors
    /// System errors; none were [registered](FuseReserve::register) before.
    pub fn add(&mut self, queue: u16) -> io::Result<()> {
        let origin = self.origin.as_ref();
        let (connection, payload_bytes) =
            origin.ok_or_else(|| io::Error::other("no connection"))?;
        let mut entry = FuseEntry::new(Arc::clone(connection), queue, *payload_bytes)?;
        let command = entry.registration();
        self.push(entry, command)?;
        self.enter(0)
    }

    /// The number of entries that the kernel has, or that have arrived.
    fn taken(&self) -> usize {
        self.with_kernel.len() - self.free.len() + self.arrived.len()
    }

    /// Makes the kernel use `/dev/fuse` for all requests of `connection`, by a command that it refuses.
    ///
    /// # Errors
    /// System errors of the ring.
    pub fn refuse(mut self, connection: BorrowedFd<'_>) -> io::Result<()> {
        self.enable()?;
        let refused = refused_command(connection.as_raw_fd()).user_data(REFUSED);
        // SAFETY: the command refers to no memory.
        unsafe { self.ring.submission().push(&refused) }.map_err(io::Error::other)?;
        enter(&self.ring, 0)?;
        let mut completions = self.ring.completion();
        match completions.find(|completion| completion.user_data() == REFUSED) {
            Some(refused) if refused.result() < 0 => Ok(()),
            _ => Err(io::Error::other(
                "the kernel took a command with a wrong queue",
            )),
        }
    }

    /// Waits for a request, or to be woken.
    ///
    /// # Errors
    /// An entry is lost: its command failed. Or the ring cannot be used any more.
    pub fn wait(&mut self) -> io::Result<FuseEvent> {
        loop {
            self.take_completions();
            if std::mem::take(&mut self.is_woken) {
                return Ok(FuseEvent::Woken);
            }
            if let Some(entry) = self.arrived.pop_front() {
                return Ok(FuseEvent::Request(entry));
            }
            if let Some(error) = self.errors.pop_front() {
                return Err(error);
            }
            if self.failed {
                return Ok(FuseEvent::Ended);
            }
            self.poll_waker()?;
            self.enter(1)?;
        }
    }

    /// Commits the reply in the memory of an entry that [`FuseReserve::wait`] returned, and takes it back, if
    /// no other thread has [begun](FuseEntry::begin) to use it.
    ///
    /// # Errors
    /// System errors. The entry cannot be used any more.
    pub fn commit(&mut self, entry: FuseEntry) -> io::Result<()> {
        if let Some(command) = entry.commitment() {
            self.push(entry, command)?;
            self.enter(0)?;
        }
        Ok(())
    }

    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    fn enter(&mut self, completions: usize) -> io::Result<()> {
        enter(&self.ring, completions).inspect_err(|_| self.failed = true)
    }

    fn poll_waker(&mut self) -> io::Result<()> {
        if self.is_polled {
            return Ok(());
        }
        self.enable()?;
        let poll = readable(self.waker.0.as_raw_fd()).user_data(WOKEN);
        self.push_command(&poll)?;
        self.is_polled = true;
        Ok(())
    }

    /// Puts a command into the queue of the ring.
    fn push_command(&mut self, command: &squeue::Entry128) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("the ring has failed"));
        }
        if self.ring.submission().is_full() {
            self.enter(0)?;
        }
        // SAFETY: a command of an entry has the kernel read the iovecs when it is submitted, and access the
        // entry's memory until the completion; both are in its mapping, which is kept while the entry waits.
        // A poll refers to no memory.
        unsafe { self.ring.submission().push(command) }.map_err(io::Error::other)
    }

    /// Puts a command of an entry into the queue of the ring.
    fn push(&mut self, mut entry: FuseEntry, command: squeue::Entry128) -> io::Result<()> {
        let place = self.free.last().copied().unwrap_or(self.with_kernel.len());
        self.push_command(&command.user_data(place as u64))?;
        entry.set_waiting();
        match self.free.pop() {
            Some(place) => self.with_kernel[place] = Some(entry),
            None => self.with_kernel.push(Some(entry)),
        }
        Ok(())
    }

    /// Takes the completions that have come. The entries of requests become `arrived`, those of an ended
    /// connection are dropped.
    fn take_completions(&mut self) {
        for completion in self.ring.completion() {
            if completion.user_data() == WOKEN {
                (self.is_polled, self.is_woken) = (false, true);
                // It does not block; the next poll waits for the next call.
                let _ = rustix::io::read(&*self.waker.0, &mut [0; 8]);
                continue;
            }
            let place = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
            let entry = self.with_kernel.get_mut(place).and_then(Option::take);
            let Some(mut entry) = entry else {
                continue;
            };
            self.free.push(place);
            match entry.completed(completion.result()) {
                Ok(()) if entry.hold() => self.arrived.push_back(entry),
                Ok(()) => {}
                Err(error) => self.errors.push_back(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::fuse_entry::tests::unmounted;

    #[test]
    fn a_transport_is_refused_from_any_thread() {
        let Some(connection) = unmounted() else {
            return;
        };
        let reserve = FuseReserve::new(4, 1).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| reserve.refuse(connection.as_fd()).unwrap());
        });
    }

    /// Entries that the kernel refuses leave a reserve that refuses the transport, and can be woken.
    #[test]
    fn unmounted_connections_are_refused() {
        let Some(connection) = unmounted() else {
            return;
        };
        let connection = connection.as_fd();
        let mut reserve = FuseReserve::new(4, 1).unwrap();
        let waker = reserve.waker();
        assert!(reserve.add(0).is_err());
        assert!(reserve.register(connection, &[0, 1], 2, 8192).is_err());
        assert!(reserve.register(connection, &[0], 1, 8192).is_err());
        for _ in 0..3 {
            waker.wake();
            waker.wake();
            assert!(matches!(reserve.wait(), Ok(FuseEvent::Woken)));
        }
        reserve.refuse(connection).unwrap();
    }

    #[test]
    fn a_reserve_has_rings_for_its_threads() {
        let Some(connection) = unmounted() else {
            return;
        };
        let connection = Arc::new(connection);
        let mut reserve = FuseReserve::new(4, 2).unwrap();
        let mut given = || {
            let mut entry = FuseEntry::new(Arc::clone(&connection), 0, 8192).unwrap();
            let has_ring = reserve.give_ring(&mut entry).unwrap();
            assert_eq!(entry.begin().is_ok(), has_ring);
            assert!(entry.memory().is_none());
            has_ring
        };
        assert_eq!([given(), given(), given()], [true, true, false]);
    }
}
