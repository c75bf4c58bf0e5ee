//! The io_uring engine: one ring per queue, one entry per request.
//!
//! Invariants:
//! - A slot is free, or holds one transfer with exactly one entry on the ring: pushed, and its completion not
//!   yet taken. So the ring, which has at least as many entries as there are slots, is never full. What an
//!   entry points to (the request's memory, the iovecs in the slot) stays valid: slots are on the heap, never
//!   move, and are emptied only after the completion was taken.
//! - Dropping the queue waits until every entry that the kernel accepted has completed.
//!
//! The file is registered with the ring, so that requests do not update the file's reference count, which all
//! threads share.
//!
//! A flush or FUA write always blocks in the kernel, which passes it from the ring to a kernel worker. If it
//! is the only request in flight (`deferred`), the waiting thread makes the system call itself: the guarantee
//! is the same, without two thread switches. A journal commit would pay for them twice.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use super::calls::execute;
use super::file::HostFile;
use super::transfer::{Step, Transfer};
use crate::request::Segments;
use crate::rings::{self, ENGINE};
use crate::{Completion, Op, Queue, Request};

const MAX_DEPTH: usize = 128;

/// How often in a row the kernel may refuse entries for lack of resources before the ring is abandoned.
const MAX_REFUSALS: u32 = 1000;

/// A ring that supports all operations that we need, and no others.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if io_uring is forbidden, disabled or too old.
pub(super) fn probe() -> io::Result<IoUring> {
    ENGINE.take(new_ring)
}

/// Makes such a ring.
///
/// # Errors
/// As [`probe`].
pub(crate) fn new_ring() -> io::Result<IoUring> {
    let unsupported = |why: String| {
        io::Error::new(
            io::ErrorKind::Unsupported,
            format!("io_uring is not available: {why}"),
        )
    };
    let depth = MAX_DEPTH as u32;
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_r_disabled();
    let mut is_disabled = true;
    let ring = builder
        .build(depth)
        // Kernels before 5.19 do not know these flags; before 5.10, a ring cannot be restricted.
        .or_else(|_| {
            IoUring::builder()
                .dontfork()
                .setup_r_disabled()
                .build(depth)
        })
        .or_else(|_| {
            is_disabled = false;
            IoUring::builder().dontfork().build(depth)
        })
        .map_err(|error| unsupported(error.to_string()))?;
    let mut known = Probe::new();
    ring.submitter()
        .register_probe(&mut known)
        .map_err(|error| unsupported(error.to_string()))?;
    if !OPERATIONS.into_iter().all(|code| known.is_supported(code))
        || !ring.params().is_feature_nodrop()
    {
        return Err(unsupported("the kernel's version is too old".into()));
    }
    if is_disabled {
        restrict(&ring).map_err(|error| unsupported(error.to_string()))?;
    } else {
        rings::note_unrestricted();
    }
    Ok(ring)
}

/// The operations of our entries.
const OPERATIONS: [u8; 6] = [
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Readv::CODE,
    opcode::Writev::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
];
/// `IORING_REGISTER_FILES` and `IORING_UNREGISTER_FILES`.
const REGISTRATIONS: [u8; 2] = [2, 3];

/// Restricts a ring to [`OPERATIONS`], and enables it.
fn restrict(ring: &IoUring) -> io::Result<()> {
    let operations = OPERATIONS.into_iter().map(Restriction::sqe_op);
    let registrations = REGISTRATIONS.into_iter().map(Restriction::register_op);
    let flags = Restriction::sqe_flags_allowed(squeue::Flags::FIXED_FILE.bits());
    let mut allowed: Vec<Restriction> = operations.chain(registrations).collect();
    allowed.push(flags);
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()
}

#[repr(align(128))] // written with each request, so on its own cache lines
pub(super) struct UringQueue {
    /// Taken when the queue is dropped.
    ring: ManuallyDrop<IoUring>,
    file: Arc<HostFile>,
    /// Whether the file is the ring's registered file 0.
    registered: bool,
    slots: Box<[Slot]>,
    free: Vec<usize>,
    /// A blocking request, with nothing else in flight. It is pushed to the ring unless the owner waits for
    /// it next.
    deferred: Option<Request>,
    /// Entries pushed whose completions have not been taken.
    on_ring: usize,
    /// Finished, but not reaped.
    ready: Vec<Completion>,
    refusals: u32,
    /// Why the kernel accepts no more entries. The ring is then not entered again.
    broken: Option<Errno>,
}

#[derive(Default)]
struct Slot {
    transfer: Option<Transfer>,
    /// The remaining iovecs of a short transfer.
    rest: Segments,
}

// SAFETY: `rest` points into the memory of the transfer's request, which is `Send`.
unsafe impl Send for Slot {}

impl UringQueue {
    pub(super) fn new(ring: IoUring, file: Arc<HostFile>) -> UringQueue {
        let depth = (file.info.limits.queue_depth as usize).clamp(1, MAX_DEPTH);
        let registered = ring
            .submitter()
            .register_files(&[file.fd().as_raw_fd()])
            .is_ok();
        UringQueue {
            ring: ManuallyDrop::new(ring),
            file,
            registered,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            deferred: None,
            on_ring: 0,
            ready: Vec::with_capacity(depth),
            refusals: 0,
            broken: None,
        }
    }

    /// Pushes the request that was held back to the ring.
    fn push_deferred(&mut self) {
        if let Some(request) = self.deferred.take() {
            self.take_slot(request);
        }
    }

    /// Puts a request into a slot and on the ring. Waits if no slot is free.
    fn take_slot(&mut self, request: Request) {
        if request.op() == Op::Discard && self.file.fallocate_mode(Op::Discard).is_none() {
            // This is an ioctl, which the ring does not support.
            return self.ready.push(execute(&self.file, request));
        }
        while self.free.is_empty() {
            self.enter(1);
            self.collect();
        }
        let index = self.free.pop().expect("one is free");
        self.slots[index].transfer = Some(Transfer::new(request));
        self.push(index);
    }

    /// Pushes the slot's next call to the ring.
    fn push(&mut self, index: usize) {
        let (descriptor, flags) = match self.registered {
            true => (types::Fd(0), squeue::Flags::FIXED_FILE),
            false => (
                types::Fd(self.file.fd().as_raw_fd()),
                squeue::Flags::empty(),
            ),
        };
        let entry = self.slots[index]
            .entry(descriptor, &self.file)
            .flags(flags)
            .user_data(index as u64);
        // SAFETY: the memory is valid until the request is returned, and the slot's iovecs until the slot is
        // emptied; both happen only after the completion was taken (module head).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has an entry for every slot");
        self.on_ring += 1;
    }

    /// Submits pushed entries, and waits for `want` completions or a signal.
    fn enter(&mut self, want: usize) {
        if self.broken.is_none() {
            match self
                .ring
                .submit_and_wait(want)
                .map_err(|error| Errno::from_io_error(&error))
            {
                Ok(_) => self.refusals = 0,
                Err(Some(Errno::INTR)) => {}
                Err(Some(Errno::AGAIN | Errno::BUSY)) if self.refusals < MAX_REFUSALS => {
                    self.refusals += 1;
                    thread::yield_now();
                }
                Err(errno) => self.broken = Some(errno.unwrap_or(Errno::IO)),
            }
        }
        if let Some(errno) = self.broken {
            self.give_up(errno);
        }
    }

    /// The kernel accepts no more entries: waits for those it has accepted, and fails the others.
    fn give_up(&mut self, errno: Errno) {
        loop {
            self.collect();
            // The ring is not entered again, so entries still in its submission queue stay there.
            if self.on_ring <= self.ring.submission().len() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        for index in 0..self.slots.len() {
            if self.slots[index].transfer.is_some() {
                self.finish(index, Err(errno.into()));
            }
        }
        self.on_ring = 0;
    }

    /// Takes the available completions.
    fn collect(&mut self) {
        loop {
            let Some(completion) = self.ring.completion().next() else {
                return;
            };
            self.on_ring -= 1;
            let index = completion.user_data() as usize;
            let result = match u64::try_from(completion.result()) {
                Ok(bytes) => Ok(bytes),
                Err(_) => Err(Errno::from_raw_os_error(-completion.result())),
            };
            // The kernel starts no worker, for a limit on processes, say. It would not start one later.
            if let Err(Errno::AGAIN | Errno::CANCELED) = result {
                self.do_here(index);
                continue;
            }
            let transfer = self.slots[index]
                .transfer
                .as_mut()
                .expect("a completion's slot is taken");
            match (transfer.advance(&self.file, result), self.broken) {
                (Step::Finished(result), _) => self.finish(index, result),
                (Step::Again, None) => self.push(index),
                (Step::Again, Some(errno)) => self.finish(index, Err(errno.into())),
            }
        }
    }

    /// Makes the system calls of a slot whose entry has completed without being carried out. What was done of
    /// it before is done again.
    fn do_here(&mut self, index: usize) {
        let transfer = self.empty(index);
        self.ready.push(execute(&self.file, transfer.request));
    }

    /// Empties a slot whose entry has completed, or will never reach the kernel.
    fn finish(&mut self, index: usize, result: io::Result<()>) {
        let transfer = self.empty(index);
        self.ready.push(transfer.finish(result));
    }

    fn empty(&mut self, index: usize) -> Transfer {
        let slot = &mut self.slots[index];
        slot.rest.clear();
        self.free.push(index);
        slot.transfer.take().expect("a slot in use")
    }
}

impl Slot {
    /// The ring entry for the next call.
    fn entry(&mut self, descriptor: types::Fd, file: &HostFile) -> squeue::Entry {
        let transfer = self.transfer.as_ref().expect("a slot in use");
        let (op, offset) = (transfer.request.op(), transfer.offset_bytes());
        let pieces = if transfer.is_untouched() {
            transfer.request.iovecs()
        } else {
            self.rest = transfer.iovecs();
            &self.rest
        };
        let flags = if transfer.request.fua() {
            libc::RWF_DSYNC
        } else {
            0
        };
        match (op, pieces) {
            (Op::Read, [one]) => {
                opcode::Read::new(descriptor, one.iov_base.cast(), one.iov_len as u32)
                    .offset(offset)
                    .build()
            }
            (Op::Read, many) => opcode::Readv::new(descriptor, many.as_ptr(), many.len() as u32)
                .offset(offset)
                .build(),
            (Op::Write, [one]) => {
                opcode::Write::new(descriptor, one.iov_base.cast(), one.iov_len as u32)
                    .offset(offset)
                    .rw_flags(flags)
                    .build()
            }
            (Op::Write, many) => opcode::Writev::new(descriptor, many.as_ptr(), many.len() as u32)
                .offset(offset)
                .rw_flags(flags)
                .build(),
            (Op::Flush, _) => opcode::Fsync::new(descriptor)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
            (Op::Discard | Op::WriteZeroes, _) => {
                let mode = file
                    .fallocate_mode(op)
                    .expect("an ioctl does not go through the ring");
                opcode::Fallocate::new(descriptor, transfer.request.len_bytes())
                    .offset(offset)
                    .mode(mode.bits() as i32)
                    .build()
            }
        }
    }
}

impl Queue for UringQueue {
    fn submit(&mut self, request: Request) {
        let refused = self
            .file
            .admit(&request)
            .err()
            .or(self.broken.map(io::Error::from));
        if let Some(error) = refused {
            self.ready.push(Completion {
                request,
                result: Err(error),
            });
            return;
        }
        self.push_deferred();
        if blocks(&request) && self.in_flight() == 0 {
            self.deferred = Some(request);
            return;
        }
        self.take_slot(request);
    }

    fn kick(&mut self) {
        self.push_deferred();
        if !self.ring.submission().is_empty() {
            self.enter(0);
        }
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let wait_for = wait_for.min(self.in_flight());
        if wait_for > 0
            && let Some(request) = self.deferred.take()
        {
            self.ready.push(execute(&self.file, request));
        }
        self.collect();
        if wait_for == 0 && self.ring.submission().taskrun() {
            self.enter(0); // task work that only an enter completes
            self.collect();
        }
        while self.ready.len() < wait_for {
            self.enter(wait_for - self.ready.len());
            self.collect();
        }
        self.kick();
        done.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.ready.len() + usize::from(self.deferred.is_some())
    }

    fn depth(&self) -> usize {
        self.slots.len()
    }
}

/// Whether the kernel would pass the request to a worker: a flush blocks, and so does a FUA write.
fn blocks(request: &Request) -> bool {
    request.op() == Op::Flush || request.fua()
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        self.push_deferred();
        while self.on_ring > 0 {
            self.enter(1);
            self.collect();
        }
        // The kernel tears a closed ring down later and would keep the registered file open until then: the
        // next exclusive open of the device would fail as busy.
        if self.registered {
            let _ = self.ring.submitter().unregister_files();
        }
        // SAFETY: taken once; the queue is not used after its drop.
        let ring = unsafe { ManuallyDrop::take(&mut self.ring) };
        if self.broken.is_none() {
            ENGINE.give_back(ring);
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::host::lock::{Lock, LockedFile};
    use crate::{EngineChoice, OpenOptions, Segment, scope};

    fn queue(file: &tempfile::NamedTempFile, ring: IoUring) -> UringQueue {
        let info = OpenOptions::new()
            .engine(EngineChoice::Threads)
            .open(file.path())
            .unwrap()
            .info()
            .clone();
        let host = HostFile::new(
            LockedFile::new(file.reopen().unwrap(), Lock::None),
            info,
            65536,
        );
        UringQueue::new(ring, Arc::new(host))
    }

    /// A blocking request is held back only until the owner waits for it or does something else.
    #[test]
    fn a_single_blocking_request_stays_off_the_ring() {
        let Ok(ring) = probe() else {
            return throughline_testkit::left_out!("no io_uring");
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(65536).unwrap();
        let mut queue = queue(&file, ring);
        let flush = || Request::range(0, 0, Op::Flush, 0, 0);
        let mut done = Vec::new();
        queue.submit(flush());
        assert_eq!((queue.on_ring, queue.in_flight()), (0, 1));
        queue.reap(1, &mut done);
        assert_eq!((done.len(), queue.in_flight()), (1, 0));
        // Not waited for next: kicked, reaped without waiting, or followed by another request.
        queue.submit(flush());
        queue.kick();
        assert_eq!((queue.on_ring, queue.in_flight()), (1, 1));
        queue.reap(1, &mut done);
        queue.submit(flush());
        queue.reap(0, &mut done);
        assert!(queue.deferred.is_none());
        queue.reap(1, &mut done);
        queue.submit(flush());
        queue.submit(flush());
        assert_eq!((queue.on_ring, queue.in_flight()), (2, 2));
        queue.submit(flush());
        queue.reap(3, &mut done);
        assert_eq!((done.len(), queue.in_flight()), (6, 0));
        assert!(done.iter().all(|one| one.result.is_ok()));
    }

    /// What a seccomp filter would not see.
    #[test]
    fn a_ring_makes_no_sockets_and_opens_no_files() {
        let Ok(mut ring) = probe() else {
            return throughline_testkit::left_out!("no io_uring");
        };
        let socket = opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build();
        let open = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), c"/dev/null".as_ptr()).build();
        for entry in [socket, open] {
            // SAFETY: the path is static.
            unsafe { ring.submission().push(&entry) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            let completion = ring.completion().next().unwrap();
            assert_eq!(completion.result(), -libc::EACCES);
        }
    }

    /// Under a limit on processes, the kernel starts no workers, and cancels requests that block.
    #[test]
    fn without_workers_requests_are_made_here() {
        const LIMITED: &str = "THROUGHLINE_TEST_LIMITED";
        if std::env::var_os(LIMITED).is_none() {
            return throughline_testkit::limited::run_again(
                "host::uring::tests::without_workers_requests_are_made_here",
                LIMITED,
            );
        }
        let Ok(ring) = probe() else {
            return throughline_testkit::left_out!("no io_uring");
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(65536).unwrap();
        let mut queue = queue(&file, ring);
        let mut done = Vec::new();
        scope(&mut queue, |s| {
            (0..3).for_each(|tag| s.submit_range(tag, Op::Flush, 0, 0));
            s.reap(3, &mut done);
        });
        assert!(done.iter().all(|one| one.result.is_ok()), "{done:?}");
    }

    /// Requests are returned even if the ring is lost.
    #[test]
    fn a_ring_that_is_lost_fails_its_requests() {
        let Ok(ring) = probe() else {
            return throughline_testkit::left_out!("no io_uring");
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(65536).unwrap();
        let mut queue = queue(&file, ring);
        let mut memory = [0; 8192];
        let (mut done, mut later) = (Vec::new(), Vec::new());
        let (first, second) = memory.split_at_mut(4096);
        let (null, number) = (
            std::fs::File::open("/dev/null").unwrap(),
            queue.ring.as_raw_fd(),
        );
        scope(&mut queue, |s| {
            s.submit_range(0, Op::Flush, 0, 0);
            s.submit_range(1, Op::Flush, 0, 0);
            // SAFETY: both are open, and the ring's number stays an open descriptor, now of /dev/null.
            assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), number) }, number);
            s.submit(2, Op::Read, 0, [Segment::Read(first)], false);
            s.reap(1, &mut done);
            s.submit(3, Op::Read, 0, [Segment::Read(second)], false);
            s.reap(1, &mut later);
        });
        assert_eq!((done.len(), later.len(), queue.in_flight()), (3, 1, 0));
        assert!(
            done.iter().chain(&later).all(|d| d.result.is_err()),
            "{done:?} {later:?}"
        );
    }
}
