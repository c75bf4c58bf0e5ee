//! Building blocks for the work of experiments.

use std::sync::{Barrier, OnceLock};
use std::thread::Builder;

use rustix::fs::OFlags;

use crate::meter::{Meter, Spent};
use crate::{Error, Result};

/// Flags for a new file that is only written.
pub(crate) const NEW: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::TRUNC);

/// Runs `part` on this many threads in parallel, and measures from the first start to the last end.
///
/// # Errors
/// Errors of a part. If a thread cannot be started, no part is run.
pub(crate) fn together(threads: usize, part: impl Fn(usize) -> Result<()> + Sync) -> Result<Spent> {
    /// `None` if not all threads could be started. The others then exit without running their part.
    type Start = OnceLock<Option<Barrier>>;
    let start = Start::new();
    let run = |number| match start.wait() {
        Some(all) => {
            all.wait();
            part(number)
        }
        None => Ok(()),
    };
    std::thread::scope(|scope| {
        let run = &run;
        let spawn = |number| Builder::new().spawn_scoped(scope, move || run(number));
        let running: std::io::Result<Vec<_>> = (0..threads).map(spawn).collect();
        let all = start.get_or_init(|| running.is_ok().then(|| Barrier::new(threads + 1)));
        let running = running.map_err(|e| {
            Error::new(format!(
                "cannot start {threads} threads: {e}: use fewer, or raise the limit of processes (ulimit \
                 -u, pids.max)"
            ))
        })?;
        // Start measuring before the threads are released, because on a busy machine this thread may be
        // scheduled late.
        let meter = Meter::start();
        if let Some(all) = all {
            all.wait();
        }
        let panicked = |_| Err(Error::new("a thread panicked"));
        let ends: Vec<Result<()>> = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(panicked))
            .collect();
        let spent = meter.spent();
        ends.into_iter().collect::<Result<()>>()?;
        Ok(spent)
    })
}
