//! `git clone` of a repository on the host, whose objects are in one pack, and `git status` of the clone:
//! after a remount, and again.

use std::path::Path;
use std::process::Command;

use super::{Program, rate};
use crate::Result;
use crate::command::timed;
use crate::kernel::named;
use crate::mounts::work::have;
use crate::mounts::{Bench, source_tree};
use crate::outcome::Outcome;

pub(super) const CLONE: &str = "git clone";
pub(super) const STATUS_COLD: &str = "git status, cold";
pub(super) const STATUS: &str = "git status";

/// Makes the repository.
pub(super) fn prepare<'a>(
    bench: &'a Bench<'_>,
    files: u64,
    outcome: &mut Outcome,
) -> Result<Option<Program<'a>>> {
    if !have(outcome, "git", "git") {
        return Ok(None);
    }
    let origin = bench.scratch("origin");
    let bytes = source_tree::make(&origin, files, &bench.source)?;
    for arguments in [
        &["init", "--quiet"][..],
        &["add", "--all"],
        &["commit", "--quiet", "--message", "all"],
        &["repack", "-a", "-d", "-q"],
    ] {
        timed(git(named("git"), &origin).args(arguments))?;
    }
    outcome.count("git: files", files as f64);
    outcome.count("git: bytes per file", bytes as f64 / files as f64);
    Ok(Some(Box::new(move |session| {
        let view = session.view()?;
        let mut clone = git(view.command("git"), view.root());
        clone.args(["clone", "--quiet", "--no-hardlinks"]);
        let cloned = rate(files, clone.arg(&origin).arg("clone"))?;
        session.cold()?;
        let view = session.view()?;
        let status = || {
            let mut status = git(view.command("git"), &view.root().join("clone"));
            rate(files, status.args(["status", "--porcelain"]))
        };
        Ok(vec![
            (CLONE, "files/s", cloned),
            (STATUS_COLD, "files/s", status()?),
            (STATUS, "files/s", status()?),
        ])
    })))
}

/// A command of git in this directory, without the settings of this user and machine, and without work in the
/// background.
fn git(mut command: Command, dir: &Path) -> Command {
    command.arg("-C").arg(dir);
    for setting in [
        "user.name=lab",
        "user.email=lab@localhost",
        "gc.auto=0",
        "maintenance.auto=false",
    ] {
        command.args(["-c", setting]);
    }
    command
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null");
    command
}
