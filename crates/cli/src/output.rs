//! Standard output, and the messages on standard error.

use std::collections::HashSet;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::problem::Failure;

/// Buffered standard output. A closed pipe comes back as [`Failure::PipeClosed`].
pub(crate) struct Output {
    inner: BufWriter<Stdout>,
    /// Standard output is a terminal.
    pub(crate) terminal: bool,
}

impl Output {
    /// This process's standard output.
    pub(crate) fn new() -> Output {
        let stdout = io::stdout();
        Output {
            terminal: stdout.is_terminal(),
            inner: BufWriter::with_capacity(64 << 10, stdout),
        }
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.inner.write_all(bytes).map_err(Failure::output)
    }

    /// Writes a line.
    pub(crate) fn line(&mut self, line: impl AsRef<[u8]>) -> Result<(), Failure> {
        self.bytes(line.as_ref())?;
        self.bytes(b"\n")
    }

    /// Writes a value as pretty JSON and a line end.
    pub(crate) fn json(&mut self, value: &serde_json::Value) -> Result<(), Failure> {
        serde_json::to_writer_pretty(&mut self.inner, value)
            .map_err(|error| Failure::output(error.into()))?;
        self.line("")
    }

    /// Hands everything on.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.inner.flush().map_err(Failure::output)
    }

    /// Colours are wanted: a terminal, and nobody said no (<https://no-color.org>).
    pub(crate) fn colours(&self) -> bool {
        self.terminal && colours_wanted()
    }
}

/// Nobody said that they want none.
pub(crate) fn colours_wanted() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Messages on standard error, from any thread, and whether there was one.
///
/// What to do next is said once for each advice, however many files need it.
#[derive(Default)]
pub(crate) struct Complaints {
    any: AtomicBool,
    advised: Mutex<HashSet<String>>,
}

impl Complaints {
    /// Says a failure and remembers that there was one.
    pub(crate) fn say(&self, failure: &Failure) {
        self.any.store(true, Ordering::Relaxed);
        let mut message = failure.to_string();
        if let Some(next) = failure.next() {
            let mut advised = self.advised.lock().unwrap_or_else(PoisonError::into_inner);
            if advised.insert(next.to_owned()) {
                message = format!("{message}\n  next: {next}");
            }
        }
        note(&message);
    }

    /// Says something that is no failure.
    pub(crate) fn note(&self, message: &str) {
        note(message);
    }

    /// A failure was said.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }
}

/// Says something on standard error.
pub(crate) fn note(message: &str) {
    say(&format!("throughline: {message}"));
}

/// The same, under another name than ours.
pub(crate) fn say(message: &str) {
    // It may be closed; then there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{message}");
}
