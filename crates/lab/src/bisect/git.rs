//! [`Git`]: a repository, asked through the `git` program. History, the choice by halves and worktrees are git's own.
//!
//! Invariants:
//! - Nothing here touches the person's checkout, index, branches or `git bisect`'s state; worktrees are made and removed,
//!   and hooks do not run.
//! - Commits are named by their full object names; what a person calls them is resolved once, where the person stands.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// What git would take for the place of the repository, whatever folder it runs in. `git rev-parse --local-env-vars` lists
/// them; a hook or `git bisect run` may have set them.
pub(super) const LOCAL_VARIABLES: [&str; 11] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_SHALLOW_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
];

/// A commit, as a table shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The full object name.
    pub id: String,
    /// The shortest name that is unique in the repository.
    pub short: String,
    /// First line of the message.
    pub subject: String,
    /// Who wrote it.
    pub author: String,
    /// When it was written: RFC 3339.
    pub date: String,
    /// Its parents' full object names.
    pub parents: Vec<String>,
}

/// A repository.
#[derive(Debug)]
pub(super) struct Git {
    /// The folder that holds its objects, absolute.
    common: PathBuf,
}

/// Runs git and takes what it prints, without the line's end.
fn ask(command: &mut Command) -> Result<String> {
    let output = run(command)?;
    answer(&output).map_err(|said| Error::new(format!("git: {said}")))
}

/// What git printed, or why it failed.
fn answer(output: &Output) -> std::result::Result<String, String> {
    match output.status.success() {
        // But the line's end: a folder's name may end with a blank.
        true => Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end_matches('\n')
            .to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

fn run(command: &mut Command) -> Result<Output> {
    command
        .output()
        .map_err(|e| Error::new(format!("cannot run git (Debian package git): {e}")))
}

fn git() -> Command {
    let mut command = Command::new("git");
    for variable in LOCAL_VARIABLES {
        command.env_remove(variable);
    }
    command
        .env("LC_ALL", "C")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .args(["-c", "core.hooksPath=/dev/null", "-c", "color.ui=false"])
        .stdin(Stdio::null());
    command
}

/// `git rev-parse`, there.
fn rev_parse(dir: &Path, arguments: &[&str]) -> Result<Output> {
    run(git().arg("-C").arg(dir).arg("rev-parse").args(arguments))
}

/// What a person calls a commit, there.
pub(super) fn resolve(dir: &Path, revision: &str) -> Result<String> {
    let commit = format!("{revision}^{{commit}}");
    let output = rev_parse(dir, &["--verify", "--end-of-options", &commit])?;
    answer(&output).map_err(|_| {
        Error::new(format!(
            "'{revision}' names no commit in {}: {}",
            dir.display(),
            where_more_is(dir)
        ))
    })
}

/// Where commits are that cannot be found.
fn where_more_is(dir: &Path) -> &'static str {
    let shallow = rev_parse(dir, &["--is-shallow-repository"]);
    match shallow.map(|output| answer(&output)) {
        Ok(Ok(text)) if text == "true" => {
            "its history is cut off (a shallow clone); 'git fetch --unshallow --tags' brings the rest"
        }
        _ => "'git log --oneline --all' lists what there is, 'git fetch --tags' brings more",
    }
}

/// The top of the checkout that this folder lies in.
pub(super) fn checkout(dir: &Path) -> Result<PathBuf> {
    let output = rev_parse(dir, &["--show-toplevel"])?;
    answer(&output).map(PathBuf::from).map_err(|_| {
        Error::new(format!(
            "{} lies in no checkout, in which a commit could be built: go to one, or use 'lab bisect', which needs none",
            dir.display()
        ))
    })
}

impl Git {
    /// The repository that this folder lies in.
    pub(super) fn of(dir: &Path) -> Result<Git> {
        let output = rev_parse(dir, &["--path-format=absolute", "--git-common-dir"])?;
        let common = answer(&output).map_err(|said| {
            let dir = dir.display();
            let nowhere = ["not a git repository", "cannot change to"];
            Error::new(match nowhere.iter().any(|words| said.contains(words)) {
                true => format!("{dir} is no folder in a git repository: name one with -C"),
                // It says itself what to do about an owner that it does not trust.
                false => format!("git cannot use the repository of {dir}: {said}"),
            })
        })?;
        let cannot = |e| Error::new(format!("cannot find the repository {common}: {e}"));
        Ok(Git {
            common: fs::canonicalize(&common).map_err(cannot)?,
        })
    }

    /// The folder that holds the repository's objects: what it is known by.
    pub(super) fn common(&self) -> &Path {
        &self.common
    }

    /// What a person would call the repository.
    pub(super) fn name(&self) -> String {
        let named = |path: &Path| path.file_name().map(OsStr::to_owned);
        let name = match named(&self.common) {
            Some(name) if name == ".git" => self.common.parent().and_then(named),
            other => other,
        };
        let name = name.unwrap_or_default().to_string_lossy().into_owned();
        name.trim_end_matches(".git").to_owned()
    }

    fn git(&self) -> Command {
        let mut command = git();
        command.arg("--git-dir").arg(&self.common);
        command
    }

    /// A name for a text: the one that git would give it as an object, which is not stored.
    pub(super) fn digest(&self, text: &str) -> Result<String> {
        use std::io::Write;
        let failed = |e: std::io::Error| Error::new(format!("cannot run git hash-object: {e}"));
        let mut child = self
            .git()
            .args(["hash-object", "--stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(text.as_bytes()).map_err(failed)?;
        }
        let output = child.wait_with_output().map_err(failed)?;
        let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || name.len() < 40 {
            return Err(Error::new("git hash-object has failed"));
        }
        Ok(name)
    }

    /// Whether one commit is the other, or comes before it.
    pub(super) fn is_ancestor(&self, before: &str, after: &str) -> Result<bool> {
        let output = run(self
            .git()
            .args(["merge-base", "--is-ancestor", before, after]))?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(Error::new(format!(
                "git merge-base: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }

    /// Why two commits may seem to have no history in common, and what to do.
    pub(super) fn where_history_is(&self) -> &'static str {
        where_more_is(&self.common)
    }

    /// The last commit that both come from, if there is one.
    pub(super) fn merge_base(&self, one: &str, other: &str) -> Option<String> {
        ask(self.git().args(["merge-base", one, other])).ok()
    }

    /// The commits that `bad` has and none of `good` has, best first for a choice by halves; `bad` is one of them.
    pub(super) fn suspects(
        &self,
        bad: &str,
        good: &[String],
        first_parent: bool,
    ) -> Result<Vec<String>> {
        let mut command = self.git();
        command.args(["rev-list", "--bisect-all"]);
        if first_parent {
            command.arg("--first-parent");
        }
        let text = ask(command.arg(bad).arg("--not").args(good))?;
        // Each line is a commit and, in brackets, how well it halves.
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
        Ok(text.lines().filter_map(first).collect())
    }

    /// These commits in the order of history, the oldest first; those that are not between the two come before them.
    pub(super) fn in_order(
        &self,
        commits: &[String],
        good: &str,
        bad: &str,
    ) -> Result<Vec<String>> {
        // Dates do not say it: all of a series that was rebased has one.
        let text =
            ask(self
                .git()
                .args(["rev-list", "--topo-order", "--reverse", bad, "--not", good]))?;
        let places: HashMap<&str, usize> = text.lines().zip(1..).collect();
        let mut sorted = commits.to_vec();
        sorted.sort_by_key(|id| places.get(id.as_str()).copied().unwrap_or(0));
        Ok(sorted)
    }

    /// What is known of a commit.
    pub(super) fn commit(&self, id: &str) -> Result<Commit> {
        let text = ask(self.git().args([
            "show",
            "--no-patch",
            "--no-show-signature",
            "--format=%H%n%h%n%P%n%an%n%aI%n%s",
            id,
        ]))?;
        let mut lines = text.lines();
        let mut next = || lines.next().unwrap_or_default().to_owned();
        let (id, short, parents) = (next(), next(), next());
        let (author, date) = (next(), next());
        Ok(Commit {
            id,
            short,
            subject: next(),
            author,
            date,
            parents: parents.split_whitespace().map(str::to_owned).collect(),
        })
    }

    /// Checks a commit out into a worktree of its own at `path`, which must not exist.
    pub(super) fn add_worktree(&self, path: &Path, commit: &str) -> Result<()> {
        // By force: an earlier one at the same place, whose folder somebody removed, may still be on git's list.
        ask(self
            .git()
            .args(["worktree", "add", "--detach", "--force", "--quiet"])
            .arg(path)
            .arg(commit))
        .map(drop)
    }

    /// Removes a worktree and all that a build left in it.
    pub(super) fn remove_worktree(&self, path: &Path) -> Result<()> {
        if path.exists() {
            remove_tree(path)
                .map_err(|e| Error::new(format!("cannot remove {}: {e}", path.display())))?;
        }
        // Git forgets a worktree whose folder is gone; one that it never knew is as good.
        let mut command = self.git();
        let command = command.args(["worktree", "remove", "--force"]).arg(path);
        match run(command)? {
            output if output.status.success() => Ok(()),
            output if String::from_utf8_lossy(&output.stderr).contains("is not a working tree") => {
                Ok(())
            }
            output => Err(Error::new(format!(
                "git worktree remove: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ))),
        }
    }
}

/// Removes a folder, also one in which a build left folders that may not be written to.
fn remove_tree(path: &Path) -> std::io::Result<()> {
    if fs::remove_dir_all(path).is_ok() {
        return Ok(());
    }
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            // The type of the entry itself: a symbolic link is not followed.
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(path)
}
