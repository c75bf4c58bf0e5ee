//! `lab import`: converts job files of other tools to workload files.

use std::path::{Path, PathBuf};

use clap::Args;
use throughline_lab::workload::import::{self, Imported};

use crate::context::Context;
use crate::precious::check_output;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// The workload file was written, but its pattern differs from the job's.
const EXIT_LOST: u8 = 3;

/// Arguments of `lab import`.
#[derive(Args, Debug)]
pub(super) struct ImportArgs {
    /// A fio job file
    #[arg(value_name = "JOB.fio", required_unless_present = "sysbench")]
    file: Option<PathBuf>,
    /// A 'sysbench fileio' command line, in quotes, instead of a file
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["file", "job"])]
    sysbench: Option<String>,
    /// Convert only this job of the file
    #[arg(long, value_name = "NAME")]
    job: Option<String>,
    /// The workload file [default: standard output], or a directory for one file per job, JOB.toml
    #[arg(short, long, value_name = "FILE|DIR")]
    out: Option<PathBuf>,
    /// Exit with 3 if anything was left out
    #[arg(long)]
    strict: bool,
}

/// Writes the workload files and reports what was left out.
pub(super) fn run(args: &ImportArgs, context: &mut Context) -> Result<(), Failure> {
    let (from, mut all) = match (&args.sysbench, &args.file) {
        (Some(command), _) => {
            let imported =
                import::sysbench(command).map_err(|error| Failure::Usage(error.to_string()))?;
            (command.clone(), vec![imported])
        }
        (None, Some(path)) => (path.display().to_string(), read(path)?),
        (None, None) => return Err(Failure::Usage("name a fio job file".into())),
    };
    let names: Vec<String> = all.iter().map(|one| one.workload.name.clone()).collect();
    if let Some(job) = &args.job {
        all.retain(|one| one.workload.name == *job);
        if all.is_empty() {
            return Err(Failure::Usage(format!(
                "no job {}; there are {}",
                quote(job),
                names.join(", ")
            )));
        }
    }
    let into_dir = args.out.as_deref().filter(|out| out.is_dir());
    if all.len() > 1 && into_dir.is_none() {
        return Err(Failure::Usage(format!(
            "{} has several jobs: {}; name one with --job, or a directory with --out for one file per job",
            quote(&from),
            names.join(", ")
        )));
    }
    for one in &all {
        let place = match (into_dir, &args.out) {
            (Some(dir), _) => Some(dir.join(format!("{}.toml", one.workload.name))),
            (None, out) => out.clone(),
        };
        write(one, &from, place.as_deref(), context)?;
    }
    let lost = |one: &Imported| match args.strict {
        true => !one.left_out.is_empty(),
        false => !one.lost.is_empty(),
    };
    if !all.iter().any(lost) {
        return Ok(());
    }
    context.exit_bits = EXIT_LOST;
    Err(match args.strict {
        true => Failure::plain("not everything in the job could be converted (--strict)"),
        false => Failure::plain("the I/O pattern differs from the job's"),
    })
}

fn read(path: &Path) -> Result<Vec<Imported>, Failure> {
    let cannot = || format!("cannot import {}", quote(path));
    let text = std::fs::read_to_string(path).doing(cannot)?;
    import::fio(&text).map_err(|error| Problem::new(error.to_string()).met(cannot()))
}

fn write(
    one: &Imported,
    from: &str,
    place: Option<&Path>,
    context: &mut Context,
) -> Result<(), Failure> {
    let text = one.to_toml(from);
    match place {
        Some(path) => {
            check_output(path)?;
            std::fs::write(path, text).doing(|| format!("cannot write {}", quote(path)))?
        }
        None => context.out.bytes(text.as_bytes())?,
    }
    if !context.globals.quiet {
        for left_out in &one.left_out {
            let name = &one.workload.name;
            let how = match one.lost.contains(left_out) {
                true => "left out, which changes the I/O pattern",
                false => "left out",
            };
            context
                .complaints
                .note(&format!("{name}: {how}: {left_out}"));
        }
    }
    Ok(())
}
