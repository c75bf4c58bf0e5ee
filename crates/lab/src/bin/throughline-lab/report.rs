//! `lab report`: result files as a page.

use std::path::{Path, PathBuf};

use clap::Args;
use throughline_lab::record::Record;
use throughline_lab::report::Report;

use crate::context::Context;
use crate::precious::check_output;
use crate::problem::{Doing, Failure};
use crate::text::quote;

/// Arguments of `lab report`.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Results of 'lab run --out'; the first is the base of comparisons
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// Output file (-: standard output) [default: the first result's name with .html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the report and summarizes it in one sentence.
pub(crate) fn run(args: &ReportArgs, context: &mut Context) -> Result<(), Failure> {
    let output = match &args.output {
        Some(path) => path.clone(),
        None => args.results[0].with_extension("html"),
    };
    let same = |result: &&PathBuf| **result == output || is_one_file(result, &output);
    if let Some(result) = args.results.iter().find(same) {
        return Err(Failure::Usage(format!(
            "{} is one of the results: name another file for the report, with --output",
            quote(result)
        )));
    }
    if output.as_os_str() != "-" {
        check_output(&output)?;
    }
    let mut runs = Vec::new();
    for path in &args.results {
        let record = Record::read(path).doing(|| "cannot make a report")?;
        runs.push((name(path, &args.results), record));
    }
    let report = Report::of(runs).doing(|| "cannot make a report")?;
    let text = report.html();
    if output.as_os_str() == "-" {
        return context.out.bytes(text.as_bytes());
    }
    std::fs::write(&output, text).doing(|| format!("cannot write {}", quote(&output)))?;
    context.out.line(report.headline())?;
    context
        .out
        .line(format!("the report is in {}", quote(&output)))
}

/// The name of a result: its file name without extension, or the whole path if another result has the same
/// name.
fn name(path: &Path, all: &[PathBuf]) -> String {
    let stem = path.file_stem();
    let alone = all.iter().filter(|other| other.file_stem() == stem).count() == 1;
    match (stem, alone) {
        (Some(stem), true) => stem.to_string_lossy().into_owned(),
        _ => path.to_string_lossy().into_owned(),
    }
}

fn is_one_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
