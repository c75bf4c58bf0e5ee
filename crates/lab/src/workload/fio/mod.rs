//! Jobs of fio, run by fio itself: once for each sample, on every target that has a path.
//!
//! Invariants:
//! - fio reads the job file. We only ask it where the jobs' files are (`job`), and refuse a job whose files
//!   are not on the target.
//! - Files are created in a directory of their own, or in a file system made for the run. Both are removed at
//!   the end. They are kept from round to round, so fio lays a file out once. A file or device that existed
//!   before is opened read-only, unless the user allows otherwise
//!   ([`Plan::overwrite`](super::Plan::overwrite)).

mod job;
mod results;

use std::collections::BTreeMap;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use self::job::Job;
use super::made::{Made, Site};
use super::{Plan, TargetKind, TargetSpec, check};
use crate::kernel::{named, search_path};
use crate::mounts::mounted;
use crate::record::Record;
use crate::rounds::{Open, Run, Taken};
use crate::shell::{Finished, shown, tail};
use crate::{Error, Result};

pub use results::Results;

/// Time limit for one run of fio, which then counts as hung.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Maximum length of what fio prints.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;

/// Runs the jobs of this file on the targets, which have these labels.
pub(super) fn run(
    plan: &Plan<'_>,
    path: &Path,
    labels: Vec<String>,
    open: &mut Open<'_>,
) -> Result<Record> {
    if let Some(command) = plan.targets.iter().find(|spec| spec.is_command()) {
        return Err(Error::new(format!(
            "target '{}': a command is measured without a job file",
            command.label()
        )));
    }
    if let Some(why) = mounted::missing("fio") {
        return Err(Error::new(format!("{why}: install the package fio")));
    }
    let job = Job::read(path, plan.terms.interrupted)?;
    let met = |label: &str, error| Error::new(format!("target '{label}': {error}"));
    let mut places = Vec::new();
    for spec in plan.targets {
        places.push(Place::open(spec, &job, plan).map_err(|error| met(spec.label(), error))?);
    }
    let settings = BTreeMap::from([
        ("fio".to_owned(), job.version.as_str().into()),
        ("fio job".to_owned(), job.text.as_str().into()),
        ("dir".to_owned(), plan.dir.display().to_string().into()),
    ]);
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let facts = places.iter().map(Place::facts).collect();
    let mut run = Run::begin(plan, &name, labels, facts, settings, open)?;
    let interrupted = plan.terms.interrupted;
    let ended = run.rounds(&mut |which| measure(path, &places[which], interrupted))?;
    for (spec, place) in plan.targets.iter().zip(places) {
        place.close().map_err(|error| met(spec.label(), error))?;
    }
    run.end(ended)
}

/// Where the jobs run.
enum Place {
    /// A new directory.
    Folder(TempDir),
    /// A file system made for the run.
    Made(Box<Made>),
    /// An existing file or device.
    File { path: PathBuf, overwrite: bool },
}

impl Place {
    fn open(spec: &TargetSpec, job: &Job, plan: &Plan<'_>) -> Result<Place> {
        match &spec.kind {
            TargetKind::Made(made) => {
                job.check_inside()?;
                let site = Site {
                    dir: plan.dir,
                    data_bytes: job.data_bytes(),
                    interrupted: plan.terms.interrupted,
                };
                Ok(Place::Made(Box::new(Made::mount(made, &site)?)))
            }
            TargetKind::File(path) => {
                job.check_unnamed()?;
                let path = path
                    .canonicalize()
                    .map_err(|e| Error::new(format!("{}: {e}", path.display())))?;
                let overwrite = plan.overwrite;
                Ok(Place::File { path, overwrite })
            }
            TargetKind::Dir(path) => {
                job.check_inside()?;
                Ok(Place::Folder(crate::scratch_in(&std::path::absolute(
                    path,
                )?)?))
            }
            TargetKind::Command { .. } => Err(Error::new("it has no path")),
        }
    }

    /// The options of fio that lead its jobs here.
    fn options(&self) -> Vec<String> {
        // fio separates paths by colons.
        let escaped = |path: &Path| {
            path.to_string_lossy()
                .replace('\\', r"\\")
                .replace(':', r"\:")
        };
        match self {
            Place::Folder(folder) => vec![format!("--directory={}", escaped(folder.path()))],
            Place::Made(made) => vec![format!("--directory={}", made.mounted.root().path(""))],
            Place::File { path, overwrite } => {
                let name = format!("--filename={}", escaped(path));
                let only_read = (!overwrite).then(|| "--readonly".to_owned());
                [name].into_iter().chain(only_read).collect()
            }
        }
    }

    fn facts(&self) -> Value {
        match self {
            Place::Folder(folder) => json!({"directory": folder.path().parent()}),
            Place::Made(made) => json!(made.facts),
            Place::File { path, .. } => json!({"file": path}),
        }
    }

    fn close(self) -> Result<()> {
        match self {
            Place::Folder(folder) => Ok(folder.close()?),
            Place::Made(made) => made.mounted.unmount(),
            Place::File { .. } => Ok(()),
        }
    }
}

fn measure(
    path: &Path,
    place: &Place,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Option<Taken>> {
    let mut arguments = place.options();
    // The bins of json+ are its latencies. Jobs that run at once are reported together.
    arguments.extend(["--output-format=json+", "--group_reporting=1"].map(str::to_owned));
    let printed = match fio(&arguments, path, interrupted) {
        _ if interrupted() => return Ok(None),
        printed => printed.map_err(|error| match place {
            Place::Made(_) if error.to_string().contains("No space left") => Error::new(format!(
                "{error}\n(?size=8G makes a file system with room for 8 GiB)"
            )),
            Place::File {
                overwrite: false, ..
            } => Error::new(format!(
                "{error}\n(without --overwrite, fio must not write to an existing file or device)"
            )),
            _ => error,
        })?,
    };
    Ok(Some(Results::parse(&printed)?.taken()))
}

/// Runs fio on a job file. Returns what it printed on standard output.
fn fio(
    arguments: &[String],
    job: &Path,
    interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<String> {
    let mut command = named("fio");
    let path = search_path();
    command.env("PATH", path).env("LC_ALL", "C");
    command.args(arguments).arg(std::path::absolute(job)?);
    let check = || check(interrupted);
    let mut finished = Finished::of(command, Path::new("."), LONGEST, &check)?;
    finished.stdout.rewind()?;
    let mut bytes = Vec::new();
    let mut stdout = (&finished.stdout).take(MAX_OUTPUT_BYTES + 1);
    stdout.read_to_end(&mut bytes)?;
    let printed = String::from_utf8_lossy(&bytes).into_owned();
    if let Some(how) = finished.failure(LONGEST) {
        // Some messages are on standard output, before the results.
        let before = printed.split("\n{").next().unwrap_or_default();
        let before = if before.starts_with('{') { "" } else { before };
        let messages = format!("{before}\n{}", tail(&mut finished.stderr)?);
        let messages: Vec<&str> = messages.lines().filter(|l| !l.trim().is_empty()).collect();
        let messages = shown(&messages.join("\n"));
        return Err(Error::new(format!("fio {how}{messages}")));
    }
    match bytes.len() as u64 > MAX_OUTPUT_BYTES {
        true => Err(Error::new(format!(
            "fio printed more than {} MiB",
            MAX_OUTPUT_BYTES >> 20
        ))),
        false => Ok(printed),
    }
}
