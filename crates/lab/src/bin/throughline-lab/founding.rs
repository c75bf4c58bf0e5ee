//! `lab founding`: the five reports that the project started from, each with the results measured here.

use std::path::PathBuf;

use clap::Args;
use throughline_face::command_line::JsonFlag;
use throughline_lab::founding::{Finding, REPORTS, Report};

use crate::context::Context;
use crate::experiment::{self, PlaceArgs, ScaleArgs};
use crate::problem::{Doing, Failure};
use crate::text::quote;

/// Arguments of `lab founding`.
#[derive(Args, Debug)]
pub(crate) struct FoundingArgs {
    /// Run only this report; may be given several times
    #[arg(long, value_name = "REPORT", value_parser = clap::value_parser!(u8).range(1..=5))]
    only: Vec<u8>,
    /// Write each run to a file in this directory, founding-1.jsonl and so on, for 'lab compare' and 'lab
    /// report'
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    scale: ScaleArgs,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

/// Runs the experiments one after the other and shows each result at its end. A limit that is not met is
/// reported, but is not a failure.
pub(crate) fn run(args: &FoundingArgs, context: &mut Context) -> Result<(), Failure> {
    let json = context.json;
    experiment::check_globals(&context.globals)?;
    context.interrupt.arm()?;
    if let Some(out) = &args.out {
        let cannot = || format!("cannot make {}", quote(out));
        std::fs::create_dir_all(out).doing(cannot)?;
    }
    let chosen = |report: &&Report| args.only.is_empty() || args.only.contains(&report.number);
    let mut findings = Vec::new();
    for report in REPORTS.iter().filter(chosen) {
        let cannot = || format!("cannot run {}", report.experiment);
        let experiment = report.experiment().doing(cannot)?;
        let record = experiment::measure(experiment, &args.place, args.scale.scale, context)?;
        context.interrupt.check()?;
        if let Some(out) = &args.out {
            let path = out.join(format!("founding-{}.jsonl", report.number));
            let cannot = || format!("cannot save the run of {}", report.experiment);
            record.write(&path).doing(cannot)?;
        }
        let finding = Finding::of(report, &record);
        if !json {
            if findings.is_empty() {
                context.out.line(format!("{}\n", record.head.machine))?;
            }
            context.out.line(finding.to_string())?;
            // The next result takes minutes.
            context.out.flush()?;
        }
        findings.push(finding);
    }
    match json {
        true => context.out.json(&findings),
        false => context.out.line(summary(&findings)),
    }
}

/// One line per report.
fn summary(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|finding| {
        let (met, all) = finding.bars_met();
        format!("report {}: {met} of {all} limits met", finding.report)
    });
    lines.collect::<Vec<_>>().join("\n")
}
