//! Runs any command and explains what the kernel's I/O path did for it.

use std::cell::RefCell;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use throughline_explain::kernel::{Failed, Order, Watched, watch};
use throughline_face::explain::{ExplainArgs, Seen};

use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// Exit code: the kernel could not be traced.
const EXIT_NOT_WATCHED: u8 = 125;
/// Exit code: the command could not be run.
const EXIT_NOT_RUN: u8 = 126;
/// Exit code: the command does not exist.
const EXIT_NO_COMMAND: u8 = 127;

/// Runs the command. After a failure, `exit_bits` says of which kind.
pub(super) fn run(args: &ExplainArgs, exit_bits: &mut u8) -> Result<Seen, Failure> {
    // This process outlives the command, prints its report and cleans up.
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let signals = RefCell::new(signals.doing(|| "cannot set up signal handling")?);
    let order = Order {
        command: &args.command,
        devices: &args.device,
        buffer_bytes: args.buffer,
        signal: &|| to_hand_on(signals.borrow_mut().pending().last()),
    };
    let name = || {
        let program = args.command.first().cloned().unwrap_or_default();
        format!("cannot run {}", quote(program))
    };
    match watch(&order) {
        Ok(Watched { status, explained }) => Ok(Seen {
            explained,
            code: code_of(status),
        }),
        Err(Failed::Trace(error)) => {
            *exit_bits = EXIT_NOT_WATCHED;
            Err(Problem::new(error.to_string()).met("cannot trace the kernel"))
        }
        Err(Failed::Command(error)) => {
            *exit_bits = match error.kind() {
                io::ErrorKind::NotFound => EXIT_NO_COMMAND,
                _ => EXIT_NOT_RUN,
            };
            Err(Problem::from(error).met(name()))
        }
    }
}

/// The exit code as in a shell.
fn code_of(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(by_signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// The signal, if the command did not receive it itself: a terminal also sends Ctrl-C to the command.
fn to_hand_on(signal: Option<i32>) -> Option<i32> {
    signal.filter(|signal| *signal != SIGINT || !has_terminal())
}

/// Whether Ctrl-C at a terminal reaches both this process and its children.
fn has_terminal() -> bool {
    std::fs::read_to_string("/proc/self/stat").is_ok_and(|stat| is_in_foreground(&stat))
}

/// Whether the process group (third field after the name) is the foreground group of its terminal (sixth
/// field).
fn is_in_foreground(stat: &str) -> bool {
    let fields = stat.rsplit_once(") ").map(|(_, fields)| fields.split(' '));
    fields.is_some_and(|mut fields| {
        let group = fields.nth(2);
        group.is_some() && group == fields.nth(2)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_foreground_is_known() {
        assert!(is_in_foreground("7 (a) b) S 1 70 60 34816 70 4194304 0"));
        assert!(!is_in_foreground("7 (a) S 1 70 60 34816 71 4194304 0"));
        assert!(!is_in_foreground("7 (a) S 1 70 60 0 -1 4194304 0"));
        assert!(!is_in_foreground("7"));
    }

    #[test]
    fn a_commands_end_is_a_shells() {
        assert_eq!(code_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code_of(ExitStatus::from_raw(9)), 137);
    }
}
