//! `explain`: what a command of ours did, and its own end.

mod kernel;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{Image, fails, noise, run, tools_are_missing};

const MIB: u64 = 1 << 20;

fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs `explain --json --to -` with these arguments; the accounts.
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

/// Sizes and how many had each.
fn sizes(account: &Value, op: &str) -> Vec<(u64, u64)> {
    serde_json::from_value(account["bio_sizes"][op].clone()).unwrap_or_default()
}

#[test]
fn a_copy_into_an_image_is_explained() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("64M", &["-t", "ext3"]);
    let source = image.beside("a.bin");
    fs::write(&source, noise(5 << 20, 1)).unwrap();
    let kept = image.beside("kept.jsonl");
    let arguments = [
        "--out",
        str(&kept),
        "--direct",
        "cp",
        str(&source),
        &image.at("/b"),
    ];
    let accounts = accounts(&arguments);
    assert_eq!(accounts.len(), 1);
    let account = &accounts[0];
    assert_eq!(account["series"], "image (throughline)");
    assert_eq!(count(account, "asked", "write").1, 5 * MIB);
    assert_eq!(count(account, "bios", "write data").1, 5 * MIB);
    assert!(count(account, "bios", "write metadata").0 > 0, "{account}");
    assert!(count(account, "bios", "write journal").0 > 0, "{account}");
    assert!(
        count(account, "bios", "read metadata").0 > 0,
        "opening reads: {account}"
    );
    assert!(count(account, "bios", "flush").0 > 0);
    assert!(account["commits"]["count"].as_u64() > Some(0));
    assert!(account["first_submit"]["count"].as_u64() > Some(0));
    assert!(account["depth"]["most"].as_u64() > Some(0));
    let all: u64 = ["read", "write"]
        .iter()
        .flat_map(|op| sizes(account, op))
        .map(|(_, n)| n)
        .sum();
    let latency = |op: &str| account["latency"][op]["count"].as_u64().unwrap_or(0);
    assert_eq!(all, latency("read") + latency("write"), "all completed");
    image.assert_clean();

    // What was kept stands beside another run; the command's own output stays its own.
    let ran = run(["explain", "--beside", str(&kept), "cat", &image.at("/b")]);
    assert_eq!(ran.code, Some(0));
    assert_eq!(ran.stdout.len(), 5 << 20);
    let head = ran.stderr.lines().next().unwrap();
    assert_eq!(
        head.matches("image (throughline)").count(),
        2,
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("write journal"), "{}", ran.stderr);
}

/// 4 MiB of direct I/O at byte 48 KiB of a file, where its indirect blocks begin.
const REPORT_1: &str = r#"
pattern = "sequential-write"
block = "4096k"
size = "4096k"
offset = "48k"
cache = "direct"
layout = "empty"
warm-up = 0
rounds = 1
targets = ["image:"]
"#;

#[test]
fn a_workload_on_an_image_is_explained() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("64M", &["-t", "ext3"]);
    let workload = image.beside("report-1.toml");
    fs::write(&workload, REPORT_1).unwrap();
    let (account, kept) = (image.beside("account"), image.beside("run.jsonl"));
    let target = format!("image:{}", str(&image.path()));
    let explain = ["explain", "--json", "--to", str(&account)];
    let run = run(explain.into_iter().chain([
        "lab",
        "run",
        str(&workload),
        "--target",
        &target,
        "--out",
        str(&kept),
    ]));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let text = fs::read_to_string(&account).unwrap();
    let all: Value = serde_json::from_str(&text).unwrap();
    let account = &all["accounts"][0];
    assert!(count(account, "asked", "write").1 >= 4 * MIB, "{account}");
    assert!(
        count(account, "bios", "write data").1 >= 4 * MIB,
        "{account}"
    );
    // Not a bio for each page, as the report had it.
    assert!(count(account, "bios", "write data").0 < 100, "{account}");
    image.assert_clean();
}

#[test]
fn the_commands_own_end_is_the_end() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let ran = fails(["explain", "cat", &image.at("/none")], 1, "No such file");
    assert!(ran.stderr.contains("read metadata"), "{}", ran.stderr);
    fails(["explain"], 2, "COMMAND");
    fails(["explain", "no-such-command"], 2, "explain --kernel");
    fails(["explain", "mount", "x", "y"], 2, "throughline status");
    fails(["explain", "--device", "/", "ls", "x:/"], 2, "--kernel");
    fails(["explain", "--kernel", "--buffer", "1", "true"], 2, "64K");
    let none = image.beside("none");
    fs::write(&none, "{}\n").unwrap();
    fails(
        ["explain", "--beside", str(&none), "ls", &image.at("/")],
        1,
        "cannot show",
    );
    let help = run(["explain", "cp", "--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
}
