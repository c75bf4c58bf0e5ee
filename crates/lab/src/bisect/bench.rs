//! [`Bench`]: builds commits and measures them in pairs, or reuses measurements from an earlier run of the
//! same bisection.
//!
//! Invariants:
//! - Nothing is built until a pair is needed that is not in the log.
//! - A pair is two runs, one right after the other; their order alternates from pair to pair. Each commit is
//!   run once before its first pair, after its build and after each start of this program. This run is not
//!   counted.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::git::{Commit, Git, LOCAL_VARIABLES};
use super::state::{Event, Pair, State};
use super::trees::Trees;
use super::{Limits, Plan, Watch};
use crate::shell::{Ended, STATE_VARIABLE, Shell, figure};
use crate::{Error, Result};

/// Why a commit cannot be measured: its build or measurement failed, with the end of the output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Fault {
    /// The commit.
    pub(super) id: String,
    /// The reason.
    pub(super) why: String,
}

/// Why there is no figure: a [`Fault`] concerns only its commit, an error ends the bisection.
#[derive(Debug)]
pub(super) enum Trouble {
    Commit(Fault),
    Bisection(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Bisection(error)
    }
}

/// The result of work on a commit.
pub(super) type Tried<T> = std::result::Result<T, Trouble>;

/// Builds and measures.
pub(super) struct Bench<'a> {
    /// What to bisect.
    pub(super) plan: &'a Plan,
    /// Timeouts of commands.
    pub(super) limits: Limits,
    /// The repository.
    pub(super) git: &'a Git,
    /// The worktrees.
    pub(super) trees: &'a Trees,
    /// What is known so far.
    pub(super) state: &'a mut State,
    /// Receives progress.
    pub(super) watch: &'a dyn Watch,
    /// The number of the current step in words, for progress.
    pub(super) step: String,
    /// Commits that have run since their build, or since this program started.
    pub(super) warm: BTreeSet<String>,
    /// Commit data from git.
    pub(super) commits: BTreeMap<String, Commit>,
}

impl Bench<'_> {
    /// Reports what is being done.
    pub(super) fn doing(&self, what: &str) {
        self.watch.doing(&format!("{}{what}", self.step));
    }

    /// The figures of `base` and `new` in pair number `index` (from 0).
    pub(super) fn pair(&mut self, base: &str, new: &str, index: usize) -> Tried<(f64, f64)> {
        if let Some(pair) = self.state.pairs(new, base).get(index) {
            return Ok(*pair);
        }
        self.prepare(base)?;
        self.prepare(new)?;
        let number = self.state.all_pairs().count() + 1;
        let mut order = [base, new];
        if index % 2 == 1 {
            order.reverse();
        }
        let mut values = [0.0; 2];
        for (value, id) in values.iter_mut().zip(order) {
            *value = self.measure_or_again(id, number)?;
        }
        if index % 2 == 1 {
            values.reverse();
        }
        let [base_value, new_value] = values;
        self.state.note(Event::Pair(Pair {
            base: base.to_owned(),
            new: new.to_owned(),
            base_value,
            new_value,
        }))?;
        Ok((base_value, new_value))
    }

    /// Builds a commit and runs it once.
    fn prepare(&mut self, id: &str) -> Tried<()> {
        if let Some(why) = self.state.failure(id) {
            let (id, why) = (id.to_owned(), why.to_owned());
            return Err(Trouble::Commit(Fault { id, why }));
        }
        if !self.warm.contains(id) {
            if !self.trees.is_built(id) {
                self.build(id)?;
            }
            self.measure_or_again(id, 0)?;
            self.warm.insert(id.to_owned());
        }
        Ok(())
    }

    /// Builds a commit in a fresh worktree.
    pub(super) fn build(&mut self, id: &str) -> Tried<()> {
        let commit = self.commit(id)?;
        self.doing(&format!("building {}", commit.short));
        self.trees.make(self.git, id)?;
        match self.shell("build", &commit, self.limits.build_s, 0)? {
            Ended::Well(_) => Ok(self.trees.built(id)?),
            Ended::Badly(how) => {
                self.trees.remove(self.git, id)?;
                Err(self.fault(id, format!("the build {how}")))
            }
        }
    }

    /// Logs why a commit cannot be measured, but for an end, which may work next time.
    fn fault(&mut self, id: &str, why: String) -> Trouble {
        let fault = Fault {
            id: id.to_owned(),
            why,
        };
        let noted = match id == self.plan.good || id == self.plan.bad {
            true => Ok(()),
            false => self.state.note(Event::Fault(fault.clone())),
        };
        noted.map_or_else(Trouble::from, |()| Trouble::Commit(fault))
    }

    /// Measures a commit for pair number `pair` (0: for no pair). If that fails, measures once more.
    fn measure_or_again(&mut self, id: &str, pair: usize) -> Tried<f64> {
        let commit = self.commit(id)?;
        let mut why = String::new();
        for attempt in 0..2 {
            let ended = self.shell("measure", &commit, self.limits.measure_s, pair)?;
            why = match ended {
                Ended::Well(text) => match figure(&text) {
                    Ok(value) => return Ok(value),
                    Err(why) => why,
                },
                Ended::Badly(how) => format!("the measurement {how}"),
            };
            if attempt == 0 {
                let note = format!("{}: {why}\n  it is run once more", commit.short);
                self.watch.note(&note);
            }
        }
        Err(self.fault(id, why))
    }

    /// A commit's data from git.
    pub(super) fn commit(&mut self, id: &str) -> Result<Commit> {
        if let Some(commit) = self.commits.get(id) {
            return Ok(commit.clone());
        }
        let commit = self.git.commit(id)?;
        self.commits.insert(id.to_owned(), commit.clone());
        Ok(commit)
    }

    fn shell(&self, what: &str, commit: &Commit, limit_s: u64, pair: usize) -> Result<Ended> {
        let dir = self.trees.path(&commit.id);
        let folder = self.state.folder();
        let role = match &commit.id {
            id if *id == self.plan.good => "good",
            id if *id == self.plan.bad => "bad",
            _ => "candidate",
        };
        let text = |text: &str| OsString::from(text);
        let line = match what {
            "build" => &self.plan.terms.build,
            _ => &self.plan.terms.measure,
        };
        Shell {
            line,
            dir: &dir,
            variables: vec![
                ("THROUGHLINE_REV", text(&commit.id)),
                ("THROUGHLINE_ROLE", text(role)),
                ("THROUGHLINE_TREE", dir.clone().into_os_string()),
                ("THROUGHLINE_REPOSITORY", self.git.common().into()),
                ("THROUGHLINE_PAIR", text(&pair.to_string())),
                (STATE_VARIABLE, folder.into()),
            ],
            without: &LOCAL_VARIABLES,
            limit: Duration::from_secs(limit_s),
            log: &folder.join(format!("logs/{}-{what}.log", commit.short)),
            running: &folder.join("running"),
            check: &|| self.watch.check(),
        }
        .run()
    }
}
