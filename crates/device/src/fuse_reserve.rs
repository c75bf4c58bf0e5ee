//! [`FuseReserve`]: entries that the kernel has before there are threads for them.
//!
//! ```text
//!             ┌── queue 1: entry entry entry … ◄── request, when no thread's entry is free
//!  one ring ──┤                                       │
//!             └── queue 2: entry entry entry …        └─► wait() ─► another thread: take_ring(), begin()
//!                                                               └► or, if there is none: commit()
//! ```
//!
//! The kernel leaves a request queued if no entry is free when it comes, and looks at the queue again only
//! when an entry of it is committed. An entry that is registered later does not get it. With the reserve,
//! there is a free entry, however long a thread takes to start.
//!
//! Invariants: those of [`crate::fuse_entry`]. The thread that registers the entries is the one that waits.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::squeue;
use rustix::io::Errno;

use crate::fuse::own_connection;
use crate::fuse_entry::FuseEntry;
use crate::fuse_ring::{enter, refused_command, ring_for};
use crate::rings::FuseRing as Ring;

/// The `user_data` of the command that the kernel refuses.
const REFUSED: u64 = u64::MAX;

/// See the head of this file.
pub struct FuseReserve {
    ring: Ring,
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
    /// Makes a ring, for `max_entries` entries. It proves that this process may use io_uring, and is made
    /// before that transport is agreed on with the kernel, because after that, all requests wait until it is
    /// in use or [refused](FuseReserve::refuse).
    ///
    /// # Errors
    /// System errors: io_uring is forbidden, disabled or too old.
    pub fn new(max_entries: usize) -> io::Result<FuseReserve> {
        Ok(FuseReserve {
            ring: ring_for(u32::try_from(max_entries).unwrap_or(u32::MAX >> 1))?,
            enabled: false,
            failed: false,
            with_kernel: Vec::new(),
            free: Vec::new(),
            arrived: VecDeque::new(),
            errors: VecDeque::new(),
        })
    }

    /// Hands `entries` entries of each of `queues` to the kernel, and returns how many it has taken. See
    /// [`FuseEntry::new`] for `payload_bytes`. The kernel uses the entries as soon as the last queue has one.
    /// Call this on the processor of that queue, so that no program makes a request there before it has all.
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
        let entry = |queue| FuseEntry::without_ring(Arc::clone(&connection), queue, payload_bytes);
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

    /// Waits for a request. Returns its entry, which holds it: give it a ring and a thread, or
    /// [commit](FuseReserve::commit) it. `None` if the kernel has no entry of the reserve any more: all have
    /// threads, or the connection has ended, or the ring cannot be used any more.
    ///
    /// # Errors
    /// An entry is lost: its command failed. Or the ring cannot be used any more.
    pub fn wait(&mut self) -> io::Result<Option<FuseEntry>> {
        loop {
            self.take_completions();
            if let Some(entry) = self.arrived.pop_front() {
                return Ok(Some(entry));
            }
            if let Some(error) = self.errors.pop_front() {
                return Err(error);
            }
            if self.failed || self.taken() == 0 {
                return Ok(None);
            }
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

    /// Puts a command of an entry into the queue of the ring.
    fn push(&mut self, mut entry: FuseEntry, command: squeue::Entry128) -> io::Result<()> {
        if self.failed {
            return Err(io::Error::other("the ring has failed"));
        }
        if self.ring.submission().is_full() {
            self.enter(0)?;
        }
        let place = self.free.last().copied().unwrap_or(self.with_kernel.len());
        let command = command.user_data(place as u64);
        // SAFETY: the kernel reads the iovecs when the command is submitted, and accesses the entry's memory
        // until the completion; both are in its mapping, which is kept while the entry waits.
        unsafe { self.ring.submission().push(&command) }.map_err(io::Error::other)?;
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
        let reserve = FuseReserve::new(4).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| reserve.refuse(connection.as_fd()).unwrap());
        });
    }

    /// Entries that the kernel refuses leave a reserve that refuses the transport, and waits for nothing.
    #[test]
    fn unmounted_connections_are_refused() {
        let Some(connection) = unmounted() else {
            return;
        };
        let connection = connection.as_fd();
        let mut reserve = FuseReserve::new(4).unwrap();
        assert!(reserve.wait().unwrap().is_none());
        assert!(reserve.register(connection, &[0, 1], 2, 8192).is_err());
        assert!(reserve.wait().unwrap().is_none());
        assert!(reserve.register(connection, &[0], 1, 8192).is_err());
        reserve.refuse(connection).unwrap();
    }
}
