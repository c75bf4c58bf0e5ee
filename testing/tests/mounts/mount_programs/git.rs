//! git: a repository that grows, is cloned in three ways, checked and repacked.

use std::path::Path;
use std::process::Command;

use crate::mount_programs::plant;
use crate::mount_programs::stage::{EXT2_1K, EXT4, Stage, amount, run, soak};

/// git without user settings and background work.
#[track_caller]
fn git(at: &Path, arguments: &str) -> String {
    let mut command = Command::new("git");
    command
        .current_dir(at)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"])
        .args([
            "-c",
            "user.name=Nobody",
            "-c",
            "user.email=nobody@example.invalid",
        ])
        .args(["-c", "init.defaultBranch=main", "-c", "core.fsync=all"])
        .args(arguments.split_whitespace());
    run(&mut command).stdout
}

fn grown(recipe: &'static str) {
    let Some(stage) = Stage::new(recipe, if soak() { "4g" } else { "512m" }, &["git"]) else {
        return;
    };
    let origin = stage.path("/origin");
    std::fs::create_dir(&origin).expect("mkdir");
    git(&origin, "init -q");
    for commit in 0..amount(3, 20) {
        plant::files(
            &origin.join(format!("part{commit}")),
            commit,
            amount(25, 300),
        );
        plant::files(&origin.join("changing"), 1000 + commit, 10);
        git(&origin, "add -A");
        git(&origin, &format!("commit -q -m number{commit}"));
    }
    git(&origin, "fsck --full --strict");
    git(&origin, "branch -q side HEAD~1");
    let linked = "clone -q --local origin linked";
    let sent = "clone -q --no-local origin sent";
    let bare = "clone -q --mirror --no-hardlinks origin bare";
    for clone in [linked, sent, bare] {
        git(stage.root(), clone);
    }
    let head = git(&origin, "rev-parse HEAD");
    for repository in ["/linked", "/sent", "/bare", "/origin"] {
        let at = stage.path(repository);
        git(&at, "gc -q --prune=now");
        git(&at, "fsck --full --strict");
        assert_eq!(git(&at, "rev-parse HEAD"), head, "{repository}");
    }
    for repository in ["/linked", "/sent", "/origin"] {
        assert_eq!(
            git(&stage.path(repository), "status --porcelain"),
            "",
            "{repository}"
        );
    }
    git(&stage.path("/sent"), "checkout -q HEAD~1");
    git(&stage.path("/sent"), "checkout -q -");
    // Cloned out of the mount: the copy on another file system must be complete.
    let outside = stage.sibling("outside");
    let from = stage.name("/sent");
    git(
        &stage.sibling(""),
        &format!("clone -q --no-local {from} outside"),
    );
    git(&outside, "fsck --full --strict");
    assert_eq!(git(&outside, "rev-parse HEAD"), head, "outside");
    stage.finish();
}

#[test]
fn repositories() {
    grown(EXT4);
}

#[test]
fn repositories_of_small_blocks() {
    grown(EXT2_1K);
}
