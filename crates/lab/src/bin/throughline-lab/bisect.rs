//! `lab bisect`: finds the commit that made it slower.

use clap::Args;
use throughline_face::command_line::JsonFlag;
use throughline_lab::bisect::{Bisection, Found, Outcome, Plan, Request, Terms};

use crate::candidate::{CandidateArgs, Shown, now};
use crate::context::Context;
use crate::problem::{Doing, Failure};
use crate::text::quote;

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
    /// Command that builds a commit; run by sh -c in a worktree of it
    #[arg(long, value_name = "CMD")]
    build: String,
    /// Command that measures it, in the same place; its last line of standard output must be a number above 0
    #[arg(long, value_name = "CMD")]
    measure: String,
    #[command(flatten)]
    candidate: CandidateArgs,
    /// Maximum pairs of runs of the commit found and its parent, to determine the size of the change; stops
    /// earlier when the size is known to within a fifth. 0: use only the pairs of the search
    #[arg(
        long,
        value_name = "N",
        default_value_t = 60,
        value_parser = clap::value_parser!(u32).range(..=100_000)
    )]
    size_pairs: u32,
    /// Follow only the first parent of merges: finds the merge that introduced the change
    #[arg(long)]
    first_parent: bool,
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
    let (plan, folder) = (plan(args)?, args.candidate.state.as_deref());
    let cannot = "cannot bisect";
    let limits = args.candidate.limits();
    let bisection = Bisection::open(plan, limits, folder, args.restart, &now()).doing(|| cannot)?;
    if args.abandon {
        return bisection.abandon().doing(|| "cannot remove the bisection");
    }
    if !context.globals.quiet {
        say_what_is_known(&bisection, context);
    }
    let shown = Shown::begin(context)?;
    let outcome = bisection.run(&shown, &now);
    shown.end();
    if context.interrupt.check().is_err() && outcome.is_err() {
        context
            .complaints
            .note("the same command continues it; with --abandon it removes it");
        return Err(Failure::Interrupted);
    }
    let outcome = outcome.doing(|| cannot)?;
    show(&outcome, context)
}

fn say_what_is_known(bisection: &Bisection, context: &Context) {
    let (pairs, folder) = (bisection.pairs_before(), quote(bisection.folder()));
    let began = bisection.began();
    if bisection.has_ended() {
        context.complaints.note(&format!(
            "using the measurements of an earlier run (started {began}, {folder}); --restart discards them"
        ));
    } else if pairs > 0 {
        context.complaints.note(&format!(
            "continuing the bisection started {began}: {pairs} pairs are measured ({folder})"
        ));
    } else {
        context
            .complaints
            .note(&format!("logs and state are in {folder}"));
    }
}

fn plan(args: &BisectArgs) -> Result<Plan, Failure> {
    let request = Request {
        dir: args.candidate.dir.clone(),
        good: args.good.clone(),
        bad: args.bad.clone(),
        terms: Terms {
            size_pairs: args.size_pairs as usize,
            first_parent: args.first_parent,
            ..args.candidate.terms(&args.build, &args.measure)
        },
    };
    request
        .plan()
        .map_err(|error| Failure::Usage(error.to_string()))
}

/// Prints the outcome and sets its exit code.
fn show(outcome: &Outcome, context: &mut Context) -> Result<(), Failure> {
    if context.json {
        context.out.json(outcome)?;
    } else {
        context.out.line(outcome.to_string().trim_end())?;
    }
    context.exit_bits = match &outcome.found {
        Found::Commit { .. } => return Ok(()),
        Found::Several { .. } => EXIT_SEVERAL,
        Found::Unconfirmed { .. } => EXIT_UNCONFIRMED,
        Found::NoDifference(_) | Found::NotEnough(_) | Found::TooVague(_) => EXIT_NO_DIFFERENCE,
        Found::Better(_) => {
            return Err(Failure::Usage(
                "the bad commit is better than the good one. If lower numbers are better, use --better \
                 lower; to find the commit that made it better, reverse --better"
                    .into(),
            ));
        }
    };
    Err(Failure::Reported)
}
