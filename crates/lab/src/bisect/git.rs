//! [`Git`]: a repository, accessed through the `git` program, which does everything that concerns history,
//! the choice of commits, and worktrees.
//!
//! Invariants:
//! - The user's checkout, index, branches and `git bisect` state are never touched; worktrees are created and
//!   removed, and hooks do not run.
//! - Commits are identified by full object names. The user's names for them are resolved once, in the user's
//!   directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde::{Deserialize, Serialize};

use crate::{Error, Result, kernel};

/// Variables that override where git finds the repository, whatever the working directory. `git rev-parse
/// --local-env-vars` lists them; a hook or `git bisect run` may have set them.
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

/// A commit, as shown in tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// The full object name.
    pub id: String,
    /// The shortest name that is unique in the repository.
    pub short: String,
    /// The first line of its message.
    pub subject: String,
    /// Its author.
    pub author: String,
    /// The author date: RFC 3339.
    pub date: String,
    /// Its parents' full object names.
    pub parents: Vec<String>,
}

/// A repository.
#[derive(Debug)]
pub(super) struct Git {
    /// The directory with its objects, absolute.
    common: PathBuf,
}

/// Runs git and returns its output, without the final newline.
fn ask(command: &mut Command) -> Result<String> {
    let output = run(command)?;
    answer(&output).map_err(|message| Error::new(format!("git: {message}")))
}

/// Git's output, or why it failed.
fn answer(output: &Output) -> std::result::Result<String, String> {
    match output.status.success() {
        // Only the newline: a directory's name may end with a space.
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
    let mut command = kernel::named("git");
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

/// Runs `git rev-parse` in that directory.
fn rev_parse(dir: &Path, arguments: &[&str]) -> Result<Output> {
    run(git().arg("-C").arg(dir).arg("rev-parse").args(arguments))
}

/// Resolves the user's name for a commit in that directory.
pub(super) fn resolve(dir: &Path, revision: &str) -> Result<String> {
    let commit = format!("{revision}^{{commit}}");
    let output = rev_parse(dir, &["--verify", "--end-of-options", &commit])?;
    answer(&output).map_err(|_| {
        Error::new(format!(
            "'{revision}' is not a commit in {}: {}",
            dir.display(),
            where_more_is(dir)
        ))
    })
}

/// A hint for a commit that was not found.
fn where_more_is(dir: &Path) -> &'static str {
    let shallow = rev_parse(dir, &["--is-shallow-repository"]);
    match shallow.map(|output| answer(&output)) {
        Ok(Ok(text)) if text == "true" => {
            "it is a shallow clone; 'git fetch --unshallow --tags' fetches the rest of the history"
        }
        _ => "'git log --oneline --all' lists the commits, 'git fetch --tags' fetches more",
    }
}

impl Git {
    /// The repository that contains this directory.
    pub(super) fn of(dir: &Path) -> Result<Git> {
        let output = rev_parse(dir, &["--path-format=absolute", "--git-common-dir"])?;
        let common = answer(&output).map_err(|message| {
            let dir = dir.display();
            let nowhere = ["not a git repository", "cannot change to"];
            Error::new(match nowhere.iter().any(|words| message.contains(words)) {
                true => format!("{dir} is not in a git repository: name a directory with -C"),
                // Git's own message says how to trust another owner's repository.
                false => format!("git cannot use the repository of {dir}: {message}"),
            })
        })?;
        let cannot = |e| Error::new(format!("cannot find the repository {common}: {e}"));
        Ok(Git {
            common: fs::canonicalize(&common).map_err(cannot)?,
        })
    }

    /// The directory with the repository's objects, which identifies it.
    pub(super) fn common(&self) -> &Path {
        &self.common
    }

    /// A readable name for the repository.
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

    /// A digest of a text: its git object name. The object is not stored.
    pub(super) fn digest(&self, text: &str) -> Result<String> {
        let file = tempfile::NamedTempFile::new()?;
        fs::write(file.path(), text)?;
        let mut command = self.git();
        ask(command
            .args(["hash-object", "--no-filters"])
            .arg(file.path()))
    }

    /// Whether one commit is the other or an ancestor of it.
    pub(super) fn is_ancestor(&self, before: &str, after: &str) -> Result<bool> {
        let output = run(self
            .git()
            .args(["merge-base", "--is-ancestor", before, after]))?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(failed("merge-base", &output)),
        }
    }

    /// A hint for two commits that seem to have no common history.
    pub(super) fn where_history_is(&self) -> &'static str {
        where_more_is(&self.common)
    }

    /// The merge base of two commits, if there is one.
    pub(super) fn merge_base(&self, one: &str, other: &str) -> Option<String> {
        ask(self.git().args(["merge-base", one, other])).ok()
    }

    /// The commits reachable from `bad` but not from `good`, including `bad`. The best commits for bisection
    /// come first.
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
        // Each line has a commit and, in parentheses, how well it halves the range.
        let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
        Ok(text.lines().filter_map(first).collect())
    }

    /// These commits in the order of history, the oldest first. Those not between `good` and `bad` come
    /// before the others.
    pub(super) fn in_order(
        &self,
        commits: &[String],
        good: &str,
        bad: &str,
    ) -> Result<Vec<String>> {
        // Not sorted by date: after a rebase, all commits of a series may have the same.
        let text =
            ask(self
                .git()
                .args(["rev-list", "--topo-order", "--reverse", bad, "--not", good]))?;
        let places: HashMap<&str, usize> = text.lines().zip(1..).collect();
        let mut sorted = commits.to_vec();
        sorted.sort_by_key(|id| places.get(id.as_str()).copied().unwrap_or(0));
        Ok(sorted)
    }

    /// The data of a commit.
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

    /// Checks a commit out into a new worktree at `path`, which must not exist.
    pub(super) fn add_worktree(&self, path: &Path, commit: &str) -> Result<()> {
        // Forced: git may still list an earlier worktree at this path whose directory was deleted.
        ask(self
            .git()
            .args(["worktree", "add", "--detach", "--force", "--quiet"])
            .arg(path)
            .arg(commit))
        .map(drop)
    }

    /// Removes a worktree with everything a build left in it.
    pub(super) fn remove_worktree(&self, path: &Path) -> Result<()> {
        if path.exists() {
            remove_tree(path)
                .map_err(|e| Error::new(format!("cannot remove {}: {e}", path.display())))?;
        }
        // Git drops the entry of a worktree whose directory is missing. A missing entry is not an error.
        let mut command = self.git();
        let command = command.args(["worktree", "remove", "--force"]).arg(path);
        match run(command)? {
            output if output.status.success() => Ok(()),
            output if String::from_utf8_lossy(&output.stderr).contains("is not a working tree") => {
                Ok(())
            }
            output => Err(failed("worktree remove", &output)),
        }
    }
}

fn failed(what: &str, output: &Output) -> Error {
    let message = String::from_utf8_lossy(&output.stderr);
    Error::new(format!("git {what}: {}", message.trim()))
}

/// Removes a directory tree, including read-only directories left by a build.
fn remove_tree(path: &Path) -> std::io::Result<()> {
    fs::remove_dir_all(path).or_else(|_| {
        kernel::named("chmod")
            .args(["-R", "u+rwx", "--"])
            .arg(path)
            .output()?;
        fs::remove_dir_all(path)
    })
}
