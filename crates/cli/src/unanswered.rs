//! Exit codes of a command that ends without a result: a wrong command line, a log that cannot be opened, or
//! a bug. For some commands, the usual exit codes would be taken for results: `git bisect run` would mark the
//! commit as bad, and a CI pipeline would report a regression.

use crate::commands::lab::{gate, step};
use crate::mount;

/// The exit codes of a command that ends without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    /// The command line is wrong.
    pub(crate) usage: u8,
    /// It failed before it could start.
    pub(crate) failed: u8,
    /// It ended because of a bug.
    pub(crate) bug: u8,
}

impl Unanswered {
    /// Codes of commands that only succeed or fail. A bug has the exit code of a Rust panic.
    const USUAL: Unanswered = Unanswered {
        usage: 2,
        failed: 1,
        bug: 101,
    };

    /// The codes for the command that this process was started for.
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
            // 1 to 127 are verdicts.
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

/// Whether the command line is for `command`. It may not have been parsed: only options may precede the
/// command, each with at most one value.
fn called(command: &[&str]) -> bool {
    let words: Vec<_> = crate::arguments::all().skip(1).collect();
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
