//! Everything that a workload did and was promised.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::content::FileHistory;
use super::names::{Id, NameHistory, Names, Span, is_in};

/// The history of an actor: a thread with its own names and files.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lane {
    pub number: u32,
    pub names: NameHistory,
    pub files: BTreeMap<Id, FileHistory>,
    /// Syncs of its own directory, with the number of name operations that each covers.
    pub home_syncs: Vec<(usize, Span)>,
}

/// The history of all actors.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    pub lanes: Vec<Lane>,
    /// Syncs of the whole volume.
    pub syncs: Vec<Span>,
}

impl Lane {
    /// Its own directory.
    pub fn home(number: u32) -> String {
        format!("/lane{number}")
    }

    /// Prefix of its names in the shared directory.
    pub fn shared(number: u32) -> String {
        format!("/shared/lane{number}-")
    }

    /// Whether a path belongs to the actor.
    pub fn owns(&self, path: &str) -> bool {
        is_in(path, &Lane::home(self.number)) || path.starts_with(&Lane::shared(self.number))
    }

    /// Number of name operations that must have happened if power fails at `at`.
    pub fn sure(&self, trees: &[Names], whole: &[Span], at: usize) -> usize {
        let whole = whole.iter().filter(|sync| sync.done_by(at));
        let whole = whole.map(|sync| self.names.covered(*sync));
        let single = self.files.keys().map(|id| self.sure_for(trees, *id, at));
        let home = self.home_syncs.iter().filter(|(_, sync)| sync.done_by(at));
        let home = home.map(|(covered, _)| *covered);
        whole.chain(single).chain(home).max().unwrap_or(0)
    }

    /// The same, by syncs of this file only.
    pub fn sure_for(&self, trees: &[Names], id: Id, at: usize) -> usize {
        let syncs = self.files[&id].syncs.iter();
        let syncs = syncs.filter(|sync| sync.done_by(at));
        let covered = syncs.map(|sync| self.names.covered_for(trees, id, *sync));
        covered.max().unwrap_or(0)
    }
}
