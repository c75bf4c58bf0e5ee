//! `explain`: runs one of our commands (with `--kernel`, any command) and shows what the I/O path did.

mod kernel;
mod ours;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Args;
use serde_json::json;
use throughline_explain::record::Record;
use throughline_explain::{Account, Explained, table};
use throughline_forms::time;

use crate::args::JsonFlag;
use crate::context::Context;
use crate::precious::check_output;
use crate::problem::{Doing, Failure, Problem};
use crate::text::{parse_size, quote};

/// Arguments of `explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// Trace the kernel's I/O path while any command runs; needs root
    #[arg(long)]
    kernel: bool,
    /// Trace this block device, or the one below the file system of this path, with the I/O of all processes,
    /// instead of the devices that the command uses (may be given several times)
    #[arg(long, value_name = "PLACE", requires = "kernel")]
    device: Vec<PathBuf>,
    /// Memory for events, per processor
    #[arg(long, value_name = "SIZE", requires = "kernel", default_value = "4M", value_parser = parse_buffer)]
    buffer: u64,
    /// Write the account to a file instead of standard error; -: standard output
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Write the account and single events to a file, in the format of 'lab run', for 'lab report' and
    /// --beside
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show an account written by --out beside this one (may be given several times)
    #[arg(long, value_name = "FILE")]
    beside: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A smaller buffer loses events at once; a larger one is probably a typing error.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

fn parse_buffer(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if BUFFER_BYTES.contains(&bytes) => Ok(bytes),
        _ => Err(format!("{} is not between 64K and 1G", quote(text))),
    }
}

/// Runs the command and explains it.
pub(crate) fn run(args: &ExplainArgs, context: &mut Context) -> Result<(), Failure> {
    // Report unreadable files before the command runs.
    let mut beside = Vec::new();
    for path in &args.beside {
        beside.push(read(path)?);
    }
    // The same for files that cannot be written.
    let files = args.to.iter().chain(&args.out);
    for path in files.filter(|path| path.as_os_str() != "-") {
        check_output(path)?;
        let mut file = File::options();
        let writable = file.create(true).append(true).open(path);
        writable.doing(|| format!("cannot write {}", quote(path)))?;
    }
    let started = time::rfc3339(SystemTime::now()).unwrap_or_default();
    let watched = match args.kernel {
        true => Some(kernel::run(args, context)?),
        false => ours::run(args, context)?,
    };
    let Some(seen) = watched else {
        return Ok(());
    };
    show(args, context, &seen, &beside)?;
    if let Some(path) = &args.out {
        let words = args.command.iter().map(|word| word.to_string_lossy());
        let settings: BTreeMap<String, serde_json::Value> = [
            ("command".to_owned(), json!(words.collect::<Vec<_>>())),
            ("kernel".to_owned(), json!(args.kernel)),
        ]
        .into();
        Record::explained(seen.explained, &started, settings)
            .write(path)
            .doing(|| "cannot save the account")?;
    }
    if seen.code == 0 {
        return Ok(());
    }
    context.exit_bits = seen.code;
    Err(Failure::Reported)
}

fn read(path: &Path) -> Result<Record, Failure> {
    let cannot = || format!("cannot show {} for comparison", quote(path));
    let record = Record::read(path).doing(cannot)?;
    if record.accounts().is_empty() {
        return Err(Problem::new("it contains no account")
            .with_next("make one: throughline explain --out FILE …")
            .met(cannot()));
    }
    Ok(record)
}

/// Printed instead of an empty table.
const NOTHING_MET: &str = "no I/O was traced: the command opened nothing, or all data was in the cache; the \
    I/O of other processes is traced only with --kernel\n";

fn show(
    args: &ExplainArgs,
    context: &mut Context,
    seen: &Seen,
    beside: &[Record],
) -> Result<(), Failure> {
    let mut accounts: Vec<&Account> = seen.explained.iter().map(|one| &one.account).collect();
    accounts.extend(beside.iter().flat_map(Record::accounts));
    let to_stdout = args.to.as_deref() == Some(Path::new("-"));
    let colours = match &args.to {
        Some(_) => to_stdout && context.out.colours(),
        None => io::stderr().is_terminal() && crate::output::colours_wanted(),
    };
    let text = match context.json {
        true => {
            let all = json!({ "accounts": accounts, "left_out": seen.left_out });
            format!("{all:#}\n")
        }
        false => {
            let table = match accounts.is_empty() {
                true => NOTHING_MET.to_owned(),
                false => table(&accounts, colours),
            };
            let left_out = seen.left_out.iter().map(|what| format!("note: {what}\n"));
            table + &left_out.collect::<String>()
        }
    };
    match &args.to {
        Some(_) if to_stdout => context.out.bytes(text.as_bytes()),
        Some(path) => std::fs::write(path, text).doing(|| format!("cannot write {}", quote(path))),
        // Standard error may be closed.
        None => {
            let _ = io::stderr().lock().write_all(text.as_bytes());
            Ok(())
        }
    }
}

/// The result of tracing.
struct Seen {
    explained: Vec<Explained>,
    /// What was not traced, one sentence each.
    left_out: Vec<String>,
    /// The command's exit code.
    code: u8,
}
