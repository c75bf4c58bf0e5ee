//! The words of the command line. Secrets of URLs in them are moved out of the list of arguments, which every
//! user of the machine can read, by executing the program anew.
//!
//! ```text
//!  throughline mount 'https://user:word@host/disk.img?sig=…' DIR
//!    │ exec: the same program, with the words as they are shown, and as they are in memory (memfd)
//!    ▼
//!  throughline mount 'https://host/disk.img?...' DIR
//!    │ its server: started in the same way
//! ```
//!
//! Invariants:
//! - The words of this process are [`all`]; the list of arguments is only what others see of them.
//! - The memory is emptied by the process that it is for. A variable that names it and was inherited by
//!   another one means nothing.
//! - A process that knows secrets of URLs leaves no core, and no other process of the user can read its
//!   memory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use throughline::internal::{given_file, has_object_secrets, word_without_url_secrets};

use crate::output::note;

/// The name of the main program.
pub const PROGRAM: &str = "throughline";
/// Environment variable: the descriptor of the memory with the words.
const MEMORY: &str = "THROUGHLINE_ARGUMENTS_FD";
/// The name of that memory.
const NAME: &str = "throughline-arguments";

static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// The words of the command line, the first of which is the name of the program.
pub fn all() -> impl Iterator<Item = OsString> {
    let words = WORDS.get_or_init(|| std::env::args_os().collect());
    words.iter().cloned()
}

/// First step of a program: takes the words that were handed over, or moves secrets out of the list of
/// arguments. The words are those of `throughline`. A program that was started under another name may be only
/// one `command` of it; then the words are those of the command.
pub fn settle(command: Option<&str>) {
    let handed_over = handed_over();
    let is_settled = handed_over.is_some();
    let words = handed_over.unwrap_or_else(|| std::env::args_os().collect());
    let has_secrets = words.iter().any(|word| shown(word).is_some());
    if has_secrets && !is_settled {
        let mut command = Command::new(this_program());
        let error = match give(&mut command, words.iter().cloned()) {
            Ok(_memory) => command.exec(),
            Err(error) => error,
        };
        note(&format!(
            "the list of processes shows the secret of a URL: cannot execute the program anew: {error}"
        ));
    }
    if has_secrets || has_object_secrets() {
        keep_from_cores();
    }
    let _ = WORDS.set(match command {
        Some(command) => under(command, words),
        None => words,
    });
}

/// The words as they are for `throughline`.
fn under(command: &str, mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().map(Path::new).and_then(Path::file_name);
    if name != Some(PROGRAM.as_ref()) {
        words.splice(..words.len().min(1), [PROGRAM.into(), command.into()]);
    }
    words
}

/// From now on this process leaves no core, and only root can trace it.
pub fn keep_from_cores() {
    // Linux has had it for longer than all that is needed else.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Gives a command that starts this program its words. What is returned has to live until it has started: the
/// process inherits it.
pub fn give(
    command: &mut Command,
    words: impl Iterator<Item = OsString>,
) -> io::Result<Option<File>> {
    let (mut whole, mut has_secrets) = (Vec::new(), false);
    for (word, at) in words.zip(0..) {
        whole.extend_from_slice(word.as_bytes());
        whole.push(0);
        let shown = shown(&word);
        has_secrets |= shown.is_some();
        let word = shown.unwrap_or(word);
        match at {
            0 => command.arg0(word),
            _ => command.arg(word),
        };
    }
    if !has_secrets {
        command.env_remove(MEMORY);
        return Ok(None);
    }
    let memory = match memfd_create(NAME, MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => memfd_create(NAME, MemfdFlags::empty()),
        memory => memory,
    };
    let mut memory = File::from(memory?);
    memory.write_all(&whole)?;
    command.env(MEMORY, memory.as_raw_fd().to_string());
    Ok(Some(memory))
}

/// The words in memory that another process has given to this one.
fn handed_over() -> Option<Vec<OsString>> {
    let number: i32 = std::env::var(MEMORY).ok()?.parse().ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{number}"));
    let name = std::fs::read_link(&path).ok()?;
    if name != Path::new(&format!("/memfd:{NAME} (deleted)")) {
        return None;
    }
    let mut memory = given_file(&path)?;
    let mut whole = Vec::new();
    memory.rewind().ok()?;
    memory.read_to_end(&mut whole).ok()?;
    // The descriptor stays open, and may be inherited: there is nothing in it any more.
    memory.set_len(0).ok()?;
    let words = whole.strip_suffix(&[0])?.split(|byte| *byte == 0);
    Some(
        words
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect(),
    )
}

/// A word without secrets; `None` if it has none.
fn shown(word: &OsStr) -> Option<OsString> {
    word_without_url_secrets(&word.to_string_lossy()).map(OsString::from)
}

/// The path of this program, so that process lists show its name, or `/proc/self/exe` if the file was
/// replaced.
pub fn this_program() -> PathBuf {
    std::env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| "/proc/self/exe".into())
}

/// The path of the program with this name that lies beside this one, links resolved. It may not exist. PATH
/// is not searched: it may be a stranger's.
///
/// # Errors
/// If this program cannot be found.
pub fn beside(name: &str) -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_another_program_are_those_of_its_command() {
        let under = |words: &[&str]| under("lab", words.iter().map(OsString::from).collect());
        assert_eq!(
            under(&["/bin/throughline-lab", "list"]),
            ["throughline", "lab", "list"]
        );
        assert_eq!(
            under(&["throughline", "-q", "lab", "list"]),
            ["throughline", "-q", "lab", "list"]
        );
        assert_eq!(under(&[]), ["throughline", "lab"]);
    }
}
