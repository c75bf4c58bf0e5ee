//! An `explain --kernel` that is ended by a signal removes its trace instances.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use throughline_testing::program::{kill_group, wait};

use super::{kernel_is_out_of_reach, with_tracefs};
use crate::common::{run, throughline, tool};

/// Far longer than any step takes.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(300);

/// The output of a script that reads tracefs, which is mounted in a private namespace.
#[track_caller]
fn read_tracefs(script: &str) -> String {
    let output = tool("unshare")
        .args(["-m", "sh", "-c", &with_tracefs(script)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The trace instances of our processes, running or ended.
fn instances() -> Vec<String> {
    let names = read_tracefs("ls /sys/kernel/tracing/instances");
    names
        .lines()
        .map(str::to_owned)
        .filter(|name| name.starts_with("throughline-"))
        .collect()
}

fn instances_of(pid: u32) -> usize {
    let prefix = format!("throughline-{pid}-");
    instances()
        .iter()
        .filter(|name| name.starts_with(&prefix))
        .count()
}

/// The global state of the tracer: enabled events, whether it records, where it is mounted.
fn tracer() -> String {
    let state = read_tracefs("cd /sys/kernel/tracing && cat set_event tracing_on events/enable");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let tracefs = mounts.lines().filter(|line| line.contains("tracefs"));
    let shown: Vec<&str> = tracefs.collect();
    format!("{state}{shown:?}")
}

/// A run of `explain --kernel` in its own process group. Its command prints a line and waits; temporary files
/// are in `folder`. Killed on drop.
struct Waiting(Child);

impl Waiting {
    fn new(folder: &Path) -> Waiting {
        let command = ["sh", "-c", "echo here; exec sleep 600"];
        let mut child = throughline()
            .args(["explain", "--kernel", "--"])
            .args(command)
            .current_dir(folder)
            .env("TMPDIR", folder)
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "here\n");
        Waiting(child)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    #[track_caller]
    fn code(&mut self) -> Option<i32> {
        let status = wait(&mut self.0, LIMIT);
        status.expect("it ends by itself").code()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        kill_group(&mut self.0);
    }
}

#[test]
fn a_signal_ends_the_command_and_nothing_stays() {
    if kernel_is_out_of_reach() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let before = tracer();
    type Send = fn(Pid, Signal) -> rustix::io::Result<()>;
    // A signal to the group is what Ctrl-C does at a terminal.
    let ways: [(Signal, Send, i32); 5] = [
        (Signal::INT, kill_process_group, 130),
        (Signal::INT, kill_process, 130),
        (Signal::TERM, kill_process, 143),
        (Signal::TERM, kill_process_group, 143),
        (Signal::HUP, kill_process, 129),
    ];
    for (signal, send, code) in ways {
        let mut waiting = Waiting::new(folder.path());
        let pid = waiting.0.id();
        assert_eq!(instances_of(pid), 2);
        send(waiting.pid(), signal).unwrap();
        assert_eq!(waiting.code(), Some(code), "{signal:?}");
        assert_eq!(instances_of(pid), 0, "{signal:?}");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert!(left.is_empty(), "{signal:?}: {left:?}");
    }
    assert_eq!(tracer(), before);
}

#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    if kernel_is_out_of_reach() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut waiting = Waiting::new(folder.path());
    waiting.0.kill().unwrap();
    waiting.0.wait().unwrap();
    // Another `explain` test may have removed them already.
    assert_eq!(run(["explain", "--kernel", "true"]).code, Some(0));
    assert_eq!(instances_of(waiting.0.id()), 0);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
