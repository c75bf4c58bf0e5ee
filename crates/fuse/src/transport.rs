//! [`Transport`]: how requests reach the server, for the status.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Transport {
    /// The number of the kernel's queues for io_uring; 0 for `/dev/fuse`.
    queues: AtomicUsize,
    /// The number of threads that serve requests, and its maximum.
    threads: AtomicUsize,
    max_threads: AtomicUsize,
    /// The number of threads with the policy `SCHED_IDLE`.
    idle_policy_threads: AtomicUsize,
    /// The maximum memory of each thread, in bytes: after a request of the largest size.
    thread_bytes: AtomicUsize,
}

impl Transport {
    /// Requests come through `/dev/fuse` (no queues) or over io_uring.
    pub(crate) fn set(&self, queues: usize, max_threads: usize, thread_bytes: usize) {
        self.queues.store(queues, Ordering::Relaxed);
        self.max_threads.store(max_threads, Ordering::Relaxed);
        self.thread_bytes.store(thread_bytes, Ordering::Relaxed);
    }

    /// A thread is started.
    pub(crate) fn begin_thread(&self) {
        self.threads.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread has ended.
    pub(crate) fn end_thread(&self) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number of threads with the policy `SCHED_IDLE` has changed.
    pub(crate) fn set_idle_policy(&self, threads: usize) {
        self.idle_policy_threads.store(threads, Ordering::Relaxed);
    }

    pub(crate) fn json(&self) -> Value {
        let [
            queues,
            threads,
            max_threads,
            idle_policy_threads,
            thread_bytes,
        ] = [
            &self.queues,
            &self.threads,
            &self.max_threads,
            &self.idle_policy_threads,
            &self.thread_bytes,
        ]
        .map(|number| number.load(Ordering::Relaxed));
        json!({
            "kind": if queues > 0 { "io_uring" } else { "/dev/fuse" },
            "queues": queues,
            "threads": threads,
            "max_threads": max_threads,
            "idle_policy_threads": idle_policy_threads,
            "max_memory_bytes": max_threads * thread_bytes,
        })
    }
}
