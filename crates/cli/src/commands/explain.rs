//! `explain`: a command of ours, or with `--kernel` any, and what the I/O path did meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use clap::{Args, Parser};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use throughline_lab::explain::kernel::{Failed, Order, Watched, watch};
use throughline_lab::explain::ours::Watch;
use throughline_lab::explain::{Account, Explained, accounts_in, record_of, table};
use throughline_lab::record::Record;

use crate::args::{Cli, Command, JsonFlag};
use crate::context::{Context, Engine, Globals};
use crate::problem::{Doing, Failure, Problem};
use crate::text::{parse_size, quote};
use crate::{conclude, logging, time};

/// Arguments of `explain`.
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// Watch the kernel's I/O path, under any command; for root
    #[arg(long)]
    kernel: bool,
    /// Watch this block device, or the one below the file system that this place is on, and what anybody does with it;
    /// instead of those that the command turns out to have to do with (may be given several times)
    #[arg(long, value_name = "PLACE", requires = "kernel")]
    device: Vec<PathBuf>,
    /// Memory for events, for each processor
    #[arg(long, value_name = "SIZE", requires = "kernel", default_value = "4M", value_parser = parse_buffer)]
    buffer: u64,
    /// Write the account to a file instead of standard error; - is standard output
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Keep the account and single events in a file, as 'lab run' keeps its results: for 'lab report', and for --beside
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show the account that --out kept beside this one (may be given several times)
    #[arg(long, value_name = "FILE")]
    beside: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Less loses events at once, more is a slip of the pen.
const BUFFER_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=1 << 30;

fn parse_buffer(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if BUFFER_BYTES.contains(&bytes) => Ok(bytes),
        _ => Err(format!("{} is not between 64K and 1G", quote(text))),
    }
}

/// The kernel could not be watched.
const EXIT_NOT_WATCHED: u8 = 125;
/// The command could not be run.
const EXIT_NOT_RUN: u8 = 126;
/// There is no such command.
const EXIT_NO_COMMAND: u8 = 127;

/// Runs the command and tells.
pub(crate) fn run(args: &ExplainArgs, context: &mut Context) -> Result<(), Failure> {
    // What cannot be read is said before anything is done.
    let mut beside = Vec::new();
    for path in &args.beside {
        beside.push(read(path)?);
    }
    let started = time::rfc3339(SystemTime::now()).unwrap_or_default();
    let watched = match args.kernel {
        true => Some(kernel(args, context)?),
        false => ours(args, context)?,
    };
    let Some((explained, code)) = watched else {
        return Ok(());
    };
    show(args, context, &explained, &beside)?;
    if let Some(path) = &args.out {
        let words = args.command.iter().map(|word| word.to_string_lossy());
        let settings: BTreeMap<String, serde_json::Value> = [
            ("command".to_owned(), json!(words.collect::<Vec<_>>())),
            ("kernel".to_owned(), json!(args.kernel)),
        ]
        .into();
        record_of(explained, &started, settings)
            .write(path)
            .map_err(lab_problem)
            .doing(|| "cannot keep the account")?;
    }
    if code == 0 {
        return Ok(());
    }
    context.exit_bits = code;
    Err(Failure::Said)
}

fn lab_problem(error: throughline_lab::Error) -> Problem {
    Problem::new(error.to_string())
}

fn read(path: &Path) -> Result<Record, Failure> {
    let cannot = || format!("cannot show {} beside it", quote(path));
    let record = Record::read(path).map_err(lab_problem).doing(cannot)?;
    if accounts_in(&record).is_empty() {
        return Err(Problem::new("it holds no account")
            .with_next("make one: throughline explain --out FILE …")
            .met(cannot()));
    }
    Ok(record)
}

fn show(
    args: &ExplainArgs,
    context: &mut Context,
    explained: &[Explained],
    beside: &[Record],
) -> Result<(), Failure> {
    let mut accounts: Vec<&Account> = explained.iter().map(|one| &one.account).collect();
    accounts.extend(beside.iter().flat_map(accounts_in));
    let to_stdout = args.to.as_deref() == Some(Path::new("-"));
    let colours = match &args.to {
        Some(_) => to_stdout && context.out.colours(),
        None => io::stderr().is_terminal() && crate::output::colours_wanted(),
    };
    let text = match context.json {
        true => serde_json::to_string_pretty(&json!({ "accounts": accounts }))
            .map(|text| text + "\n")
            .map_err(io::Error::from)
            .doing(|| "cannot show the account")?,
        false if accounts.is_empty() => "no I/O path was met: no image was opened, no device touched; what was read may have been \
             in the cache\n"
            .to_owned(),
        false => table(&accounts, colours),
    };
    match &args.to {
        Some(_) if to_stdout => context.out.bytes(text.as_bytes()),
        Some(path) => std::fs::write(path, text).doing(|| format!("cannot write {}", quote(path))),
        // It may be closed; then there is nobody to tell.
        None => {
            let _ = io::stderr().lock().write_all(text.as_bytes());
            Ok(())
        }
    }
}

/// What was seen, and the command's exit code.
type Seen = (Vec<Explained>, u8);

/// One of our own commands, in this process; `None` where only its help was asked for.
fn ours(args: &ExplainArgs, context: &mut Context) -> Result<Option<Seen>, Failure> {
    let words = std::iter::once("throughline".into()).chain(args.command.iter().cloned());
    let inner = match Cli::try_parse_from(words) {
        Ok(inner) => inner,
        Err(error) => {
            // As everywhere, where nobody reads it, nobody is told.
            let _ = error.print();
            if error.exit_code() == 0 {
                return Ok(None);
            }
            context
                .complaints
                .note("for another program's I/O: throughline explain --kernel -- COMMAND");
            context.exit_bits = u8::try_from(error.exit_code()).unwrap_or(2);
            return Err(Failure::Said);
        }
    };
    if !opens_images(&inner.command) {
        return Err(Failure::Usage(
            "explain watches commands that work on images, such as cp and 'lab run FILE.toml'; for a mount see 'throughline status', for everything \
             else 'explain --kernel'"
                .into(),
        ));
    }
    let globals = over(inner.globals, &context.globals);
    if context.globals.log.is_none()
        && let Some(level) = globals.log
    {
        logging::start(level, globals.log_file.as_deref())?;
    }
    let json = inner.json || inner.command.json();
    let watch = Arc::new(Watch::new());
    let mut explained = Context::new(globals, json);
    explained.images.watch = Some(Arc::clone(&watch));
    let result = super::run(inner.command, &mut explained);
    let code = conclude(result, &mut explained);
    Ok(Some((watch.finish(), code)))
}

/// Whether a command's I/O goes through images that it opens itself.
fn opens_images(command: &Command) -> bool {
    match command {
        Command::Info(_)
        | Command::Ls(_)
        | Command::Tree(_)
        | Command::Stat(_)
        | Command::Cat(_)
        | Command::Cp(_)
        | Command::Rm(_)
        | Command::Mkdir(_)
        | Command::Mv(_)
        | Command::Ln(_)
        | Command::Readlink(_)
        | Command::Chmod(_)
        | Command::Chown(_)
        | Command::Touch(_)
        | Command::Truncate(_)
        | Command::Df(_)
        | Command::Du(_) => true,
        Command::Lab(args) => args.runs_workload(),
        Command::Tune(_)
        | Command::Replay(_)
        | Command::Mount(_)
        | Command::Umount(_)
        | Command::Status(_)
        | Command::InstallFuse2fs(_)
        | Command::InstallHelpers(_)
        | Command::Explain(_)
        | Command::Completions(_)
        | Command::Man(_) => false,
    }
}

/// The options that were given behind the command's name, and where there are none, those before.
fn over(inner: Globals, outer: &Globals) -> Globals {
    let Globals {
        offset,
        engine,
        direct,
        host_cache,
        cache,
        dirty_limit,
        dirty_background,
        readahead,
        bio_target,
        commit,
        no_replay,
        log,
        log_file,
        quiet,
    } = inner;
    Globals {
        offset: if offset == 0 { outer.offset } else { offset },
        engine: if engine == Engine::Auto {
            outer.engine
        } else {
            engine
        },
        direct: direct || outer.direct,
        host_cache: host_cache || outer.host_cache,
        cache: cache.or(outer.cache),
        dirty_limit: dirty_limit.or(outer.dirty_limit),
        dirty_background: dirty_background.or(outer.dirty_background),
        readahead: readahead.or(outer.readahead),
        bio_target: bio_target.or(outer.bio_target),
        commit: commit.or(outer.commit),
        no_replay: no_replay || outer.no_replay,
        log: log.or(outer.log),
        log_file: log_file.or_else(|| outer.log_file.clone()),
        quiet: quiet || outer.quiet,
    }
}

/// Any command, over the kernel's own I/O path.
fn kernel(args: &ExplainArgs, context: &mut Context) -> Result<Seen, Failure> {
    let signals = Signals::new().doing(|| "cannot watch for signals")?;
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
        Ok(Watched { status, explained }) => Ok((explained, code_of(status))),
        Err(Failed::Trace(error)) => {
            context.exit_bits = EXIT_NOT_WATCHED;
            Err(lab_problem(error).met("cannot watch the kernel"))
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

/// As a shell has it.
fn code_of(status: ExitStatus) -> u8 {
    let by_signal = || status.signal().map(|signal| 128 + signal);
    let code = status.code().or_else(by_signal);
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// Signals do not end us while the command runs: it ends, and then what was seen is told and nothing of ours stays behind.
struct Signals {
    handed_on: Arc<AtomicUsize>,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        let handed_on = Arc::new(AtomicUsize::new(0));
        // That of Ctrl-C goes to the command by itself, from the terminal.
        flag::register(SIGINT, Arc::default())?;
        for signal in [SIGTERM, SIGHUP] {
            let number = usize::try_from(signal).unwrap_or_default();
            flag::register_usize(signal, Arc::clone(&handed_on), number)?;
        }
        Ok(Signals { handed_on })
    }

    /// A signal that came to us alone.
    fn to_hand_on(&self) -> Option<i32> {
        match self.handed_on.swap(0, Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_before_hold_unless_there_are_others_behind() {
        let outer = Globals {
            direct: true,
            cache: Some(1),
            offset: 512,
            ..Globals::default()
        };
        let inner = Globals {
            cache: Some(2),
            engine: Engine::Threads,
            ..Globals::default()
        };
        let all = over(inner, &outer);
        assert_eq!((all.direct, all.cache, all.offset), (true, Some(2), 512));
        assert_eq!(all.engine, Engine::Threads);
    }

    #[test]
    fn a_commands_end_is_a_shells() {
        assert_eq!(code_of(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(code_of(ExitStatus::from_raw(9)), 137);
    }
}
