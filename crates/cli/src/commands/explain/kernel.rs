//! Runs any command and explains what the kernel's I/O path did for it.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use throughline_explain::kernel::{Failed, Order, Watched, watch};

use super::{ExplainArgs, Seen, problem};
use crate::context::Context;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// Exit code: the kernel could not be traced.
const EXIT_NOT_WATCHED: u8 = 125;
/// Exit code: the command could not be run.
const EXIT_NOT_RUN: u8 = 126;
/// Exit code: the command does not exist.
const EXIT_NO_COMMAND: u8 = 127;

/// Runs the command.
pub(super) fn run(args: &ExplainArgs, context: &mut Context) -> Result<Seen, Failure> {
    let signals = Signals::new().doing(|| "cannot set up signal handling")?;
    let order = Order {
        command: &args.command,
        devices: &args.device,
        buffer_bytes: args.buffer,
        signal: &|| signals.to_hand_on(),
    };
    let name = || {
        let program = args.command.first().cloned().unwrap_or_default();
        format!("cannot run {}", quote(program))
    };
    match watch(&order) {
        Ok(Watched { status, explained }) => Ok(Seen {
            explained,
            left_out: Vec::new(),
            code: code_of(status),
        }),
        Err(Failed::Trace(error)) => {
            context.exit_bits = EXIT_NOT_WATCHED;
            Err(problem(error).met("cannot trace the kernel"))
        }
        Err(Failed::Command(error)) => {
            context.exit_bits = match error.kind() {
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

/// Catches signals while the command runs, so that this process outlives the command, prints its report and
/// cleans up.
struct Signals {
    handed_on: Arc<AtomicUsize>,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let handed_on = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let number = usize::try_from(signal).unwrap_or_default();
            flag::register_usize(signal, Arc::clone(&handed_on), number)?;
        }
        Ok(Signals { handed_on })
    }

    /// Returns the last signal that the command did not receive itself.
    fn to_hand_on(&self) -> Option<i32> {
        match i32::try_from(self.handed_on.swap(0, Ordering::Relaxed)) {
            Ok(0) | Err(_) => None,
            // The terminal also sends Ctrl-C to the command.
            Ok(SIGINT) if has_terminal() => None,
            Ok(signal) => Some(signal),
        }
    }
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
