//! Output of `tracing` messages: to the terminal, to a file or to the system log.
//!
//! A command logs nothing unless `--log` is given; failures are reported regardless. The server of a mount
//! logs warnings: to standard error while a terminal waits for it, then to syslog(3). With `--log-file`,
//! everything goes to that file. No line holds the secret of a URL, whichever crate wrote it.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use syslog_tracing::{Facility, Options, Syslog};
use throughline::internal::without_url_secrets;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::{MakeWriter, MakeWriterExt};

use crate::precious::check_output;
use crate::problem::{Doing, Failure};
use crate::text::quote;

/// Whether standard error must no longer be used.
static LEFT_TERMINAL: AtomicBool = AtomicBool::new(false);

/// A parser for clap: a level by its name.
pub fn level_parser() -> impl TypedValueParser<Value = LevelFilter> {
    let names = ["off", "error", "warn", "info", "debug", "trace"];
    PossibleValuesParser::new(names).try_map(|name| name.parse::<LevelFilter>())
}

/// Starts logging. Must be called only once.
pub fn start(level: LevelFilter, file: Option<&Path>) -> Result<(), Failure> {
    if level == LevelFilter::OFF {
        return Ok(());
    }
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false);
    let started = match file {
        Some(path) => {
            check_output(path)?;
            let file = std::fs::File::options()
                .create(true)
                .append(true)
                .open(path)
                .doing(|| format!("cannot open the log {}", quote(path)))?;
            log.with_writer(Clean(file)).try_init()
        }
        None => {
            // It connects now, as a server may not do so later. A process can have only one.
            let options = Options::LOG_PID | Options::LOG_NDELAY;
            let system = Syslog::new(c"throughline", options, Facility::Daemon);
            let terminal = io::stderr.with_filter(|_| !LEFT_TERMINAL.load(Ordering::Relaxed));
            match system {
                Some(system) => log
                    .without_time()
                    .with_writer(Clean(terminal.or_else(system)))
                    .try_init(),
                None => log.without_time().with_writer(Clean(terminal)).try_init(),
            }
        }
    };
    started.map_err(|error| Failure::plain(format!("cannot start the log: {error}")))?;
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tracing::error!(%panic, "a bug in this program");
        if !LEFT_TERMINAL.load(Ordering::Relaxed) {
            usual(panic);
        }
    }));
    Ok(())
}

/// Sends messages for standard error to the system log from now on.
pub fn leave_terminal() {
    LEFT_TERMINAL.store(true, Ordering::Relaxed);
}

/// Leaves the secrets of URLs out of messages. Each is written at once.
struct Clean<M>(M);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Clean<M> {
    type Writer = Clean<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Clean(self.0.make_writer())
    }

    fn make_writer_for(&'a self, of: &tracing::Metadata<'_>) -> Self::Writer {
        Clean(self.0.make_writer_for(of))
    }
}

impl<W: Write> Write for Clean<W> {
    fn write(&mut self, message: &[u8]) -> io::Result<usize> {
        let clean = without_url_secrets(&String::from_utf8_lossy(message));
        self.0.write_all(clean.as_bytes())?;
        Ok(message.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
