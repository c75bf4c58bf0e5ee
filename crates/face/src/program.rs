//! How both programs start and end.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use crate::arguments;
use crate::interrupt::EXIT_INTERRUPTED;
use crate::output::{Complaints, note};
use crate::problem::Failure;
use crate::unanswered::Unanswered;

/// The recursion over directories needs more than the default of 8 MiB. Only the pages in use take memory.
const STACK_BYTES: usize = 64 << 20;

/// The exit status that shells report for a program ended by a closed pipe.
const EXIT_PIPE_CLOSED: u8 = 141;

/// Runs the program, after its arguments have been settled, on a thread with a large stack. `command`:
/// [`arguments::settle`].
pub fn start(run: fn() -> ExitCode, command: Option<&str>) -> ExitCode {
    arguments::settle(command);
    // A write past a limit of file sizes (ulimit -f) is an error then, and does not end the program.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let work = thread::Builder::new()
        .name("throughline".into())
        .stack_size(STACK_BYTES)
        .spawn(run);
    match work.map(thread::JoinHandle::join) {
        Ok(Ok(code)) => code,
        // The panic was already reported.
        Ok(Err(_panic)) => Unanswered::here().bug.into(),
        Err(error) => {
            note(&format!("cannot start a thread: {error}"));
            Unanswered::here().failed.into()
        }
    }
}

/// The exit code after a failure of a command with these exit bits.
pub fn failure_code(exit_bits: u8) -> u8 {
    match exit_bits {
        0 => 1,
        bits => bits,
    }
}

/// Reports how a command with these exit bits ended, and returns its exit code.
pub fn conclude(result: Result<(), Failure>, complaints: &Complaints, exit_bits: u8) -> u8 {
    let failed = failure_code(exit_bits);
    match result {
        Ok(()) if !complaints.any() => 0,
        Ok(()) | Err(Failure::Reported) => failed,
        Err(Failure::PipeClosed) => EXIT_PIPE_CLOSED,
        Err(failure) => {
            complaints.say(&failure);
            match failure {
                Failure::Interrupted => EXIT_INTERRUPTED,
                Failure::Usage(_) => Unanswered::here().usage,
                _ => failed,
            }
        }
    }
}
