//! What is asked wrongly, and commands that do not do what is expected of them.

use super::repository::{Repository, git_is_missing, line, ran};
use crate::common::Ran;

/// `lab bisect` with everything given.
fn asked(repository: &Repository, good: &str, bad: &str, build: &str, measure: &str) -> Ran {
    let mut command = repository.lab("bisect");
    command
        .args(["--good", good, &format!("--bad={bad}"), "--build", build])
        .args(["--measure", measure, "--measure-timeout", "60"]);
    ran(&mut command)
}

#[test]
fn wrong_ends_are_told_before_anything_is_built() {
    if git_is_missing() {
        return;
    }
    let mut commits = line(4, 2);
    commits[3].parents = vec![1];
    let repository = Repository::of(&commits);
    repository.git(&["branch", "other", &repository.ids[2]]);
    let first = repository.ids[0].as_str();
    for (good, bad, said) in [
        ("no-such-name", "main", "'no-such-name' names no commit"),
        (first, "--oops", "names no commit"),
        ("main", "main", "are the same commit"),
        ("main", first, "it is the other way round"),
        ("other", "main", "both come from"),
    ] {
        let ran = asked(&repository, good, bad, "touch built", "echo 1");
        assert_eq!(ran.code, Some(2), "{good} {bad}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{good} {bad}: {}", ran.stderr);
    }
    assert!(!repository.state().exists(), "no state is made");
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().to_str().unwrap();
    let ran = crate::common::run([
        "lab",
        "bisect",
        "-C",
        path,
        "--good",
        "a",
        "--bad",
        "b",
        "--build",
        "true",
        "--measure",
        "true",
    ]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("no git repository"), "{}", ran.stderr);
}

#[test]
fn an_end_that_cannot_be_built_or_measured_ends_it() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(4, 2));
    let first = repository.ids[0].as_str();
    for (build, measure, said) in [
        (
            "echo no compiler >&2; exit 7",
            "echo 1",
            "the build ended with 7",
        ),
        ("true", "echo fast enough", "fast enough"),
        ("true", "true", "printed nothing"),
        ("true", "echo 12; exit 3", "the measurement ended with 3"),
        ("true", "echo 0", "a number above 0"),
        ("true", "kill -9 $$", "signal 9"),
    ] {
        // The same command is tried again, not answered from what is known.
        for _ in 0..2 {
            let ran = asked(&repository, first, "main", build, measure);
            assert_eq!(ran.code, Some(1), "{build} {measure}: {}", ran.stderr);
            assert!(
                ran.stderr.contains(said),
                "{build} {measure}: {}",
                ran.stderr
            );
            assert!(ran.stderr.contains("the good end"), "{}", ran.stderr);
        }
        repository.assert_untouched();
    }
    let ran = asked(
        &repository,
        first,
        "main",
        "echo no compiler >&2; exit 7",
        "true",
    );
    assert!(ran.stderr.contains("no compiler"), "{}", ran.stderr);
}

#[test]
fn what_takes_too_long_is_ended_with_all_that_it_started() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(4, 2));
    let pid = repository.path().with_file_name("pid");
    let measure = format!("sleep 1000 & echo $! > '{}'; wait", pid.display());
    let mut command = repository.lab("bisect");
    command
        .args([
            "--good",
            &repository.ids[0],
            "--bad",
            "main",
            "--build",
            "true",
        ])
        .args(["--measure", &measure, "--measure-timeout", "5"]);
    let ran = ran(&mut command);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("not ended after 5 s"), "{}", ran.stderr);
    let sleeper = std::fs::read_to_string(&pid).unwrap();
    super::cut_short::assert_gone(sleeper.trim());
    repository.assert_untouched();
}

#[test]
fn a_folder_of_somebody_elses_is_not_taken_for_state() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(4, 2));
    let folder = repository.path().with_file_name("mine");
    std::fs::create_dir_all(folder.join("trees")).unwrap();
    std::fs::write(folder.join("trees/oak"), "old").unwrap();
    let ran = ran(&mut repository.bisect(1, &["--restart", "--state", folder.to_str().unwrap()]));
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("holds no state"), "{}", ran.stderr);
    assert!(folder.join("trees/oak").exists());
}
