//! Wrong command lines, and build and measuring commands that fail.

use std::process::Command;

use super::found::assert_found;
use super::repository::{Repository, git_is_missing, line, ran};
use crate::common::Ran;

/// Runs `lab bisect` between two commits, without a build.
fn between(repository: &Repository, good: &str, bad: &str) -> Ran {
    let mut command = repository.lab("bisect");
    command
        .args(["--good", good, &format!("--bad={bad}")])
        .args(["--build", "touch built", "--measure", "echo 1"]);
    ran(&mut command)
}

#[test]
fn wrong_ends_are_reported_before_anything_is_built() {
    if git_is_missing() {
        return;
    }
    let mut commits = line(4, 2);
    commits[3].parents = vec![1];
    let repository = Repository::of(&commits);
    repository.git(&["branch", "other", &repository.ids[2]]);
    let first = repository.ids[0].as_str();
    for (good, bad, expected) in [
        ("no-such-name", "main", "'no-such-name' is not a commit"),
        (first, "--oops", "is not a commit"),
        ("main", "main", "are the same commit"),
        ("main", first, "the order is reversed"),
        ("other", "main", "both descend from"),
    ] {
        let ran = between(&repository, good, bad);
        assert_eq!(ran.code, Some(2), "{good} {bad}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(expected),
            "{good} {bad}: {}",
            ran.stderr
        );
    }
    assert!(!repository.state().exists(), "no state is made");
    let outside = tempfile::tempdir().unwrap();
    for folder in [outside.path().to_owned(), outside.path().join("none")] {
        let ran = ran(repository.asked("true", "true").arg("-C").arg(folder));
        assert_eq!(ran.code, Some(2));
        assert!(
            ran.stderr.contains("not in a git repository"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn an_end_that_cannot_be_built_or_measured_ends_it() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(4, 2));
    for (build, measure, expected) in [
        (
            "echo no compiler >&2; exit 7",
            "echo 1",
            "the build ended with 7",
        ),
        ("true", "echo fast enough", "fast enough"),
        ("true", "true", "printed nothing"),
        ("true", "echo 12; exit 3", "the measurement ended with 3"),
        ("true", "echo 0", "a number above 0"),
        ("true", "echo -3", "a number above 0"),
        ("true", "echo NaN", "a number above 0"),
        ("true", "echo 1e400", "a number above 0"),
        ("true", "head -c 99 /dev/urandom", "must be a number alone"),
        ("true", "kill -9 $$", "signal 9"),
    ] {
        // The command is executed again, not answered from the stored state.
        for _ in 0..2 {
            let ran = ran(&mut repository.asked(build, measure));
            assert_eq!(ran.code, Some(1), "{build} {measure}: {}", ran.stderr);
            assert!(
                ran.stderr.contains(expected),
                "{build} {measure}: {}",
                ran.stderr
            );
            assert!(ran.stderr.contains("the good end"), "{}", ran.stderr);
        }
        repository.assert_untouched();
    }
    let ran = ran(&mut repository.asked("echo no compiler >&2; exit 7", "true"));
    assert!(ran.stderr.contains("no compiler"), "{}", ran.stderr);
}

#[test]
fn for_a_shallow_clone_the_error_names_the_next_step() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(6, 3));
    let shallow = repository.path().with_file_name("shallow");
    let (from, to) = (
        format!("file://{}", repository.path().display()),
        shallow.to_str().unwrap().to_owned(),
    );
    repository.git(&["clone", "-q", "--depth=2", &from, &to]);
    let ran = ran(repository.asked("true", "echo 1").args(["-C", &to]));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("is not a commit") && ran.stderr.contains("git fetch --unshallow"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_bare_repository_is_as_good() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(8, 3));
    let bare = repository.path().with_file_name("bare.git");
    let bare = bare.to_str().unwrap();
    repository.git(&["clone", "-q", "--bare", ".", bare]);
    let found = ran(&mut repository.bisect(3, &["-C", bare]));
    assert_found(&repository, &found, 3);
    assert_eq!(
        repository
            .git(&["-C", bare, "worktree", "list"])
            .lines()
            .count(),
        1
    );
}

#[test]
fn a_full_disk_is_not_a_bad_build() {
    if git_is_missing() || !crate::common::is_root() {
        return;
    }
    let repository = Repository::of(&line(8, 5));
    let (state, full) = (repository.kept(), repository.path().with_file_name("full"));
    std::fs::create_dir(&state).unwrap();
    std::fs::write(&full, "").unwrap();
    // Fails only for commits between the ends, so that there is a state to resume from.
    let build = format!(
        "case $THROUGHLINE_ROLE in candidate) test ! -e '{0}' || head -c 40M /dev/zero >big;; esac",
        full.display()
    );
    let mut bisect = repository.asked(&build, &repository.measure(4));
    bisect.arg("--json").arg("--state").arg(&state);
    // In a separate mount namespace, so that nothing stays mounted.
    let script = r#"
        PATH=$PATH:/usr/sbin:/sbin; mount -t tmpfs -o size=16M none "$1" || exit 99
        full=$2; shift 2
        "$@"; code=$?
        test $code = 1 && test -z "$(ls "$STATE/trees")" || exit 98
        rm "$full"; exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]);
    command.arg(&state).arg(&full).arg(bisect.get_program());
    command.args(bisect.get_args()).env("STATE", &state);
    command.current_dir(repository.path());
    for (name, value) in bisect.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let ran = ran(command.stdin(std::process::Stdio::null()));
    if ran.code == Some(99) {
        throughline_testkit::missing!("no tmpfs here: {}", ran.stderr);
        return;
    }
    assert!(
        ran.stderr.contains("is full") && ran.stderr.contains("continuing the bisection started"),
        "{}",
        ran.stderr
    );
    assert_found(&repository, &ran, 5);
    let steps = ran.json()["steps"].to_string();
    assert!(!steps.contains("skipped"), "{steps}");
}

#[test]
fn a_command_over_its_time_limit_is_ended_with_its_children() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(4, 2));
    let pid = repository.path().with_file_name("pid");
    let measure = format!("sleep 1000 & echo $! > '{}'; wait", pid.display());
    let ran = ran(repository
        .asked("true", &measure)
        .args(["--measure-timeout", "5"]));
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("did not end within 5 s"),
        "{}",
        ran.stderr
    );
    let sleeper = std::fs::read_to_string(&pid).unwrap();
    super::cut_short::assert_gone(sleeper.trim());
    repository.assert_untouched();
}

#[test]
fn a_foreign_directory_is_not_taken_for_state() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(4, 2));
    let folder = repository.kept();
    std::fs::create_dir_all(folder.join("trees")).unwrap();
    std::fs::write(folder.join("trees/oak"), "old").unwrap();
    let ran = ran(&mut repository.bisect(1, &["--restart", "--state", folder.to_str().unwrap()]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("contains no state"), "{}", ran.stderr);
    assert!(folder.join("trees/oak").exists());
}
