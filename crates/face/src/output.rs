//! Standard output, and messages on standard error.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use throughline::internal::without_url_secrets;
use throughline_locks::Mutex;

use crate::problem::Failure;
use crate::text::printable;

/// Buffered standard output. If the pipe is closed, writing returns [`Failure::PipeClosed`].
pub struct Output {
    inner: BufWriter<Stdout>,
    /// Whether standard output is a terminal.
    pub terminal: bool,
}

impl Output {
    /// This process's standard output.
    pub fn stdout() -> Output {
        let stdout = io::stdout();
        Output {
            terminal: stdout.is_terminal(),
            inner: BufWriter::with_capacity(64 << 10, stdout),
        }
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.inner.write_all(bytes).map_err(Failure::output)
    }

    /// Writes a line.
    pub fn line(&mut self, line: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.bytes(line.as_ref())?;
        self.bytes(b"\n")
    }

    /// Writes a name. On a terminal, unsafe characters are replaced.
    pub fn name(&mut self, name: impl AsRef<OsStr>) -> Result<(), Failure> {
        let shown = printable(name.as_ref(), self.terminal);
        self.bytes(&shown)
    }

    /// Like [`Output::name`], followed by a newline.
    pub fn name_line(&mut self, name: impl AsRef<OsStr>) -> Result<(), Failure> {
        self.name(name)?;
        self.bytes(b"\n")
    }

    /// Writes a value as pretty JSON, with a newline.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer_pretty(&mut self.inner, value)
            .map_err(|error| Failure::output(error.into()))?;
        self.line("")
    }

    /// Flushes the buffer.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.inner.flush().map_err(Failure::output)
    }

    /// Whether to use colours: on a terminal, unless disabled (<https://no-color.org>).
    pub fn colours(&self) -> bool {
        self.terminal && colours_wanted()
    }
}

/// Whether colours are not disabled by the environment.
pub fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Prints messages on standard error, from any thread, and records whether there was a failure.
///
/// Each hint for the next step is printed once, however many files it applies to.
#[derive(Default)]
pub struct Complaints {
    any: AtomicBool,
    advised: Mutex<HashSet<String>>,
}

impl Complaints {
    /// Reports a failure and records it.
    pub fn say(&self, failure: &Failure) {
        self.any.store(true, Ordering::Relaxed);
        let mut message = failure.to_string();
        if let Some(next) = failure.next() {
            let mut advised = self.advised.lock();
            if advised.insert(next.to_owned()) {
                message = format!("{message}\n  next: {next}");
            }
        }
        note(&message);
    }

    /// Prints a message that is not a failure.
    pub fn note(&self, message: &str) {
        note(message);
    }

    /// Whether a failure was reported.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }
}

/// Prints a message on standard error.
pub fn note(message: &str) {
    say(&format!("throughline: {message}"));
}

/// Prints a message without the program's name, and without the secrets of URLs.
pub fn say(message: &str) {
    let message = without_url_secrets(message);
    // Standard error may be closed.
    let _ = writeln!(io::stderr().lock(), "{message}");
}

/// Prints clap's message: an error, help or the version.
pub fn misread(error: &clap::Error) {
    let plain = error.render().to_string();
    match without_url_secrets(&plain) {
        // Standard output or standard error may be closed.
        clean if clean == plain || !error.use_stderr() => drop(error.print()),
        clean => say(clean.trim_end()),
    }
}
