//! FUSE requests over io_uring (Linux 6.14 and newer): [`FuseEntry`], a place for one request.
//!
//! ```text
//!  register ──► with the kernel ──► wait() == true ──► held: request in `memory`, reply written there
//!                     ▲                                   │
//!                     └──────────── commit() ◄────────────┘     one system call commits and waits
//! ```
//!
//! Each CPU has a queue in the kernel, and an entry belongs to one queue. The kernel passes a request
//! to the entry of its CPU's queue that became free last. All queues need an entry before the kernel
//! uses any. Requests without a reply, interrupts and notifications stay on `/dev/fuse`.
//!
//! The kernel completes the command of an entry on the thread that sent the command. So a thread that serves
//! requests has an entry with a ring of its own. Those of a [`crate::FuseReserve`] share its ring until they
//! get a request. Then another thread may go on with the entry, as each commit is a new command, which may
//! come from any ring, over any descriptor of the same connection.
//!
//! Layout of an entry's memory (`struct fuse_uring_req_header` of the kernel's `fuse.h`, then the payload):
//!
//! | offset | |
//! | --- | --- |
//! | 0 | header of the request; header of the reply |
//! | [`OP_IN_AT`] | first argument of the request |
//! | [`RING_AT`] | of both: number of the request (8 bytes at 8), length of the payload (4 bytes at 16) |
//! | [`PAYLOAD_AT`] | payload: the other arguments; the reply without its header |
//!
//! Invariants:
//! - The kernel accesses the memory only between an accepted command and its completion. References to it
//!   exist only in [`State::Held`]: otherwise [`FuseEntry::memory`] returns `None`.
//! - The number of a request is read when it arrives, before the memory can be written to, and an entry keeps
//!   its connection. So it commits only its own request: for another, the kernel would use that one's memory.
//! - Memory that the kernel may still access is not unmapped. A command cannot be cancelled without losing a
//!   request that arrives meanwhile, so an entry lasts as long as the connection.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use io_uring::squeue;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::fuse::own_connection;
use crate::fuse_ring::{COMMIT_AND_FETCH, REGISTER, command, enter};
use crate::rings::FuseRing as Ring;

/// The offset of the first argument in an entry's memory, in bytes.
pub const OP_IN_AT: usize = 128;
/// The offset of what describes the payload (`struct fuse_uring_ent_in_out`), in bytes.
pub const RING_AT: usize = 256;
/// The offset of the payload, in bytes. It is page-aligned in memory.
pub const PAYLOAD_AT: usize = 4096;

/// The size of `struct fuse_uring_req_header`.
const HEADERS_BYTES: usize = 288;
/// The offset of a request's number.
const COMMIT_ID_AT: usize = RING_AT + 8;
/// The offset of the two iovecs that REGISTER reads.
const IOVECS_AT: usize = 1024;

/// A mapping of zeros. Its owner decides who accesses it.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(len: usize) -> io::Result<Mapping> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address chosen by the system affects no other memory.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE) }?;
        let base: NonNull<u8> = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        // A huge page would take memory for what is not touched, also of the entries beside this one. Kernels
        // without huge pages refuse this.
        // SAFETY: it does not change what the mapping contains.
        let _ = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxNoHugepage) };
        Ok(Mapping { base, len })
    }

    fn unmap(&mut self) {
        // SAFETY: our own mapping, unmapped once, by the owner's `drop`, when nobody accesses it any more.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel does not know the entry.
    New,
    /// A command is with the kernel, or may be.
    Waiting,
    /// A request of this number has arrived, and nobody has asked for it yet.
    Arrived { commit_id: u64 },
    /// The request is in the memory.
    Held { commit_id: u64 },
    /// The kernel has forgotten the entry.
    Ended,
}

/// See the head of this file. The commands of one ring are sent by one thread: the kernel refuses others.
pub struct FuseEntry {
    /// `None`: the reserve sends its commands. It may also do so until [`FuseEntry::begin`].
    ring: Option<Ring>,
    connection: Arc<OwnedFd>,
    queue: u16,
    mapping: Mapping,
    state: State,
}

// SAFETY: the mapping is accessed through the entry alone, or by the kernel (module head).
unsafe impl Send for FuseEntry {}
// SAFETY: shared access only reads.
unsafe impl Sync for FuseEntry {}

impl FuseEntry {
    /// An entry for a queue, which is the number of a CPU. `payload_bytes` is at least the largest
    /// request and reply that were agreed on. It takes memory when it is touched.
    ///
    /// # Errors
    /// System errors: no memory.
    pub(crate) fn new(
        connection: Arc<OwnedFd>,
        queue: u16,
        payload_bytes: usize,
    ) -> io::Result<FuseEntry> {
        Ok(FuseEntry {
            ring: None,
            connection,
            queue,
            mapping: Mapping::new(PAYLOAD_AT + payload_bytes)?,
            state: State::New,
        })
    }

    /// The number of its CPU.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Another descriptor of the connection.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn another_connection(&self) -> io::Result<OwnedFd> {
        own_connection(self.connection.as_fd())
    }

    /// Gives the entry a ring, for a thread that is to call [`FuseEntry::begin`], and a descriptor.
    pub(crate) fn give_ring(&mut self, ring: Ring, connection: OwnedFd) {
        (self.ring, self.connection) = (Some(ring), Arc::new(connection));
    }

    /// Makes the current thread the one that uses the entry's ring.
    ///
    /// # Errors
    /// System errors: the entry has no ring, or began before.
    pub fn begin(&mut self) -> io::Result<()> {
        self.ring()?.submitter().register_enable_rings()
    }

    /// Commits the reply in the memory, and does not wait for the next request.
    ///
    /// # Errors
    /// As [`FuseEntry::wait`].
    pub fn commit(&mut self) -> io::Result<()> {
        self.push_commit()?;
        enter(self.ring()?, 0)
    }

    /// Commits the reply in the memory, if there is a request, and waits for the next. Returns `false` if the
    /// connection has ended.
    ///
    /// # Errors
    /// The kernel's, on a command or on waiting. The entry is of no more use then.
    pub fn wait(&mut self) -> io::Result<bool> {
        self.push_commit()?;
        while self.state == State::Waiting {
            enter(self.ring()?, 1)?;
            self.complete()?;
        }
        Ok(self.hold())
    }

    /// The memory, with the request in it; `None` if there is none.
    pub fn memory(&self) -> Option<&[u8]> {
        let State::Held { .. } = self.state else {
            return None;
        };
        let Mapping { base, len } = self.mapping;
        // SAFETY: in this state nobody writes to the memory without the entry borrowed mutably (module head);
        // the mapping is initialised with zeros.
        Some(unsafe { std::slice::from_raw_parts(base.as_ptr(), len) })
    }

    /// The same, writable.
    pub fn memory_mut(&mut self) -> Option<&mut [u8]> {
        let State::Held { .. } = self.state else {
            return None;
        };
        let Mapping { base, len } = self.mapping;
        // SAFETY: as above; the kernel accesses the memory only after the next command, which needs the entry
        // borrowed mutably, too.
        Some(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len) })
    }

    /// Returns the payload's memory from `from_bytes` on to the system; it reads as zeros then. `from_bytes`
    /// is at least the length of the reply. Does nothing without a request.
    pub fn discard(&mut self, from_bytes: usize) {
        let Some(memory) = self.memory_mut() else {
            return;
        };
        let from = (PAYLOAD_AT + from_bytes)
            .next_multiple_of(rustix::param::page_size())
            .min(memory.len());
        let rest = &mut memory[from..];
        // SAFETY: whole pages of our own private mapping, borrowed mutably; they read as zeros afterwards.
        let _ = unsafe { madvise(rest.as_mut_ptr().cast(), rest.len(), Advice::LinuxDontNeed) };
    }

    fn ring(&mut self) -> io::Result<&mut Ring> {
        let ring = self.ring.as_mut();
        ring.ok_or_else(|| io::Error::other("the entry has no ring of its own"))
    }

    /// The command that hands the entry to the kernel for the first time.
    ///
    /// # Panics
    /// If the kernel has had it before.
    pub(crate) fn registration(&mut self) -> squeue::Entry128 {
        assert_eq!(self.state, State::New, "an entry is registered once");
        let iovec = |at: usize, len: usize| libc::iovec {
            iov_base: self.mapping.base.as_ptr().wrapping_add(at).cast(),
            iov_len: len,
        };
        let iovecs = [
            iovec(0, HEADERS_BYTES),
            iovec(PAYLOAD_AT, self.mapping.len - PAYLOAD_AT),
        ];
        let at = self.mapping.base.as_ptr().wrapping_add(IOVECS_AT);
        // SAFETY: in the mapping, which only we access in this state, and aligned: `IOVECS_AT` in a page.
        unsafe { at.cast::<[libc::iovec; 2]>().write(iovecs) };
        command(
            self.connection.as_raw_fd(),
            REGISTER,
            self.queue,
            0,
            Some(at),
        )
    }

    /// The command that commits the reply; `None` if there is no request.
    pub(crate) fn commitment(&self) -> Option<squeue::Entry128> {
        let State::Held { commit_id } = self.state else {
            return None;
        };
        let number = self.connection.as_raw_fd();
        let command = command(number, COMMIT_AND_FETCH, self.queue, commit_id, None);
        Some(command)
    }

    fn push_commit(&mut self) -> io::Result<()> {
        match self.commitment() {
            Some(command) => self.push(&command),
            None => Ok(()),
        }
    }

    fn push(&mut self, command: &squeue::Entry128) -> io::Result<()> {
        // SAFETY: the kernel reads the iovecs when the command is submitted, and accesses the entry's memory
        // until the completion; both are in the mapping, which is kept in `State::Waiting`.
        unsafe { self.ring()?.submission().push(command) }.map_err(io::Error::other)?;
        self.set_waiting();
        Ok(())
    }

    /// A command of the entry is on its way to the kernel.
    pub(crate) fn set_waiting(&mut self) {
        self.state = State::Waiting;
    }

    /// Takes the completion of the command, if it has come.
    fn complete(&mut self) -> io::Result<()> {
        let completion = self.ring()?.completion().next();
        completion.map_or(Ok(()), |completion| self.completed(completion.result()))
    }

    /// The command of the entry has ended with this result.
    ///
    /// # Errors
    /// The command failed for another reason than the end of the connection.
    pub(crate) fn completed(&mut self, result: i32) -> io::Result<()> {
        let errno = match result {
            0.. => {
                let at = self.mapping.base.as_ptr().wrapping_add(COMMIT_ID_AT);
                // SAFETY: in the mapping, aligned, and the kernel has done with it.
                let commit_id = unsafe { at.cast::<u64>().read() };
                self.state = State::Arrived { commit_id };
                return Ok(());
            }
            error => Errno::from_raw_os_error(-error),
        };
        match errno {
            // The connection is gone.
            Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV | Errno::CANCELED => {
                self.state = State::Ended;
                Ok(())
            }
            // The state stays as it is: the kernel may still know the entry.
            other => Err(other.into()),
        }
    }

    /// Makes the memory accessible if a request has arrived, and returns whether it has.
    pub(crate) fn hold(&mut self) -> bool {
        let State::Arrived { commit_id } = self.state else {
            return false;
        };
        self.state = State::Held { commit_id };
        true
    }
}

impl Drop for FuseEntry {
    fn drop(&mut self) {
        // The kernel cancels the command after the ring is closed, at some time: the memory is left to it.
        if self.state != State::Waiting {
            self.mapping.unmap();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::fuse_ring::new_ring;

    /// A connection that nothing is mounted on; `None`, said so, where there is no io_uring or FUSE.
    pub(crate) fn unmounted() -> Option<OwnedFd> {
        if let Err(error) = new_ring() {
            throughline_testkit::left_out!("no io_uring: {error}");
            return None;
        }
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse");
        match file {
            Ok(file) => Some(file.into()),
            Err(error) => {
                throughline_testkit::missing!("/dev/fuse: {error}");
                None
            }
        }
    }

    /// Whatever the system does for other memory.
    #[test]
    fn an_entry_takes_no_huge_pages() {
        let mapping = Mapping::new(4 << 20).unwrap();
        let at = mapping.base.as_ptr() as usize;
        let contains_it = |line: &&str| {
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16);
            range.is_some_and(|(start, end)| {
                number(start).is_ok_and(|start| start <= at)
                    && number(end).is_ok_and(|end| at < end)
            })
        };
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = maps.lines().skip_while(|line| !contains_it(line));
        let flags = lines.find(|line| line.starts_with("VmFlags:")).unwrap();
        assert!(flags.contains(" nh"), "{flags}");
    }
}
