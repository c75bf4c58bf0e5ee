//! [`Workers`]: the thread that goes on with requests, for callers that block.

use std::io;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task;

/// A thread that is joined when this is dropped; what it has not finished is given up.
pub(crate) struct Workers {
    runtime: Handle,
    /// `None` when it is being dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// # Errors
    /// Of the system.
    pub(crate) fn new() -> io::Result<Workers> {
        // Not one that starts its own threads: it panics if the system refuses them. Those that block read
        // and write the cache.
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(2)
            .thread_name("object-cache")
            .enable_time()
            .build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("object".to_owned());
        let thread = thread.spawn(move || drop(runtime.block_on(stopped)))?;
        Ok(Workers {
            runtime: handle,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Begins something.
    pub(crate) fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> task::JoinHandle<()> {
        self.runtime.spawn(work)
    }

    /// Returns what `work` does. The caller may be a thread of another runtime, so that this one cannot be
    /// entered to wait for it.
    ///
    /// # Errors
    /// If it panicked.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = mpsc::channel();
        self.spawn(async move {
            let _ = sender.send(work.await);
        });
        receiver
            .recv()
            .map_err(|_| io::Error::other("a request to the object store ended early"))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
