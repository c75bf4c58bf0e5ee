//! Progress of long work, on a terminal. Nothing is shown if standard error is not a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar, a spinner, or nothing.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Shows nothing.
    pub fn hidden() -> Progress {
        Progress {
            bar: ProgressBar::hidden(),
        }
    }

    /// Counts bytes; with `total_bytes`, as a bar. Shown if standard error is a terminal, unless `quiet`.
    pub fn bytes(total_bytes: Option<u64>, quiet: bool) -> Progress {
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

    /// Counts rounds of an experiment, once their number is known.
    pub fn rounds(quiet: bool) -> Progress {
        let progress = Progress::words(quiet);
        progress.name("preparing");
        progress
    }

    /// Shows the current activity and the elapsed time.
    pub fn words(quiet: bool) -> Progress {
        let progress = Progress::bytes(None, quiet);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}") {
            progress.bar.set_style(style);
        }
        progress
    }

    /// Sets the number of completed rounds.
    pub fn round(&self, done: usize, of: usize) {
        if self.bar.length() != Some(of as u64) {
            let template = "{pos} of {len} {bar:30} {elapsed}, {eta} left";
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style);
            }
            self.bar.set_length(of as u64);
        }
        self.bar.set_position(done as u64);
    }

    /// Sets the current activity.
    pub fn name(&self, name: &str) {
        if !self.bar.is_hidden() {
            self.bar.set_message(name.to_owned());
        }
    }

    /// Sets the number of completed bytes, and of all.
    pub fn at(&self, done: u64, of: u64) {
        if self.bar.length() != Some(of) {
            self.bar.set_length(of);
        }
        self.bar.set_position(done);
    }

    /// Adds completed bytes.
    pub fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Runs `f`, which may write to the terminal, with the progress display suspended.
    pub fn suspend<R>(&self, f: impl FnOnce() -> R) -> R {
        self.bar.suspend(f)
    }

    /// Removes the display.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
