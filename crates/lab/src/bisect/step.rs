//! `lab step`: classifies the commit that is checked out, for `git bisect run`, which chooses the commits.

use std::path::Path;

use super::bench::Bench;
use super::git::{self, Git};
use super::result::Mark;
use super::search::Search;
use super::state::State;
use super::trees::Trees;
use super::{Limits, Plan, Watch, folder_of};
use crate::record::Better;
use crate::{Error, Result};

/// The classification of the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sorted {
    /// `git bisect good`: 0.
    Good,
    /// `git bisect bad`: 1.
    Bad,
    /// `git bisect skip`: 125. It could not be built, measured or classified.
    Skip,
}

/// Builds the checkout in `dir`, in place, and measures it against the plan's good end. The good end is built
/// once, in a worktree that stays for the following commits.
///
/// If the plan has a bad end, that is measured once, and the level half-way between the two classifies the
/// commit; otherwise the plan's threshold does. The plan's confidence holds for each commit separately.
/// Measurements of the ends are kept. The commit itself is always measured again, because the checkout may
/// have changed.
///
/// # Errors
/// If the ends cannot be built, measured or distinguished, and as for [`super::Bisection::run`].
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
    let folder = folder_of(plan, &git, folder)?;
    let mut state = State::open(&folder, plan, at, false)?;
    state.forget(&head)?;
    let mut ends = vec![plan.good.clone()];
    ends.extend(plan.bad.clone());
    state.forget_failures(&ends)?;
    let trees = Trees::in_folder(state.folder().join("trees"));
    // Remove the mark of an earlier build of this commit, because the checkout may have changed since.
    let trees = trees.with_checkout(head.clone(), checkout);
    trees.remove(&git, &head)?;
    let bench = Bench::new(plan, limits, (&git, &trees, &mut state), watch);
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
    // Half of the error probability is for the ends, half for the commit.
    if let Some(found) = search.ends(2)? {
        return Err(Error::new(format!(
            "the good and the bad commit: {}",
            found.in_short()
        )));
    }
    search.sort(head, 1)
}

/// Removes what the steps of a plan keep: the worktrees of its ends, logs and measurements.
///
/// # Errors
/// If another step is running, and errors of git or the system.
pub fn end_steps(dir: &Path, plan: &Plan, folder: Option<&Path>, at: &str) -> Result<()> {
    let git = Git::of(dir)?;
    let folder = folder_of(plan, &git, folder)?;
    let state = State::open(&folder, plan, at, false)?;
    Trees::in_folder(state.folder().join("trees")).remove_all(&git)?;
    state.remove()
}
