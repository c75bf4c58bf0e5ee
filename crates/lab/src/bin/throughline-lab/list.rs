//! `lab list`: the experiments by name.

use throughline_lab::EXPERIMENTS;

use crate::context::Context;
use crate::problem::Failure;

/// Lists them with what they measure.
pub(crate) fn run(context: &mut Context) -> Result<(), Failure> {
    let widths = EXPERIMENTS.iter().map(|experiment| experiment.name.len());
    let width = widths.max().unwrap_or(0);
    for experiment in EXPERIMENTS {
        context
            .out
            .line(format!("{:<width$}  {}", experiment.name, experiment.about))?;
    }
    Ok(())
}
