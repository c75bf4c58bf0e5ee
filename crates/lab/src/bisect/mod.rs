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

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::{Args, value_parser};
use serde::{Deserialize, Serialize};
use throughline_face::text::quote;

use crate::percent::{better, percent};
use crate::record::Better;
use crate::{Error, Result};
use bench::Bench;
use git::Git;
use search::Search;
use state::{Event, State};
use trees::Trees;

pub use evidence::Level;
pub use git::Commit;
pub use result::{Answer, Found, Mark, Outcome, Step, Trial};

/// How commits are built, measured and judged.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Command that builds a commit; run by sh -c in a worktree of it
    #[arg(long, value_name = "CMD")]
    pub build: String,
    /// Command that measures it, in the same place; its last line of standard output must be a number above 0
    #[arg(long, value_name = "CMD")]
    pub measure: String,
    /// Whether higher or lower numbers are better
    #[arg(long, value_name = "WAY", default_value = "higher", value_parser = better())]
    pub better: Better,
    /// A change up to this size, in percent, counts as none
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0, value_parser = threshold)]
    pub threshold: f64,
    /// Required confidence of the answer, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 99.0, value_parser = confidence)]
    pub confidence: f64,
    /// Maximum pairs of runs, one of the good commit and one of the candidate, to classify a candidate
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = value_parser!(u32).range(1..=100_000))]
    pub max_pairs: u32,
    /// Maximum pairs of runs of the commit found and its parent, to determine the size of the change; stops
    /// earlier when the size is known to within a fifth. 0: use only the pairs of the search
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = value_parser!(u32).range(..=100_000))]
    pub size_pairs: u32,
    /// Follow only the first parent of merges: finds the merge that introduced the change
    #[arg(long)]
    pub first_parent: bool,
}

/// Timeouts of commands.
#[derive(Args, Clone, Copy, Debug)]
pub struct Limits {
    /// A build that takes longer counts as failed
    #[arg(
        long = "build-timeout",
        value_name = "SECONDS",
        default_value_t = 7200,
        value_parser = value_parser!(u64).range(1..=MAX_LIMIT_S)
    )]
    pub build_s: u64,
    /// A measurement that takes longer counts as failed
    #[arg(
        long = "measure-timeout",
        value_name = "SECONDS",
        default_value_t = 3600,
        value_parser = value_parser!(u64).range(1..=MAX_LIMIT_S)
    )]
    pub measure_s: u64,
}

/// Maximum limit for one run: 31 days.
const MAX_LIMIT_S: u64 = 31 * 24 * 3600;

impl Terms {
    /// The probability of a wrong answer that is allowed.
    fn alpha(&self) -> f64 {
        1.0 - self.confidence / 100.0
    }
}

fn threshold(text: &str) -> std::result::Result<f64, String> {
    match percent(text)? {
        percent if percent <= 90.0 => Ok(percent),
        _ => Err("the threshold must be 0 to 90 percent".to_owned()),
    }
}

fn confidence(text: &str) -> std::result::Result<f64, String> {
    match percent(text)? {
        percent if (60.0..=99.9999).contains(&percent) => Ok(percent),
        _ => Err("the confidence must be 60 to 99.9999 percent".to_owned()),
    }
}

/// What to bisect: everything that the answer depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The directory with the repository's objects.
    pub repository: PathBuf,
    /// The good end's full object name.
    pub good: String,
    /// The bad end's full object name.
    pub bad: String,
    /// How to build, measure and judge commits.
    #[serde(flatten)]
    pub terms: Terms,
}

/// Receives progress, and may end the bisection.
pub trait Watch {
    /// Receives what is being done.
    fn doing(&self, what: &str);
    /// Receives a result, or another message.
    fn note(&self, text: &str);
    /// Polled ten times a second while a command runs. An error ends the bisection, which can be resumed
    /// later.
    ///
    /// # Errors
    /// If the user wants to stop.
    fn check(&self) -> Result<()>;
}

impl Plan {
    /// Resolves the user's names for the ends, in a directory of the repository.
    ///
    /// # Errors
    /// All are faults of the request: no repository, an unknown commit, or a good end that is not an ancestor
    /// of the bad one.
    pub fn of(dir: &Path, good_name: &str, bad_name: &str, terms: &Terms) -> Result<Plan> {
        let git = Git::of(dir)?;
        let plan = Plan {
            repository: git.common().to_owned(),
            good: git::resolve(dir, good_name)?,
            bad: git::resolve(dir, bad_name)?,
            terms: terms.clone(),
        };
        let (good, bad) = (plan.good.as_str(), plan.bad.as_str());
        if good == bad {
            return Err(Error::new(format!(
                "'{good_name}' and '{bad_name}' are the same commit: name an earlier one with --good, \
                 or a later one with --bad"
            )));
        }
        if git.is_ancestor(good, bad)? {
            return Ok(plan);
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

    /// What is known before it runs, in words.
    pub fn known(&self) -> String {
        let (began, folder) = (self.state.began(), quote(self.state.folder()));
        match self.state.all_pairs().count() {
            _ if self.state.has_ended() => format!(
                "using the measurements of an earlier run (started {began}, {folder}); --restart discards them"
            ),
            0 => format!("logs and state are in {folder}"),
            pairs => format!(
                "continuing the bisection started {began}: {pairs} pairs are measured ({folder})"
            ),
        }
    }

    /// Runs the bisection. `now` returns the current time in RFC 3339.
    ///
    /// # Errors
    /// If an end cannot be built or measured, if git or the system fails, and errors of `watch`. After an
    /// error of `watch` the worktrees stay, so that the bisection can be resumed.
    pub fn run(mut self, watch: &dyn Watch, now: &dyn Fn() -> String) -> Result<Outcome> {
        let bench = Bench {
            plan: &self.plan,
            limits: self.limits,
            git: &self.git,
            trees: &self.trees,
            state: &mut self.state,
            watch,
            step: String::new(),
            warm: BTreeSet::new(),
            commits: BTreeMap::new(),
        };
        let found = Search::new(bench).run();
        // After an interruption, the worktrees stay.
        if found.is_ok() || watch.check().is_ok() {
            let removed = self.trees.remove_all(&self.git);
            if let (Err(error), Err(more)) = (&found, &removed) {
                return Err(Error::new(format!("{error}; then: {more}")));
            }
            removed?;
        }
        let outcome = found?;
        if !self.state.has_ended() {
            self.state.note(Event::End { at: now() })?;
        }
        Ok(outcome)
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
