//! The experiments on commands that copy: our `cp`, `cat` and `pack` beside the programs that do the same.
//! [`table`] says what each does; here it is done.

mod table;

use std::fs;
use std::path::Path;
use std::process::Command;

use throughline_face::arguments::{PROGRAM, beside};

use crate::command::discarded;
use crate::interleave::{Sample, Variant};
use crate::kernel::{may_mount, named, output};
use crate::meter::Meter;
use crate::mounts::mounted::Mounted;
use crate::outcome::Outcome;
use crate::warm::cool;
use crate::{Result, Settings};

pub(super) use table::{CP_STREAM, CP_TREE, PACK_LARGE, PACK_MILLION, PACK_TREES};

/// An experiment.
pub(super) struct Plan {
    rounds: usize,
    /// The amount of work, in full and at least: files or MiB. The scripts' `$N`.
    size: (u64, u64),
    /// What is compared, and its unit: MB/s of `size` MiB, or seconds.
    quantity: (&'static str, &'static str),
    /// Whether it works on a tree of small files on the host: `tree`.
    tree: bool,
    /// Makes the other files, once, in the scratch directory.
    prepare: &'static str,
    ways: &'static [Way],
    /// The name of a ratio, the ways that it divides, and its least value.
    ratios: &'static [(&'static str, &'static str, &'static str, f64)],
    /// The ways of ours, whose peak memory has this limit in MiB.
    memory: (&'static [&'static str], f64),
    /// Waits before each measurement until free memory has returned to the host, if it does: this is what a
    /// newcomer sees.
    cool: bool,
    note: &'static str,
}

/// A way to do the work: scripts in the scratch directory.
struct Way {
    name: &'static str,
    before: &'static str,
    /// The measured part. A program that it executes in place of the shell has its peak memory measured.
    run: &'static str,
    after: &'static str,
    /// A file that is synced within the measured time.
    sync: &'static str,
    /// An image that the kernel mounts before, at `$MOUNT`.
    mount: &'static str,
}

/// What all scripts may use.
const FUNCTIONS: &str = "
cold() { sync \"$1\"; dd if=\"$1\" iflag=nocache count=0 status=none; }
fresh() { rm -f \"$1\"; truncate -s \"$2\" \"$1\"; mke2fs -q -F -t ext4 \"$1\"; }
check() { e2fsck -fn \"$1\" >/dev/null 2>&1; }
";

/// A script in this directory.
fn shell(script: &str, dir: &Path, size: u64, engine: &str) -> Result<Command> {
    let mut shell = named("sh");
    shell
        .args(["-ec", &format!("{FUNCTIONS}{script}")])
        .current_dir(dir);
    shell
        .env("N", size.to_string())
        .env("ENGINE", engine)
        .env("THROUGHLINE", beside(PROGRAM)?);
    Ok(shell)
}

pub(super) fn run(plan: &Plan, settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let scratch = settings.scratch()?;
    let size = settings.scaled(plan.size.0, plan.size.1);
    let engine = settings.engine.to_string();
    if plan.tree {
        make_tree(&scratch.path().join("tree"), size)?;
    }
    let dir = scratch.path();
    let script = &|script| shell(script, dir, size, &engine);
    output(&mut script(plan.prepare)?)?;
    let mut variants = Vec::new();
    for way in plan.ways {
        if !way.mount.is_empty() && !may_mount() {
            outcome.note(format!(
                "{}: skipped: it needs root and loop devices",
                way.name
            ));
            continue;
        }
        variants.push(Variant::new(way.name, move || {
            way.sample(plan, size, script, dir)
        }));
    }
    outcome.measure(settings, plan.rounds, variants)?;
    for (name, over, under, limit) in plan.ratios {
        outcome.ratio_at_least(name, plan.quantity.0, (over, under), Some(*limit));
    }
    for way in plan.memory.0 {
        let peak_mib = outcome.most(way, "peak memory");
        outcome.at_most(
            &format!("peak memory of {way}, MiB"),
            peak_mib,
            plan.memory.1,
        );
    }
    outcome.count("files or MiB", size as f64);
    outcome.note(plan.note);
    Ok(())
}

impl Way {
    fn sample(
        &self,
        plan: &Plan,
        size: u64,
        script: &impl Fn(&'static str) -> Result<Command>,
        scratch: &Path,
    ) -> Result<Sample> {
        output(&mut script(self.before)?)?;
        let mount = match self.mount {
            "" => None,
            image => Some(Mounted::hidden(&scratch.join(image), "ext4")?),
        };
        let mut run = script(self.run)?;
        run.envs(mount.iter().map(|mount| ("MOUNT", mount.root().path(""))));
        if plan.cool {
            cool();
        }
        let meter = Meter::start();
        let (_, peak_mib) = discarded(&mut run)?;
        if !self.sync.is_empty() {
            fs::File::open(scratch.join(self.sync))?.sync_all()?;
        }
        let spent = meter.spent();
        drop(mount);
        output(&mut script(self.after)?)?;
        let (quantity, unit) = plan.quantity;
        let value = match unit {
            "s" => spent.wall.as_secs_f64(),
            _ => spent.mb_per_s(size << 20),
        };
        Ok(vec![
            (quantity, unit, value),
            ("peak memory", "MiB", peak_mib),
        ])
    }
}

/// Creates a tree of files of up to 4 KiB, 2 KiB on average: a hundred in a directory, and a hundred such
/// directories in one.
fn make_tree(top: &Path, files: u64) -> Result<()> {
    const PER_FOLDER: u64 = 100;
    let mut random = fastrand::Rng::with_seed(120_000);
    let mut content = vec![0u8; 4096];
    random.fill(&mut content);
    let mut folder = top.to_owned();
    for number in 0..files {
        if number % PER_FOLDER == 0 {
            let index = number / PER_FOLDER;
            folder = top.join(format!("{:03}/{:02}", index / 100, index % 100));
            fs::create_dir_all(&folder)?;
        }
        fs::write(
            folder.join(format!("file-{number:07}")),
            &content[..random.usize(0..4096)],
        )?;
    }
    Ok(())
}
