//! The program under the names of mke2fs: its command line, its defaults, and its exit code 1 for every
//! failure.
//!
//! Intended differences are listed in ARCHITECTURE.md.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::output::say;

/// The names.
pub(crate) const NAMES: [&str; 4] = ["mke2fs", "mkfs.ext2", "mkfs.ext3", "mkfs.ext4"];

/// The version shown.
const VERSION: &str = concat!(
    "mke2fs 1.47.0 (throughline ",
    env!("CARGO_PKG_VERSION"),
    ")"
);

/// Runs under one of the names, with the arguments after it.
pub(crate) fn main(name: &str, arguments: Vec<OsString>) -> ExitCode {
    if arguments.iter().any(|word| word == "-V") {
        say(VERSION);
        return ExitCode::SUCCESS;
    }
    let mut words: Vec<OsString> = ["throughline", "mkfs", "--as-mke2fs"]
        .map(Into::into)
        .to_vec();
    if let Some(fs_type) = name.strip_prefix("mkfs.") {
        words.extend(["-t".into(), fs_type.into()]);
    }
    words.extend(arguments);
    let code = match Cli::try_parse_from(words) {
        Ok(Cli {
            globals,
            json,
            command: Command::Mkfs(args),
        }) => {
            let mut context = Context::new(globals, json);
            let result = super::run(&args, &mut context);
            crate::conclude(result, &mut context).into()
        }
        Ok(_) => 1,
        Err(error) => {
            // Standard output or standard error may be closed.
            let _ = error.print();
            error.exit_code()
        }
    };
    match code {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}
