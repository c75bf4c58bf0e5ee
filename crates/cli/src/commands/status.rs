//! `status`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::io::Errno;
use serde_json::{Value, json};
use throughline_fuse::STATUS_ATTRIBUTE;
use throughline_fuse::mounts::{self, Mount};

use super::mounted;
use crate::context::Context;
use crate::problem::{Doing, Failure, Problem};
use crate::text::{human, quote};
use crate::texts::fill;

/// Help for `--json`. Counts are since the mount.
const JSON: &str = "\
With --json, each sample is one object. Counts are since the mount; sizes are in bytes (…_bytes), \
    times in milliseconds (…_ms) or
seconds (…_s); null means unknown or not applicable. Without DIR, it prints a list of all mounts, each with
its directory. For a mount that cannot be queried, it shows the image and whether the server has ended, and
\"answers\": false if the server did not answer within 2 s.

  version, pid, pid_namespace     the server, and the PID namespace of its pid
  image, offset_bytes, partition, format, backing, overlay, log
                                  the image; the volume's start or partition, the image's format, the
                                  allowed backing files and the overlay, if given; the log file
  open_files                      files that programs have open
  mounted_s, label, read_only
  damaged_places                  number of damaged places found, at most 4096; the log has inodes and blocks
  stopped, down, failing          why changes are refused; whether the volume is shut down; \
    why write-back is failing
  requests                        requests of the kernel: served, refused among them, in progress; \
    data reads and writes, bytes
  sandbox                         the rights that the server gave up: state on, partial or off; \
    landlock_abi, which says what of
                                  files is restricted (0: nothing); whether system_calls and io_uring \
    are; its
                                  capabilities: none, sys_nice or all; whether the network is open or \
    closed; what is missing, and why
  transport                       io_uring or /dev/fuse; queues; threads, their maximum number, and \
    those with the policy SCHED_IDLE; the maximum memory of all threads
  choices                         the FUSE features in use (`throughline mount -o with=…`)
  settings                        other options that cannot change while it is mounted
  device                          engine, queue_depth
  io                              I/O on the image: reads, writes, flushes, bytes; discarded; in flight; \
    readahead in progress
  cache                           the page cache: budget_bytes, cached_bytes; \
    reads fully served from it (hits) or not (misses)
  dirty                           dirty bytes, background threshold, limit; bandwidth; pauses of writers; \
    waits at the limit
  writeback                       runs written, bytes, errors, retries
  journal                         state, running and committed transaction, commits, waits for them, \
    checkpoints, log space
  metadata                        blocks in memory, dirty ones among them; inodes";

/// Arguments of `status`.
#[derive(Args, Debug)]
#[command(after_long_help = JSON)]
pub(crate) struct StatusArgs {
    /// The mount point of an image; without it, all mounts are listed
    dir: Option<PathBuf>,
    /// Repeat at this interval, with a line for the work in between, until it is unmounted
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "dir",
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    watch: Option<u64>,
}

/// Maximum length of a mount's status. A longer one is not from our server.
const MAX_STATUS_BYTES: usize = 1 << 20;

/// Shows the state of a mount.
pub(crate) fn run(args: &StatusArgs, context: &mut Context) -> Result<(), Failure> {
    let Some(dir) = &args.dir else {
        return mounted::states(context);
    };
    let cannot = || format!("cannot query {}", quote(dir));
    let place = mounts::resolve(dir).doing(cannot)?;
    let mount = mounts::at(&place)
        .doing(|| "cannot read the list of mounts")?
        .ok_or_else(|| {
            Problem::new("nothing is mounted there")
                .with_next("name its mount point; 'throughline status' lists all mounts")
                .met(cannot())
        })?;
    let mut before = ask(&place, &mount).map_err(|errno| refused(errno).met(cannot()))?;
    show(&before, dir, context)?;
    let Some(seconds) = args.watch else {
        return Ok(());
    };
    let mut seen = Instant::now();
    let mut lines = 0u64;
    loop {
        context.out.flush()?;
        std::thread::sleep(Duration::from_secs(seconds));
        // Stop if the mount is gone or another one is in its place.
        let there = mounts::at(&place).doing(|| "cannot read the list of mounts")?;
        if there.is_none_or(|there| there.id != mount.id) {
            return Ok(());
        }
        let now = ask(&place, &mount).map_err(|errno| refused(errno).met(cannot()))?;
        if context.json {
            context.out.json(&now)?;
        } else {
            if lines.is_multiple_of(20) {
                context.out.line(HEAD)?;
            }
            lines += 1;
            context
                .out
                .line(change(&before, &now, seen.elapsed().as_secs_f64()))?;
        }
        seen = Instant::now();
        before = now;
    }
}

fn show(state: &Value, dir: &Path, context: &mut Context) -> Result<(), Failure> {
    if context.json {
        return context.out.json(state);
    }
    let mut values = state.clone();
    values["directory"] = json!(dir.to_string_lossy());
    values["hits"] = json!(hits(&Value::Null, state));
    context.out.line(fill("status", &values)?)
}

/// Whether the answer of a mount means that its server has ended. While the rings of a server that was killed
/// are torn down, the kernel cancels the requests in them.
pub(crate) fn is_ended(errno: Errno) -> bool {
    matches!(errno, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)
}

/// Reads the state of a mount. Root may not access another user's mount, so it runs the query as that user.
pub(crate) fn ask(place: &Path, mount: &Mount) -> Result<Value, Errno> {
    let mut bytes = Vec::with_capacity(8 << 10);
    loop {
        let buffer = rustix::buffer::spare_capacity(&mut bytes);
        match rustix::fs::getxattr(place, STATUS_ATTRIBUTE, buffer) {
            Ok(_) => break,
            Err(Errno::RANGE) if bytes.capacity() < MAX_STATUS_BYTES => {
                bytes.reserve(bytes.capacity() * 2);
            }
            Err(Errno::ACCESS) if rustix::process::geteuid().is_root() => {
                bytes = as_user(place, mount).ok_or(Errno::ACCESS)?;
                break;
            }
            Err(errno) => return Err(errno),
        }
    }
    serde_json::from_slice(&bytes).map_err(|_| Errno::NODATA)
}

fn as_user(place: &Path, mount: &Mount) -> Option<Vec<u8>> {
    let (user, group) = (mount.user()?, mount.group()?);
    // The mount belongs to root, so repeating the query as its user would be refused again.
    if user == 0 {
        return None;
    }
    let output = Command::new(std::env::current_exe().ok()?)
        .args(["status", "--json"])
        .arg(place)
        .gid(group)
        .uid(user)
        .output()
        .ok()?;
    output.status.success().then_some(output.stdout)
}

/// How long a list waits for a server.
const PATIENCE: Duration = Duration::from_secs(2);

/// The answer of one server in a list.
pub(super) enum Answer {
    State(Value),
    /// The server has ended, or denies access.
    None,
    /// No answer within [`PATIENCE`], or no process to ask with.
    NotYet,
}

/// A query in a separate process: a process that waits for a hung server cannot be killed, not even by
/// SIGKILL.
pub(super) struct AskedApart(Receiver<Answer>);

impl AskedApart {
    pub(super) fn start(place: &Path) -> AskedApart {
        let (sender, answer) = mpsc::channel();
        let place = place.to_owned();
        // Without a thread there is no answer.
        let _ = thread::Builder::new().spawn(move || {
            // The receiver may be gone.
            let _ = sender.send(say(&place));
        });
        AskedApart(answer)
    }

    /// Waits for the answer until [`PATIENCE`] after `asked`.
    pub(super) fn wait(self, asked: Instant) -> Answer {
        match self
            .0
            .recv_timeout(PATIENCE.saturating_sub(asked.elapsed()))
        {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Answer::NotYet,
        }
    }
}

/// What `throughline status --json` says, run as a separate process, which may outlive this one.
fn say(place: &Path) -> Answer {
    let Ok(program) = std::env::current_exe() else {
        return Answer::NotYet;
    };
    let output = Command::new(program)
        .args(["status", "--json", "--"])
        .arg(place)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            serde_json::from_slice(&output.stdout).map_or(Answer::None, Answer::State)
        }
        Ok(_) => Answer::None,
        // The system refused the process.
        Err(_) => Answer::NotYet,
    }
}

fn refused(errno: Errno) -> Problem {
    match errno {
        Errno::NODATA | Errno::OPNOTSUPP => Problem::new("it is not a throughline mount"),
        errno if is_ended(errno) => Problem::new("its server has ended").with_next(
            "remove it: throughline umount DIR; the next mount replays the journal if needed",
        ),
        Errno::ACCESS => Problem::from(errno).with_next("run this as the user who mounted it"),
        other => other.into(),
    }
}

/// A number of bytes in the JSON, such as `12.3M`.
fn size(value: &Value) -> String {
    value.as_u64().map_or_else(|| "?".to_owned(), human)
}

/// By how much a count has grown.
fn since(before: &Value, now: &Value, part: &str, name: &str) -> u64 {
    let number = |state: &Value| state[part][name].as_u64().unwrap_or_default();
    number(now).saturating_sub(number(before))
}

/// The share of the bytes read between two samples that came from the cache.
fn hits(before: &Value, now: &Value) -> String {
    let read = |part: &str| since(before, now, part, "read_bytes");
    let (asked, fetched) = (read("requests"), read("io"));
    if asked == 0 {
        return "no hits".to_owned();
    }
    // Readahead and directory blocks can make `fetched` larger than `asked`.
    let hits = asked.saturating_sub(fetched) as f64 / asked as f64;
    format!("hits {:.0} %", hits * 100.0)
}

const HEAD: &str = "  requests/s  now     read/s  written/s   from dev     to dev      dirty  pauses  \
    commits       hits";

/// One line with the activity of the last `seconds`.
fn change(before: &Value, now: &Value, seconds: f64) -> String {
    let count = |part: &str, name: &str| since(before, now, part, name);
    let per_second = |part: &str, name: &str| count(part, name) as f64 / seconds;
    let rate = |part: &str, name: &str| human(per_second(part, name) as u64);
    format!(
        "{:>12.0} {:>4} {:>10} {:>10} {:>10} {:>10} {:>10} {:>7} {:>8} {:>10}",
        per_second("requests", "served"),
        now["requests"]["now"].as_u64().unwrap_or_default(),
        rate("requests", "read_bytes"),
        rate("requests", "written_bytes"),
        rate("io", "read_bytes"),
        rate("io", "write_bytes"),
        size(&now["dirty"]["bytes"]),
        count("dirty", "pauses"),
        count("journal", "commits"),
        hits(before, now),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_per_second() {
        let before = json!({"requests": {"served": 10, "read_bytes": 0}, "io": {"read_bytes": 0}});
        let now = json!({
            "requests": {"served": 30, "read_bytes": 4096, "now": 2},
            "io": {"read_bytes": 1024},
        });
        let line = change(&before, &now, 2.0);
        assert!(line.starts_with("          10    2       2.0K"), "{line}");
        assert!(line.ends_with("hits 75 %"), "{line}");
        assert_eq!(hits(&now, &now), "no hits");
    }
}
