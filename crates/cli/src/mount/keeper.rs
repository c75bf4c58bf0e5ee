//! A process beside the server, for what the server may not do itself: it makes all requests to the mount and
//! unmounts it, tells the server that nobody can reach the mount any more, and with `auto_unmount` removes
//! the mount when the server has ended for any reason.
//!
//! ```text
//!  server ── thread, mount ─────────► standard input   keeper ─► umount(2), fusermount3
//!         ── request, 17 bytes ─────►
//!         ◄─ "NUMBER RESULT\n" ────── standard output
//!         ◄─ "answers\n", "deserted\n"
//! ```
//!
//! A request is a verb, its number, and for [`Verb::Mode`] a thread and an address.
//!
//! A server that is killed ends when all of its threads do. A thread that waits for an answer of the mount,
//! which only the server could give, waits for ever, and keeps the connection open: all programs that use the
//! mount hang. So the server, which has the connection, makes no request to its mount. There is one
//! exception: what it tells the kernel to drop from its cache waits for pages, and so for requests
//! ([`throughline_fuse`]'s `coherence.rs`). Such a wait is ended from here ([`cut_after_death`]).
//!
//! `fusermount3` has `auto_unmount`, too, but in effect refuses it if root may not access the mount. This
//! process needs only the right to unmount, which the mount's owner has.
//!
//! Invariants:
//! - It removes only the mount that it was started for, not a later one at the same directory, whatever the
//!   server sends. Requests have a fixed size, and few are served at a time.
//! - Of the memory of other processes, it reads nothing but the argument of a call that they make just now,
//!   and that is meant for the server.
//! - It is started before the connection is made, so it never has it, not even until it executes its program.
//! - It ends when the server has ended, and not before: signals to the whole group do not end it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, ExitCode};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use throughline_fuse::{Ending, Outside, Unmount, UnmountError, asked_shutdown_mode};
use throughline_locks::Mutex;

use super::{EXIT_SYSTEM, deserted, point, start};

/// Environment variable with the mount point.
const POINT: &str = "THROUGHLINE_MOUNT_POINT";
/// Environment variable with the duties, separated by commas.
const DUTIES: &str = "THROUGHLINE_MOUNT_DUTIES";
/// The requests that are served at a time.
const MAX_AT_ONCE: usize = 8;
/// What the keeper says when no other process can reach the mount.
const DESERTED: &str = "deserted";
/// What it says when the mount has answered.
const ANSWERS: &str = "answers";
/// `PIDFD_THREAD` (Linux 6.9): for the end of a thread, not of the last one of its process. For the first
/// thread it is the same (6.15).
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(0o200);
/// How long the threads of a killed server may take to end, and how often that is looked at.
const DEATH: Duration = Duration::from_secs(5);
const DEATH_LOOK: Duration = Duration::from_millis(10);
/// Answers.
const OK: &str = "ok";
const BUSY: &str = "busy";
const MODE: &str = "mode ";

/// What the process is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Duties {
    /// Remove the mount when the server has ended.
    pub(super) clean_up: bool,
    /// Tell when the mount answers.
    pub(super) ask: bool,
    /// Tell when no other process can reach the mount.
    pub(super) watch: bool,
}

/// What is asked for; the value is the first byte of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Verb {
    Unmount = b'u',
    Detach = b'd',
    Force = b'f',
    Sync = b's',
    /// Read the argument of `FS_IOC_SHUTDOWN`.
    Mode = b'm',
}

/// The bytes of a request.
const REQUEST_BYTES: usize = 17;

/// A request without its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    verb: Verb,
    thread: u32,
    address: u64,
}

impl From<Verb> for Request {
    fn from(verb: Verb) -> Request {
        Request {
            verb,
            thread: 0,
            address: 0,
        }
    }
}

impl Request {
    fn bytes(self, number: u32) -> [u8; REQUEST_BYTES] {
        let mut bytes = [self.verb as u8; REQUEST_BYTES];
        bytes[1..5].copy_from_slice(&number.to_ne_bytes());
        bytes[5..9].copy_from_slice(&self.thread.to_ne_bytes());
        bytes[9..].copy_from_slice(&self.address.to_ne_bytes());
        bytes
    }

    /// The number of a request, and what it is; `None` if there is no such verb.
    fn read(bytes: [u8; REQUEST_BYTES]) -> (u32, Option<Request>) {
        let [verb, a, b, c, d, e, f, g, h, address @ ..] = bytes;
        let request = Verb::of_byte(verb).map(|verb| Request {
            verb,
            thread: u32::from_ne_bytes([e, f, g, h]),
            address: u64::from_ne_bytes(address),
        });
        (u32::from_ne_bytes([a, b, c, d]), request)
    }

    /// The answer is `ok`, `busy`, `mode N`, or text for people.
    fn serve(self, ending: &Ending) -> String {
        let how = match self.verb {
            Verb::Unmount => Unmount::Plain,
            Verb::Detach => Unmount::Lazy,
            Verb::Force => Unmount::Force,
            Verb::Sync => {
                return match ending.sync() {
                    Ok(()) => OK.to_owned(),
                    Err(error) => error.to_string(),
                };
            }
            Verb::Mode => {
                return match asked_shutdown_mode(self.thread, self.address) {
                    Ok(mode) => format!("{MODE}{mode}"),
                    Err(error) => error.to_string(),
                };
            }
        };
        match ending.unmount_if_there(how) {
            Ok(()) => OK.to_owned(),
            Err(UnmountError::Busy) => BUSY.to_owned(),
            Err(other) => other.to_string().replace('\n', " "),
        }
    }
}

impl Verb {
    fn of(how: Unmount) -> Verb {
        match how {
            Unmount::Plain => Verb::Unmount,
            Unmount::Lazy => Verb::Detach,
            Unmount::Force => Verb::Force,
        }
    }

    fn of_byte(byte: u8) -> Option<Verb> {
        let all = [
            Verb::Unmount,
            Verb::Detach,
            Verb::Force,
            Verb::Sync,
            Verb::Mode,
        ];
        all.into_iter().find(|verb| *verb as u8 == byte)
    }
}

/// The process, seen from the server.
pub(super) struct Keeper {
    requests: Mutex<ChildStdin>,
    waiting: Arc<Mutex<HashMap<u32, mpsc::Sender<String>>>>,
    next: AtomicU32,
    /// The thread that takes the answers, which waits for nothing else. It ends if this process is killed.
    thread: u32,
    /// Not waited for: it ends after this process.
    _child: Child,
}

impl Keeper {
    /// Starts the process for a mount that is to be made at `dir`. It lasts as long as the result, or as long
    /// as this process. `said` is called with what it says without being asked.
    pub(super) fn start(
        dir: &Path,
        duties: Duties,
        said: impl Fn(Said) + Send + 'static,
    ) -> io::Result<Keeper> {
        let mut child = start::start_keeper(&[
            (POINT, dir.as_os_str()),
            (DUTIES, OsStr::new(&json!(duties).to_string())),
        ])?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it has no standard streams"));
        };
        let waiting = Arc::default();
        let of_thread = Arc::clone(&waiting);
        let (tell, told) = mpsc::channel();
        let thread = thread::Builder::new().name("keeper".into());
        thread.spawn(move || {
            let _ = tell.send(rustix::thread::gettid());
            take_answers(answers, &of_thread, said);
        })?;
        let thread = told.recv().map_err(io::Error::other)?;
        Ok(Keeper {
            requests: Mutex::new(requests),
            waiting,
            next: AtomicU32::new(0),
            thread: thread.as_raw_pid().cast_unsigned(),
            _child: child,
        })
    }

    /// Tells it the mount. Call this once, before the first request.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn mounted(&self, ending: &Ending) -> io::Result<()> {
        let name = ending.name();
        let mut message = self.thread.to_ne_bytes().to_vec();
        message.extend_from_slice(&(name.len() as u32).to_ne_bytes());
        message.extend_from_slice(name.as_bytes());
        self.requests.lock().write_all(&message)
    }

    /// Waits for the answer to a request.
    ///
    /// # Errors
    /// The process has ended.
    fn ask(&self, request: Request) -> io::Result<String> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = mpsc::channel();
        self.waiting.lock().insert(number, sender);
        let sent = self.requests.lock().write_all(&request.bytes(number));
        if sent.is_err() {
            self.waiting.lock().remove(&number);
        }
        let ended = || io::Error::other("the process that unmounts has ended");
        sent.ok()
            .and_then(|()| answer.recv().ok())
            .ok_or_else(ended)
    }
}

impl Outside for Keeper {
    fn unmount(&self, how: Unmount) -> Result<(), UnmountError> {
        let answer = self
            .ask(Verb::of(how).into())
            .map_err(UnmountError::System)?;
        match &*answer {
            OK => Ok(()),
            BUSY => Err(UnmountError::Busy),
            _ => Err(UnmountError::Helper(answer)),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.ask(Verb::Sync.into())? {
            answer if answer == OK => Ok(()),
            answer => Err(io::Error::other(answer)),
        }
    }

    fn shutdown_mode(&self, thread: u32, address: u64) -> io::Result<u32> {
        let answer = self.ask(Request {
            verb: Verb::Mode,
            thread,
            address,
        })?;
        let mode = answer.strip_prefix(MODE).and_then(|mode| mode.parse().ok());
        mode.ok_or_else(|| io::Error::other(answer))
    }
}

/// What the process says without being asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// The mount has answered.
    Answers,
    /// No other process can reach the mount.
    Deserted,
}

/// Passes answers to those who wait for them, until the keeper has ended.
fn take_answers(
    answers: ChildStdout,
    waiting: &Mutex<HashMap<u32, mpsc::Sender<String>>>,
    said: impl Fn(Said),
) {
    for line in BufReader::new(answers).lines() {
        let Ok(line) = line else { break };
        match &*line {
            DESERTED => said(Said::Deserted),
            ANSWERS => said(Said::Answers),
            _ => {}
        }
        let Some((number, answer)) = line.split_once(' ') else {
            continue;
        };
        let sender = number
            .parse()
            .ok()
            .and_then(|number: u32| waiting.lock().remove(&number));
        if let Some(sender) = sender {
            let _ = sender.send(answer.to_owned());
        }
    }
    waiting.lock().clear();
}

/// If this process was started as a keeper, runs as one and returns the exit code.
pub(crate) fn keep() -> Option<ExitCode> {
    if !start::is_keeper() {
        return None;
    }
    let words = std::env::var(DUTIES).unwrap_or_default();
    let point = std::env::var_os(POINT).unwrap_or_default();
    let done = wait_and_clean_up(
        Path::new(&point),
        serde_json::from_str(&words).unwrap_or_default(),
    );
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => EXIT_SYSTEM.into(),
    })
}

fn wait_and_clean_up(point: &Path, duties: Duties) -> Result<(), UnmountError> {
    // A new session, so that a terminal's signals do not end this process. Fails only if it already leads a
    // session.
    let _ = rustix::process::setsid();
    // Other senders signal all processes of a service.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1]);
    let _ = std::fs::write("/proc/self/comm", "throughline-kee");
    let server = rustix::process::getppid();
    let Some((thread, name)) = read_mount(&mut io::stdin().lock()) else {
        return match duties.clean_up {
            true => clean_up_unnamed(point),
            false => Ok(()),
        };
    };
    let ending = Ending::named(&name);
    if let (Some(ending), Some(server), Ok(signals)) = (&ending, server, signals) {
        if duties.ask {
            ask(ending.point().to_owned());
        }
        if duties.watch {
            watch(ending.point(), server.as_raw_pid().cast_unsigned());
        }
        // Without it, only what the module's head says of a killed server is not done.
        let _ = cut_after_death(server, thread, signals, ending.clone());
    }
    serve(ending.as_ref());
    // If the server unmounted before it exited, no mount has this name any more.
    match (duties.clean_up, Ending::named(&name)) {
        (true, Some(ending)) => ending.clean_up(),
        _ => Ok(()),
    }
}

/// A thread of the server, and the name of the mount; `None` if the server ended before it told them.
fn read_mount(input: &mut impl Read) -> Option<(Option<Pid>, OsString)> {
    let (mut thread, mut len) = ([0; 4], [0; 4]);
    input.read_exact(&mut thread).ok()?;
    input.read_exact(&mut len).ok()?;
    let mut name = vec![0; u32::from_ne_bytes(len) as usize];
    input.read_exact(&mut name).ok()?;
    let thread = Pid::from_raw(i32::from_ne_bytes(thread));
    Some((thread, OsString::from_vec(name)))
}

/// Removes the mount of a server that ended before it told its name, if it made one: one without a server.
fn clean_up_unnamed(point: &Path) -> Result<(), UnmountError> {
    match Ending::of(point) {
        Ok(ending) if point::is_dead(point) => ending.clean_up(),
        _ => Ok(()),
    }
}

/// Aborts the connection once the server was killed. Without that, a thread of it that waits for the kernel
/// to drop pages may never end (module head). `thread` is one that waits for nothing.
fn cut_after_death(
    server: Pid,
    thread: Option<Pid>,
    mut signals: Signals,
    ending: Ending,
) -> io::Result<()> {
    // Before Linux 6.9. From 6.12 on, landlock keeps the server's signal from us.
    set_parent_process_death_signal(Some(Signal::USR1))?;
    let thread = thread.and_then(|thread| pidfd_open(thread, PIDFD_THREAD).ok());
    let watch = move || {
        if let Some(thread) = &thread {
            let mut fds = [PollFd::new(thread, PollFlags::IN)];
            while poll(&mut fds, None) == Err(Errno::INTR) {}
            // An error leaves the connection to the end of the last thread.
            let _ = ending.abort();
        }
        for signal in signals.forever() {
            // It comes when the thread that started this process ends. The others may take a moment longer.
            if signal == SIGUSR1 && thread.is_none() && dies(server) {
                let _ = ending.abort();
            }
        }
    };
    let thread = thread::Builder::new().name("death".into());
    thread.spawn(watch).map(drop)
}

/// Whether the first thread of the server has ended, or ends soon.
fn dies(server: Pid) -> bool {
    let server = server.as_raw_pid();
    let has_ended = || {
        let stat = std::fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("X", |(_, rest)| rest);
        state.starts_with(['Z', 'X'])
    };
    let end = Instant::now() + DEATH;
    while !has_ended() {
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(DEATH_LOOK);
    }
    true
}

/// Tells the server that the mount answers.
fn ask(point: std::path::PathBuf) {
    let ask = move || {
        // After an error, too: it is the answer.
        let _ = point::ask(&point);
        // Without a reader, the server has ended.
        let _ = writeln!(io::stdout(), "{ANSWERS}");
    };
    // Without a thread, the server's log lacks a line.
    let _ = thread::Builder::new().name("ask".into()).spawn(ask);
}

/// Tells the server when no other process can reach the mount.
fn watch(point: &Path, server: u32) {
    deserted::watch(point, server, || {
        // Without a reader, the server has ended.
        let _ = writeln!(io::stdout(), "{DESERTED}");
    });
}

/// Serves requests until the server has ended, and those that are then still in progress.
fn serve(ending: Option<&Ending>) {
    let at_work = AtomicUsize::new(0);
    let mut requests = io::stdin().lock();
    thread::scope(|scope| {
        let mut bytes = [0; REQUEST_BYTES];
        // An error counts as the end.
        while requests.read_exact(&mut bytes).is_ok() {
            let (number, request) = Request::read(bytes);
            let (Some(request), true) = (request, at_work.load(Ordering::Relaxed) < MAX_AT_ONCE)
            else {
                let _ = writeln!(io::stdout(), "{number} refused");
                continue;
            };
            at_work.fetch_add(1, Ordering::Relaxed);
            let at_work = &at_work;
            let work = move || {
                let answer = ending.map_or_else(|| OK.to_owned(), |ending| request.serve(ending));
                let _ = writeln!(io::stdout(), "{number} {answer}");
                at_work.fetch_sub(1, Ordering::Relaxed);
            };
            // Without a thread of its own, later requests wait for this one.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                work();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_sends_is_what_the_keeper_reads() {
        let asked = Request {
            verb: Verb::Mode,
            thread: 0x0102_0304,
            address: 0x0506_0708_090a_0b0c,
        };
        assert_eq!(Request::read(asked.bytes(7)), (7, Some(asked)));
        for how in [Unmount::Plain, Unmount::Lazy, Unmount::Force] {
            let asked = Request::from(Verb::of(how));
            assert_eq!(
                Request::read(asked.bytes(u32::MAX)),
                (u32::MAX, Some(asked))
            );
        }
        assert_eq!(Request::read([0; REQUEST_BYTES]), (0, None));
    }

    #[test]
    fn a_mount_is_read_whole_or_not_at_all() {
        let [thread, len] = [77_u32, 3].map(u32::to_ne_bytes);
        let message = [&thread[..], &len, b"a\nbrest"].concat();
        let read = read_mount(&mut &message[..]);
        assert_eq!(read, Some((Pid::from_raw(77), "a\nb".into())));
        assert_eq!(read_mount(&mut &message[..10]), None);
        assert_eq!(read_mount(&mut &b""[..]), None);
    }
}
