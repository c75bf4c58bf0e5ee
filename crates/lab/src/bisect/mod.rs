//! [`Bisection`]: finds the commit that caused a slowdown. It halves the range of commits in worktrees, and
//! measures each commit against the good end until the answer is certain.
//!
//! ```text
//! ends     measure the bad end against the good one: is there a difference, and how large?
//! halves   git names the commit that halves the range; build it, and measure it against the good end until
//!          it is certain on which side of the half-way level it lies; pass over a commit that cannot be
//!          built or measured
//! confirm  measure the last commit left against its parent: this gives the size of its change
//! ```
//!
//! Invariants:
//! - The user's checkout, index and branches are never changed.
//! - Every figure is logged (`state`) before the next one is taken; the same command resumes where the last
//!   one was interrupted or killed.
//! - However a bisection ends, except by an interruption, it leaves no worktree.

mod bench;
mod choose;
mod evidence;
mod git;
mod result;
mod search;
mod state;
mod table;
mod trees;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::record::Better;
use crate::{Error, Result};
use bench::Bench;
use git::Git;
use search::Search;
use state::{Event, State};
use trees::Trees;

pub use evidence::Level;
pub use git::Commit;
pub use result::{Found, Mark, Outcome, Step, Trial};

/// How commits are built, measured and judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// The command that builds a commit, run by `sh -c` in its worktree.
    pub build: String,
    /// The command that measures it, and prints a number above 0 as its last line.
    pub measure: String,
    /// Which direction is better.
    pub better: Better,
    /// Changes up to this size count as none, in percent.
    pub threshold_percent: f64,
    /// Confidence in all decisions together: above 0.5 and below 1.
    pub confidence: f64,
    /// Maximum pairs per commit.
    pub max_pairs: usize,
    /// Maximum pairs for measuring the commit found against its parent, to determine the size of its change.
    /// If the search needed more pairs, those are used.
    pub size_pairs: usize,
    /// Follow only the first parent of merges.
    pub first_parent: bool,
}

/// What to bisect: everything that the answer depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The directory with the repository's objects.
    pub repository: PathBuf,
    /// The good end's full object name.
    pub good: String,
    /// The bad end's full object name; `None` if a single commit is classified without a bad end.
    pub bad: String,
    /// How to build, measure and judge commits.
    #[serde(flatten)]
    pub terms: Terms,
}

/// A bisection as requested by the user.
#[derive(Clone, Debug)]
pub struct Request {
    /// A directory in the repository.
    pub dir: PathBuf,
    /// The good end, as named by the user.
    pub good: String,
    /// The bad end, as named by the user.
    pub bad: String,
    /// How to build, measure and judge commits.
    pub terms: Terms,
}

/// Timeouts of commands.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limit for a build.
    pub build: Duration,
    /// Time limit for one run of the measurement.
    pub measure: Duration,
}

/// Overall progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlook {
    /// The current step, from 1: the ends are the first.
    pub step: usize,
    /// The estimated number of steps.
    pub steps: usize,
    /// Seconds per pair of runs; 0 if unknown.
    pub pair_s: f64,
    /// Seconds per build.
    pub build_s: f64,
}

/// A progress report.
#[derive(Clone, Copy, Debug)]
pub enum Update<'a> {
    /// A message.
    Note(&'a str),
    /// A commit is being built.
    Building(&'a Commit),
    /// A commit is being measured.
    Measuring {
        /// The commit.
        commit: &'a Commit,
        /// Pairs measured so far.
        pairs: usize,
        /// The maximum number of pairs.
        most: usize,
    },
    /// A commit is finished.
    Step(&'a Step),
}

/// Receives progress, and may end the bisection.
pub trait Watch {
    /// Receives a progress report.
    fn report(&self, outlook: &Outlook, what: Update<'_>);
    /// Polled ten times a second while a command runs. An error ends the bisection, which can be resumed
    /// later.
    ///
    /// # Errors
    /// If the user wants to stop.
    fn check(&self) -> Result<()>;
}

impl Request {
    /// Resolves the request in git.
    ///
    /// # Errors
    /// All are faults of the request: no repository, an unknown commit, or a good end that is not an ancestor
    /// of the bad one.
    pub fn plan(&self) -> Result<Plan> {
        let git = Git::of(&self.dir)?;
        let good = git::resolve(&self.dir, &self.good)?;
        let bad = git::resolve(&self.dir, &self.bad)?;
        self.check_ends(&git, &good, &bad)?;
        Ok(Plan {
            repository: git.common().to_owned(),
            good,
            bad,
            terms: self.terms.clone(),
        })
    }

    fn check_ends(&self, git: &Git, good: &str, bad: &str) -> Result<()> {
        let (good_name, bad_name) = (&self.good, &self.bad);
        if good == bad {
            return Err(Error::new(format!(
                "'{good_name}' and '{bad_name}' are the same commit: name an earlier one with --good, \
                 or a later one with --bad"
            )));
        }
        if git.is_ancestor(good, bad)? {
            return Ok(());
        }
        let next = if git.is_ancestor(bad, good)? {
            "the order is reversed. Name the earlier commit with --good; if that is the worse one, reverse \
             --better to find the commit that made it better"
                .to_owned()
        } else if let Some(base) = git.merge_base(good, bad) {
            format!("both descend from {base}: if that is a good commit, name it with --good")
        } else {
            format!("they have no history in common; {}", git.where_history_is())
        };
        Err(Error::new(format!(
            "'{bad_name}' is not a descendant of '{good_name}': {next}"
        )))
    }
}

/// A bisection with its state.
#[derive(Debug)]
pub struct Bisection {
    git: Git,
    plan: Plan,
    limits: Limits,
    state: State,
    trees: Trees,
}

/// The directory for a plan's state: the user's choice, or the default.
fn folder_of(plan: &Plan, git: &Git, chosen: Option<&Path>) -> Result<PathBuf> {
    if let Some(folder) = chosen {
        return Ok(folder.to_owned());
    }
    let text = serde_json::to_string(plan)?;
    let digest = git.digest(&text)?;
    Ok(state::home()?.join(format!("{}-{}", git.name(), &digest[..12])))
}

impl Bisection {
    /// Starts, or resumes what an earlier run of the same plan left; `restart` discards that. `at` is the
    /// current time, in RFC 3339.
    ///
    /// # Errors
    /// If the state cannot be kept, or another process is using it.
    pub fn open(
        plan: Plan,
        limits: Limits,
        folder: Option<&Path>,
        restart: bool,
        at: &str,
    ) -> Result<Bisection> {
        let git = Git::of(&plan.repository)?;
        let folder = folder_of(&plan, &git, folder)?;
        let state = State::open(&folder, &plan, at, restart)?;
        let trees = Trees::in_folder(state.folder().join("trees"));
        if state.events.len() <= 1 {
            trees.remove_all(&git)?;
        }
        Ok(Bisection {
            git,
            plan,
            limits,
            state,
            trees,
        })
    }

    /// The directory of its state and logs.
    pub fn folder(&self) -> &Path {
        self.state.folder()
    }

    /// What is bisected.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The number of pairs measured by earlier runs.
    pub fn pairs_before(&self) -> usize {
        self.state.all_pairs().count()
    }

    /// Whether an earlier run finished. Then [`Bisection::run`] gives the same answer without measuring
    /// again.
    pub fn has_ended(&self) -> bool {
        self.state.has_ended()
    }

    /// When it started: RFC 3339.
    pub fn began(&self) -> &str {
        self.state.began()
    }

    /// Runs the bisection. `now` returns the current time in RFC 3339.
    ///
    /// # Errors
    /// If an end cannot be built or measured, if git or the system fails, and errors of `watch`. After an
    /// error of `watch` the worktrees stay, so that the bisection can be resumed.
    pub fn run(mut self, watch: &dyn Watch, now: &dyn Fn() -> String) -> Result<Outcome> {
        let end = self.plan.bad.clone();
        let alpha = 1.0 - self.plan.terms.confidence;
        let (git, trees) = (&self.git, &self.trees);
        let bench = Bench::new(
            &self.plan,
            self.limits,
            (git, trees, &mut self.state),
            watch,
        );
        let found = Search::new(bench, &end, alpha).run();
        let mut outcome = match found {
            Ok(outcome) => outcome,
            Err(error) => return Err(self.end_without_answer(error, watch, &end)),
        };
        self.trees.remove_all(&self.git)?;
        if !self.state.has_ended() {
            self.state.note(Event::End { at: now() })?;
        }
        outcome.describe(&self.plan, self.state.folder());
        let record = outcome.record(&self.plan, self.state.all_pairs(), self.state.began());
        record.write(&self.state.folder().join("record.jsonl"))?;
        Ok(outcome)
    }

    /// Removes the worktrees, except after an interruption. Returns the error to report, with any failure of
    /// the cleanup.
    fn end_without_answer(&mut self, error: Error, watch: &dyn Watch, end: &str) -> Error {
        let removed = match watch.check() {
            Ok(()) => self.trees.remove_all(&self.git),
            Err(_) => Ok(()),
        };
        // An end that could not be built or measured may work next time.
        let ends = [self.plan.good.clone(), end.to_owned()];
        let forgotten = self.state.forget_failures(&ends);
        let more = [removed, forgotten];
        more.into_iter()
            .filter_map(Result::err)
            .fold(error, |error, more| {
                Error::new(format!("{error}; then: {more}"))
            })
    }

    /// Removes everything: worktrees, logs and measurements.
    ///
    /// # Errors
    /// Errors of git or the system.
    pub fn abandon(self) -> Result<()> {
        self.trees.remove_all(&self.git)?;
        self.state.remove()
    }
}
