//! `lab gate`: a comparison for scripts, with the answer as exit code.

use clap::Args;
use serde_json::json;
use throughline_face::command_line::JsonFlag;
use throughline_face::unanswered::{GATE_DATA, GATE_USAGE};
use throughline_lab::Question;
use throughline_lab::compare::{Gate, Limits, Outcome};
use throughline_lab::percent::percent;
use throughline_lab::stats::Until;

use crate::context::Context;
use crate::problem::{Doing, Failure};
use crate::sides::SidesArgs;
use crate::text::quote;

/// Exit code: worse than allowed.
const EXIT_REGRESSION: u8 = 1;
/// Exit code: the samples do not suffice for an answer.
const EXIT_NOT_ENOUGH: u8 = 2;

/// Arguments of `lab gate`.
#[derive(Args, Debug)]
pub(crate) struct GateArgs {
    #[command(flatten)]
    sides: SidesArgs,
    /// Allowed regression of every quantity without its own limit, in percent
    #[arg(long, value_name = "PERCENT", value_parser = percent, required_unless_present = "limit")]
    max_regression: Option<f64>,
    /// Allowed regression of one quantity, in percent: throughput=2; may be given several times. Without
    /// --max-regression, only these quantities are judged
    #[arg(long, value_name = "QUANTITY=PERCENT", value_parser = parse_limit)]
    limit: Vec<(String, f64)>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Compares and sets the exit code.
pub(crate) fn run(args: &GateArgs, context: &mut Context) -> Result<(), Failure> {
    context.exit_bits = GATE_DATA;
    let outcome = answer(args, context).inspect_err(|failure| {
        if matches!(failure, Failure::Usage(_)) {
            context.exit_bits = GATE_USAGE;
        }
    })?;
    context.exit_bits = match outcome {
        Outcome::Fine => return Ok(()),
        Outcome::Regression => EXIT_REGRESSION,
        Outcome::NotEnough => EXIT_NOT_ENOUGH,
    };
    Err(Failure::Reported)
}

fn answer(args: &GateArgs, context: &mut Context) -> Result<Outcome, Failure> {
    let limits = Limits {
        max_regression_percent: args.max_regression,
        by_quantity: args.limit.iter().cloned().collect(),
    };
    let ends = |quantity: &str| {
        let limit = limits
            .of(quantity)
            .ok_or_else(|| Failure::Usage(format!("no limit is given for {}", quote(quantity))))?;
        Ok(Until::Beside {
            loss_percent: limit,
        })
    };
    let threshold = Question::DEFAULT_THRESHOLD_PERCENT;
    let comparison = args
        .sides
        .compared(limits.quantities(), threshold, &ends, context)?;
    let gate = Gate::of(&comparison, &limits).doing(|| "cannot check the limits")?;
    if context.json {
        let value = json!({ "gate": gate, "comparison": comparison });
        context.out.json(&value)?;
    } else {
        context.out.line(format!("{comparison}\n{gate}"))?;
    }
    context.out.flush()?;
    Ok(gate.outcome)
}

fn parse_limit(text: &str) -> Result<(String, f64), String> {
    match text.rsplit_once('=') {
        Some((quantity, limit)) if !quantity.is_empty() => {
            Ok((quantity.to_owned(), percent(limit)?))
        }
        _ => Err("write QUANTITY=PERCENT, such as throughput=2".into()),
    }
}
