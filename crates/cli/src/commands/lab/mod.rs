//! `lab`: one file a subcommand; the work itself is `throughline-lab`'s.

mod bisect;
mod candidate;
mod compare;
mod experiment;
mod founding;
pub(crate) mod gate;
mod import;
mod list;
mod measure;
mod models;
mod out_place;
mod percent;
mod report;
mod run;
mod sides;
pub(crate) mod step;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::problem::{Failure, Problem};

/// Arguments of `lab`.
#[derive(Args, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

impl LabArgs {
    /// Whether it measures in this process.
    pub(crate) fn measures(&self) -> bool {
        match &self.command {
            LabCommand::Run(_) | LabCommand::Founding(_) => true,
            LabCommand::Compare(args) => args.measures(),
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Run an experiment or a workload of your own, all variants or targets interleaved, and keep the figures
    ///
    /// Commands do their own work: cmd:COMMAND is run by sh -c, a new process for each sample, in the current directory or in that
    /// of ?dir=DIR, and its time from beginning to end is measured, its processor time, and with --figure the number that it
    /// prints. So two builds are measured beside each other: --target 'cmd:./bench?dir=old' --target 'cmd:./bench?dir=new'.
    ///
    /// A workload file says what is done: pattern, block size, threads, queue depth, size, sync policy (--example prints
    /// one with every key). A target says to whom: our engine on an image (image:PATH, image:PATH:/file; image: makes one),
    /// on a file or block device (raw:PATH), on memory (memory:), on a device model (model:NAME); by system calls a directory
    /// of any mounted file system (dir:PATH), a file or block device (file:PATH); as root a file system made for the run, on
    /// a loop device (make:ext4, make:xfs, make:btrfs, with ?mkfs=ARGUMENTS&mount=OPTIONS); our FUSE mount of a new image
    /// (mount:), fuse2fs (fuse2fs:). --cache, --dirty-limit, --bio-target and the like hold for our engine's targets; a mount
    /// has its own (mount:?mount=cache=64M).
    ///
    /// In each round every target is measured once, in an order that is drawn anew for each round, so that none always comes behind
    /// the same other one; where the place in the round makes a difference, that is said.
    ///
    /// What is made is taken away, however the run ends. Only kill -9 leaves what has a name: files and folders called
    /// throughline-lab-… in a target's or in --dir's directory, and the file of raw: or file:; where a file system was just
    /// being made, also its loop device, which losetup -a shows, and its mount below /tmp. They may be taken away.
    ///
    /// Each sample goes to the result file as soon as it is known; Ctrl-C ends the run with what it has.
    ///
    /// Exit codes: 0: it ran; 1: it failed; 2: a wrong command line or workload file; 130: interrupted.
    Run(run::RunArgs),
    /// Make a workload file from a fio job file, or from a sysbench command line
    ///
    /// Taken over: rw, bs, size, iodepth, numjobs, direct, fsync, rwmixread, offset, runtime and what goes with them. What is
    /// left out, or is done otherwise here, is said, and written at the head of the file.
    ///
    /// Exit codes: 0: written; 1: it cannot be read or written; 2: a wrong command line; 3: written, and what is done is another
    /// pattern than the job's (other places, sizes, order or pace), or, with --strict, anything was left out.
    Import(import::ImportArgs),
    /// List the experiments
    List,
    /// Compare two commands, two targets or runs that were kept, and say what differs and how sure that is
    ///
    /// Two commands or targets (cmd:, or with --workload those of 'lab run') are measured now, interleaved, a sample of each in
    /// every round, until the answer is certain: --rounds at the most (1000). The run is kept as a file. A file of 'lab run' with
    /// several series is compared in the same way, by the samples of each round: --base-series and --new-series name two.
    ///
    /// Samples of one run share what the run has of its own: where its files and its memory lie, what the machine did meanwhile.
    /// So runs in separate files are compared as runs, each by its median: two files alone are one pair, which is evidence of
    /// nothing, whatever the number of their samples. Of several (--base FILE... --new FILE...) two that were taken right one
    /// after the other are a pair: take them in turns, nine of each side for 99.5 %.
    ///
    /// A verdict is 'faster', 'slower', 'no difference' larger than --threshold, or 'not enough evidence'. It goes by signed ranks
    /// and not by means, so that it is wrong no more often than --confidence allows, whatever the noise, and however early
    /// the run ended; the confidence holds for all lines of the table together. Nothing is dropped: what looks like warming
    /// up (see --skip) or lies far out is named.
    ///
    /// Exit codes: 0: compared, whatever came out; 1: it could not be done; 2: a wrong command line; 130: interrupted.
    Compare(Box<compare::CompareArgs>),
    /// Tell by the exit code whether a command or a run is worse than another: for CI
    ///
    /// Compares as 'lab compare' does, and holds what is worse against limits: --max-regression of every quantity, --limit of
    /// single ones. Below its limit a quantity passes, above it fails, each only where that is certain; where the interval of
    /// the regression reaches over the limit, it is not. Commands and targets are measured until it is, one way or the other.
    ///
    /// Example: throughline lab gate 'cmd:./bench?dir=old' 'cmd:./bench?dir=new' --max-regression 3
    ///
    /// Exit codes: 0: nothing is worse than its limit allows; 1: something is; 2: not enough evidence: take more rounds (of
    /// files, more runs), or allow more; 64: a wrong command line; 65: the runs cannot be read or compared.
    Gate(Box<gate::GateArgs>),
    /// Find the commit that made it slower
    ///
    /// Measures the bad end of a range of commits beside the good one, halves the range, and measures each commit beside the
    /// good end, in pairs of runs, until it is certain on which side it lies. The commit that is left is measured beside its
    /// parent, until the size of its change is known (--size-pairs). Worktrees are made for that, and removed; the checkout is
    /// not touched. What cannot be built or measured is passed over. Where it is interrupted, or killed, the same command goes
    /// on.
    ///
    /// The commands run by sh -c at the top of a worktree, without a terminal, with THROUGHLINE_REV (the commit),
    /// THROUGHLINE_ROLE (good, bad or candidate), THROUGHLINE_TREE (the worktree), THROUGHLINE_REPOSITORY (its git
    /// directory), THROUGHLINE_STATE (a folder; what they print is in its logs) and THROUGHLINE_PAIR (the number of the pair of
    /// runs; 0: of a build, and of a first run that is not counted).
    ///
    /// Exit codes: 0: one commit was found; 1: it could not be done; 2: a wrong command line, the bad end being the better one
    /// among them; 3: one of several, those between them could not be built or measured; 4: no difference between the ends
    /// larger than the threshold, or none that could be seen; 5: the commit that the halving ends at shows no change beside its
    /// parent; 130: interrupted.
    ///
    /// Example: throughline lab bisect --good v1.0 --bad main --build 'make -j8' --measure './bench --seconds 10 | tail -n 1'
    Bisect(Box<bisect::BisectArgs>),
    /// Tell good from bad for 'git bisect run', by measuring
    ///
    /// Builds the commit that is checked out, in place, and measures it in pairs of runs beside the good end, which is built
    /// once, in a worktree that stays for the next commit ('--end' removes it). The commands are run as by 'lab bisect', which
    /// does the whole by itself and is surer: here the confidence holds for each commit, not for all of them together.
    ///
    /// Exit codes, as 'git bisect run' understands them: 0: good; 1: bad; 125: skip, since it could not be built, measured or
    /// sorted; 128: it could not be done, a wrong command line among it; 130: interrupted. The last two end 'git bisect run'.
    ///
    /// Example: git bisect start v2.0 v1.0 && git bisect run throughline lab step --good v1.0 --bad v2.0 --build make --measure ./bench
    Step(Box<step::StepArgs>),
    /// Run the five reports that the project started from: what was claimed, and what comes out here
    ///
    /// Each on the disk of --dir, in memory and on models of the reporters' devices ('lab models'), with its negative
    /// controls: the report's old way, ours, the kernel's, and which of the project's bars are met. Needs mke2fs; without
    /// root and loop devices the kernel's column stays empty. With --scale 10 it takes minutes, in full half an hour.
    ///
    /// Exit codes: 0: all ran, whatever came out; 1: one could not; 2: a wrong command line; 130: interrupted.
    Founding(founding::FoundingArgs),
    /// List the device models, or show one with the source of every number
    Models(models::ModelsArgs),
    /// Show results to people: a page with plots, or a mail
    ///
    /// The page is one file that needs nothing else, neither a network nor a server: tables, samples over time,
    /// distributions, latencies, ratios, and what the path did. Of several results, the first is what the others are
    /// compared with.
    ///
    /// Exit codes: 0: written; 1: a result cannot be read, or the report not written; 2: a wrong command line.
    Report(report::ReportArgs),
    /// Run one variant alone, where an experiment has a profiler watch it
    #[command(hide = true)]
    Alone {
        /// The experiment
        name: String,
        /// What it says to itself
        arguments: Vec<String>,
    },
}

impl LabArgs {
    /// `--json` was given behind the subcommand's name.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            LabCommand::Compare(args) => args.json.json,
            LabCommand::Gate(args) => args.json.json,
            LabCommand::Bisect(args) => args.json.json,
            LabCommand::Founding(args) => args.json.json,
            LabCommand::Models(args) => args.json.json,
            _ => false,
        }
    }
}

/// Does what `lab` was asked for.
pub(crate) fn run(args: &LabArgs, context: &mut Context) -> Result<(), Failure> {
    match &args.command {
        LabCommand::Run(args) => run::run(args, context),
        LabCommand::Import(args) => import::run(args, context),
        LabCommand::List => list::run(context),
        LabCommand::Compare(args) => compare::run(args, context),
        LabCommand::Gate(args) => gate::run(args, context),
        LabCommand::Bisect(args) => bisect::run(args, context),
        LabCommand::Step(args) => step::run(args, context),
        LabCommand::Founding(args) => founding::run(args, context),
        LabCommand::Models(args) => models::run(args, context),
        LabCommand::Report(args) => report::run(args, context),
        LabCommand::Alone { name, arguments } => throughline_lab::alone(name, arguments)
            .map_err(|error| Problem::new(error.to_string()).met(format!("cannot run {name}"))),
    }
}
