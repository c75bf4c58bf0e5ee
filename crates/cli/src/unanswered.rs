//! What a command ends with whose other exit codes are answers, when it has none: a wrong command line, a log that cannot be
//! opened, a bug of ours. `git bisect run` would call the commit bad, a pipeline would see a regression.

use crate::commands::lab::{gate, step};
use crate::mount;

/// The exit codes of a command that has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    /// The command line is wrong.
    pub(crate) usage: u8,
    /// It failed before it could begin.
    pub(crate) failed: u8,
    /// It ended by a bug.
    pub(crate) bug: u8,
}

impl Unanswered {
    /// Those of a command that says no more than whether it was done. A bug has the code that Rust gives it.
    const USUAL: Unanswered = Unanswered {
        usage: 2,
        failed: 1,
        bug: 101,
    };

    /// Those of the command that this process was called for.
    pub(crate) fn here() -> Unanswered {
        if called(&["mount"]) {
            Unanswered {
                usage: mount::EXIT_USAGE,
                failed: mount::EXIT_SYSTEM,
                bug: mount::EXIT_INTERNAL,
            }
        } else if called(&["lab", "gate"]) {
            Unanswered {
                usage: gate::EXIT_USAGE,
                failed: gate::EXIT_DATA,
                ..Unanswered::USUAL
            }
        } else if called(&["lab", "step"]) {
            // 1 to 127 would be an answer.
            Unanswered {
                usage: step::EXIT_ABORT,
                failed: step::EXIT_ABORT,
                bug: step::EXIT_ABORT,
            }
        } else {
            Unanswered::USUAL
        }
    }
}

/// Of a command line that may not have been read: it is this command's, by its words before which there are but options, each
/// with one value at the most.
fn called(command: &[&str]) -> bool {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let option = |word: &std::ffi::OsString| word.as_encoded_bytes().starts_with(b"-");
    let before = |at: usize| (0..at).all(|i| option(&words[i]) || (i > 0 && option(&words[i - 1])));
    (0..words.len()).any(|at| {
        before(at)
            && words[at..].len() >= command.len()
            && words[at..]
                .iter()
                .zip(command)
                .all(|(word, name)| word == name)
    })
}
