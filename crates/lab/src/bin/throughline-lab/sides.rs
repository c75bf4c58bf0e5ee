//! The two sides of `lab compare` and `lab gate`: targets to measure now, or records of earlier runs.

use std::path::{Path, PathBuf};

use clap::Args;
use throughline_lab::compare::{Choice, Comparison};
use throughline_lab::record::Record;
use throughline_lab::stats::Until;
use throughline_lab::workload::TargetSpec;

use crate::context::Context;
use crate::measure::{MeasureArgs, Measurement};
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// The two sides of a comparison, and its confidence.
#[derive(Args, Debug)]
pub(crate) struct SidesArgs {
    /// The base: a target, as for 'lab run --target', or a file written by 'lab run'
    #[arg(value_name = "BASE", required_unless_present = "news", conflicts_with_all = ["bases", "news"])]
    base: Option<PathBuf>,
    /// The target or file to compare with the base; without it, --base-series and --new-series name two
    /// series of BASE
    #[arg(value_name = "NEW", conflicts_with_all = ["bases", "news"])]
    new: Option<PathBuf>,
    /// Base files of several runs; runs of both sides, taken in turn, are compared in pairs
    #[arg(long = "base", value_name = "FILE", num_args = 1.., requires = "news")]
    bases: Vec<PathBuf>,
    /// Files of the runs to compare with them; without --base, each file must have both series
    #[arg(long = "new", value_name = "FILE", num_args = 1..)]
    news: Vec<PathBuf>,
    /// Run this job file of fio on two targets (not for cmd: targets)
    #[arg(long, value_name = "JOB.fio", requires = "new")]
    workload: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    how: MeasureArgs,
}

/// Returns the condition that ends a measurement of a quantity.
pub(crate) type Ends<'a> = dyn Fn(&str) -> Result<Until, Failure> + 'a;

impl SidesArgs {
    /// Whether targets are measured rather than files read.
    pub(crate) fn measures(&self) -> bool {
        let is_target =
            |path: &PathBuf| !path.exists() && path.to_str().is_some_and(TargetSpec::is_meant);
        self.workload.is_some() || [&self.base, &self.new].into_iter().flatten().any(is_target)
    }

    /// Compares the sides. `quantities` applies if the user names none.
    pub(crate) fn compared(
        &self,
        quantities: Vec<String>,
        threshold: f64,
        ends: &Ends<'_>,
        context: &mut Context,
    ) -> Result<Comparison, Failure> {
        let mut choice = self.choice.clone();
        choice.threshold_percent = threshold;
        if choice.quantities.is_empty() {
            choice.quantities = quantities;
        }
        if self.measures() {
            return self.measured(&choice, ends, context);
        }
        let (bases, news) = match (&self.base, &self.new) {
            (Some(base), Some(new)) => (vec![base.clone()], vec![new.clone()]),
            // One or several files, each with both sides.
            (Some(base), None) => (Vec::new(), vec![base.clone()]),
            _ => (self.bases.clone(), self.news.clone()),
        };
        let (bases, news) = (read(&bases)?, read(&news)?);
        let (bases, news) = (named(&bases), named(&news));
        let compared = match bases.is_empty() {
            true => Comparison::within(&news, &choice),
            false => Comparison::of_runs(&bases, &news, &choice),
        };
        compared.map_err(|error| {
            Problem::from(error)
                .with_next(
                    "choose what to compare with --series, --quantity, or --base-series and \
                    --new-series",
                )
                .met("cannot compare")
        })
    }

    /// Measures both sides, interleaved, until the condition from `ends` holds.
    fn measured(
        &self,
        choice: &Choice,
        ends: &Ends<'_>,
        context: &mut Context,
    ) -> Result<Comparison, Failure> {
        let of_files = !choice.series.is_empty() || choice.skip_rounds > 0;
        if of_files || choice.base.is_some() || choice.new.is_some() {
            return Err(Failure::Usage(
                "--series, --base-series, --new-series and --skip apply to files only, not to targets".into(),
            ));
        }
        let (Some(base), Some(new)) = (&self.base, &self.new) else {
            return Err(Failure::Usage(
                "only one target is given: name a second one".into(),
            ));
        };
        let targets = [target(base)?, target(new)?];
        let mut measurement = Measurement {
            workload: self.workload.as_deref(),
            targets: &targets,
            how: &self.how,
            quantity: choice.quantities.first().map(String::as_str),
            until: None,
            threshold: choice.threshold_percent,
            confidence: choice.confidence,
            overwrite: false,
        };
        if choice.quantities.len() > 1 {
            return Err(Failure::Usage(
                "for targets, one quantity decides when the answer is certain: name only one"
                    .into(),
            ));
        }
        let quantity = measurement.quantity().to_owned();
        measurement.until = Some(ends(&quantity)?);
        let labels = measurement.labels()?;
        let (record, place) = measurement.run(context)?;
        context.interrupt.check()?;
        let choice = Choice {
            quantities: vec![quantity],
            base: labels.first().cloned(),
            new: labels.last().cloned(),
            ..choice.clone()
        };
        let name = place.name().to_string_lossy();
        Comparison::within(&[(&*name, &record)], &choice).doing(|| "cannot compare")
    }
}

fn target(path: &Path) -> Result<TargetSpec, Failure> {
    let text = path.to_string_lossy();
    TargetSpec::parse(&text).map_err(|error| Failure::Usage(error.to_string()))
}

fn read(paths: &[PathBuf]) -> Result<Vec<(String, Record)>, Failure> {
    let one = |path: &PathBuf| {
        let record = Record::read(path).map_err(|error| {
            Problem::from(error)
                .with_next("name files that 'throughline lab run' wrote, or two targets, such as cmd:./bench")
                .met(format!("cannot use {} as a run", quote(path)))
        })?;
        Ok((path.display().to_string(), record))
    };
    paths.iter().map(one).collect()
}

fn named(runs: &[(String, Record)]) -> Vec<(&str, &Record)> {
    runs.iter()
        .map(|(name, record)| (name.as_str(), record))
        .collect()
}
