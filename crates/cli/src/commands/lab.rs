//! `lab`: executes the program `throughline-lab`, which lies beside this one, so that this one does not link
//! the statistics.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::iter;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::{Arg, value_parser};
use throughline_face::unanswered::Unanswered;

use crate::arguments::{self, PROGRAM};
use crate::context::Context;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// The name of the program.
const NAME: &str = "throughline-lab";

/// The words of the command, which the program reads.
pub(crate) fn words() -> Arg {
    let words = Arg::new("ARGUMENTS").value_parser(value_parser!(OsString));
    let words = words.num_args(0..).allow_hyphen_values(true);
    words.trailing_var_arg(true).hide(true)
}

/// Executes it with the words of this process. Returns only if that fails.
pub(crate) fn run(context: &mut Context) -> Result<(), Failure> {
    context.exit_bits = Unanswered::here().failed;
    let program = arguments::beside(NAME).doing(|| "cannot find this program")?;
    let mut command = Command::new(&program);
    let words = iter::once(PROGRAM.into()).chain(arguments::all().skip(1));
    let error = match arguments::give(&mut command, words) {
        Ok(_memory) => command.exec(),
        Err(error) => error,
    };
    let next = format!(
        "install {NAME} there, as the packages, './dev install' and 'cargo install {NAME}' do"
    );
    let problem = Problem::from(error).with_next(next);
    Err(problem.met(format!("cannot run {}", quote(program))))
}

/// What it prints when it is run with these words; nothing if it is not installed.
pub(crate) fn output(words: &[&Path]) -> Result<Vec<u8>, Failure> {
    let program = arguments::beside(NAME).doing(|| "cannot find this program")?;
    let mut command = Command::new(&program);
    match command.args(words).stderr(Stdio::inherit()).output() {
        Ok(output) if output.status.success() => Ok(output.stdout),
        // It has said why.
        Ok(_) => Err(Failure::Reported),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Problem::from(error).met(format!("cannot run {}", quote(program)))),
    }
}
