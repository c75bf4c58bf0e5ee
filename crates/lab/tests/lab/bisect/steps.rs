//! `lab step`, alone and under `git bisect run`.

use std::process::Command;

use super::repository::{Repository, git_is_missing, line, ran};
use crate::common::{Ran, built, fails};

/// The command `lab step` for the commit that is checked out.
fn step(repository: &Repository, more: &[&str]) -> Command {
    let mut command = repository.lab("step");
    command
        .args(["--good", &repository.ids[0], "--build", "test ! -e broken"])
        .arg("--measure")
        .arg(repository.measure(2))
        .args(more);
    command
}

#[test]
fn its_exit_codes_are_those_of_git_bisect_run() {
    if git_is_missing() {
        return;
    }
    let mut commits = line(8, 4);
    commits[6].broken = true;
    let repository = Repository::of(&commits);
    let ends = ["--bad", "main"];
    for (place, code) in [(0, 0), (3, 0), (4, 1), (7, 1), (6, 125)] {
        repository.git(&["checkout", "-q", &repository.ids[place]]);
        for more in [&ends[..], &[]] {
            let ran = ran(&mut step(&repository, more));
            assert_eq!(ran.code, Some(code), "{place} {more:?}: {}", ran.stderr);
            let printed = match code {
                0 => "is good (exit code 0)",
                1 => "is bad (exit code 1)",
                _ => "is skipped: it could not",
            };
            assert!(ran.stderr.contains(printed), "{place}: {}", ran.stderr);
            assert!(!ran.stderr.contains("step 0"), "{place}: {}", ran.stderr);
        }
    }
    // At the threshold, the runs do not decide.
    repository.git(&["checkout", "-q", &repository.ids[4]]);
    let unsure = ran(&mut step(
        &repository,
        &["--threshold", "4.5", "--max-pairs", "14"],
    ));
    assert_eq!(unsure.code, Some(125), "{}", unsure.stderr);
    repository.git(&["checkout", "-q", "main"]);
    for more in [&ends[..], &[], &["--threshold", "4.5", "--max-pairs", "14"]] {
        let ended = ran(step(&repository, more).arg("--end"));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    repository.assert_untouched();
}

#[test]
fn git_bisect_run_finds_the_commit_by_it() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(16, 11));
    let bad = repository.ids[15].clone();
    let step = |more: &str| {
        format!(
            "'{}' lab step --good {} --bad {bad} --build true --measure \"{}\" {more}",
            built("throughline").display(),
            repository.ids[0],
            repository.measure(3)
        )
    };
    repository.git(&["bisect", "start", &bad, &repository.ids[0]]);
    let run = |line: &str| -> Ran {
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .current_dir(repository.path())
            .env("XDG_STATE_HOME", repository.state());
        ran(&mut command)
    };
    std::fs::write(repository.path().with_file_name("step"), step("")).unwrap();
    let ran = run("git bisect run sh ../step");
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    let found = format!("{} is the first bad commit", repository.ids[11]);
    assert!(ran.text().contains(&found), "{}{}", ran.text(), ran.stderr);
    repository.git(&["bisect", "reset"]);
    assert_eq!(run(&step("--end")).code, Some(0));
    repository.assert_untouched();
}

#[test]
fn errors_end_git_bisect_run() {
    fails(["lab", "step", "--good", "x"], 128, "required");
    let words = ["step", "--good=x", "--build=true", "--measure=true"];
    let log = ["--log=info", "--log-file=/no/such/folder/log", "lab"];
    fails(log.iter().chain(&words), 128, "cannot open the log");
    // For `lab gate`, exit code 1 would be a regression.
    let gate = ["gate", "a", "b", "--max-regression=3"];
    fails(log.iter().chain(&gate), 65, "cannot open the log");
    fails(["lab", "step", "--oops"], 128, "unexpected argument");
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(4, 2));
    let mut command = repository.lab("step");
    command.args(["--good", "nothing", "--build", "true", "--measure", "true"]);
    let unknown = ran(&mut command);
    assert_eq!(unknown.code, Some(128), "{}", unknown.stderr);
    assert!(
        unknown.stderr.contains("is not a commit"),
        "{}",
        unknown.stderr
    );
    // The good end cannot be built, so there is no verdict on the commit.
    repository.git(&["checkout", "-q", &repository.ids[2]]);
    let mut command = repository.lab("step");
    command.args([
        "--good",
        &repository.ids[0],
        "--build",
        "false",
        "--measure",
        "true",
    ]);
    let failed = ran(&mut command);
    assert_eq!(failed.code, Some(128), "{}", failed.stderr);
    assert!(failed.stderr.contains("the good end"), "{}", failed.stderr);
}

/// Too little memory for another thread, and a bug, must not become a verdict on the commit.
#[test]
fn a_failure_of_the_program_is_not_a_bad_commit() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(4, 2));
    let step = |limits: &str| -> Ran {
        let words = step(&repository, &[]);
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("{limits} exec \"$0\" \"$@\"")])
            .arg(words.get_program())
            .args(words.get_args())
            .current_dir(repository.path())
            .env("XDG_STATE_HOME", repository.state());
        ran(&mut command)
    };
    // 60 MiB suffice to start the program, but not for its thread with a stack of 64 MiB.
    let refused = step("ulimit -v 61440;");
    assert!(
        refused.stderr.contains("cannot start a thread"),
        "{}",
        refused.stderr
    );
    assert_eq!(refused.code, Some(128), "{}", refused.stderr);
    // A failing clock makes the standard library panic.
    let sibling = |name: &str| repository.path().with_file_name(name);
    let (source, clock) = (sibling("clock.c"), sibling("clock.so"));
    let text = "int clock_gettime(int id, void *time) { return -1; }\n";
    std::fs::write(&source, text).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&clock, &source])
        .output();
    if !built.as_ref().is_ok_and(|built| built.status.success()) {
        throughline_testkit::missing!("no C compiler makes a clock that fails: {built:?}");
        return;
    }
    let panicked = step(&format!("export LD_PRELOAD='{}';", clock.display()));
    assert!(panicked.stderr.contains("panicked"), "{}", panicked.stderr);
    assert_eq!(panicked.code, Some(128), "{}", panicked.stderr);
}
