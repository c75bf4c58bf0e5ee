//! What the kernel's I/O path did while a command ran, from its tracepoints.
//!
//! There are two private instances of the tracer. One follows the command's processes and records their
//! calls. The other records the I/O below the calls, which is then assigned to devices. It cannot be limited
//! to processes, because interrupts and kernel threads do part of that work. Both are removed at the end
//! (`instance.rs`).

mod devices;
mod events;
mod format;
mod instance;
mod pages;
mod router;
#[cfg(test)]
mod tests;
mod tracefs;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

use self::devices::Dev;
use self::events::{Kind, Seen, decode};
use self::instance::{Instance, Setup};
use self::router::Router;
use super::accountant::Explained;
use crate::{Error, Result};

/// What to trace.
pub struct Order<'o> {
    /// The command and its arguments.
    pub command: &'o [OsString],
    /// Devices to trace, each as a block device or a path on its file system. If empty, those that the
    /// command uses.
    pub devices: &'o [PathBuf],
    /// Bytes of memory for events, per processor.
    pub buffer_bytes: u64,
    /// Polled for a signal to forward to the command.
    pub signal: &'o dyn Fn() -> Option<i32>,
}

/// The result of tracing a command.
pub struct Watched {
    /// How the command ended.
    pub status: ExitStatus,
    /// An account for each device.
    pub explained: Vec<Explained>,
}

/// Why there is no result.
#[derive(Debug)]
pub enum Failed {
    /// The kernel could not be traced. The command was not run, or was terminated.
    Trace(Error),
    /// The command could not be run.
    Command(io::Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Trace(error)
    }
}

/// The sleep when there is nothing to read.
const REST: Duration = Duration::from_millis(2);
/// The maximum delay between an event's time and its appearance in the buffer.
const LATE_NS: u64 = 1_000_000;
/// How long to wait for I/O still in flight when the command ends.
const LINGER: Duration = Duration::from_secs(2);

/// Runs a command and traces the kernel's I/O path while it runs.
///
/// # Errors
/// If the kernel cannot be traced or the command cannot be run; nothing is left behind either way.
pub fn watch(order: &Order<'_>) -> std::result::Result<Watched, Failed> {
    let Some((program, arguments)) = order.command.split_first() else {
        return Err(Error::new("there is no command to run").into());
    };
    let mut devices = Vec::new();
    for path in order.devices {
        devices.push(Dev::of(path)?);
    }
    let root = tracefs::mounted("tracefs")?;
    instance::remove_left_over(&root);
    let mut trace = Trace::new(&root, order.buffer_bytes, &devices)?;
    let start_ns = now_ns();
    trace.record(true)?;
    let mut command = Command::new(program);
    command.args(arguments);
    let (first, spawned) = spawn(&trace.calls, &mut command)?;
    let mut running = Running(spawned.map_err(Failed::Command)?);
    let mut router = Router::new(start_ns, first, &devices);
    let status = loop {
        if let Some(signal) = (order.signal)().and_then(Signal::from_named_raw) {
            running.send(signal);
        }
        // Check before reading, so that everything it did before its exit is read.
        let ended = running.0.try_wait().map_err(Error::from)?;
        let any = trace.read(&mut router)?;
        match ended {
            Some(status) => break status,
            None if any => {}
            None => std::thread::sleep(REST),
        }
    };
    let end_ns = now_ns();
    router.end(end_ns);
    let ended = Instant::now();
    while router.in_flight() > 0 && ended.elapsed() < LINGER {
        std::thread::sleep(REST);
        trace.read(&mut router)?;
    }
    trace.record(false)?;
    std::thread::sleep(Duration::from_nanos(LATE_NS));
    while trace.read(&mut router)? {}
    trace.flush(&mut router);
    let lost = trace.lost();
    let explained = router.finish(lost, &trace.notes(&devices));
    Ok(Watched { status, explained })
}

/// The running command. It is terminated if tracing fails.
struct Running(Child);

impl Running {
    fn send(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // It has not been reaped, so its process ID has not been reused.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.send(Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

/// Starts the command from a separate thread. Only that thread and its descendants are traced, so our own
/// reading of the trace is not recorded.
fn spawn(calls: &Instance, command: &mut Command) -> Result<(i32, io::Result<Child>)> {
    std::thread::scope(|threads| {
        let starter = threads.spawn(|| {
            calls.follow_this_thread()?;
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            Ok((tid, command.spawn()))
        });
        let started = starter.join();
        started.unwrap_or_else(|_| Err(Error::new("starting the command panicked")))
    })
}

/// The time by the trace's clock.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Both instances, and the events that were read but may still be preceded by unread ones.
struct Trace {
    calls: Instance,
    io: Instance,
    pending: Vec<Seen>,
}

impl Trace {
    fn new(root: &tracefs::Folder, buffer_bytes: u64, devices: &[Dev]) -> Result<Trace> {
        let instance = |name, wanted: &dyn Fn(Kind) -> bool, filters: &[(&str, String)]| {
            Instance::new(
                root,
                &Setup {
                    name,
                    buffer_bytes,
                    wanted,
                    filters,
                },
            )
        };
        Ok(Trace {
            calls: instance("calls", &Kind::is_of_calls, &[])?,
            io: instance("io", &|kind| !kind.is_of_calls(), &filters(devices))?,
            pending: Vec::new(),
        })
    }

    fn record(&self, on: bool) -> Result<()> {
        self.calls.record(on)?;
        self.io.record(on)
    }

    /// Reads the available events, and passes on those that no unread event can precede. Returns whether
    /// there were any.
    fn read(&mut self, router: &mut Router) -> Result<bool> {
        let complete = now_ns().saturating_sub(LATE_NS);
        let pending = &mut self.pending;
        let mut each = |raw: instance::Raw<'_>| pending.extend(decode(&raw));
        let (a, b) = (self.calls.read(&mut each)?, self.io.read(&mut each)?);
        let limit = [a.1, b.1].into_iter().flatten().fold(complete, u64::min);
        self.pending.sort_by_key(|seen| seen.at_ns);
        let ready = self.pending.partition_point(|seen| seen.at_ns < limit);
        for seen in self.pending.drain(..ready) {
            router.take(&seen);
        }
        Ok(a.0 || b.0)
    }

    /// Passes on the rest.
    fn flush(&mut self, router: &mut Router) {
        for seen in self.pending.drain(..) {
            router.take(&seen);
        }
    }

    fn lost(&self) -> u64 {
        self.calls.lost().saturating_add(self.io.lost())
    }

    fn notes(&self, devices: &[Dev]) -> Vec<String> {
        let mut notes = vec![
            "bios and requests are those of all processes on the device; everything not marked as metadata \
             counts as data"
                .to_owned(),
        ];
        if devices.iter().any(|dev| dev.disk() != *dev) {
            notes.push(
                "requests are those of the whole disk, of which this is a partition".to_owned(),
            );
        }
        let missing: Vec<&str> = [&self.calls, &self.io]
            .into_iter()
            .flat_map(|instance| instance.missing.iter().map(String::as_str))
            .collect();
        if !missing.is_empty() {
            notes.push(format!(
                "this kernel has no tracepoints for {}",
                missing.join(", ")
            ));
        }
        notes
    }
}

/// The kernel's filters for these devices: a field that names the device, and the condition on it.
fn filters(devices: &[Dev]) -> Vec<(&'static str, String)> {
    if devices.is_empty() {
        return Vec::new();
    }
    let mut all: Vec<Dev> = devices.iter().flat_map(|dev| [*dev, dev.disk()]).collect();
    all.sort_unstable();
    all.dedup();
    let any = |each: &dyn Fn(&Dev) -> String| all.iter().map(each).collect::<Vec<_>>().join(" || ");
    vec![
        ("dev", any(&|dev| format!("dev == {}", dev.0))),
        ("name", any(&|dev| format!("name == \"{}\"", dev.numbers()))),
        ("bdi", any(&|dev| format!("bdi == \"{}\"", dev.numbers()))),
    ]
}
