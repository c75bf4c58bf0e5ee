//! Locks.
//!
//! `flock FILE sh|ex|un [wait]`, `lock FILE r|w|u AT LENGTH [wait]` (owned by the process), `olock …` (owned
//! by the open file description), `getlock FILE r|w AT LENGTH` and `getolock …` (the conflicting lock,
//! without its pid). Without `wait`, a conflict answers `EAGAIN`.

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::{Answer, State, Words, done};

impl State {
    pub(super) fn locks(&mut self, words: &Words) -> Option<Answer> {
        Some(match words.text(0) {
            "flock" => {
                let wait = words.text_or_empty(3) == "wait";
                let operation = match (words.text(2), wait) {
                    ("sh", true) => FlockOperation::LockShared,
                    ("sh", false) => FlockOperation::NonBlockingLockShared,
                    ("ex", true) => FlockOperation::LockExclusive,
                    ("ex", false) => FlockOperation::NonBlockingLockExclusive,
                    ("un", true) => FlockOperation::Unlock,
                    ("un", false) => FlockOperation::NonBlockingUnlock,
                    (other, _) => panic!("flock {other}"),
                };
                done(rustix::fs::flock(self.file(words.text(1)), operation))
            }
            verb @ ("lock" | "olock") => {
                let range = range(words);
                let of_process = verb == "lock";
                let wait = words.text_or_empty(5) == "wait";
                self.control(
                    words,
                    match (of_process, wait) {
                        (true, false) => FcntlArg::F_SETLK(&range),
                        (true, true) => FcntlArg::F_SETLKW(&range),
                        (false, false) => FcntlArg::F_OFD_SETLK(&range),
                        (false, true) => FcntlArg::F_OFD_SETLKW(&range),
                    },
                )
            }
            verb @ ("getlock" | "getolock") => {
                let mut range = range(words);
                let asked = if verb == "getlock" {
                    self.control(words, FcntlArg::F_GETLK(&mut range))
                } else {
                    self.control(words, FcntlArg::F_OFD_GETLK(&mut range))
                };
                asked.map(|_| held(&range))
            }
            _ => return None,
        })
    }

    fn control(&self, words: &Words, what: FcntlArg<'_>) -> Answer {
        match fcntl(self.file(words.text(1)), what) {
            Ok(_) => Ok(String::new()),
            Err(errno) => Err(Errno::from_raw_os_error(errno as i32)),
        }
    }
}

fn range(words: &Words) -> libc::flock {
    let kind = match words.text(2) {
        "r" => libc::F_RDLCK,
        "w" => libc::F_WRLCK,
        "u" => libc::F_UNLCK,
        other => panic!("a lock of kind {other}"),
    };
    let place = |at: usize| i64::try_from(words.number(at)).expect("an offset");
    libc::flock {
        l_type: i16::try_from(kind).expect("a kind"),
        l_whence: i16::try_from(libc::SEEK_SET).expect("a place"),
        l_start: place(3),
        l_len: place(4),
        l_pid: 0,
    }
}

fn held(range: &libc::flock) -> String {
    let kind = match i32::from(range.l_type) {
        libc::F_RDLCK => "r",
        libc::F_WRLCK => "w",
        libc::F_UNLCK => return "free".to_owned(),
        _ => "?",
    };
    let whose = match range.l_pid {
        -1 => "a file",
        0 => "nobody",
        _ => "a process",
    };
    format!("{kind} {} {} of {whose}", range.l_start, range.l_len)
}
