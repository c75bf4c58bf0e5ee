//! [`Workers`]: the threads that carry out requests, for callers that block.

use std::io;
use std::sync::mpsc;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// Threads that are joined when this is dropped; what they have not finished is given up.
pub(crate) struct Workers {
    /// `None` when it is being dropped.
    runtime: Option<Runtime>,
}

impl Workers {
    /// # Errors
    /// Of the system.
    pub(crate) fn new() -> io::Result<Workers> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .thread_name("object")
            .enable_all()
            .build()?;
        Ok(Workers {
            runtime: Some(runtime),
        })
    }

    /// Begins something.
    pub(crate) fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Option<JoinHandle<()>> {
        Some(self.runtime.as_ref()?.spawn(work))
    }

    /// Calls something inside of the runtime.
    pub(crate) fn inside<T>(&self, make: impl FnOnce() -> T) -> T {
        let _inside = self.runtime.as_ref().map(Runtime::enter);
        make()
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
    /// Joins the threads. A thread of another runtime may not wait for them itself.
    fn drop(&mut self) {
        let runtime = self.runtime.take();
        let joined = std::thread::Builder::new().spawn(move || drop(runtime));
        if let Ok(joined) = joined {
            let _ = joined.join();
        }
    }
}
