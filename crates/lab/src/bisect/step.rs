//! `lab step`: one commit, the one that is checked out, sorted for `git bisect run`, which chooses the commits itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::bench::Bench;
use super::git::{self, Git};
use super::result::Mark;
use super::search::Search;
use super::state::State;
use super::trees::Trees;
use super::{Limits, Outlook, Plan, Watch, folder_of};
use crate::record::Better;
use crate::{Error, Result};

/// What becomes of the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sorted {
    /// `git bisect good`: 0.
    Good,
    /// `git bisect bad`: 1.
    Bad,
    /// `git bisect skip`: 125. It could not be built, measured, or sorted.
    Skip,
}

/// Builds what is checked out in `dir`, in place, and measures it beside the plan's good end, which is built once, in a
/// worktree of its own that stays for the next commit.
///
/// With a bad end in the plan, which is measured once, the commit is sorted by the level half-way between the two; without
/// one, by the plan's threshold. The plan's confidence holds for each commit by itself. What is known of the ends is kept; the
/// commit itself is always measured anew, as the checkout may not be what it was.
///
/// # Errors
/// Where the ends cannot be built, measured, or told apart, and as [`super::Bisection::run`].
pub fn sort_checkout(
    dir: &Path,
    plan: &Plan,
    limits: Limits,
    folder: Option<&Path>,
    watch: &dyn Watch,
    at: &str,
) -> Result<Sorted> {
    let git = Git::of(dir)?;
    let checkout = git::checkout(dir)?;
    let head = git::resolve(dir, "HEAD")?;
    if head == plan.good {
        return Ok(Sorted::Good);
    }
    if Some(&head) == plan.bad.as_ref() {
        return Ok(Sorted::Bad);
    }
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => folder_of(plan, &git)?,
    };
    let mut state = State::open(&folder, plan, at, false)?;
    state.forget(&head)?;
    let mut ends = vec![plan.good.clone()];
    ends.extend(plan.bad.clone());
    state.forget_failures(&ends)?;
    let trees = Trees::in_folder(state.folder().join("trees"));
    // The mark of a build of this commit from an earlier time, which is no longer what is checked out.
    let trees = trees.with_checkout(head.clone(), checkout);
    trees.remove(&git, &head)?;
    let bench = Bench {
        plan,
        limits,
        git: &git,
        trees: &trees,
        state: &mut state,
        watch,
        outlook: Outlook::default(),
        warm: BTreeSet::new(),
        commits: BTreeMap::new(),
    };
    let mark = sort(bench, plan, &head)?;
    Ok(match mark {
        Mark::Good => Sorted::Good,
        Mark::Bad => Sorted::Bad,
        _ => Sorted::Skip,
    })
}

fn sort(bench: Bench<'_>, plan: &Plan, head: &str) -> Result<Mark> {
    let alpha = 1.0 - plan.terms.confidence;
    let Some(bad) = &plan.bad else {
        let share = plan.terms.threshold_percent / 100.0;
        let level = match plan.terms.better {
            Better::Higher => 1.0 - share,
            Better::Lower => 1.0 + share,
        };
        return Search::new(bench, &plan.good, alpha).sort_by(level, head);
    };
    let mut search = Search::new(bench, bad, alpha);
    // Half of what may go wrong is for the ends, and half for the commit.
    if let Some(found) = search.ends(2)? {
        return Err(Error::new(format!("the two ends: {}", found.in_short())));
    }
    search.sort(head, 1)
}

/// Removes what the steps of a plan have left: the worktrees of its ends, logs and what was measured.
///
/// # Errors
/// Where another step is at work, and what git or the system says.
pub fn end_steps(dir: &Path, plan: &Plan, folder: Option<&Path>, at: &str) -> Result<()> {
    let git = Git::of(dir)?;
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => folder_of(plan, &git)?,
    };
    let state = State::open(&folder, plan, at, false)?;
    Trees::in_folder(state.folder().join("trees")).remove_all(&git)?;
    state.remove()
}
