//! A process that makes system calls on request, one per line, and reports each result.
//!
//! Two file systems are compared by sending the same lines to two actors and comparing the answers. An actor
//! is a separate process (`throughline-actor`), because ids, umask, limits and locks belong to processes;
//! [`Actor`] is its client. It starts in a directory, and all paths are meant to be relative to that, so that
//! lines and answers do not depend on where a tree is.
//!
//! A line consists of words separated by blanks. In a word, `{x*255}` is `x` repeated 255 times, `{fd:a}` the
//! path of the open file `a` in `/proc/self/fd`, and `%20` the byte 0x20; `''` is the empty word. The answer
//! is `ok`, `ok` with the result of the call, or the name of the errno. Times are never reported as such
//! (`times.rs`).
//!
//! The first word is the command; the files of this module document theirs. `each FROM TO LINE` runs the line
//! for each number in the range, with `{i}` replaced by the number, and answers runs of equal answers.

mod attributes;
mod client;
mod directories;
mod files;
mod locks;
mod names;
mod process;
mod ranges;
mod special;
mod times;
mod words;
mod xattrs;

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

pub use client::{Actor, Ids};
use directories::Stream;
use times::Moment;
use words::Words;

/// Result of a call: its output (may be empty) or errno.
type Answer = Result<String, Errno>;

/// Open files and other state of an actor's process.
struct State {
    /// An `O_PATH` descriptor that stands for files that are not open.
    nothing: OwnedFd,
    files: BTreeMap<String, OwnedFd>,
    streams: BTreeMap<String, Stream>,
    listeners: BTreeMap<String, UnixListener>,
    connections: BTreeMap<String, UnixStream>,
    moments: BTreeMap<Vec<u8>, Moment>,
    limits: process::Limits,
}

/// Main function of an actor's process: takes the ids from its arguments, then answers each line of standard
/// input on standard output until the input ends.
///
/// # Panics
/// On an invalid line: a mistake in the test, which sees the process end.
pub fn serve() {
    process::take_on_ids(&std::env::args().skip(1).collect::<Vec<_>>());
    let nothing = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let mut state = State {
        nothing: nothing.expect("the root can be opened"),
        files: BTreeMap::new(),
        streams: BTreeMap::new(),
        listeners: BTreeMap::new(),
        connections: BTreeMap::new(),
        moments: BTreeMap::new(),
        limits: process::Limits::default(),
    };
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line from the test");
        let answer = state.answer(&line);
        writeln!(out, "{answer}")
            .and_then(|()| out.flush())
            .expect("the test listens");
    }
}

impl State {
    fn answer(&mut self, line: &str) -> String {
        if let Some(rest) = line.strip_prefix("each ") {
            return self.each(rest);
        }
        let words = Words::new(line, &|name| self.fd_path(name));
        match self.perform(&words) {
            Ok(given) if given.is_empty() => "ok".to_owned(),
            Ok(given) => format!("ok {given}"),
            Err(errno) => errno_name(errno),
        }
    }

    fn each(&mut self, rest: &str) -> String {
        let mut parts = rest.splitn(3, ' ');
        let mut bound = || words::number(parts.next().expect("each FROM TO LINE"));
        let (from, to) = (bound(), bound());
        let line = parts.next().expect("each FROM TO LINE");
        let mut runs: Vec<(String, u64)> = Vec::new();
        for number in from..to {
            let answer = self.answer(&line.replace("{i}", &number.to_string()));
            match runs.last_mut() {
                Some((last, count)) if *last == answer => *count += 1,
                _ => runs.push((answer, 1)),
            }
        }
        let text: Vec<String> = runs
            .iter()
            .map(|(answer, count)| format!("{answer} *{count}"))
            .collect();
        text.join(", ")
    }

    fn perform(&mut self, words: &Words) -> Answer {
        self.names(words)
            .or_else(|| self.files(words))
            .or_else(|| self.ranges(words))
            .or_else(|| self.attributes(words))
            .or_else(|| self.times(words))
            .or_else(|| self.xattrs(words))
            .or_else(|| self.directories(words))
            .or_else(|| self.locks(words))
            .or_else(|| self.special(words))
            .or_else(|| self.process(words))
            .unwrap_or_else(|| panic!("no such call: {}", words.text(0)))
    }

    /// The open file of that name. If there is none, for example because its open failed, a descriptor on
    /// which every call fails with `EBADF`.
    fn file(&self, name: &str) -> &OwnedFd {
        self.files.get(name).unwrap_or(&self.nothing)
    }

    fn fd_path(&self, name: &str) -> String {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", self.file(name).as_raw_fd())
    }
}

fn errno_name(errno: Errno) -> String {
    format!("{:?}", nix::errno::Errno::from_raw(errno.raw_os_error()))
}

/// The errno of a standard library error.
fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The answer of a call without output.
fn done(result: Result<(), Errno>) -> Answer {
    result.map(|()| String::new())
}
