//! Commands as targets: two builds, two programs, or two ways to invoke one, measured side by side.
//!
//! Invariants:
//! - Every sample is a new process. So whatever is random per process (placement of its memory and stack, its
//!   processor) is drawn anew for each sample: it is part of the noise, and cannot look like a difference
//!   between the commands.
//! - All commands have the same environment. None outlives its sample.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::json;

use crate::record::{Better, Record};
use crate::rounds::{Measured, Open, Run, Taken};
use crate::shell::{Ended, figure, timed};
use crate::workload::{Plan, TargetKind, TargetSpec, check};
use crate::{Error, Result};

/// The quantity for a command's wall time.
pub const TIME: &str = "time";
/// The quantity for the number a command prints as the last line of its standard output.
pub const FIGURE: &str = "figure";
/// Time limit. A command that takes longer counts as hung.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Runs the commands of the targets, which have these labels.
pub(crate) fn run(plan: &Plan<'_>, labels: Vec<String>, open: &mut Open<'_>) -> Result<Record> {
    let commands: Vec<_> = plan.targets.iter().map(command).collect::<Result<_>>()?;
    let fact = |(line, dir): &(String, PathBuf)| json!({"command": line, "directory": dir});
    let facts = commands.iter().map(fact).collect();
    let mut run = Run::begin(plan, "commands", labels, facts, BTreeMap::new(), open)?;
    let ended = run.rounds(&mut |which| measure(plan, &commands[which]))?;
    run.end(ended)
}

/// A target's command line and working directory.
fn command(target: &TargetSpec) -> Result<(String, PathBuf)> {
    let TargetKind::Command { line, dir } = &target.kind else {
        let label = target.label();
        return Err(Error::new(format!(
            "target '{label}' needs a job file of fio, which commands do not use: compare commands with \
             commands only"
        )));
    };
    let dir = dir.as_deref().unwrap_or(Path::new("."));
    let found = dir.canonicalize().ok().filter(|dir| dir.is_dir());
    let missing = || {
        Error::new(format!(
            "cannot run in {}: no such directory",
            dir.display()
        ))
    };
    Ok((line.clone(), found.ok_or_else(missing)?))
}

fn measure(plan: &Plan<'_>, (line, dir): &(String, PathBuf)) -> Result<Option<Taken>> {
    let interrupted = plan.terms.interrupted;
    let before = cpu_of_children();
    let (ended, took) = match timed(line, dir, LONGEST, &|| check(interrupted)) {
        Err(_) if interrupted() => return Ok(None),
        timed => timed?,
    };
    let cpu = cpu_of_children().saturating_sub(before);
    let printed = match ended {
        Ended::Well(text) => text,
        Ended::Badly(_) if interrupted() => return Ok(None),
        Ended::Badly(how) => return Err(Error::new(format!("the command {how}"))),
    };
    let mut values = vec![
        Measured::new(TIME, "s", Better::Lower, took.as_secs_f64()),
        Measured::new("cpu", "s", Better::Lower, cpu.as_secs_f64()),
    ];
    if let Some(better) = plan.figure {
        let value = figure(&printed).map_err(Error::new)?;
        values.push(Measured::new(FIGURE, "", better, value));
    }
    Ok(Some(Taken {
        values,
        latencies: Vec::new(),
    }))
}

/// User and system time of all reaped child processes; 0 if the system does not report it.
fn cpu_of_children() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else {
        return Duration::ZERO;
    };
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::rounds::{Asked, Terms};
    use crate::stats::Until;

    /// Runs these commands for this many rounds.
    fn ran(lines: &[&str], figure: Option<Better>, asked: &Asked, rounds: u32) -> Result<Record> {
        let spec = |line: &&str| TargetSpec::parse(&format!("cmd:{line}"));
        let targets: Vec<TargetSpec> = lines.iter().map(spec).collect::<Result<_>>()?;
        let done = Cell::new(0);
        let terms = Terms {
            rounds,
            seed: 3,
            asked,
            started: "2026-01-02T03:04:05.000Z",
            interrupted: &|| false,
            progress: &|_, _| {
                done.set(done.get() + 1);
                Ok(())
            },
        };
        let plan = Plan {
            job: None,
            targets: &targets,
            figure,
            dir: Path::new("."),
            overwrite: false,
            terms: &terms,
        };
        crate::workload::run(&plan, &mut |_| Ok(None))
    }

    fn asked(quantity: &str, until: Option<Until>) -> Asked {
        Asked {
            quantity: quantity.into(),
            until,
            ..Asked::default()
        }
    }

    #[test]
    fn time_processor_time_and_the_figure_are_kept_of_every_process() {
        let of_figure = asked(FIGURE, None);
        let record = ran(
            &["sleep 0.003; echo speed; echo 12.5", "echo 25"],
            Some(Better::Higher),
            &of_figure,
            3,
        )
        .expect("run");
        assert!(record.is_whole() && record.head.max_rounds.is_none());
        let columns = record.columns();
        let names: Vec<&str> = columns.iter().map(|c| c.quantity.as_str()).collect();
        assert_eq!(names, ["cpu", "figure", "time", "cpu", "figure", "time"]);
        let of = |quantity: &str, series: &str| {
            let found = columns
                .iter()
                .find(|c| c.quantity == quantity && c.series.contains(series));
            found.expect("there").values()
        };
        assert_eq!(of(FIGURE, "12.5"), [12.5; 3]);
        assert_eq!(of(FIGURE, "echo 25"), [25.0; 3]);
        assert!(of(TIME, "sleep").iter().all(|s| *s >= 0.003));
        assert!(of("cpu", "sleep").iter().all(|s| *s > 0.0 && *s < 1.0));
    }

    #[test]
    fn it_ends_as_soon_as_the_answer_is_certain_and_says_of_how_many_rounds() {
        let until = asked(TIME, Some(Until::Beside { loss_percent: 3.0 }));
        let record = ran(&["true", "sleep 0.1"], None, &until, 60).expect("run");
        assert_eq!(record.head.max_rounds, Some(60));
        let rounds = record.columns()[0].samples.len();
        assert!(rounds < 40, "{rounds}");
    }

    #[test]
    fn a_failing_command_ends_the_run_with_an_explanation() {
        let time = asked(TIME, None);
        for (lines, figure, expected) in [
            (
                &["true", "echo no >&2; false"][..],
                None,
                "ended with 1\n    no",
            ),
            (&["echo 3 MB/s"], Some(Better::Higher), "a number alone"),
            (&["true"], Some(Better::Lower), "printed nothing"),
            (&["true?dir=/no/such"], None, "no such directory"),
            (&[], None, "no target"),
        ] {
            let error = ran(lines, figure, &time, 2)
                .expect_err(expected)
                .to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
        let unknown = asked("throughput", None);
        let error = ran(&["true"], None, &unknown, 2).expect_err("unknown");
        assert!(error.to_string().contains("there are cpu; time"), "{error}");
    }
}
