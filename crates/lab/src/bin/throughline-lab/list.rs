//! `lab list`: the experiments by name.

use throughline_explain::text::aligned;
use throughline_lab::{EXPERIMENTS, Experiment};

use crate::context::Context;
use crate::problem::Failure;

/// Lists them with what they measure.
pub(crate) fn run(context: &mut Context) -> Result<(), Failure> {
    let row = |one: &Experiment| vec![one.name.to_owned(), one.about.to_owned()];
    let rows: Vec<_> = EXPERIMENTS.iter().map(row).collect();
    aligned(&rows, 0..0)
        .iter()
        .try_for_each(|line| context.out.line(line))
}
