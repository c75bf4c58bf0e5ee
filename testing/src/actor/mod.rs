//! A process that makes system calls as it is told, one line a call, and says what each answered.
//!
//! Two file systems are compared by telling two actors the same lines and comparing the answers. An actor is a process of its
//! own (`throughline-actor`), because ids, umask, limits and locks belong to processes; [`Actor`] is the one who tells it.
//! It begins in a directory and all its paths are meant to be relative to that, so that nothing of where a tree lies is in a
//! line or an answer.
//!
//! A line is words with blanks between. In a word, `{x*255}` is `x` 255 times, `{fd:a}` the path of the open file `a` below
//! `/proc/self/fd`, `%20` the byte 0x20, and a word `''` is empty. The answer is `ok`, `ok` and what the call gave, or the
//! name of the errno. Times are never told as they are (`times.rs`).
//!
//! The first word says what to do; the files of this module document theirs. `each FROM TO LINE` does the line for each
//! number, with `{i}` for the number, and answers the runs of equal answers.

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

/// What a call answered: what it gave (empty for nothing), or its errno.
type Answer = Result<String, Errno>;

/// What the process of an actor has open and remembers.
struct State {
    /// Open without any rights: stands for what is not open.
    nothing: OwnedFd,
    files: BTreeMap<String, OwnedFd>,
    streams: BTreeMap<String, Stream>,
    listeners: BTreeMap<String, UnixListener>,
    connections: BTreeMap<String, UnixStream>,
    moments: BTreeMap<Vec<u8>, Moment>,
    limits: process::Limits,
}

/// The life of an actor's process: takes on the ids of its arguments, then answers each line of standard input on standard
/// output until there are no more.
///
/// # Panics
/// At a line that is none: that is a mistake in a test, and the process's end tells the other side.
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
        let told: Vec<String> = runs
            .iter()
            .map(|(answer, count)| format!("{answer} *{count}"))
            .collect();
        told.join(", ")
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

    /// The file that was opened by that name; one that every call answers with `EBADF` where none was, as where the open failed.
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

/// The errno of an error of the standard library's.
fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The answer of a call that gives nothing but success.
fn done(result: Result<(), Errno>) -> Answer {
    result.map(|()| String::new())
}
