//! Several small files at a time: while the device works on one, others are read and written.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Sender, bounded};
use throughline::AlignedBuf;

use super::Sparse;
use super::pump::{ALIGN_BYTES, Transfer, copy_small};
use super::side::{Change, Content};
use crate::interrupt::Interrupt;
use crate::output::Complaints;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::progress::Progress;

/// Files up to this size are the workers'.
pub(crate) const SMALL_BYTES: u64 = 1 << 20;
/// Files in the making at once.
const WORKERS: usize = 8;
/// Files that wait for a worker; bounds open files.
const WAITING: usize = 32;

/// A small file whose two sides are open.
pub(crate) struct Job {
    pub(crate) from: Box<dyn Content>,
    pub(crate) to: Box<dyn Content>,
    pub(crate) source: Place,
    pub(crate) target: Place,
    /// What is set behind the last byte.
    pub(crate) change: Change,
}

/// What all threads of a copy share.
pub(crate) struct Shared<'a> {
    pub(crate) complaints: &'a Complaints,
    pub(crate) progress: &'a Progress,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) sparse: Sparse,
    /// Bytes of file contents copied.
    pub(crate) bytes: AtomicU64,
}

impl Shared<'_> {
    /// Says a failure without disturbing the progress display.
    pub(crate) fn complain(&self, failure: &Failure) {
        self.progress.suspend(|| self.complaints.say(failure));
    }

    fn run(&self, job: &Job, buffer: &mut [u8]) -> Result<(), Failure> {
        let Job {
            from,
            to,
            source,
            target,
            change,
        } = job;
        let transfer = Transfer {
            from: from.as_ref(),
            to: to.as_ref(),
            source,
            target,
            sparse: self.sparse,
            progress: self.progress,
            interrupt: self.interrupt,
        };
        let copied = copy_small(&transfer, buffer)?;
        self.bytes.fetch_add(copied, Ordering::Relaxed);
        if change.is_empty() {
            return Ok(());
        }
        to.set(change)
            .doing(|| format!("cannot preserve the attributes of {target}"))
    }
}

/// Where jobs go.
pub(crate) struct Queue(Sender<Job>);

impl Queue {
    /// Hands a file to the workers; waits while all are busy.
    pub(crate) fn push(&self, job: Job) {
        // The workers end only when this queue does.
        let _ = self.0.send(job);
    }
}

/// Runs `body` beside the workers; all jobs are done when it returns.
pub(crate) fn beside<R>(shared: &Shared<'_>, body: impl FnOnce(&Queue) -> R) -> R {
    let (jobs_in, jobs_out) = bounded::<Job>(WAITING);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            let jobs = jobs_out.clone();
            scope.spawn(move || {
                let mut buffer: Option<AlignedBuf> = None;
                for job in jobs {
                    let buffer = buffer.get_or_insert_with(|| {
                        AlignedBuf::zeroed(SMALL_BYTES as usize, ALIGN_BYTES)
                    });
                    if let Err(failure) = shared.run(&job, buffer)
                        && !failure.ends_command()
                    {
                        shared.complain(&failure);
                    }
                }
            });
        }
        drop(jobs_out);
        let queue = Queue(jobs_in);
        body(&queue)
    })
}
