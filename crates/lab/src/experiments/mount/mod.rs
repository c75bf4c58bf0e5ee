//! The experiments on mounts: our mount on both transports, the kernel's ext4, `fuse2fs`
//! ([`contestants`](crate::mounts::contestants)). [`table`] says what each does; here it is done.

mod calls;
mod table;

use crate::interleave::Sample;
use crate::kernel::{named, output};
use crate::meter::Meter;
use crate::mounts::contestants::{Aim, Contestant};
use crate::mounts::{Bench, Session, source_tree, view};
use crate::outcome::Outcome;
use crate::warm::{note, warm};
use crate::{Result, Settings};
use calls::Calls;

pub(super) use table::{PROGRAMS, RANDOM, SMALL, STREAM, SYSBENCH, THREADS, UNTAR};

/// An experiment.
pub(super) struct Plan {
    /// Whether our server without a volume is measured too.
    null: bool,
    /// Whether the programs need a path of the mount.
    visible: bool,
    rounds: usize,
    /// The amount of work, in full and at least: files or MiB. The scripts' `$N`.
    size: (u64, u64),
    /// The amount is a multiple of this.
    step: u64,
    unit: Unit,
    /// Inodes of the image for each file.
    inodes: u64,
    /// Bytes of the image for each file or MiB.
    image_bytes: u64,
    parts: &'static [Part],
}

/// What an amount of work counts.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Files,
    Mib,
}

/// A part of the work. It is left out if the programs that it needs are missing.
struct Part {
    /// A command that fails without them.
    needs: &'static str,
    /// Whether it works on a tree of files on the host, like that of a source repository: `tree`.
    tree: bool,
    /// Makes what the work needs on the host, once, in the scratch directory, `$SCRATCH`.
    prepare: &'static str,
    steps: &'static [Step],
}

/// A step of a sample.
#[derive(Clone, Copy)]
enum Step {
    /// Remounts with cold caches.
    Cold,
    /// The same, read-only.
    ReadOnly,
    /// Work that is not measured.
    Do(Act),
    /// Measured work.
    Measure(Aim, Act),
}

#[derive(Clone, Copy)]
enum Act {
    /// A script, in the root of the mount.
    Shell(&'static str),
    Calls(Calls),
}

pub(super) fn run(plan: &Plan, settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    if let Some(why) = view::unavailable().filter(|_| plan.visible) {
        outcome.note(format!("everything: skipped: {why}"));
        return Ok(());
    }
    let size = settings.scaled(plan.size.0, plan.size.1) / plan.step * plan.step;
    let contestants = Contestant::all(outcome, plan.null);
    let inodes = (plan.inodes * size + 5000).to_string();
    let arguments = ["-N", &inodes];
    let arguments = if plan.inodes > 0 { &arguments[..] } else { &[] };
    let image_bytes = size * plan.image_bytes + (512 << 20);
    let bench = Bench::new(settings, image_bytes, arguments, plan.visible)?;
    let parts: Vec<_> = plan
        .parts
        .iter()
        .filter(|part| part.is_possible(outcome))
        .collect();
    for part in &parts {
        part.prepare(&bench, size)?;
    }
    bench.compare(outcome, &contestants, plan.rounds, &|session| {
        let mut sample = Sample::new();
        for part in &parts {
            part.sample(session, plan.unit, size, &mut sample)?;
        }
        Ok(sample)
    })?;
    outcome.count(
        if plan.unit == Unit::Files {
            "files"
        } else {
            "MiB"
        },
        size as f64,
    );
    note(outcome);
    for step in parts.iter().flat_map(|part| part.steps) {
        if let Step::Measure(aim, _) = step {
            aim.judge(outcome);
        }
    }
    Ok(())
}

impl Part {
    fn is_possible(&self, outcome: &mut Outcome) -> bool {
        let tried = output(named("sh").args(["-c", self.needs]));
        if tried.is_err() {
            outcome.note(format!("skipped, because '{}' fails", self.needs));
        }
        tried.is_ok()
    }

    fn prepare(&self, bench: &Bench<'_>, size: u64) -> Result<()> {
        if self.tree {
            source_tree::make(&bench.scratch("tree"), size, &bench.source)?;
        }
        let mut shell = named("sh");
        shell
            .args(["-ec", self.prepare])
            .current_dir(bench.scratch(""));
        output(
            shell
                .env("N", size.to_string())
                .env("SCRATCH", bench.scratch("")),
        )
        .map(drop)
    }

    fn sample(
        &self,
        session: &mut Session<'_>,
        unit: Unit,
        size: u64,
        sample: &mut Sample,
    ) -> Result<()> {
        for step in self.steps {
            match step {
                // The server without a volume would lose its files.
                Step::Cold | Step::ReadOnly if session.is_null() => return Ok(()),
                Step::Cold => session.cold(false)?,
                Step::ReadOnly => session.cold(true)?,
                Step::Do(act) => act.per_second(session, size).map(drop)?,
                Step::Measure(aim, act) => {
                    if unit == Unit::Mib {
                        // Memory for the data, in our cache or in the kernel's.
                        warm((size * 5) << 18);
                    }
                    let rate = act.per_second(session, size)?;
                    sample.push(match (unit, act) {
                        (_, Act::Calls(_)) => (aim.quantity, "per s", rate),
                        (Unit::Files, _) => (aim.quantity, "files/s", rate),
                        (Unit::Mib, _) => (aim.quantity, "MB/s", rate * 1.048_576),
                    });
                }
            }
        }
        Ok(())
    }
}

impl Act {
    fn per_second(&self, session: &Session<'_>, size: u64) -> Result<f64> {
        let script = match self {
            Act::Calls(calls) => return calls.per_second(session, size),
            Act::Shell(script) => script,
        };
        let (mut shell, root) = session.command("sh");
        shell
            .args(["-ec", &format!("cd \"$ROOT\"\n{script}")])
            .env("ROOT", root);
        shell
            .env("N", size.to_string())
            .env("SCRATCH", session.bench.scratch(""));
        let meter = Meter::start();
        output(&mut shell)?;
        Ok(size as f64 / meter.spent().wall.as_secs_f64())
    }
}
