//! The face of the programs `throughline` and `throughline-lab`: options, output and messages, exit codes,
//! logs, Ctrl-C, manual pages. Both programs link it, and neither links the other.
//!
//! Invariants:
//! - Every failure is printed on standard error as `throughline: cannot …: reason`.
//! - No message, no log and no list of processes shows the secret of a URL.
#![forbid(unsafe_code)]

pub mod arguments;
pub mod command_line;
pub mod explain;
pub mod globals;
pub mod interrupt;
pub mod logging;
pub mod manual;
pub mod output;
pub mod pages;
pub mod precious;
pub mod problem;
pub mod program;
pub mod progress;
pub mod text;
pub mod unanswered;
