//! [`Trees`]: a worktree for each built commit, kept while it is useful.
//!
//! Invariants:
//! - A tree is reused only if its build is known to have succeeded since the machine was booted. Build output
//!   from before a power loss may be torn.
//! - [`Trees::remove_all`] leaves neither a directory nor an entry in git's list of worktrees.

use std::fs;
use std::path::PathBuf;

use super::git::Git;
use crate::{Error, Result};

/// Number of characters of a commit's name in the name of its directory: enough to be unique within one
/// bisection.
const NAME_LEN: usize = 16;

/// The worktrees of one bisection.
#[derive(Debug)]
pub(super) struct Trees {
    folder: PathBuf,
    /// The ID of the current boot.
    boot: String,
}

impl Trees {
    /// The worktrees in this directory.
    pub(super) fn in_folder(folder: PathBuf) -> Trees {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Trees {
            folder,
            boot: boot.trim().to_owned(),
        }
    }

    /// Where a commit is built.
    pub(super) fn path(&self, commit: &str) -> PathBuf {
        self.folder.join(&commit[..NAME_LEN.min(commit.len())])
    }

    fn mark(&self, commit: &str) -> PathBuf {
        self.folder
            .join(format!("{}.built", &commit[..NAME_LEN.min(commit.len())]))
    }

    /// Whether its tree has been built.
    pub(super) fn is_built(&self, commit: &str) -> bool {
        self.path(commit).is_dir()
            && fs::read_to_string(self.mark(commit)).is_ok_and(|boot| boot == self.boot)
    }

    /// Marks it as built.
    pub(super) fn built(&self, commit: &str) -> Result<()> {
        let mark = self.mark(commit);
        fs::write(&mark, &self.boot)
            .map_err(|e| Error::new(format!("cannot write {}: {e}", mark.display())))
    }

    /// Checks a commit out from scratch.
    pub(super) fn make(&self, git: &Git, commit: &str) -> Result<()> {
        self.remove(git, commit)?;
        git.add_worktree(&self.path(commit), commit).map_err(|e| {
            Error::new(format!(
                "cannot make a worktree in {}: {e}; choose another directory with --state",
                self.folder.display()
            ))
        })
    }

    /// Removes its tree.
    pub(super) fn remove(&self, git: &Git, commit: &str) -> Result<()> {
        // Remove the mark first, so that a partly removed tree does not count as built.
        let _ = fs::remove_file(self.mark(commit));
        git.remove_worktree(&self.path(commit))
    }

    /// Removes all trees except these.
    pub(super) fn keep_only(&self, git: &Git, commits: &[&str]) -> Result<()> {
        let kept: Vec<PathBuf> = commits
            .iter()
            .flat_map(|commit| [self.path(commit), self.mark(commit)])
            .collect();
        let cannot = |e| Error::new(format!("cannot read {}: {e}", self.folder.display()));
        for entry in fs::read_dir(&self.folder).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(cannot)?);
            if kept.contains(&path) {
                continue;
            }
            if kind.is_dir() {
                git.remove_worktree(&path)?;
            } else {
                fs::remove_file(&path).map_err(cannot)?;
            }
        }
        Ok(())
    }

    /// Removes all trees.
    pub(super) fn remove_all(&self, git: &Git) -> Result<()> {
        self.keep_only(git, &[])
    }
}
