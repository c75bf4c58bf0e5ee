//! Exit codes of a command that ends without a result: a wrong command line, a log that cannot be opened, or
//! a bug. For some commands, the usual exit codes would be taken for results: a CI pipeline would report a
//! regression.

/// mount(8): wrong arguments, or no permission.
pub const MOUNT_USAGE: u8 = 1;
/// mount(8): the system failed.
pub const MOUNT_SYSTEM: u8 = 2;
/// mount(8): a bug.
pub const MOUNT_INTERNAL: u8 = 4;
/// `lab gate`: wrong command line. EX_USAGE of sysexits.h, because 2 has another meaning here.
pub const GATE_USAGE: u8 = 64;
/// `lab gate`: the runs could not be read or compared. EX_DATAERR of sysexits.h.
pub const GATE_DATA: u8 = 65;

/// The exit codes of a command that ends without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// The command line is wrong.
    pub usage: u8,
    /// It failed before it could start.
    pub failed: u8,
    /// It ended because of a bug.
    pub bug: u8,
}

impl Unanswered {
    /// Codes of commands that only succeed or fail. A bug has the exit code of a Rust panic.
    const USUAL: Unanswered = Unanswered {
        usage: 2,
        failed: 1,
        bug: 101,
    };

    /// The codes for the command that this process was started for.
    pub fn here() -> Unanswered {
        if called(&["mount"]) {
            Unanswered {
                usage: MOUNT_USAGE,
                failed: MOUNT_SYSTEM,
                bug: MOUNT_INTERNAL,
            }
        } else if called(&["lab", "gate"]) {
            Unanswered {
                usage: GATE_USAGE,
                failed: GATE_DATA,
                ..Unanswered::USUAL
            }
        } else {
            Unanswered::USUAL
        }
    }
}

/// Whether the command line is for `command`. It may not have been parsed: only options may precede the
/// command, each with at most one value.
pub fn called(command: &[&str]) -> bool {
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
