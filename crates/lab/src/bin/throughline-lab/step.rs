//! `lab step`: classifies the commit that is checked out, with the exit codes of `git bisect run`.

use clap::Args;
use throughline_face::unanswered::STEP_ABORT;
use throughline_lab::bisect::{Request, Sorted, end_steps, sort_checkout};

use crate::candidate::{CandidateArgs, Shown, now};
use crate::context::Context;
use crate::problem::{Doing, Failure};

/// Exit code for `git bisect run`: the commit is bad.
const EXIT_BAD: u8 = 1;
/// Exit code for `git bisect run`: skip the commit.
const EXIT_SKIP: u8 = 125;

/// Arguments of `lab step`.
#[derive(Args, Debug)]
pub(crate) struct StepArgs {
    /// The good commit, by a name that does not change during the bisection
    #[arg(long, value_name = "REV")]
    good: String,
    /// The bad commit. With it, a commit is bad from half of the change between the two, instead of from the
    /// threshold
    #[arg(long, value_name = "REV")]
    bad: Option<String>,
    /// Command that builds a commit; run by sh -c at the top of the checkout (for the good and bad commit, of
    /// a worktree)
    #[arg(long, value_name = "CMD")]
    build: String,
    /// Command that measures it, in the same place; its last line of standard output must be a number above 0
    #[arg(long, value_name = "CMD")]
    measure: String,
    #[command(flatten)]
    candidate: CandidateArgs,
    /// Remove the worktrees and all measurements, after 'git bisect run'
    #[arg(long)]
    end: bool,
}

/// Classifies the commit.
pub(crate) fn run(args: &StepArgs, context: &mut Context) -> Result<(), Failure> {
    context.exit_bits = STEP_ABORT;
    let cannot = "cannot classify the commit";
    let candidate = &args.candidate;
    let request = Request {
        dir: candidate.dir.clone(),
        good: args.good.clone(),
        bad: args.bad.clone(),
        terms: candidate.terms(&args.build, &args.measure),
    };
    let plan = request.plan().doing(|| cannot)?;
    let state = candidate.state.as_deref();
    if args.end {
        return end_steps(&candidate.dir, &plan, state, &now())
            .doing(|| "cannot remove the worktrees");
    }
    let shown = Shown::begin(context)?;
    let sorted = sort_checkout(
        &candidate.dir,
        &plan,
        candidate.limits(),
        state,
        &shown,
        &now(),
    );
    shown.end();
    if sorted.is_err() {
        context.interrupt.check()?;
    }
    let (verdict, code) = match sorted.doing(|| cannot)? {
        Sorted::Good => ("good", 0),
        Sorted::Bad => ("bad", EXIT_BAD),
        Sorted::Skip => (
            "skipped: it could not be built, measured or classified",
            EXIT_SKIP,
        ),
    };
    if !context.globals.quiet {
        let note = format!("the commit that is checked out is {verdict} (exit code {code})");
        context.complaints.note(&note);
    }
    context.exit_bits = code;
    match code {
        0 => Ok(()),
        _ => Err(Failure::Reported),
    }
}
