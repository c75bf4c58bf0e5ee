//! What this host knows of users and groups (NSS). For a process whose sandbox lets it neither load the C
//! library's modules for that nor connect to their services, another process asks ([`ask_over`], [`answer`]).
//!
//! A question is a line: `u UID`, `g GID`, `U USER` or `G GROUP`. The answer is a line: a name, or for a user
//! its ID and that of its login group, or for a group its ID; empty if the host knows none.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use nix::unistd::{Gid, Group, Uid, User};
use throughline_locks::Mutex;

/// The longest question and answer, in bytes.
const MAX_LINE_BYTES: u64 = 4096;

/// The connection to the process that is asked. It waits for that process while it is locked.
static ASKED: OnceLock<Mutex<BufReader<UnixStream>>> = OnceLock::new();

/// Asks over this connection from now on.
pub fn ask_over(connection: UnixStream) {
    // A second one is not used.
    let _ = ASKED.set(Mutex::new(BufReader::new(connection)));
}

/// Answers questions until there are no more.
///
/// # Errors
/// System errors of the streams; a question that is too long.
pub fn answer(questions: impl Read, mut answers: impl Write) -> io::Result<()> {
    let mut questions = BufReader::new(questions);
    while let Some(question) = read_line(&mut questions)? {
        let known = known(&question).filter(|known| !known.contains('\n'));
        answers.write_all(format!("{}\n", known.unwrap_or_default()).as_bytes())?;
        answers.flush()?;
    }
    Ok(())
}

pub(super) fn user_name(uid: u32) -> Option<String> {
    ask('u', &uid.to_string())
}

pub(super) fn group_name(gid: u32) -> Option<String> {
    ask('g', &gid.to_string())
}

/// The IDs of a user and of its login group.
pub(super) fn user(name: &str) -> Option<(u32, u32)> {
    let found = ask('U', name)?;
    let (uid, gid) = found.split_once(' ')?;
    Some((uid.parse().ok()?, gid.parse().ok()?))
}

pub(super) fn group(name: &str) -> Option<u32> {
    ask('G', name)?.parse().ok()
}

fn ask(kind: char, of: &str) -> Option<String> {
    if of.contains('\n') {
        return None;
    }
    let question = format!("{kind} {of}");
    match ASKED.get() {
        None => known(&question),
        Some(connection) => {
            let mut connection = connection.lock();
            let stream = connection.get_mut();
            stream.write_all(format!("{question}\n").as_bytes()).ok()?;
            read_line(&mut *connection).ok().flatten()
        }
    }
    .filter(|known| !known.is_empty())
}

/// The answer of this process.
fn known(question: &str) -> Option<String> {
    let (kind, of) = question.split_once(' ')?;
    match kind {
        "u" => Some(User::from_uid(Uid::from_raw(of.parse().ok()?)).ok()??.name),
        "g" => Some(Group::from_gid(Gid::from_raw(of.parse().ok()?)).ok()??.name),
        "U" => {
            let user = User::from_name(of).ok()??;
            Some(format!("{} {}", user.uid, user.gid))
        }
        "G" => Some(Group::from_name(of).ok()??.gid.to_string()),
        _ => None,
    }
}

/// The next line, without its end; `None` at the end of the stream.
fn read_line(stream: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    stream.take(MAX_LINE_BYTES).read_line(&mut line)?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(Some(line.to_owned())),
        None if line.is_empty() => Ok(None),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_line_by_line() {
        let ask = |questions: &str| {
            let mut answers = Vec::new();
            answer(questions.as_bytes(), &mut answers).map(|()| String::from_utf8(answers).unwrap())
        };
        let all = "u 0\ng 0\nU root\nG root\nu 4294967290\nU no such user\nx\n\nu x\n";
        assert_eq!(ask(all).unwrap(), "root\nroot\n0 0\n0\n\n\n\n\n\n");
        assert!(ask(&"u".repeat(5000)).is_err());
        assert!(ask("u 0").is_err());
    }
}
