//! The syntax of the command line: that of `throughline`, but only for what this program does.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;
use throughline_face::globals::Globals;
use throughline_fuse::MountOptions;

use crate::context::Context;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;
use crate::{bisect, compare, founding, gate, generate, list, report, run};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "throughline", max_term_width = 100)]
pub(crate) struct Cli {
    /// Print results as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Options for all commands.
    #[command(flatten)]
    pub(crate) globals: Globals,
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands of `throughline` that this program runs.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure, compare, bisect and report on I/O paths: ours, or that of any file system
    #[command(version, disable_version_flag = true, arg = version())]
    Lab(LabArgs),
}

/// The option `--version`, which `throughline lab --help` does not show.
fn version() -> Arg {
    let version = Arg::new("version").short('V').long("version");
    version.action(ArgAction::Version).hide(true)
}

/// Arguments of `lab`.
#[derive(Args, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Run an experiment, a job file of fio or commands, with all variants or targets interleaved, and record
    /// the figures
    ///
    /// Commands do their own work: cmd:COMMAND is run by sh -c, in a new process for each sample, in the
    /// current directory or in ?dir=DIR. Measured are its elapsed time, its processor time and, with
    /// --figure, the number that it prints. To measure two builds side by side: --target
    /// 'cmd:./bench?dir=old' --target 'cmd:./bench?dir=new'.
    ///
    /// A job file of fio (JOB.fio) is run by fio, once for each sample, on every target: in a new directory
    /// in dir:PATH; in a file system made for the run, as root on a loop device (make:ext4, make:xfs,
    /// make:btrfs, with ?mkfs=ARGUMENTS&mount=OPTIONS), by our FUSE mount (mount:, with
    /// ?mount=cache_size=64M) or by fuse2fs (fuse2fs:); or on file:PATH, a file or block device, to which
    /// jobs can write only with --overwrite. ?size=8G makes a file system large enough for 8 GiB; by default,
    /// it has room for the sizes of the jobs. Recorded are fio's bandwidth, IOPS and completion latencies. A
    /// job must not name a place outside the target (directory=, a filename= with another directory). Files
    /// are kept for the next round, unless the job says unlink=1.
    ///
    /// Each round measures every target once, in a new random order.
    ///
    /// Everything that the run makes is removed at its end. Only kill -9 leaves files and directories named
    /// throughline-lab-… in the directory of a target or of --dir; if a file system was just being made, also
    /// its loop device (see losetup -a) and its mount (see findmnt). They can be removed safely.
    ///
    /// Each sample is written to the result file at once; Ctrl-C ends the run and keeps the samples taken so
    /// far.
    ///
    /// Exit codes: 0: completed; 1: failed; 2: wrong command line; 130: interrupted.
    Run(run::RunArgs),
    /// List the experiments
    List,
    /// Compare two commands, two targets or recorded runs: differences, and their confidence
    ///
    /// Two commands or targets (cmd:, or with --workload those of 'lab run') are measured now, interleaved,
    /// one sample of each per round, until the answer is certain, with at most --rounds rounds (1000). The
    /// run is recorded in a file. Two series of one recorded run, named by --base-series and --new-series,
    /// are compared in the same way, by the samples of each round.
    ///
    /// Samples of one run share its conditions: the location of its files and memory, and the state of the
    /// machine. So runs in separate files are compared as runs, each by its median. Two files alone are one
    /// pair, which proves nothing, however many samples they have. Of several files (--base FILE... --new
    /// FILE...), two runs taken directly after one another are a pair: take them in turn, nine per side for
    /// 99.5 %.
    ///
    /// A verdict is 'faster', 'slower', 'no difference' larger than --threshold, or 'not enough evidence'. It
    /// uses signed ranks, not means, so its error rate is bounded by --confidence for any noise, and however
    /// early the run ended; the confidence covers all lines of the table together. No sample is dropped, but
    /// for those of --skip.
    ///
    /// Exit codes: 0: compared, whatever the result; 1: failed; 2: wrong command line; 130: interrupted.
    Compare(Box<compare::CompareArgs>),
    /// Report by exit code whether a command or run is worse than another, for CI
    ///
    /// Compares as 'lab compare' does and checks regressions against limits: --max-regression for every
    /// quantity, --limit for single ones. A quantity passes if its regression is certainly below the limit,
    /// and fails if it is certainly above. If the limit lies within the interval of the regression, the
    /// result is uncertain. Commands and targets are measured until the result is certain.
    ///
    /// Example: throughline lab gate 'cmd:./bench?dir=old' 'cmd:./bench?dir=new' --max-regression 3
    ///
    /// Exit codes: 0: all quantities are within their limits; 1: a limit is exceeded; 2: not enough evidence:
    /// use more rounds (for files, more runs) or a larger limit; 64: wrong command line; 65: the runs cannot
    /// be read or compared.
    Gate(Box<gate::GateArgs>),
    /// Find the commit that caused a slowdown
    ///
    /// Compares the bad commit with the good one, then bisects the range. Each candidate is measured against
    /// the good commit, in pairs of runs, until it is certain on which side it lies. The commit found is
    /// measured against its parent until the size of its change is known (--size-pairs). This uses temporary
    /// worktrees; the checkout is not touched. Commits that cannot be built or measured are skipped. After an
    /// interruption, or if it was killed, the same command continues.
    ///
    /// The commands are run by sh -c at the top of a worktree, without a terminal, with THROUGHLINE_REV (the
    /// commit), THROUGHLINE_ROLE (good, bad or candidate), THROUGHLINE_TREE (the worktree),
    /// THROUGHLINE_REPOSITORY (its git directory), THROUGHLINE_STATE (a directory with logs of their output)
    /// and THROUGHLINE_PAIR (the number of the pair of runs; 0 for a build and for the first, uncounted run).
    ///
    /// Exit codes: 0: one commit was found; 1: failed; 2: wrong command line, or the bad commit is the better
    /// one; 3: one of several commits, because those between them could not be built or measured; 4: no
    /// difference between good and bad larger than the threshold, or none detectable; 5: the commit found
    /// shows no change compared with its parent; 130: interrupted.
    ///
    /// Example: throughline lab bisect --good v1.0 --bad main --build 'make -j8' --measure './bench --seconds
    /// 10 | tail -n 1'
    Bisect(Box<bisect::BisectArgs>),
    /// Reproduce the five reports that the project started from: their claims and the results here
    ///
    /// Each runs on the disk of --dir, in memory and on models of the reporters' devices, with
    /// negative controls: the report's old way, ours, the kernel's, and the project's limits with their
    /// results. Needs mke2fs; without root and loop devices, the kernel's column is empty. Takes minutes with
    /// --scale 10, half an hour in full.
    ///
    /// Exit codes: 0: all ran, whatever the results; 1: one failed; 2: wrong command line; 130: interrupted.
    Founding(founding::FoundingArgs),
    /// Write a report of results: an HTML page with pictures
    ///
    /// The page is one self-contained file: the tables that the terminal shows, samples, latencies, ratios,
    /// bios over time, and accounts of the I/O path. Of several results, the first is the base.
    ///
    /// Exit codes: 0: written; 1: a result cannot be read, or the report cannot be written; 2: wrong command
    /// line.
    Report(report::ReportArgs),
    /// Print completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages of these commands
    #[command(hide = true)]
    Man {
        /// The directory
        dir: PathBuf,
    },
    /// Run one variant by itself, for an experiment that profiles it
    #[command(hide = true)]
    Alone {
        /// The experiment
        name: String,
        /// The experiment's own arguments
        arguments: Vec<String>,
    },
    /// Mount a server without a volume, for an experiment that measures the minimum cost of a request
    #[command(hide = true)]
    Null {
        /// The mount point
        dir: PathBuf,
        /// Mount options
        #[arg(short, value_name = "OPTIONS")]
        options: Vec<String>,
    },
}

impl Command {
    /// Whether `--json` was given after the command's name.
    pub(crate) fn json(&self) -> bool {
        let Command::Lab(args) = self;
        args.json()
    }
}

impl LabArgs {
    /// Whether `--json` was given after the subcommand's name.
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            LabCommand::Compare(args) => args.json.json,
            LabCommand::Gate(args) => args.json.json,
            LabCommand::Bisect(args) => args.json.json,
            LabCommand::Founding(args) => args.json.json,
            _ => false,
        }
    }

    /// Runs the command.
    pub(crate) fn run(&self, context: &mut Context) -> Result<(), Failure> {
        match &self.command {
            LabCommand::Run(args) => run::run(args, context),
            LabCommand::List => list::run(context),
            LabCommand::Compare(args) => compare::run(args, context),
            LabCommand::Gate(args) => gate::run(args, context),
            LabCommand::Bisect(args) => bisect::run(args, context),
            LabCommand::Founding(args) => founding::run(args, context),
            LabCommand::Report(args) => report::run(args, context),
            LabCommand::Completions { shell } => generate::completions(*shell, context),
            LabCommand::Man { dir } => generate::man(dir),
            LabCommand::Alone { name, arguments } => {
                throughline_lab::alone(name, arguments).doing(|| format!("cannot run {name}"))
            }
            LabCommand::Null { dir, options } => null(dir, options),
        }
    }
}

fn null(dir: &Path, lists: &[String]) -> Result<(), Failure> {
    let mut options = MountOptions::default();
    for list in lists {
        let added = options.add(list);
        added.map_err(|error| Failure::Usage(error.to_string()))?;
    }
    throughline_fuse::serve_null(dir, &options).map_err(|error| {
        Problem::new(error.to_string()).met(format!("cannot serve {}", quote(dir)))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use throughline_face::command_line::assert_consistent;

    #[test]
    fn the_model_is_consistent() {
        let commands = assert_consistent(super::Cli::command());
        assert!(commands > 10, "{commands} commands");
    }
}
