//! `explain`: what the I/O path did while a command ran, and the command's exit code.

mod beside;
mod ended;
mod ext3;
mod judged;
mod kernel;
mod ours;

use serde_json::Value;

use crate::common::{run, str};

const MIB: u64 = 1 << 20;

/// A shell script that mounts tracefs, unless that was done before, and runs `script`. Run it in a mount
/// namespace of its own, so that the mount ends with it.
fn with_tracefs(script: &str) -> String {
    let tracing = "/sys/kernel/tracing";
    format!("{{ mountpoint -q {tracing} || mount -t tracefs nodev {tracing}; }} && {script}")
}

/// Runs `explain --json --to -` with these arguments. Returns the explanations.
#[track_caller]
fn accounts(arguments: &[&str]) -> Vec<Value> {
    let ran = run(["explain", "--json", "--to", "-"].iter().chain(arguments));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.json()["accounts"].as_array().unwrap().clone()
}

fn count(account: &Value, group: &str, name: &str) -> (u64, u64) {
    let found = &account[group][name];
    let number = |field: &str| found[field].as_u64().unwrap_or(0);
    (number("count"), number("bytes"))
}

/// Sizes and their counts.
fn sizes(account: &Value, op: &str) -> Vec<(u64, u64)> {
    serde_json::from_value(account["bio_sizes"][op].clone()).unwrap_or_default()
}

/// Whether the kernel cannot be traced here; prints a note if so.
fn kernel_is_out_of_reach() -> bool {
    if !throughline_testkit::tier::as_root() {
        throughline_testkit::missing!("tracing the kernel needs root");
        return true;
    }
    let ran = run(["explain", "--kernel", "true"]);
    if ran.code == Some(125) {
        throughline_testkit::left_out!("{}", ran.stderr);
    }
    ran.code == Some(125)
}
