//! `mount/programs`: programs that people wait for, on a mount: `git clone` and `git status` of a repository,
//! `pip install` of wheels, and `npm ci`, all without network. Each works on about 5,000 files, which the
//! experiment makes on the host.
//!
//! A program that is not installed is left out. The file system is remounted before each program and before
//! the first `git status`, with cold caches; what the programs read on the host is cached.
//!
//! The programs do much work of their own, pip and npm above all, and a ratio shows only the sum. So tmpfs is
//! measured too: what it reaches over the others is the most that any file system could.

mod git;
mod npm;
mod pip;

use std::process::Command;
use std::time::Duration;

use crate::command::timed;
use crate::interleave::Sample;
use crate::mounts::contestants::{Aim, Contestant};
use crate::mounts::{Bench, Session, view};
use crate::outcome::Outcome;
use crate::{Result, Settings};

/// A program: does its work on a mount that has just been made, and measures it.
type Program<'a> = Box<dyn Fn(&mut Session<'_>) -> Result<Sample> + 'a>;

/// Bytes of the image for each file, with room for what a program keeps besides.
const BYTES_PER_FILE: u64 = 16 << 10;

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    if let Some(why) = view::unavailable() {
        outcome.note(format!("everything: skipped: {why}"));
        return Ok(());
    }
    let files = settings.scaled(5000, 200);
    let contestants = Contestant::all_with_memory(outcome);
    let inodes = (files * 4 + 5000).to_string();
    let image_bytes = files * 3 * BYTES_PER_FILE + (512 << 20);
    let bench = Bench::new(settings, image_bytes, &["-N", &inodes])?.with_views();
    let programs = [
        git::prepare(&bench, files, outcome)?,
        pip::prepare(&bench, files, outcome)?,
        npm::prepare(&bench, files, outcome)?,
    ];
    let programs: Vec<Program<'_>> = programs.into_iter().flatten().collect();
    bench.compare(outcome, &contestants, 7, &|session| {
        let mut sample = Sample::new();
        for program in &programs {
            session.cold()?;
            sample.extend(program(session)?);
        }
        Ok(sample)
    })?;
    outcome.note(
        "the time of a program includes its own work: its start, checksums and decompression; tmpfs shows \
         how much that is",
    );
    for quantity in [
        git::CLONE,
        git::STATUS_COLD,
        git::STATUS,
        pip::INSTALL,
        npm::CI,
    ] {
        let aim = Aim::new(quantity).kernel(0.4, 0.25).fuse2fs(6.0);
        aim.judge(outcome);
    }
    Ok(())
}

/// Files per second of a command that works on this many.
fn rate(files: u64, command: &mut Command) -> Result<f64> {
    let (spent, _) = timed(command)?;
    Ok(files as f64 / spent.wall.max(Duration::from_nanos(1)).as_secs_f64())
}
