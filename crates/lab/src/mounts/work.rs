//! Building blocks for the work of experiments.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::{Barrier, OnceLock};
use std::thread::Builder;

use rustix::fs::OFlags;
use throughline_device::AlignedBuf;

use super::place::Place;
use crate::command::timed;
use crate::kernel::named;
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

/// Writes `len_bytes` from the start of the file, in calls of `call_bytes` that cycle through `source`, then
/// syncs. The length of `source` must be a multiple of `call_bytes`.
pub(crate) fn write_stream(
    file: &File,
    source: &[u8],
    len_bytes: u64,
    call_bytes: usize,
) -> Result<()> {
    let mut at = 0;
    for call in source.chunks_exact(call_bytes).cycle() {
        if at >= len_bytes {
            break;
        }
        file.write_all_at(call, at)?;
        at += call_bytes as u64;
    }
    Ok(file.sync_all()?)
}

/// Reads `len_bytes` from the start of the file in calls of `call_bytes`. An error if the file is shorter.
pub(crate) fn read_stream(file: &File, len_bytes: u64, call_bytes: usize) -> Result<()> {
    let mut buffer = AlignedBuf::zeroed(call_bytes, 4096);
    let mut at = 0;
    while at < len_bytes {
        file.read_exact_at(&mut buffer, at)?;
        at += call_bytes as u64;
    }
    Ok(())
}

/// Runs one `fio` job on the file `name` of `len_bytes`. Returns the result in 10⁶ bytes/s, including the
/// final fsync. `fio` opens files for reading and writing.
pub(crate) fn fio(place: Place<'_>, name: &str, len_bytes: u64, job: &[&str]) -> Result<f64> {
    let mut command = named("fio");
    command
        .args(["--name=job", "--output-format=json", "--thread"])
        .args(["--ioengine=psync", "--fallocate=none", "--end_fsync=1"])
        .arg(format!("--filename={}", place.path(name)))
        .arg(format!("--size={len_bytes}"))
        .args(job)
        .stdin(Stdio::null());
    let (_, stdout) = timed(&mut command)?;
    // Messages come before the JSON.
    let json = stdout.find('{').map_or("", |at| &stdout[at..]);
    let report: serde_json::Value = serde_json::from_str(json)
        .map_err(|e| Error::new(format!("fio printed {stdout:?}: {e}")))?;
    let job = &report["jobs"][0];
    let (milliseconds, bytes) = (&job["job_runtime"], &job["write"]["io_bytes"]);
    match (milliseconds.as_f64(), bytes.as_f64()) {
        (Some(milliseconds), Some(bytes)) if milliseconds > 0.0 => Ok(bytes / 1e3 / milliseconds),
        _ => Err(Error::new(format!("fio reported no time: {job}"))),
    }
}

/// Runs a program, and reads and discards its output.
pub(crate) fn drained(command: &mut Command) -> Result<Spent> {
    let meter = Meter::start();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| Error::new(format!("cannot run {command:?}: {e}")))?;
    let copied = match child.stdout.take() {
        Some(mut stdout) => std::io::copy(&mut stdout, &mut std::io::sink()),
        None => Ok(0),
    };
    let status = child.wait()?;
    let spent = meter.spent();
    copied?;
    match status.success() {
        true => Ok(spent),
        false => Err(Error::new(format!("{command:?}: {status}"))),
    }
}

/// Whether a tool is installed. If not, notes in `outcome` what is skipped.
pub(crate) fn have(outcome: &mut crate::outcome::Outcome, program: &str, what: &str) -> bool {
    let missing = super::server::missing(program);
    if let Some(why) = &missing {
        outcome.note(format!("{what}: skipped: {why}"));
    }
    missing.is_none()
}
