//! A process beside the server, for what the server may not do itself: it unmounts when the server asks for
//! it from its sandbox, tells it that nobody can reach the mount any more, and with `auto_unmount` removes
//! the mount when the server has ended for any reason.
//!
//! ```text
//!  server ── request, 17 bytes ─────► standard input   keeper ─► umount(2), fusermount3
//!         ◄─ "NUMBER RESULT\n" ────── standard output
//!         ◄─ "deserted\n" ───────────
//! ```
//!
//! A request is a verb, its number, and for [`Verb::Mode`] a thread and an address.
//!
//! `fusermount3` has `auto_unmount`, too, but in effect refuses it if root may not access the mount. This
//! process needs only the right to unmount, which the mount's owner has.
//!
//! Invariants:
//! - It removes only the mount that it was started for, not a later one at the same directory, whatever the
//!   server sends. Requests have a fixed size, and few are served at a time.
//! - Of the memory of other processes, it reads nothing but the argument of a call that they make just now,
//!   and that is meant for the server.
//! - It ends when the server has ended, and not before: signals to the whole group do not end it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, ExitCode};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use throughline_fuse::{Ending, Outside, Unmount, UnmountError, asked_shutdown_mode};
use throughline_locks::Mutex;

use super::end::{self, End};
use super::{EXIT_SYSTEM, deserted, start};

/// Environment variable that names the mount to remove.
const MOUNT: &str = "THROUGHLINE_MOUNT_KEPT";
/// Environment variable with the duties, separated by commas.
const DUTIES: &str = "THROUGHLINE_MOUNT_DUTIES";
/// The requests that are served at a time.
const MAX_AT_ONCE: usize = 8;
/// What the keeper says when no other process can reach the mount.
const DESERTED: &str = "deserted";
/// Answers.
const OK: &str = "ok";
const BUSY: &str = "busy";
const MODE: &str = "mode ";

/// What the process is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Duties {
    /// Remove the mount when the server has ended.
    pub(super) clean_up: bool,
    /// Unmount for the server.
    pub(super) unmount: bool,
    /// Tell when no other process can reach the mount.
    pub(super) watch: bool,
}

impl Duties {
    pub(super) fn any(self) -> bool {
        self != Duties::default()
    }

    fn words(self) -> String {
        let all = [
            ("clean_up", self.clean_up),
            ("unmount", self.unmount),
            ("watch", self.watch),
        ];
        let words = all
            .into_iter()
            .filter(|(_, has)| *has)
            .map(|(word, _)| word);
        words.collect::<Vec<_>>().join(",")
    }

    fn of_words(words: &str) -> Duties {
        let has = |word: &str| words.split(',').any(|one| one == word);
        Duties {
            clean_up: has("clean_up"),
            unmount: has("unmount"),
            watch: has("watch"),
        }
    }
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
    /// Not waited for: it ends after this process.
    _child: Child,
}

impl Keeper {
    /// Starts the process. It lasts as long as the result, or as long as this process. `end` is asked when no
    /// other process can reach the mount.
    pub(super) fn start(ending: &Ending, duties: Duties, end: End) -> io::Result<Keeper> {
        let mut child = start::start_keeper(&[
            (MOUNT, &ending.name()),
            (DUTIES, OsStr::new(&duties.words())),
        ])?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it has no standard streams"));
        };
        let waiting = Arc::default();
        let keeper = Keeper {
            requests: Mutex::new(requests),
            waiting: Arc::clone(&waiting),
            next: AtomicU32::new(0),
            _child: child,
        };
        let thread = thread::Builder::new().name("keeper".into());
        thread.spawn(move || take_answers(answers, &waiting, &end))?;
        Ok(keeper)
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

/// Passes answers to those who wait for them, until the keeper has ended.
fn take_answers(
    answers: ChildStdout,
    waiting: &Mutex<HashMap<u32, mpsc::Sender<String>>>,
    end: &End,
) {
    for line in BufReader::new(answers).lines() {
        let Ok(line) = line else { break };
        if line == DESERTED {
            end.desert();
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
    let name = std::env::var_os(MOUNT);
    let done = name.is_some_and(|name| wait_and_clean_up(&name, Duties::of_words(&words)).is_ok());
    Some(match done {
        true => ExitCode::SUCCESS,
        false => EXIT_SYSTEM.into(),
    })
}

fn wait_and_clean_up(name: &OsStr, duties: Duties) -> Result<(), UnmountError> {
    // A new session, so that a terminal's signals do not end this process. Fails only if it already leads a
    // session.
    let _ = rustix::process::setsid();
    // Other senders signal all processes of a service. Nobody reads these.
    let _signals = end::signals();
    let _ = std::fs::write("/proc/self/comm", "throughline-kee");
    let server = rustix::process::getppid();
    let ending = Ending::named(name);
    if let (true, Some(server), Some(ending)) = (duties.watch, server, &ending) {
        let (server, point) = (
            server.as_raw_pid().cast_unsigned(),
            ending.point().to_owned(),
        );
        watch(&point, server);
    }
    serve(ending.as_ref(), duties);
    // If the server unmounted before it exited, no mount has this name any more.
    match (duties.clean_up, Ending::named(name)) {
        (true, Some(ending)) => ending.clean_up(),
        _ => Ok(()),
    }
}

/// Tells the server when no other process can reach the mount.
fn watch(point: &Path, server: u32) {
    deserted::watch(point, server, || {
        // Without a reader, the server has ended.
        let _ = writeln!(io::stdout(), "{DESERTED}");
    });
}

/// Serves requests until the server has ended, and those that are then still in progress.
fn serve(ending: Option<&Ending>, duties: Duties) {
    let at_work = AtomicUsize::new(0);
    let mut requests = io::stdin().lock();
    thread::scope(|scope| {
        let mut bytes = [0; REQUEST_BYTES];
        // An error counts as the end.
        while requests.read_exact(&mut bytes).is_ok() {
            let (number, request) = Request::read(bytes);
            let request = request.filter(|_| duties.unmount);
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
        let duties = Duties {
            clean_up: true,
            unmount: false,
            watch: true,
        };
        assert_eq!(Duties::of_words(&duties.words()), duties);
        assert!(!Duties::of_words("").any());
    }
}
