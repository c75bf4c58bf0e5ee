//! The io_uring engine: a ring for each queue, one entry for each request.
//!
//! Invariants:
//! - A slot is free, or holds one transfer that has exactly one entry on the ring: pushed, and its
//!   completion not yet taken. So the ring, which has at least as many entries as there are slots, is
//!   never full, and what an entry points to (the request's memory, the pieces listed in the slot) stays
//!   where it is: slots are on the heap and never move, and are emptied when the completion was taken.
//! - The queue is not dropped before every entry that the kernel took has completed.
//!
//! The file is registered with the ring, so that a request does not count its references to it, which all
//! threads would share.
//!
//! A flush, or a write that is to survive a power loss, always blocks in the kernel, which hands it from the ring to a
//! worker of its own. Where one is all there is to wait for, the waiting thread makes the same call itself: the same
//! promise without two switches of threads, of which a commit of a journal would pay twice. (`alone`)

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use super::file::HostFile;
use super::threads::carry_out;
use super::transfer::{Step, Transfer};
use crate::request::Segments;
use crate::{Completion, Op, Queue, Request};

const MAX_DEPTH: usize = 128;

/// How often in a row the kernel may be out of memory for an entry before the ring is given up.
const MAX_REFUSALS: u32 = 1000;

/// A ring that can do all we ask.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] where io_uring is forbidden, switched off or too old.
pub(super) fn probe() -> io::Result<IoUring> {
    let unsupported =
        |why: String| io::Error::new(io::ErrorKind::Unsupported, format!("no io_uring: {why}"));
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all();
    let ring = builder
        .build(MAX_DEPTH as u32)
        // Before 5.19 these refinements are unknown.
        .or_else(|_| IoUring::builder().dontfork().build(MAX_DEPTH as u32))
        .map_err(|error| unsupported(error.to_string()))?;
    let mut known = Probe::new();
    ring.submitter()
        .register_probe(&mut known)
        .map_err(|error| unsupported(error.to_string()))?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Readv::CODE,
        opcode::Writev::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
    ];
    if !needed.into_iter().all(|code| known.is_supported(code))
        || !ring.params().is_feature_nodrop()
    {
        return Err(unsupported("this kernel's is too old".into()));
    }
    Ok(ring)
}

#[repr(align(128))] // written with each request: on lines of its own
pub(super) struct UringQueue {
    ring: IoUring,
    file: Arc<HostFile>,
    /// Whether the file is the ring's registered file 0.
    registered: bool,
    slots: Box<[Slot]>,
    free: Vec<usize>,
    /// What blocks, with nothing else in flight. It goes to the ring if it is not waited for next.
    alone: Option<Request>,
    /// Entries pushed whose completions were not taken.
    on_ring: usize,
    /// Finished, and not reaped.
    ready: Vec<Completion>,
    refusals: u32,
    /// Why the kernel takes no more entries; the ring is not entered again.
    broken: Option<Errno>,
}

#[derive(Default)]
struct Slot {
    transfer: Option<Transfer>,
    /// What is left of a transfer that came back short.
    rest: Segments,
}

// SAFETY: `rest` lists parts of the memory of the transfer's request, which may be sent.
unsafe impl Send for Slot {}

impl UringQueue {
    pub(super) fn new(ring: IoUring, file: Arc<HostFile>) -> UringQueue {
        let depth = (file.info.limits.queue_depth as usize).clamp(1, MAX_DEPTH);
        let registered = ring
            .submitter()
            .register_files(&[file.fd().as_raw_fd()])
            .is_ok();
        UringQueue {
            ring,
            file,
            registered,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            alone: None,
            on_ring: 0,
            ready: Vec::with_capacity(depth),
            refusals: 0,
            broken: None,
        }
    }

    /// Lets go of what was held back: it goes to the ring as others do.
    fn release_alone(&mut self) {
        if let Some(request) = self.alone.take() {
            self.take_slot(request);
        }
    }

    /// Gives a request a slot, and waits for one if there is none free.
    fn take_slot(&mut self, request: Request) {
        if request.op() == Op::Discard && self.file.fallocate_mode(Op::Discard).is_none() {
            // An ioctl: the ring has none.
            return self.ready.push(carry_out(&self.file, request));
        }
        while self.free.is_empty() {
            self.enter(1);
            self.collect();
        }
        let index = self.free.pop().expect("one is free");
        self.slots[index].transfer = Some(Transfer::new(request));
        self.push(index);
    }

    /// Puts the slot's next call on the ring.
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
        // SAFETY: the memory is valid until the request is given back, and the slot's lists of pieces until
        // the slot is emptied; both happen after the completion was taken (module head).
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the ring has an entry for every slot");
        self.on_ring += 1;
    }

    /// Submits what was pushed, and waits until `want` completions are there to be taken, or a signal.
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

    /// The kernel takes no more entries: waits for those it has, and fails those it has not.
    fn give_up(&mut self, errno: Errno) {
        loop {
            self.collect();
            // As the ring is not entered again, what is still in it stays there.
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

    /// Takes the completions that are there.
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

    /// Empties a slot whose entry has completed, or will never be seen by the kernel.
    fn finish(&mut self, index: usize, result: io::Result<()>) {
        let slot = &mut self.slots[index];
        slot.rest.clear();
        let transfer = slot.transfer.take().expect("a slot in use");
        self.ready.push(transfer.finish(result));
        self.free.push(index);
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
        self.release_alone();
        if blocks(&request) && self.in_flight() == 0 {
            self.alone = Some(request);
            return;
        }
        self.take_slot(request);
    }

    fn kick(&mut self) {
        self.release_alone();
        if !self.ring.submission().is_empty() {
            self.enter(0);
        }
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let wait_for = wait_for.min(self.in_flight());
        if wait_for > 0
            && let Some(request) = self.alone.take()
        {
            self.ready.push(carry_out(&self.file, request));
        }
        self.collect();
        if wait_for == 0 && self.ring.submission().taskrun() {
            self.enter(0); // finished work that only an enter brings in
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
        self.slots.len() - self.free.len() + self.ready.len() + usize::from(self.alone.is_some())
    }

    fn depth(&self) -> usize {
        self.slots.len()
    }
}

/// Whether the kernel would hand it to a worker: a flush waits, and so does a write with one behind it.
fn blocks(request: &Request) -> bool {
    request.op() == Op::Flush || request.fua()
}

impl Drop for UringQueue {
    fn drop(&mut self) {
        self.release_alone();
        while self.on_ring > 0 {
            self.enter(1);
            self.collect();
        }
        // The kernel takes a closed ring apart later, and with it would hold on to the file: the next to
        // open the device exclusively would be told that it is busy.
        if self.registered {
            let _ = self.ring.submitter().unregister_files();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::lock::Lock;
    use crate::{EngineChoice, OpenOptions, Segment, scope};

    fn queue(file: &tempfile::NamedTempFile, ring: IoUring) -> UringQueue {
        let info = OpenOptions::new()
            .engine(EngineChoice::Threads)
            .open(file.path())
            .unwrap()
            .info()
            .clone();
        let host = HostFile::new(file.reopen().unwrap(), Lock::None, info, 65536);
        UringQueue::new(ring, Arc::new(host))
    }

    /// What blocks is held back until it is known whether it is waited for, and never longer.
    #[test]
    fn what_blocks_stays_off_the_ring_while_it_is_alone() {
        let Ok(ring) = probe() else {
            return eprintln!("skipped: no io_uring");
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
        // Not waited for next: told to go, looked at, or followed by another.
        queue.submit(flush());
        queue.kick();
        assert_eq!((queue.on_ring, queue.in_flight()), (1, 1));
        queue.reap(1, &mut done);
        queue.submit(flush());
        queue.reap(0, &mut done);
        assert!(queue.alone.is_none());
        queue.reap(1, &mut done);
        queue.submit(flush());
        queue.submit(flush());
        assert_eq!((queue.on_ring, queue.in_flight()), (2, 2));
        queue.submit(flush());
        queue.reap(3, &mut done);
        assert_eq!((done.len(), queue.in_flight()), (6, 0));
        assert!(done.iter().all(|one| one.result.is_ok()));
    }

    /// Whatever becomes of the ring, requests come back.
    #[test]
    fn a_ring_that_is_lost_fails_its_requests() {
        let Ok(ring) = probe() else {
            return eprintln!("skipped: no io_uring");
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
            // SAFETY: both are open, and the ring's number stays open, as something else.
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
