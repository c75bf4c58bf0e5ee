//! Options of `lab bisect` for building and measuring commits, and the progress display.

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, ValueEnum};
use throughline_forms::time::rfc3339;
use throughline_lab::bisect::{Limits, Outlook, Terms, Update, Watch};
use throughline_lab::record;

use crate::context::Context;
use crate::interrupt::Interrupt;
use crate::output::note;
use crate::percent::percent;
use crate::problem::Failure;
use crate::progress::Progress;

/// Typical number of pairs per commit, to estimate the time left.
const PAIRS_GUESS: f64 = 20.0;

/// Options for building and measuring commits.
#[derive(Args, Debug)]
pub(crate) struct CandidateArgs {
    /// A directory in the git repository
    #[arg(short = 'C', value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Whether higher or lower numbers are better
    #[arg(long, value_name = "WAY", default_value = "higher")]
    better: Way,
    /// A change up to this size, in percent, counts as none
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = threshold)]
    threshold: f64,
    /// Required confidence of the answer, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, value_parser = confidence)]
    confidence: f64,
    /// Maximum pairs of runs, one of the good commit and one of the candidate, to classify a candidate
    #[arg(
        long,
        value_name = "N",
        default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    max_pairs: u32,
    /// A build that takes longer counts as failed
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 7200,
        value_parser = clap::value_parser!(u64).range(1..=MAX_LIMIT_S)
    )]
    build_timeout: u64,
    /// A measurement that takes longer counts as failed
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 3600,
        value_parser = clap::value_parser!(u64).range(1..=MAX_LIMIT_S)
    )]
    measure_timeout: u64,
    /// Directory for worktrees, logs and measurements, instead of one below
    /// $XDG_STATE_HOME/throughline/bisect (by default ~/.local/state/throughline/bisect)
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
}

/// Maximum limit for one run: 31 days.
const MAX_LIMIT_S: u64 = 31 * 24 * 3600;

/// The direction in which a number is better.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Way {
    /// Higher is better, as for throughput
    Higher,
    /// Lower is better, as for time
    Lower,
}

impl From<Way> for record::Better {
    fn from(way: Way) -> record::Better {
        match way {
            Way::Higher => record::Better::Higher,
            Way::Lower => record::Better::Lower,
        }
    }
}

fn threshold(text: &str) -> Result<f64, String> {
    match percent(text)? {
        percent if percent <= 90.0 => Ok(percent),
        _ => Err("the threshold must be 0 to 90 percent".to_owned()),
    }
}

fn confidence(text: &str) -> Result<f64, String> {
    match percent(text)? {
        percent if (60.0..=99.9999).contains(&percent) => Ok(percent),
        _ => Err("the confidence must be 60 to 99.9999 percent".to_owned()),
    }
}

impl CandidateArgs {
    /// The time limits for commands.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            build: Duration::from_secs(self.build_timeout),
            measure: Duration::from_secs(self.measure_timeout),
        }
    }

    /// How to build, measure and judge a commit in its checkout.
    pub(crate) fn terms(&self, build: &str, measure: &str) -> Terms {
        Terms {
            build: build.to_owned(),
            measure: measure.to_owned(),
            better: self.better.into(),
            threshold_percent: self.threshold,
            confidence: self.confidence / 100.0,
            max_pairs: self.max_pairs as usize,
            size_pairs: 0,
            first_parent: false,
        }
    }
}

/// The current time in RFC 3339.
pub(crate) fn now() -> String {
    rfc3339(SystemTime::now()).unwrap_or_default()
}

/// Shows progress on standard error: a line that is updated on a terminal, and a permanent line per commit.
pub(crate) struct Shown {
    progress: Progress,
    interrupt: Interrupt,
    quiet: bool,
    /// The last step that was started.
    step: Cell<usize>,
}

impl Shown {
    /// Creates the display, and arms the handler for Ctrl-C.
    pub(crate) fn begin(context: &Context) -> Result<Shown, Failure> {
        context.interrupt.arm()?;
        let quiet = context.globals.quiet;
        Ok(Shown {
            progress: Progress::words(quiet),
            interrupt: context.interrupt.clone(),
            quiet,
            step: Cell::new(0),
        })
    }

    /// Clears the updated line.
    pub(crate) fn end(&self) {
        self.progress.clear();
    }

    /// Prints a permanent line.
    fn line(&self, text: &str) {
        if !self.quiet {
            self.progress.suspend(|| note(text));
        }
    }
}

/// The time left, such as `, about 4 min left`; empty if nothing is known yet.
fn left(outlook: &Outlook, pairs: usize, most: usize) -> String {
    let more = outlook.steps.saturating_sub(outlook.step) as f64;
    // A commit that needed more pairs than expected will probably need half as many again.
    let (done, rest) = (pairs as f64, most.saturating_sub(pairs) as f64);
    let here = (PAIRS_GUESS - done).max(done / 2.0).min(rest);
    let seconds = more * (outlook.build_s + PAIRS_GUESS * outlook.pair_s) + here * outlook.pair_s;
    if outlook.pair_s <= 0.0 {
        return String::new();
    }
    let text = match seconds.ceil() as u64 {
        s @ ..=90 => format!("{s} s"),
        s @ 91..=5400 => format!("{} min", s.div_ceil(60)),
        s => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
    };
    format!(", about {text} left")
}

impl Watch for Shown {
    fn report(&self, outlook: &Outlook, what: Update<'_>) {
        self.step.set(outlook.step);
        let step = format!("step {} of about {}: ", outlook.step, outlook.steps);
        match what {
            Update::Note(text) => self.line(text),
            Update::Building(commit) => self
                .progress
                .name(&format!("{step}building {}", commit.short)),
            Update::Measuring {
                commit,
                pairs,
                most,
            } => self.progress.name(&format!(
                "{step}{}, pair {} of at most {most}{}",
                commit.short,
                pairs + 1,
                left(outlook, pairs, most)
            )),
            Update::Step(done) => {
                let level = done
                    .level
                    .map(|level| format!(" {level}"))
                    .unwrap_or_default();
                let why = done
                    .why
                    .as_ref()
                    .map(|why| format!(": {why}"))
                    .unwrap_or_default();
                self.line(&format!(
                    "{step}{} {}{level}{why}",
                    done.commit.short,
                    done.mark.name()
                ));
            }
        }
    }

    fn check(&self) -> throughline_lab::Result<()> {
        let interrupted = |_| throughline_lab::Error::new("interrupted");
        self.interrupt.check().map_err(interrupted)
    }
}
