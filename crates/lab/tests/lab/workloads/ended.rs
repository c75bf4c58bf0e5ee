//! Runs ended by a signal: they keep their samples and remove what they made.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use throughline_lab::record::{Line, Record};

use super::Bench;
use crate::common::{is_root, str, throughline, tool, tools_are_missing};

/// Far longer than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const WRITES: &str = "[a]\nrw=randwrite\nsize=1m\n";

/// There is no loop device and no mount of anything below `dir`.
#[track_caller]
pub(super) fn assert_no_traces(dir: &Path) {
    let begun = Instant::now();
    loop {
        let loops = tool("losetup")
            .args(["--list", "--noheadings", "--output", "BACK-FILE"])
            .output()
            .unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let of_ours = |text: &str| text.lines().any(|line| line.contains(str(dir)));
        let made = std::fs::read_dir(dir.join("made")).unwrap().count();
        if !of_ours(&String::from_utf8_lossy(&loops.stdout)) && !of_ours(&mounts) && made == 0 {
            return;
        }
        // The kernel detaches loop devices asynchronously, after the last close.
        assert!(
            begun.elapsed() < PATIENCE,
            "{loops:?} {mounts} {made} left in {dir:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends this signal to a run once it measures. Returns its exit code.
fn ended_by(bench: &Bench, targets: &[&str], signal: Signal) -> Option<i32> {
    let targets: Vec<&str> = targets
        .iter()
        .flat_map(|target| ["--target", target])
        .collect();
    let mut child = throughline()
        .args(bench.arguments(&targets))
        .args(["--rounds", "60000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let out = bench.path("out.jsonl");
    let counted = |text: String| text.contains("\"round\":1,");
    let measured = || std::fs::read_to_string(&out).is_ok_and(counted);
    while !measured() && begun.elapsed() < PATIENCE && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = child.wait().unwrap();
    assert!(measured(), "ended {status:?} before anything was measured");
    status.code()
}

#[test]
fn an_interrupted_run_keeps_what_it_has_and_leaves_nothing() {
    for signal in [Signal::INT, Signal::TERM] {
        let Some(bench) = Bench::new(WRITES) else {
            return;
        };
        let dir = format!("dir:{}", str(&bench.path("made")));
        assert_eq!(ended_by(&bench, &["dir:/tmp", &dir], signal), Some(130));
        bench.assert_nothing_left();
        let record = Record::read(&bench.path("out.jsonl")).unwrap();
        let last = record.lines.last();
        assert!(
            matches!(last, Some(Line::End { why }) if why == "interrupted"),
            "{last:?}"
        );
        assert!(!record.columns().is_empty());
    }
}

#[test]
fn a_killed_run_leaves_no_mount_no_loop_device_no_image() {
    if tools_are_missing() {
        return;
    }
    if !is_root() || !Path::new("/dev/fuse").exists() {
        throughline_testkit::missing!("loop devices need root, and mounts /dev/fuse");
        return;
    }
    let Some(bench) = Bench::new(WRITES) else {
        return;
    };
    assert_eq!(
        ended_by(&bench, &["make:ext4", "mount:"], Signal::KILL),
        None
    );
    assert_no_traces(bench.dir.path());
    let record = Record::read(&bench.path("out.jsonl")).unwrap();
    assert!(!record.is_whole() && !record.columns().is_empty());
}
