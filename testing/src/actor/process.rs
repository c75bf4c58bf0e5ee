//! Process state: ids, working directory, limits, other programs.
//!
//! `umask MODE`, `cd P`, `limit SIZE` (`RLIMIT_FSIZE`; `SIGXFSZ` is caught), `signals` (how often it
//! arrived), `run PROGRAM WORDS…` (exit status, output and errors), `pass`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};
use throughline_testkit::program;

use super::words::printed;
use super::{Answer, State, Words, done, errno_of};

/// Count of the signals that report an exceeded limit.
#[derive(Default)]
pub(super) struct Limits {
    signals: Option<Arc<AtomicUsize>>,
}

/// Arguments of an actor's process: uid, gid, and comma-separated supplementary groups.
pub(super) fn take_on_ids(arguments: &[String]) {
    let [uid, gid, groups] = arguments else {
        panic!("throughline-actor UID GID GROUPS: a part of throughline's tests")
    };
    let id = |text: &str| -> u32 { text.parse().expect("an id") };
    // Do not inherit the umask of the tests. The working directory is already open: its parents may be
    // inaccessible to other users.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let (uid, gid) = (Uid::from_raw(id(uid)), Gid::from_raw(id(gid)));
    let groups: Vec<Gid> = groups
        .split(',')
        .filter(|group| !group.is_empty())
        .map(|group| Gid::from_raw(id(group)))
        .collect();
    setgroups(&groups)
        .and_then(|()| setresgid(gid, gid, gid))
        .and_then(|()| setresuid(uid, uid, uid))
        .expect("root may take on any ids");
}

impl State {
    pub(super) fn process(&mut self, words: &Words) -> Option<Answer> {
        Some(match words.text(0) {
            "umask" => {
                let old = rustix::process::umask(words.mode(1));
                Ok(format!("{:o}", old.as_raw_mode()))
            }
            "cd" => done(rustix::process::chdir(words.path(1))),
            "limit" => self.limit(words.number(1)),
            "signals" => {
                let came = self.limits.signals.as_ref();
                Ok(came
                    .map_or(0, |count| count.swap(0, Ordering::SeqCst))
                    .to_string())
            }
            "run" => run(words),
            "pass" => Ok(String::new()),
            _ => return None,
        })
    }

    fn limit(&mut self, size: u64) -> Answer {
        if self.limits.signals.is_none() {
            let count = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&count);
            signal_hook::flag::register_usize(nix::libc::SIGXFSZ, counter, 1)
                .map_err(|error| errno_of(&error))?;
            self.limits.signals = Some(count);
        }
        let limit = Rlimit {
            current: Some(size),
            maximum: rustix::process::getrlimit(Resource::Fsize).maximum,
        };
        done(rustix::process::setrlimit(Resource::Fsize, limit))
    }
}

fn run(words: &Words) -> Answer {
    let output = program::command(words.text(1))
        .args((2..words.count()).map(|at| words.path(at)))
        .env("LC_ALL", "C.UTF-8")
        .output()
        .map_err(|error| errno_of(&error))?;
    let text = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8_lossy(&text);
    let lines: Vec<String> = lines.lines().map(printed_line).collect();
    let status = output.status.code().unwrap_or(-1);
    Ok(format!("{status} {}", lines.join(" | ")))
}

fn printed_line(line: &str) -> String {
    if line.is_ascii() {
        line.trim_end().to_owned()
    } else {
        printed(line.as_bytes())
    }
}
