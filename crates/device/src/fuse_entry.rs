//! FUSE requests over io_uring (Linux 6.14 and newer): [`FuseEntry`], a place for one request.
//!
//! ```text
//!  register ──► with the kernel ──► wait() == true ──► held: request in `memory`, reply written there
//!                     ▲                                   │
//!                     └──────────── commit() ◄────────────┘     one system call commits and waits
//! ```
//!
//! Each processor has a queue in the kernel, and an entry belongs to one queue. The kernel passes a request
//! to the entry of its processor's queue that became free last. All queues need an entry before the kernel
//! uses any. Requests without a reply, interrupts and notifications stay on `/dev/fuse`.
//!
//! The kernel completes the command of an entry on the thread that sent the command. So a thread that serves
//! requests has an entry with a ring of its own. Those of a [`crate::FuseReserve`] share its ring until they
//! get their first requests. Then another thread may go on with the entry, as each commit is a new command,
//! which may come from any ring.
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
//! - The number of a request is read when it arrives, before the memory can be written to. So an entry
//!   commits only its own request: with the number of another, the kernel would use that one's memory.
//! - Memory that the kernel may still access is not unmapped. A command cannot be cancelled without losing a
//!   request that arrives meanwhile, so an entry lasts as long as the connection.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};

use io_uring::register::Restriction;
use io_uring::{opcode, squeue, types};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::rings::{FUSE, FuseRing as Ring};

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
/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;
/// The maximum size of a submission queue: room for commands that could not be submitted.
const SUBMISSIONS: u32 = 8;
/// The maximum size of a completion queue. The kernel keeps completions for which there is no room.
const MAX_COMPLETIONS: u32 = 1 << 16;
/// The offset of `len` in `struct io_uring_sqe`, in units of four bytes.
const SQE_LEN_AT: usize = 6;

/// Makes a ring for the commands of FUSE, and for nothing else. It is disabled, as the thread that enables it
/// must be the one that uses it.
pub(crate) fn new_ring() -> io::Result<Ring> {
    ring_for(1)
}

/// The same, for the commands of `entries` entries.
pub(crate) fn ring_for(entries: u32) -> io::Result<Ring> {
    let mut builder = Ring::builder();
    builder
        .dontfork()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_r_disabled()
        .setup_cqsize(entries.next_power_of_two().clamp(2, MAX_COMPLETIONS));
    let ring = builder.build(entries.min(SUBMISSIONS))?;
    let mut allowed = [Restriction::sqe_op(opcode::UringCmd80::CODE)];
    ring.submitter().register_restrictions(&mut allowed)?;
    Ok(ring)
}

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
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
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
    /// A request has arrived, of this number, and [`FuseEntry::wait`] has not returned yet.
    Arrived { commit_id: u64 },
    /// The request is in the memory.
    Held { commit_id: u64 },
    /// The kernel has forgotten the entry.
    Ended,
}

/// What the thread of an entry sends its commands with.
struct Own {
    ring: Ring,
    connection: OwnedFd,
}

/// See the head of this file. Its commands are sent by one thread: the kernel refuses others.
pub struct FuseEntry {
    /// `None`: the reserve sends its commands. It may also do so until [`FuseEntry::begin`].
    own: Option<Own>,
    queue: u16,
    mapping: Mapping,
    state: State,
}

// SAFETY: the mapping is accessed through the entry alone, or by the kernel (module head).
unsafe impl Send for FuseEntry {}
// SAFETY: shared access only reads.
unsafe impl Sync for FuseEntry {}

impl FuseEntry {
    /// An entry with a ring of its own for a queue, which is the number of a processor. `payload_bytes` is at
    /// least the largest request and reply that were agreed on. Memory that is not touched costs nothing.
    ///
    /// # Errors
    /// System errors: no io_uring, no memory.
    pub fn new(connection: OwnedFd, queue: u16, payload_bytes: usize) -> io::Result<FuseEntry> {
        let mut entry = FuseEntry::without_ring(queue, payload_bytes)?;
        entry.take_ring(connection)?;
        Ok(entry)
    }

    pub(crate) fn without_ring(queue: u16, payload_bytes: usize) -> io::Result<FuseEntry> {
        Ok(FuseEntry {
            own: None,
            queue,
            mapping: Mapping::new(PAYLOAD_AT + payload_bytes)?,
            state: State::New,
        })
    }

    /// The number of its processor.
    pub fn queue(&self) -> u16 {
        self.queue
    }

    /// Takes a ring of its own, unless it has one, for a thread that is to call [`FuseEntry::begin`]. The
    /// ring commits over `connection`.
    ///
    /// # Errors
    /// System errors; the entry is as before.
    pub fn take_ring(&mut self, connection: OwnedFd) -> io::Result<()> {
        if self.own.is_none() {
            let ring = FUSE.take(new_ring)?;
            self.own = Some(Own { ring, connection });
        }
        Ok(())
    }

    /// Makes the current thread the one that uses the entry's ring.
    ///
    /// # Errors
    /// System errors: the entry has no ring, or began before.
    pub fn begin(&mut self) -> io::Result<()> {
        self.own()?.ring.submitter().register_enable_rings()
    }

    /// Begins, and hands the entry to the kernel for the first time. Does not wait for a request.
    ///
    /// # Errors
    /// The kernel's. The kernel then uses `/dev/fuse` for all requests, unless it already uses the rings.
    ///
    /// # Panics
    /// If it was called before.
    pub fn register(&mut self) -> io::Result<()> {
        self.begin()?;
        let number = self.own()?.connection.as_raw_fd();
        let command = self.registration(number);
        self.push(&command)?;
        self.own()?.ring.submit()?;
        self.complete().inspect_err(|_| self.state = State::Ended)
    }

    /// Commits the reply in the memory, and does not wait for the next request.
    ///
    /// # Errors
    /// As [`FuseEntry::wait`].
    pub fn commit(&mut self) -> io::Result<()> {
        self.push_commit()?;
        self.own()?.ring.submit()?;
        Ok(())
    }

    /// Commits the reply in the memory, if there is a request, and waits for the next. Returns `false` if the
    /// connection has ended.
    ///
    /// # Errors
    /// The kernel's, on a command or on waiting. The entry is of no more use then.
    pub fn wait(&mut self) -> io::Result<bool> {
        self.push_commit()?;
        while self.state == State::Waiting {
            match self.own()?.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
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

    fn own(&mut self) -> io::Result<&mut Own> {
        let own = self.own.as_mut();
        own.ok_or_else(|| io::Error::other("the entry has no ring of its own"))
    }

    /// The command that hands the entry to the kernel for the first time.
    ///
    /// # Panics
    /// If the kernel has had it before.
    pub(crate) fn registration(&mut self, connection: RawFd) -> squeue::Entry128 {
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
        command(connection, REGISTER, self.queue, 0, Some(at))
    }

    /// The command that commits the reply; `None` if there is no request.
    pub(crate) fn commitment(&self, connection: RawFd) -> Option<squeue::Entry128> {
        let State::Held { commit_id } = self.state else {
            return None;
        };
        let command = command(connection, COMMIT_AND_FETCH, self.queue, commit_id, None);
        Some(command)
    }

    fn push_commit(&mut self) -> io::Result<()> {
        let number = self.own()?.connection.as_raw_fd();
        match self.commitment(number) {
            Some(command) => self.push(&command),
            None => Ok(()),
        }
    }

    fn push(&mut self, command: &squeue::Entry128) -> io::Result<()> {
        // SAFETY: the kernel reads the iovecs when the command is submitted, and accesses the entry's memory
        // until the completion; both are in the mapping, which is kept in `State::Waiting`.
        unsafe { self.own()?.ring.submission().push(command) }.map_err(io::Error::other)?;
        self.set_waiting();
        Ok(())
    }

    /// A command of the entry is on its way to the kernel.
    pub(crate) fn set_waiting(&mut self) {
        self.state = State::Waiting;
    }

    /// Takes the completion of the command, if it has come.
    fn complete(&mut self) -> io::Result<()> {
        let completion = self.own()?.ring.completion().next();
        completion.map_or(Ok(()), |completion| self.completed(completion.result()))
    }

    /// The command of the entry has ended with this result.
    ///
    /// # Errors
    /// The command's; none if the connection has ended.
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

/// A command that the kernel refuses, after which it uses `/dev/fuse`: the queue does not exist.
pub(crate) fn refused_command(connection: RawFd) -> squeue::Entry128 {
    command(connection, REGISTER, u16::MAX, 0, None)
}

/// A command of FUSE on a ring (`struct fuse_uring_cmd_req`).
fn command(
    connection: RawFd,
    operation: u32,
    queue: u16,
    commit_id: u64,
    iovecs: Option<*mut u8>,
) -> squeue::Entry128 {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    bytes[16..18].copy_from_slice(&queue.to_ne_bytes());
    let entry = opcode::UringCmd80::new(types::Fd(connection), operation)
        .cmd(bytes)
        .addr(iovecs.map(|iovecs| iovecs as u64));
    let mut entry = entry.build();
    if iovecs.is_some() {
        let words = (&raw mut entry).cast::<u32>().wrapping_add(SQE_LEN_AT);
        // SAFETY: `Entry128` is `struct io_uring_sqe`, whose field `len` is there; the crate has no setter.
        unsafe { words.write(2) };
    }
    entry
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

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

    #[test]
    fn other_descriptors_and_unmounted_connections_are_refused() {
        let Some(unmounted) = unmounted() else {
            return;
        };
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        for connection in [file, unmounted] {
            let mut entry = FuseEntry::new(connection, 0, 8192).unwrap();
            assert!(entry.memory().is_none());
            let registered = entry.register();
            assert!(registered.is_err() || !entry.wait().unwrap());
            assert_eq!(entry.state, State::Ended);
            assert!(entry.memory().is_none());
        }
    }

    #[test]
    fn a_command_has_the_layout_of_the_kernel() {
        let mut iovecs = [0_u8; 32];
        let at = iovecs.as_mut_ptr();
        let entry = command(7, REGISTER, 0x0102, 0x0304_0506_0708_090a, Some(at));
        // SAFETY: plain bytes, all initialised.
        let bytes: [u8; 128] = unsafe { std::mem::transmute(entry) };
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        // IORING_OP_URING_CMD, the descriptor, the command, address and number of the iovecs.
        assert_eq!((bytes[0], u32_at(4), u32_at(8)), (46, 7, REGISTER));
        assert_eq!((u64_at(16), u32_at(24)), (at as u64, 2));
        // The command's own bytes.
        assert_eq!((u64_at(48), u64_at(56)), (0, 0x0304_0506_0708_090a));
        assert_eq!(bytes[64..66], 0x0102_u16.to_ne_bytes());
        assert!(bytes[66..].iter().all(|byte| *byte == 0));
    }
}
