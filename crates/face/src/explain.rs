//! `explain`: what the I/O path did while a command ran. A command of the lab runs in the lab's program, so
//! both programs trace one of their own and show the account.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write as _};
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use clap::Args;
use serde_json::json;
use throughline_explain::ours::Watch;
use throughline_explain::record::Record;
use throughline_explain::{Account, Explained, table};
use throughline_forms::time;

use crate::command_line::JsonFlag;
use crate::globals::Globals;
use crate::logging;
use crate::output::{Output, colours_wanted, note};
use crate::precious::check_output;
use crate::problem::{Doing, Failure, Problem};
use crate::text::{parse_size, quote};

/// Arguments of `explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// Trace the kernel's I/O path while any command runs; needs root
    #[arg(long)]
    pub kernel: bool,
    /// Trace this block device, or the one below the file system of this path, with the I/O of all processes,
    /// instead of the devices that the command uses (may be given several times)
    #[arg(long, value_name = "PLACE", requires = "kernel")]
    pub device: Vec<PathBuf>,
    /// Memory for events, per CPU
    #[arg(long, value_name = "SIZE", requires = "kernel", default_value = "4M", value_parser = parse_buffer)]
    pub buffer: u64,
    /// Write the account to a file instead of standard error; -: standard output
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Write the account and single events to a file, in the format of 'lab run', for 'lab report' and
    /// --beside
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Show an account written by --out beside this one (may be given several times)
    #[arg(long, value_name = "FILE")]
    pub beside: Vec<PathBuf>,
    /// Whether to print the accounts as JSON.
    #[command(flatten)]
    pub json: JsonFlag,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// A smaller buffer loses events at once; a larger one is probably a typing error.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

fn parse_buffer(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if BUFFER_BYTES.contains(&bytes) => Ok(bytes),
        _ => Err(format!("{} is not between 64K and 1G", quote(text))),
    }
}

/// The result of tracing.
pub struct Seen {
    /// The accounts.
    pub explained: Vec<Explained>,
    /// The command's exit code.
    pub code: u8,
}

/// Printed instead of an empty table.
const NOTHING_MET: &str = "no I/O was traced: the command opened nothing, or all data was in the cache; the \
    I/O of other processes is traced only with --kernel\n";

impl ExplainArgs {
    /// The command line of one of our commands.
    pub fn words(&self) -> impl Iterator<Item = OsString> {
        iter::once("throughline".into()).chain(self.command.iter().cloned())
    }

    /// Traces the command by `trace`, and shows the account. `trace` returns `None` if only help was printed.
    ///
    /// # Errors
    /// If it cannot be traced, or the account cannot be written, or the command failed. `exit_bits` is set to
    /// the command's exit code.
    pub fn explain(
        &self,
        json: bool,
        out: &mut Output,
        exit_bits: &mut u8,
        trace: impl FnOnce(&mut u8) -> Result<Option<Seen>, Failure>,
    ) -> Result<(), Failure> {
        // Report unreadable files before the command runs.
        let mut beside = Vec::new();
        for path in &self.beside {
            beside.push(read(path)?);
        }
        // The same for files that cannot be written.
        let files = self.to.iter().chain(&self.out);
        for path in files.filter(|path| path.as_os_str() != "-") {
            check_output(path)?;
            let mut file = File::options();
            let writable = file.create(true).append(true).open(path);
            writable.doing(|| format!("cannot write {}", quote(path)))?;
        }
        let started = time::rfc3339(SystemTime::now()).unwrap_or_default();
        let Some(seen) = trace(exit_bits)? else {
            return Ok(());
        };
        self.show(json, out, &seen, &beside)?;
        if let Some(path) = &self.out {
            let words = self.command.iter().map(|word| word.to_string_lossy());
            let settings: BTreeMap<String, serde_json::Value> = [
                ("command".to_owned(), json!(words.collect::<Vec<_>>())),
                ("kernel".to_owned(), json!(self.kernel)),
            ]
            .into();
            Record::explained(seen.explained, &started, settings)
                .write(path)
                .doing(|| "cannot save the account")?;
        }
        if seen.code == 0 {
            return Ok(());
        }
        *exit_bits = seen.code;
        Err(Failure::Reported)
    }

    fn show(
        &self,
        json: bool,
        out: &mut Output,
        seen: &Seen,
        beside: &[Record],
    ) -> Result<(), Failure> {
        let mut accounts: Vec<&Account> = seen.explained.iter().map(|one| &one.account).collect();
        accounts.extend(beside.iter().flat_map(Record::accounts));
        let to_stdout = self.to.as_deref() == Some(Path::new("-"));
        let colours = match &self.to {
            Some(_) => to_stdout && out.colours(),
            None => io::stderr().is_terminal() && colours_wanted(),
        };
        let text = match json {
            true => {
                let all = json!({ "accounts": accounts });
                format!("{all:#}\n")
            }
            false if accounts.is_empty() => NOTHING_MET.to_owned(),
            false => table(&accounts, colours),
        };
        match &self.to {
            Some(_) if to_stdout => out.bytes(text.as_bytes()),
            Some(path) => {
                std::fs::write(path, text).doing(|| format!("cannot write {}", quote(path)))
            }
            // Standard error may be closed.
            None => {
                let _ = io::stderr().lock().write_all(text.as_bytes());
                Ok(())
            }
        }
    }
}

/// Runs one of our commands by `run`, with its options, and traces the events of its engine. `parsed` is its
/// command line, or `None` if the engine does not do its I/O in this process. The options before its name,
/// `outer`, are its defaults. Returns `None` if only help was printed.
///
/// # Errors
/// If it cannot be traced. If its command line is wrong, this was reported, and sets `exit_bits`.
pub fn ours<C>(
    parsed: Result<Option<(Globals, C)>, clap::Error>,
    outer: &Globals,
    exit_bits: &mut u8,
    run: impl FnOnce(Globals, C, Arc<Watch>) -> u8,
) -> Result<Option<Seen>, Failure> {
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            // Standard output or standard error may be closed.
            let _ = error.print();
            if error.exit_code() == 0 {
                return Ok(None);
            }
            note("for another program's I/O: throughline explain --kernel -- COMMAND");
            *exit_bits = u8::try_from(error.exit_code()).unwrap_or(2);
            return Err(Failure::Reported);
        }
    };
    let (inner, command) = parsed.ok_or_else(|| {
        Failure::Usage(
            "explain traces commands that do I/O in their own process, such as cp and mount; for \
             an existing mount use 'throughline status DIR', and for other programs 'explain --kernel'"
                .into(),
        )
    })?;
    let globals = inner.over(outer);
    if outer.log.is_none()
        && let Some(level) = globals.log
    {
        logging::start(level, globals.log_file.as_deref())?;
    }
    let watch = Arc::new(Watch::new());
    let code = run(globals, command, Arc::clone(&watch));
    Ok(Some(Seen {
        explained: watch.finish(),
        code,
    }))
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
