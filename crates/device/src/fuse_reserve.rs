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
use std::iter::repeat_n;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use io_uring::squeue;
use rustix::io::Errno;

use crate::fuse_entry::{FuseEntry, refused_command, ring_for};
use crate::rings::FuseRing as Ring;

/// How long the ring waits for memory.
const RETRY: Duration = Duration::from_millis(10);

/// See the head of this file.
pub struct FuseReserve {
    ring: Ring,
    enabled: bool,
    connection: Option<OwnedFd>,
    /// The entries whose commands this ring has sent; the index is the command's `user_data`.
    with_kernel: Vec<Option<FuseEntry>>,
    /// Entries that hold a request and were not returned yet.
    arrived: VecDeque<FuseEntry>,
    /// Commands failed, or the ring.
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
            connection: None,
            with_kernel: Vec::new(),
            arrived: VecDeque::new(),
            errors: VecDeque::new(),
        })
    }

    /// Hands `entries` entries of each of `queues` to the kernel. `payload_bytes` as of [`FuseEntry::new`].
    ///
    /// # Errors
    /// System errors; the transport is to be [refused](FuseReserve::refuse) then. An error that comes when
    /// each queue has an entry is returned by [`FuseReserve::wait`]: the kernel uses the entries that it has.
    pub fn register(
        &mut self,
        connection: OwnedFd,
        queues: &[u16],
        entries: usize,
        payload_bytes: usize,
    ) -> io::Result<()> {
        self.enable()?;
        let number = connection.as_raw_fd();
        self.connection = Some(connection);
        let all = queues.iter().flat_map(|queue| repeat_n(*queue, entries));
        let made: Vec<FuseEntry> = all
            .map(|queue| FuseEntry::without_ring(queue, payload_bytes))
            .collect::<io::Result<_>>()?;
        // The kernel uses the entries as soon as the last queue has one.
        let at_last = (queues.len() * entries).saturating_sub(entries);
        for (at, mut entry) in made.into_iter().enumerate() {
            let command = entry.registration(number);
            let sent = self.send(entry, command);
            match sent.and_then(|place| self.registered(place)) {
                Ok(()) => {}
                Err(error) if at <= at_last => return Err(error),
                Err(error) => {
                    self.errors.push_back(error);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether the kernel has taken the entry.
    fn registered(&mut self, place: usize) -> io::Result<()> {
        let arrived = self.arrived.len();
        self.take_completions();
        if let Some(error) = self.errors.pop_front() {
            return Err(error);
        }
        match self.with_kernel[place].is_some() || self.arrived.len() > arrived {
            true => Ok(()),
            false => Err(Errno::NOTCONN.into()),
        }
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
        self.ring.submit()?;
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
    /// threads, or the connection has ended.
    ///
    /// # Errors
    /// The kernel's. One entry is of no more use; after an error of the ring, all are, and the next call
    /// returns `None`.
    pub fn wait(&mut self) -> io::Result<Option<FuseEntry>> {
        loop {
            self.take_completions();
            if let Some(entry) = self.arrived.pop_front() {
                return Ok(Some(entry));
            }
            if let Some(error) = self.errors.pop_front() {
                return Err(error);
            }
            if self.with_kernel.iter().all(Option::is_none) {
                return Ok(None);
            }
            let Err(error) = self.ring.submit_and_wait(1) else {
                continue;
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // The system is short of memory.
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => std::thread::sleep(RETRY),
                _ => {
                    // The memory of the entries is left to the kernel.
                    self.with_kernel.clear();
                    return Err(error);
                }
            }
        }
    }

    /// Commits the reply in the memory of an entry that [`FuseReserve::wait`] returned, and takes it back, if
    /// no other thread has [begun](FuseEntry::begin) to use it.
    ///
    /// # Errors
    /// System errors; the entry is of no more use then.
    pub fn commit(&mut self, entry: FuseEntry) -> io::Result<()> {
        let number = self.connection.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        match entry.commitment(number) {
            Some(command) => self.send(entry, command).map(drop),
            None => Ok(()),
        }
    }

    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    /// Sends a command of an entry. Returns its place.
    fn send(&mut self, mut entry: FuseEntry, command: squeue::Entry128) -> io::Result<usize> {
        let free = self.with_kernel.iter().position(Option::is_none);
        let place = free.unwrap_or(self.with_kernel.len());
        let command = command.user_data(place as u64);
        // SAFETY: the kernel reads the iovecs when the command is submitted, and accesses the entry's memory
        // until the completion; both are in its mapping, which is kept while the entry waits.
        unsafe { self.ring.submission().push(&command) }.map_err(io::Error::other)?;
        entry.set_waiting();
        match free {
            Some(place) => self.with_kernel[place] = Some(entry),
            None => self.with_kernel.push(Some(entry)),
        }
        self.ring.submit()?;
        Ok(place)
    }

    /// Takes the completions that have come. The entries of requests become `arrived`, those of an ended
    /// connection are dropped.
    fn take_completions(&mut self) {
        for completion in self.ring.completion() {
            let place = usize::try_from(completion.user_data()).ok();
            let entry = place.and_then(|place| self.with_kernel.get_mut(place));
            let Some(mut entry) = entry.and_then(Option::take) else {
                continue;
            };
            match entry.completed(completion.result()) {
                Ok(()) if entry.hold() => self.arrived.push_back(entry),
                Ok(()) => {}
                Err(error) => self.errors.push_back(error),
            }
        }
    }
}

/// The `user_data` of the command that the kernel refuses.
const REFUSED: u64 = u64::MAX;

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
        let own = || connection.try_clone().unwrap();
        let mut reserve = FuseReserve::new(4).unwrap();
        assert!(reserve.wait().unwrap().is_none());
        assert!(reserve.register(own(), &[0, 1], 2, 8192).is_err());
        assert!(reserve.wait().unwrap().is_none());
        assert!(reserve.register(own(), &[0], 1, 8192).is_err());
        reserve.refuse(connection.as_fd()).unwrap();
    }
}
