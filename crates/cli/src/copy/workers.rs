//! Copies several small files in parallel: while the device handles some, others are read and written.
//!
//! Jobs are queued in batches, because waking a thread for each file would cost more than the copy. The
//! writes of a batch to an image are submitted together.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;

use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use throughline::{AlignedBuf, File, FileType};
use throughline_locks::{Condvar, Mutex};

use super::extended::{Extended, Refused};
use super::pump::{ALIGN_BYTES, Transfer, copy_small};
use super::side::{Change, Content, Id};
use super::tree::close;
use super::{Preserve, Sparse, Xattrs};
use crate::interrupt::Interrupt;
use crate::output::Complaints;
use crate::place::Place;
use crate::problem::{Doing, Failure, Result};
use crate::progress::Progress;
use crate::text::quote;

/// Files up to this size are copied by workers.
pub(crate) const SMALL_BYTES: u64 = 1 << 20;
/// Number of worker threads.
const WORKERS: usize = 4;
/// Maximum number of batches waiting for a worker. With the files per batch, this bounds the number of open
/// files.
const WAITING: usize = 4;
/// Descriptors that are left to all but the files of jobs: those of images, their rings, and the directories
/// of the walk.
const OTHER_DESCRIPTORS: u64 = 48;
/// A batch with this many files or bytes is full.
const BATCH_FILES: usize = 32;
const BATCH_BYTES: u64 = 512 << 10;

/// A small file with both sides open.
pub(crate) struct Job {
    pub(crate) from: Box<dyn Content>,
    pub(crate) to: Box<dyn Content>,
    /// The target's identity.
    pub(crate) target_id: Id,
    /// The length of the source when it was opened.
    pub(crate) len_bytes: u64,
    /// Whether its allocated space is at least its length, so that it has no holes.
    pub(crate) dense: bool,
    pub(crate) source: Place,
    pub(crate) target: Place,
    /// Attributes to set after the last byte was written.
    pub(crate) change: Change,
}

/// State shared by all threads of a copy.
pub(crate) struct Shared<'a> {
    pub(crate) complaints: &'a Complaints,
    pub(crate) progress: &'a Progress,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) sparse: Sparse,
    pub(crate) preserve: Preserve,
    /// Bytes of file contents copied.
    pub(crate) bytes: AtomicU64,
}

impl Shared<'_> {
    /// Reports a failure without disturbing the progress display.
    pub(crate) fn complain(&self, failure: &Failure) {
        self.progress.suspend(|| self.complaints.say(failure));
    }

    /// Sets the attributes of a file after its bytes were written, including the extended ones of its source.
    pub(crate) fn finish(
        &self,
        from: &dyn Content,
        to: &dyn Content,
        (change, target): (&Change, &Place),
    ) -> std::result::Result<(), Failure> {
        let cannot = || format!("cannot preserve the attributes of {target}");
        let mut change = change.clone();
        if self.preserve.reads_attributes() {
            let read = Extended::read(&from.holder(), FileType::File, self.preserve);
            change.extended = read.doing(cannot)?;
        }
        if !change.is_empty() {
            self.refused(to.set(&change).doing(cannot)?, target);
        }
        Ok(())
    }

    /// Handles attributes that a target did not accept. Depending on the options, they are reported as
    /// failures or as notes, or ignored.
    pub(crate) fn refused(&self, refused: Vec<Refused>, target: &Place) {
        for Refused { name, problem } in refused {
            let supported = problem.errno != Some(Errno::OPNOTSUPP);
            let name = quote(OsStr::from_bytes(&name));
            let failure = problem.met(format!("cannot set attribute {name} of {target}"));
            match self.preserve.xattrs {
                Xattrs::All => self.complain(&failure),
                Xattrs::Supported if supported => {
                    let say = || self.complaints.note(&failure.to_string());
                    self.progress.suspend(say);
                }
                _ => {}
            }
        }
    }

    fn run_batch(&self, batch: &[Job], buffer: &mut [u8]) {
        let (whole, single) = self.read_whole(batch, buffer);
        let files: Vec<(&File, &[u8])> = whole
            .iter()
            .map(|read| (read.file, &buffer[read.range.clone()]))
            .collect();
        if let Some((first, _)) = files.first() {
            let written = first.volume().write_new(&files);
            for (read, written) in whole.iter().zip(written) {
                let done = written.doing(|| format!("error writing {}", read.job.target));
                self.progress.add(read.range.len() as u64);
                self.end(read.job, done.map(|()| read.range.len() as u64));
            }
        }
        for job in single {
            self.end(job, self.copy(job, buffer));
        }
    }

    /// Reads the sources that fit into the buffer, need no holes and go to an image. Returns these, and the
    /// jobs that were not read.
    fn read_whole<'j>(&self, batch: &'j [Job], buffer: &mut [u8]) -> (Vec<Read<'j>>, Vec<&'j Job>) {
        let (mut whole, mut single) = (Vec::new(), Vec::new());
        let mut at = 0usize;
        for job in batch {
            let read = job.to.image_file().and_then(|file| {
                let len = self.read_one(job, &mut buffer[at..]).ok()??;
                Some(Read {
                    job,
                    file,
                    range: at..at + len,
                })
            });
            match read {
                Some(read) => {
                    at = read.range.end;
                    whole.push(read);
                }
                None => single.push(job),
            }
        }
        (whole, single)
    }

    /// Reads all of a source without holes. Returns its length, or `None` if it needs the general copy. After
    /// a read error, the general copy reports the reason.
    fn read_one(&self, job: &Job, room: &mut [u8]) -> Result<Option<usize>> {
        if self.sparse == Sparse::Always || job.len_bytes >= room.len() as u64 {
            return Ok(None);
        }
        // One byte more than expected, to detect that the file has grown.
        let len = job.len_bytes as usize;
        let got = job.from.read_at(0, &mut room[..=len])?;
        let dense = job.dense
            || self.sparse == Sparse::Never
            || job
                .from
                .next_data(0)?
                .is_none_or(|data| data.start == 0 && data.end >= job.len_bytes);
        Ok(Some(got).filter(|got| *got == len && dense))
    }

    fn copy(&self, job: &Job, buffer: &mut [u8]) -> std::result::Result<u64, Failure> {
        let transfer = Transfer {
            from: job.from.as_ref(),
            to: job.to.as_ref(),
            source: &job.source,
            target: &job.target,
            sparse: self.sparse,
            progress: self.progress,
            interrupt: self.interrupt,
        };
        copy_small(&transfer, buffer)
    }

    /// Finishes a job after its bytes were copied or failed.
    fn end(&self, job: &Job, copied: std::result::Result<u64, Failure>) {
        let ended = copied.and_then(|copied| {
            self.bytes.fetch_add(copied, Ordering::Relaxed);
            let (from, to) = (job.from.as_ref(), job.to.as_ref());
            self.finish(from, to, (&job.change, &job.target))
        });
        if let Err(failure) = ended
            && !failure.ends_command()
        {
            self.complain(&failure);
        }
    }
}

/// A source that was read completely.
struct Read<'j> {
    job: &'j Job,
    file: &'j File,
    /// Its bytes in the buffer.
    range: std::ops::Range<usize>,
}

/// The queue of jobs.
pub(crate) struct Queue<'a> {
    full: Sender<Vec<Job>>,
    batch: Vec<Job>,
    batch_bytes: u64,
    /// Files that are open at once, sources and targets together counted as one.
    most_jobs: usize,
    under_way: &'a UnderWay,
}

/// The targets with pending writes.
#[derive(Default)]
struct UnderWay {
    targets: Mutex<HashSet<Id>>,
    fewer: Condvar,
}

impl Queue<'_> {
    /// Queues a file for the workers; blocks while all are busy.
    pub(crate) fn push(&mut self, job: Job) {
        let mut targets = self.under_way.targets.lock();
        targets.insert(job.target_id);
        let is_full = targets.len() >= self.most_jobs;
        drop(targets);
        self.batch_bytes = self.batch_bytes.saturating_add(job.len_bytes);
        self.batch.push(job);
        if self.batch.len() >= BATCH_FILES || self.batch_bytes >= BATCH_BYTES {
            self.flush();
        }
        if is_full {
            self.wait_for_all();
        }
    }

    /// Queues the current batch.
    fn flush(&mut self) {
        self.batch_bytes = 0;
        // The workers outlive this queue.
        let _ = self.full.send(std::mem::take(&mut self.batch));
    }

    /// Waits until no write to this file is pending.
    pub(crate) fn wait_for(&mut self, target: Id) {
        if !self.under_way.targets.lock().contains(&target) {
            return;
        }
        self.flush();
        let mut targets = self.under_way.targets.lock();
        let fewer = &self.under_way.fewer;
        fewer.wait_while(&mut targets, |targets| targets.contains(&target));
    }

    /// Waits until all queued files are closed.
    pub(crate) fn wait_for_all(&mut self) {
        if !self.batch.is_empty() {
            self.flush();
        }
        let mut targets = self.under_way.targets.lock();
        let fewer = &self.under_way.fewer;
        fewer.wait_while(&mut targets, |targets| !targets.is_empty());
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        if !self.batch.is_empty() {
            self.flush();
        }
    }
}

/// Runs `body` in parallel with the workers. All jobs are done when it returns.
///
/// # Errors
/// Those of `body`; the system starts no thread.
pub(crate) fn with_workers<R>(
    shared: &Shared<'_>,
    body: impl FnOnce(Queue<'_>) -> std::result::Result<R, Failure>,
) -> std::result::Result<R, Failure> {
    let (full, jobs) = bounded(WAITING);
    let under_way = UnderWay::default();
    std::thread::scope(|scope| {
        for number in 0..WORKERS {
            let (jobs, under_way) = (jobs.clone(), &under_way);
            let worker = move || work(shared, &jobs, under_way);
            match Builder::new().spawn_scoped(scope, worker) {
                Err(_) if number > 0 => break,
                started => drop(started.doing(|| "cannot start a thread")?),
            }
        }
        drop(jobs);
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let for_jobs = limit.saturating_sub(OTHER_DESCRIPTORS);
        body(Queue {
            full,
            batch: Vec::new(),
            batch_bytes: 0,
            most_jobs: usize::try_from(for_jobs / 2).unwrap_or(usize::MAX).max(1),
            under_way: &under_way,
        })
    })
}

fn work(shared: &Shared<'_>, batches: &Receiver<Vec<Job>>, under_way: &UnderWay) {
    let mut buffer: Option<AlignedBuf> = None;
    for batch in batches {
        let mut batch = Taken {
            ids: batch.iter().map(|job| job.target_id).collect(),
            batch,
            under_way,
        };
        let buffer =
            buffer.get_or_insert_with(|| AlignedBuf::zeroed(SMALL_BYTES as usize, ALIGN_BYTES));
        if shared.interrupt.check().is_ok() {
            shared.run_batch(&batch.batch, buffer);
        }
        for job in batch.batch.drain(..) {
            if let Err(failure) = close(job.to, &job.target) {
                shared.complain(&failure);
            }
        }
    }
}

/// A batch taken by a worker. Dropping it notifies the waiters, even if the worker panics.
struct Taken<'a> {
    batch: Vec<Job>,
    /// Their targets.
    ids: Vec<Id>,
    under_way: &'a UnderWay,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        // Close the files before notifying the waiters.
        self.batch.clear();
        let mut targets = self.under_way.targets.lock();
        for id in &self.ids {
            targets.remove(id);
        }
        drop(targets);
        self.under_way.fewer.notify_all();
    }
}
