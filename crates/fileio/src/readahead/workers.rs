//! The readahead threads.
//!
//! Invariants:
//! - Threads start when there is work, reference only the inbox, and end when it is closed. A job may hold a
//!   reference to the cache that owns this. If a job drops the last one, the inbox is closed from one of its
//!   own threads.
//! - Each job runs once or is dropped, also when the inbox is closed.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use throughline_locks::{Mutex, Rank};

use super::inbox::Inbox;

/// Threads per cache.
const THREADS: usize = 2;
/// Maximum number of queued jobs.
const MAX_JOBS: usize = 256;

/// A background job.
pub(crate) trait Job: Send + Sized + 'static {
    /// Runs the job or its first part; returns the rest, which is queued again at the end.
    fn run(self) -> Option<Self>;
}

/// See the module documentation.
pub(crate) struct Workers<J: Job> {
    inbox: Arc<Inbox<J>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<J: Job> Workers<J> {
    pub(crate) fn new() -> Workers<J> {
        Workers {
            inbox: Arc::new(Inbox::new(MAX_JOBS)),
            threads: Mutex::ranked(Rank::ReadaheadThreads, Vec::new()),
        }
    }

    /// Queues a job; returns it if the queue is full or no thread could be started.
    pub(crate) fn send(&self, job: J) -> Result<(), J> {
        if !self.have_threads() {
            return Err(job);
        }
        self.inbox.push(job)
    }

    /// Starts missing threads if needed. Returns whether there is at least one.
    fn have_threads(&self) -> bool {
        let mut threads = self.threads.lock();
        if threads.len() < THREADS && self.inbox.is_behind() {
            let inbox = Arc::clone(&self.inbox);
            throughline_device::leave_background();
            let builder = thread::Builder::new().name(format!("tl-readahead-{}", threads.len()));
            if let Ok(thread) = builder.spawn(move || {
                throughline_device::free_thread();
                work(&inbox);
            }) {
                threads.push(thread);
            }
        }
        !threads.is_empty()
    }

    /// Drops queued jobs, refuses new ones, and waits for the threads to end.
    pub(crate) fn close(&self) {
        drop(self.inbox.close());
        let threads = std::mem::take(&mut *self.threads.lock());
        let own = thread::current().id();
        for thread in threads.into_iter().filter(|t| t.thread().id() != own) {
            // The panic of a job was already reported.
            let _ = thread.join();
        }
    }
}

impl<J: Job> Drop for Workers<J> {
    fn drop(&mut self) {
        self.close();
    }
}

fn work<J: Job>(inbox: &Inbox<J>) {
    while let Some(job) = inbox.next() {
        if let Some(rest) = job.run() {
            // The inbox is full: the rest of a hint may be dropped.
            drop(inbox.push(rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Runs `left` times, each time when permitted.
    struct Steps {
        left: usize,
        leave: Option<Arc<Mutex<Receiver<()>>>>,
        ran: Sender<String>,
        /// Held, as a job holds its file and thereby the cache.
        _owner: Option<Arc<Owner>>,
    }

    /// As a cache: owns the workers and is referenced by the jobs.
    struct Owner {
        workers: Workers<Steps>,
        dropped: Arc<AtomicUsize>,
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            self.workers.close();
            self.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Job for Steps {
        fn run(mut self) -> Option<Steps> {
            if let Some(leave) = &self.leave {
                leave.lock().recv().ok()?;
            }
            let name = thread::current().name().unwrap_or_default().to_owned();
            self.ran.send(name).ok()?;
            self.left -= 1;
            (self.left > 0).then_some(self)
        }
    }

    #[test]
    fn runs_all_steps_on_named_threads() {
        let workers = Workers::new();
        let (ran, names) = channel();
        for left in 1..=10 {
            let job = Steps {
                left,
                leave: None,
                ran: ran.clone(),
                _owner: None,
            };
            assert!(workers.send(job).is_ok());
        }
        drop(ran);
        let names: Vec<String> = names.iter().collect();
        assert_eq!(names.len(), 55);
        assert!(names.iter().all(|name| name.starts_with("tl-readahead-")));
    }

    #[test]
    fn a_full_inbox_refuses_and_closing_drops() {
        let workers = Workers::new();
        let (ran, names) = channel();
        let (give_leave, leave) = channel();
        let leave = Arc::new(Mutex::new(leave));
        let job = || Steps {
            left: 1,
            leave: Some(Arc::clone(&leave)),
            ran: ran.clone(),
            _owner: None,
        };
        let mut taken = 0;
        while workers.send(job()).is_ok() {
            taken += 1;
            assert!(taken <= MAX_JOBS + THREADS);
        }
        assert!(taken >= MAX_JOBS);
        drop(give_leave);
        workers.close();
        assert!(workers.send(job()).is_err());
        workers.close();
        drop(ran);
        assert_eq!(names.iter().count(), 0, "no job was permitted to run");
        assert_eq!(Arc::strong_count(&leave), 1, "every job was dropped");
    }

    #[test]
    fn a_job_may_hold_the_last_reference_to_its_owner() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let owner = Arc::new(Owner {
            workers: Workers::new(),
            dropped: Arc::clone(&dropped),
        });
        let (give_leave, leave) = channel();
        let (ran, names) = channel();
        let job = Steps {
            left: 1,
            leave: Some(Arc::new(Mutex::new(leave))),
            ran,
            _owner: Some(Arc::clone(&owner)),
        };
        assert!(owner.workers.send(job).is_ok());
        let inbox = Arc::downgrade(&owner.workers.inbox);
        drop(owner);
        give_leave.send(()).unwrap();
        assert_eq!(names.iter().count(), 1);
        while inbox.strong_count() > 0 {
            thread::yield_now();
        }
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
}
