//! Bisections that are interrupted or killed, and resumed.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::found::assert_found;
use super::repository::{Repository, git_is_missing, line, ran};

/// Longer than any step takes, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits until a condition holds.
#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "waited {LIMIT:?} until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asserts that the process ends soon or has ended.
#[track_caller]
pub(super) fn assert_gone(pid: &str) {
    let stat = format!("/proc/{pid}/stat");
    wait_until(&format!("process {pid} is gone"), || {
        // A zombie counts as gone.
        std::fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z "))
    });
}

fn pairs(state: &Path) -> usize {
    let events = std::fs::read_to_string(state.join("events.jsonl")).unwrap_or_default();
    events
        .lines()
        .filter(|line| line.contains(r#""kind":"pair""#))
        .count()
}

/// Starts a bisection and waits until it has measured this many pairs.
fn begun(repository: &Repository, seed: u64, state: &Path, at_least: usize) -> Child {
    let child = repository
        .bisect(seed, &["--state", state.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("pairs are measured", || pairs(state) >= at_least);
    child
}

#[test]
fn a_killed_bisection_resumes_to_the_same_result() {
    if git_is_missing() {
        return;
    }
    let soak = std::env::var_os("THROUGHLINE_SOAK").is_some();
    for seed in if soak { 0..20 } else { 9..10 } {
        kill_and_resume(seed);
    }
}

/// Kills and resumes a bisection with the noise of this seed. Builds fail in the middle of the range, but not
/// next to the culprit.
fn kill_and_resume(seed: u64) {
    let culprit = 1 + (seed * 29 % 63) as usize;
    let mut commits = line(64, culprit);
    for place in (29..=34).filter(|place| ![culprit, culprit - 1].contains(place)) {
        commits[place].broken = true;
    }
    let repository = Repository::of(&commits);
    let state = repository.kept();
    let mut seen = 0;
    for more in [5, 30, 30] {
        let mut child = begun(&repository, seed, &state, seen + more);
        child.kill().unwrap();
        child.wait().unwrap();
        seen = pairs(&state);
    }
    // A line that was only partly written.
    use std::io::Write;
    let mut log = std::fs::OpenOptions::new()
        .append(true)
        .open(state.join("events.jsonl"))
        .unwrap();
    log.write_all(br#"{"kind":"pair","base":"#).unwrap();
    let resumed = ran(&mut repository.bisect(seed, &["--state", state.to_str().unwrap()]));
    assert_found(&repository, &resumed, culprit);
    assert!(
        resumed.stderr.contains("continuing the bisection started"),
        "{}",
        resumed.stderr
    );
    let in_one_go = ran(&mut repository.bisect(seed, &[]));
    assert_found(&repository, &in_one_go, culprit);
    // The figures depend on the number of the pair, so equal steps mean that no pair was lost or counted
    // twice.
    let (resumed, in_one_go) = (resumed.json(), in_one_go.json());
    assert_eq!(resumed["steps"], in_one_go["steps"]);
    assert_eq!(resumed["trial"], in_one_go["trial"]);
    let steps = resumed["steps"].as_array().unwrap();
    let skipped = steps.iter().filter(|step| step["mark"] == "skipped");
    assert!(skipped.clone().count() > 0, "{resumed}");
    println!(
        "seed {seed}, commit {culprit}: killed after {seen} pairs, {} passed over",
        skipped.count()
    );
}

#[test]
fn ctrl_c_ends_the_command_at_work_and_keeps_the_rest() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(16, 5));
    let state = repository.kept();
    let child = begun(&repository, 9, &state, 3);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{printed}");
    assert!(
        printed.contains("the same command continues it"),
        "{printed}"
    );
    assert!(
        !super::repository::is_empty(&state.join("trees")),
        "what is built is kept"
    );
    let gone = ran(&mut repository.bisect(9, &["--abandon", "--state", state.to_str().unwrap()]));
    assert_eq!(gone.code, Some(0), "{}", gone.stderr);
    assert!(!state.exists());
    repository.assert_untouched();
}

#[test]
fn a_command_that_outlives_a_kill_is_ended_by_the_next_run() {
    if git_is_missing() {
        return;
    }
    let repository = Repository::of(&line(4, 2));
    let (state, pid) = (repository.kept(), repository.path().with_file_name("pid"));
    let measure = format!("echo $$ > '{}'; sleep 1000", pid.display());
    let mut command = repository.asked("true", &measure);
    command.arg("--state").arg(&state);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    wait_until("it measures", || {
        std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'))
    });
    let busy = ran(command.stderr(Stdio::piped()));
    assert_eq!(busy.code, Some(1));
    assert!(
        busy.stderr
            .contains(&format!("process {} is already running", child.id())),
        "{}",
        busy.stderr
    );
    child.kill().unwrap();
    child.wait().unwrap();
    let sleeper = std::fs::read_to_string(&pid).unwrap();
    let gone = ran(repository
        .asked("true", &measure)
        .args(["--abandon", "--state"])
        .arg(&state));
    assert_eq!(gone.code, Some(0), "{}", gone.stderr);
    assert_gone(sleeper.trim());
    repository.assert_untouched();
}
