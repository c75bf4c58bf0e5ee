//! What a person at a terminal sees of long work; nothing where standard error is no terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar or a spinner, or neither.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// One that shows nothing.
    pub(crate) fn hidden() -> Progress {
        Progress {
            bar: ProgressBar::hidden(),
        }
    }

    /// Counts bytes; `total_bytes` makes a bar of it. Shown where standard error is a terminal and `quiet` is not asked.
    pub(crate) fn bytes(total_bytes: Option<u64>, quiet: bool) -> Progress {
        if quiet || !std::io::stderr().is_terminal() {
            return Progress::hidden();
        }
        let (bar, template) = match total_bytes {
            Some(total) => (
                ProgressBar::new(total),
                "{msg} {bar:30} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {eta}",
            ),
            None => (
                ProgressBar::new_spinner(),
                "{spinner} {msg} {binary_bytes} {binary_bytes_per_sec}",
            ),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar }
    }

    /// Counts rounds of an experiment, once it is known how many there will be.
    pub(crate) fn rounds(quiet: bool) -> Progress {
        let progress = Progress::words(quiet);
        progress.name("getting ready");
        progress
    }

    /// Says in words what is done, and for how long now.
    pub(crate) fn words(quiet: bool) -> Progress {
        let progress = Progress::bytes(None, quiet);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
            progress.bar.set_style(style);
        }
        progress
    }

    /// So many rounds are done.
    pub(crate) fn round(&self, done: usize, of: usize) {
        if self.bar.length() != Some(of as u64) {
            let template = "{pos} of {len} {bar:30} {elapsed}, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style);
            }
            self.bar.set_length(of as u64);
        }
        self.bar.set_position(done as u64);
    }

    /// What is being worked on.
    pub(crate) fn name(&self, name: &str) {
        if !self.bar.is_hidden() {
            self.bar.set_message(name.to_owned());
        }
    }

    /// More bytes are done.
    pub(crate) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Runs something that writes to the terminal, without the two disturbing each other.
    pub(crate) fn suspend<R>(&self, f: impl FnOnce() -> R) -> R {
        self.bar.suspend(f)
    }

    /// Takes it off the screen.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
