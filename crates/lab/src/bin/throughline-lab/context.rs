//! The state of one run of the program.

use throughline_face::globals::Globals;

use crate::interrupt::Interrupt;
use crate::output::{Complaints, Output};

/// The state of one run of the program.
pub(crate) struct Context {
    /// Options of all commands.
    pub(crate) globals: Globals,
    /// Whether to print results as JSON.
    pub(crate) json: bool,
    /// Standard output.
    pub(crate) out: Output,
    /// Messages on standard error.
    pub(crate) complaints: Complaints,
    /// The user's request to interrupt the command.
    pub(crate) interrupt: Interrupt,
    /// Exit code after a failure; set by commands with exit codes of their own.
    pub(crate) exit_bits: u8,
}

impl Context {
    /// The state at the start of a command.
    pub(crate) fn new(globals: Globals, json: bool) -> Context {
        Context {
            globals,
            json,
            out: Output::stdout(),
            complaints: Complaints::default(),
            interrupt: Interrupt::default(),
            exit_bits: 0,
        }
    }
}
