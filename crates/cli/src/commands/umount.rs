//! `umount`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use throughline::{ImageOptions, JournalState, OpenOptions};
use throughline_fuse::mounts::{self, Mount};
use throughline_fuse::{Unmount, UnmountError, unmount};

use super::status;
use crate::context::Context;
use crate::mount::{EXIT_FAILED, point};
use crate::output::note;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// Arguments of `umount`.
#[derive(Args, Debug)]
pub(crate) struct UmountArgs {
    /// Mount points of images
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Detach it at once, even if it is in use; the mount ends when its last user closes it
    #[arg(short, long)]
    lazy: bool,
    /// Wait at most so long for the image to be closed, then exit with 124
    #[arg(
        long,
        value_name = "SECONDS",
        conflicts_with = "lazy",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    timeout: Option<u32>,
}

/// Unmounts each directory and waits until its image is closed.
pub(crate) fn run(args: &UmountArgs, context: &mut Context) -> Result<(), Failure> {
    context.each(&args.dirs, |context, dir| {
        let mut status = EXIT_FAILED;
        let done = one(dir, args, context.globals.quiet, &mut status);
        done.inspect_err(|_| context.exit_bits = status)
    })
}

/// The exit code of timeout(1).
const EXIT_TIMEOUT: u8 = 124;

/// `status` is the exit status after a failure.
fn one(dir: &Path, args: &UmountArgs, quiet: bool, status: &mut u8) -> Result<(), Failure> {
    let cannot = || format!("cannot unmount {}", quote(dir));
    let place = mounts::resolve(dir).doing(cannot)?;
    let mount = mounts::at(&place)
        .doing(|| "cannot read the list of mounts")?
        .ok_or_else(|| Problem::new("not mounted").met(cannot()))?;
    if !mount.is_fuse() {
        return Err(foreign(&mount, "use umount(8)").met(cannot()));
    }
    if point::is_dead(&place) {
        unmounted(dir, unmount(&place, Unmount::Lazy))?;
        if !quiet {
            note(&format!(
                "the server of {} had already ended; if it did not close {}, the next mount replays the \
                 journal, with all committed changes",
                quote(dir),
                quote(&mount.source)
            ));
        }
        return Ok(());
    }
    let server = Server::of(&place, &mount).map_err(|problem| problem.met(cannot()))?;
    let how = if args.lazy {
        Unmount::Lazy
    } else {
        Unmount::Plain
    };
    unmounted(dir, take_away(&place, how))?;
    match server {
        // With `lazy`, the mount ends when its last user closes it.
        Some(server) if !args.lazy => server.wait_closed(dir, &mount, args.timeout, quiet, status),
        _ => Ok(()),
    }
}

fn foreign(mount: &Mount, next: &str) -> Problem {
    Problem::new(format!(
        "{} is mounted there, not throughline",
        mount.fs_type
    ))
    .with_next(next)
}

/// `throughline status`, `df` and similar programs use each mount briefly, so a busy mount is retried.
const MOMENT: Duration = Duration::from_millis(20);
const MOMENTS: usize = 10;

/// After this time, what [`Server::wait_closed`] waits for is explained.
const LONG: Duration = Duration::from_secs(5);
/// Processes that are named.
const NAMED: usize = 3;

fn take_away(place: &Path, how: Unmount) -> Result<(), UnmountError> {
    for _ in 0..MOMENTS {
        match unmount(place, how) {
            Err(UnmountError::Busy) => std::thread::sleep(MOMENT),
            other => return other,
        }
    }
    unmount(place, how)
}

fn unmounted(dir: &Path, result: Result<(), UnmountError>) -> Result<(), Failure> {
    let Err(error) = result else {
        return Ok(());
    };
    let problem = Problem::new(error.to_string());
    let problem = match error {
        UnmountError::Busy => problem.with_next(format!(
            "end the programs that use it ('fuser -vm {0}' lists them), or: throughline umount -l {0}",
            quote(dir)
        )),
        UnmountError::NoHelper(_) => {
            problem.with_next("install it (Debian package fuse3), or unmount as root")
        }
        _ => problem,
    };
    Err(problem.met(format!("cannot unmount {}", quote(dir))))
}

/// How a mount reads its image, by its status.
fn image_options(state: &serde_json::Value) -> ImageOptions {
    let backing = state["backing"].as_array().into_iter().flatten();
    let mut options = ImageOptions::new();
    options
        .format(state["format"].as_str().and_then(|it| it.parse().ok()))
        .backing(backing.filter_map(|path| path.as_str()).collect())
        .overlay(state["overlay"].as_str().map(PathBuf::from));
    options
}

/// The process that serves a mount, and its image.
struct Server {
    process: OwnedFd,
    pid: i32,
    image: PathBuf,
    offset_bytes: u64,
    partition: Option<String>,
    options: ImageOptions,
    read_only: bool,
    log: String,
}

impl Server {
    /// The server of a mount; `None` if the mount denies access to its state or the server is not visible
    /// from here.
    fn of(place: &Path, mount: &Mount) -> Result<Option<Server>, Problem> {
        let state = match status::ask(place, mount) {
            Ok(state) => state,
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {
                return Err(foreign(mount, "use 'fusermount3 -u' or umount(8)"));
            }
            Err(_) => return Ok(None),
        };
        let text = |name: &str| state[name].as_str().unwrap_or_default().to_owned();
        let pid = state["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        let Some(raw) = pid.and_then(Pid::from_raw) else {
            return Ok(None);
        };
        // In another PID namespace, this number would be another process.
        let here = std::fs::read_link("/proc/self/ns/pid");
        if !here.is_ok_and(|here| here.to_string_lossy() == text("pid_namespace")) {
            return Ok(None);
        }
        Ok(pidfd_open(raw, PidfdFlags::empty())
            .ok()
            .map(|process| Server {
                process,
                pid: raw.as_raw_pid(),
                image: text("image").into(),
                offset_bytes: state["offset_bytes"].as_u64().unwrap_or_default(),
                partition: state["partition"].as_str().map(str::to_owned),
                options: image_options(&state),
                read_only: state["read_only"].as_bool().unwrap_or(true),
                log: text("log"),
            }))
    }

    /// Waits until the server has ended, and checks the image.
    fn wait_closed(
        &self,
        dir: &Path,
        mount: &Mount,
        timeout_s: Option<u32>,
        quiet: bool,
        status: &mut u8,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        let mut until_note = (!quiet).then_some(LONG);
        let until_end = timeout_s.map(|seconds| Duration::from_secs(seconds.into()));
        while !self.has_ended(started, [until_note, until_end])? {
            let waits_for = || self.waits_for(dir, mount);
            if until_end.is_some_and(|end| started.elapsed() >= end) {
                *status = EXIT_TIMEOUT;
                return Err(Failure::plain(waits_for()));
            }
            if until_note.is_some_and(|note| started.elapsed() >= note) {
                until_note = None;
                note(&waits_for());
            }
        }
        if self.read_only || self.is_closed() {
            return Ok(());
        }
        let log = match self.log.as_str() {
            "" => "the system's log",
            log => log,
        };
        Err(Problem::new(format!(
            "the image {} was not closed cleanly",
            quote(&self.image)
        ))
        .with_next(format!(
            "{log} has the reason; the next mount replays its journal, and 'e2fsck -fn' checks it"
        ))
        .met(format!("{} is unmounted, but", quote(dir))))
    }

    /// Waits until the server has ended, or the first of these times has passed. Whether it has ended.
    fn has_ended(&self, started: Instant, until: [Option<Duration>; 2]) -> Result<bool, Failure> {
        let left = until.into_iter().flatten().min();
        let left = left.map(|until| until.saturating_sub(started.elapsed()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
        match poll(&mut ended, left.as_ref()) {
            Ok(ended) => Ok(ended > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error).doing(|| format!("cannot wait for process {}", self.pid)),
        }
    }

    /// What keeps the image from being closed.
    fn waits_for(&self, dir: &Path, mount: &Mount) -> String {
        let mut having = mounts::elsewhere(mount.connection);
        let more = having.len().saturating_sub(NAMED);
        if more > 0 {
            having.truncate(NAMED);
            having.push(format!("{more} more"));
        }
        let who = match having.join(", ") {
            none if none.is_empty() => none,
            all => format!(". Another mount namespace still has the mount: that of {all}"),
        };
        format!(
            "{} is unmounted here; waiting for process {} to close {}{who}",
            quote(dir),
            self.pid,
            quote(&self.image)
        )
    }

    /// Whether the image is marked as closed cleanly. Assumes so if that cannot be read, because the image is
    /// in use again or access is denied.
    fn is_closed(&self) -> bool {
        let volume = OpenOptions::new()
            .no_replay(true)
            .offset(self.offset_bytes)
            .partition(self.partition.clone())
            .image(&self.options)
            .open(&self.image);
        let Ok(volume) = volume else {
            return true;
        };
        volume
            .info()
            .is_ok_and(|info| info.clean && info.journal != JournalState::NeedsRecovery)
    }
}
