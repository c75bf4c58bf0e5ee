//! `lab bisect`: finds the commit that made it slower.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use throughline_face::command_line::JsonFlag;
use throughline_forms::time::rfc3339;
use throughline_lab::bisect::{Answer, Bisection, Limits, Outcome, Plan, Terms, Watch};

use crate::context::Context;
use crate::interrupt::Interrupt;
use crate::output::note;
use crate::problem::{Doing, Failure};
use crate::progress::Progress;

/// Exit code: one of several commits made the change; those between could not be built or measured.
const EXIT_SEVERAL: u8 = 3;
/// Exit code: the ends do not differ, or not measurably.
const EXIT_NO_DIFFERENCE: u8 = 4;
/// Exit code: the commit found shows no change compared with its parent.
const EXIT_UNCONFIRMED: u8 = 5;

/// Arguments of `lab bisect`.
#[derive(Args, Debug)]
pub(crate) struct BisectArgs {
    /// The good commit, an ancestor of the bad one
    #[arg(long, value_name = "REV")]
    good: String,
    /// The bad commit
    #[arg(long, value_name = "REV")]
    bad: String,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    limits: Limits,
    /// A directory in the git repository
    #[arg(short = 'C', value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Directory for worktrees, logs and measurements, instead of one below
    /// $XDG_STATE_HOME/throughline/bisect (by default ~/.local/state/throughline/bisect)
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Discard the measurements of an earlier run of the same command
    #[arg(long)]
    restart: bool,
    /// Remove the unfinished bisection of this command and its worktrees
    #[arg(long, conflicts_with = "restart")]
    abandon: bool,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Runs the bisection.
pub(crate) fn run(args: &BisectArgs, context: &mut Context) -> Result<(), Failure> {
    let plan = Plan::of(&args.dir, &args.good, &args.bad, &args.terms);
    let plan = plan.map_err(|error| Failure::Usage(error.to_string()))?;
    let cannot = "cannot bisect";
    let folder = args.state.as_deref();
    let bisection = Bisection::open(plan, args.limits, folder, args.restart, &now());
    let bisection = bisection.doing(|| cannot)?;
    if args.abandon {
        return bisection.abandon().doing(|| "cannot remove the bisection");
    }
    if !context.globals.quiet {
        context.complaints.note(&bisection.known());
    }
    context.interrupt.arm()?;
    let shown = Shown {
        progress: Progress::words(context.globals.quiet),
        interrupt: context.interrupt.clone(),
        quiet: context.globals.quiet,
    };
    let outcome = bisection.run(&shown, &now);
    shown.progress.clear();
    if context.interrupt.check().is_err() && outcome.is_err() {
        context
            .complaints
            .note("the same command continues it; with --abandon it removes it");
        return Err(Failure::Interrupted);
    }
    let outcome = outcome.doing(|| cannot)?;
    show(&outcome, context)
}

/// The current time in RFC 3339.
fn now() -> String {
    rfc3339(SystemTime::now()).unwrap_or_default()
}

/// Shows progress on standard error: a line that is updated on a terminal, and a permanent line per commit.
struct Shown {
    progress: Progress,
    interrupt: Interrupt,
    quiet: bool,
}

impl Watch for Shown {
    fn doing(&self, what: &str) {
        self.progress.name(what);
    }

    fn note(&self, text: &str) {
        if !self.quiet {
            self.progress.suspend(|| note(text));
        }
    }

    fn check(&self) -> throughline_lab::Result<()> {
        let interrupted = |_| throughline_lab::Error::new("interrupted");
        self.interrupt.check().map_err(interrupted)
    }
}

/// Prints the outcome and sets its exit code.
fn show(outcome: &Outcome, context: &mut Context) -> Result<(), Failure> {
    if context.json {
        context.out.json(outcome)?;
    } else {
        context.out.line(outcome.to_string().trim_end())?;
    }
    context.exit_bits = match outcome.found.verdict {
        Answer::Commit => return Ok(()),
        Answer::Several => EXIT_SEVERAL,
        Answer::Unconfirmed => EXIT_UNCONFIRMED,
        Answer::NoDifference | Answer::NotEnough | Answer::TooVague => EXIT_NO_DIFFERENCE,
        Answer::Better => {
            return Err(Failure::Usage(
                "the bad commit is better than the good one. If lower numbers are better, use --better \
                 lower; to find the commit that made it better, reverse --better"
                    .into(),
            ));
        }
    };
    Err(Failure::Reported)
}
