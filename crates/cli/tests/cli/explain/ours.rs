//! Explains commands of ours; they keep their output and exit codes.

use std::fs;

use serde_json::Value;

use super::ext3::Loop;
use super::{MIB, REPORT_1, accounts, count, sizes, str};
use crate::common::{Image, fails, lab_is_missing, noise, run, tools_are_missing};

#[test]
fn a_copy_into_an_image_is_explained() {
    if tools_are_missing() {
        return;
    }
    let image = Image::new("64M", &["-t", "ext3"]);
    let source = image.sibling("a.bin");
    fs::write(&source, noise(5 << 20, 1)).unwrap();
    let kept = image.sibling("kept.jsonl");
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

    // A stored explanation is shown beside a new run; the command's own output is unchanged.
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

#[test]
fn a_workload_on_an_image_is_explained() {
    if tools_are_missing() || lab_is_missing() {
        return;
    }
    let image = Image::new("64M", &["-t", "ext3"]);
    let workload = image.sibling("report-1.toml");
    fs::write(&workload, REPORT_1).unwrap();
    let (account, kept) = (image.sibling("account"), image.sibling("run.jsonl"));
    let target = format!("image:{}", image.str());
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
    // Unlike in the report, there are fewer bios than pages.
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
    fails(["explain", "umount", "x"], 2, "throughline status");
    // Files that cannot be written are reported before the command runs.
    let nowhere = image.sibling("no-such-folder/file");
    for option in ["--to", "--out"] {
        let new = image.at("/made");
        fails(
            ["explain", option, str(&nowhere), "mkdir", &new],
            1,
            "cannot write",
        );
        fails(["stat", &new], 1, "No such file");
    }
    let ran = run(["explain", "mount", "x", "/no-such-directory"]);
    assert!(
        ran.code.is_some_and(|code| code != 0) && ran.stderr.contains("cannot mount"),
        "{}",
        ran.stderr
    );
    fails(["explain", "--device", "/", "ls", "x:/"], 2, "--kernel");
    fails(["explain", "--kernel", "--buffer", "1", "true"], 2, "64K");
    let none = image.sibling("none");
    fs::write(&none, "{}\n").unwrap();
    fails(
        ["explain", "--beside", str(&none), "ls", &image.at("/")],
        1,
        "cannot show",
    );
    let help = run(["explain", "cp", "--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
}

/// Explains a workload on all these targets.
#[track_caller]
fn workload(image: &Image, targets: &[&str]) -> Value {
    let workload = image.sibling("work.toml");
    let text =
        "pattern = \"sequential-write\"\nblock = \"64k\"\nsize = \"1m\"\nwarm-up = 0\nrounds = 1\n";
    fs::write(&workload, text).unwrap();
    let (account, kept) = (image.sibling("account"), image.sibling("run.jsonl"));
    let dir = image.sibling("");
    let mut arguments = vec![
        "explain",
        "--json",
        "--to",
        str(&account),
        "lab",
        "run",
        str(&workload),
    ];
    arguments.extend(["--dir", str(&dir), "--out", str(&kept), "--overwrite"]);
    arguments.extend(targets.iter().flat_map(|target| ["--target", *target]));
    let ran = run(arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    serde_json::from_str(&fs::read_to_string(&account).unwrap()).unwrap()
}

#[test]
fn a_workload_on_every_target_of_our_engine_is_explained() {
    if tools_are_missing() || lab_is_missing() {
        return;
    }
    let image = Image::new("32M", &["-t", "ext4"]);
    let (on_image, on_file) = (
        format!("image:{}", image.str()),
        format!("raw:{}", str(&image.sibling("plain"))),
    );
    let all = workload(
        &image,
        &[
            &on_image,
            &on_file,
            "memory:",
            "model:ufs-phone",
            "dir:/tmp",
        ],
    );
    let accounts = all["accounts"].as_array().unwrap();
    let names = ["image", "plain", "memory", "ufs-phone"];
    assert_eq!(accounts.len(), names.len(), "{all}");
    for (account, name) in accounts.iter().zip(names) {
        assert_eq!(account["series"], format!("{name} (throughline)"));
        assert!(count(account, "asked", "write").1 >= MIB, "{account}");
        assert!(count(account, "bios", "write data").1 >= MIB, "{account}");
        assert!(
            account["writeback"]["bytes"].as_u64() >= Some(MIB),
            "{account}"
        );
        let latencies = account["latency"]["write"]["count"].as_u64();
        let written: u64 = sizes(account, "write").iter().map(|(_, count)| count).sum();
        assert_eq!(latencies, Some(written), "all completed: {account}");
    }
    let left_out = all["left_out"].as_array().unwrap();
    assert!(
        left_out.len() == 1 && left_out[0].as_str().unwrap().contains("--kernel"),
        "{all}"
    );
}

#[test]
fn a_workload_on_a_block_device_is_explained() {
    if lab_is_missing() {
        return;
    }
    let Some(device) = Loop::new(false) else {
        return;
    };
    let all = workload(&device.image, &[&format!("raw:{}", device.device.node())]);
    let account = &all["accounts"][0];
    let name = device.device.node().trim_start_matches("/dev/");
    assert_eq!(account["series"], format!("{name} (throughline)"));
    assert!(count(account, "bios", "write data").1 >= MIB, "{account}");
}

#[test]
fn an_experiment_is_explained_by_its_variants() {
    if tools_are_missing() || lab_is_missing() {
        return;
    }
    let image = Image::new("1M", &["-t", "ext2"]);
    let (account, kept) = (image.sibling("account"), image.sibling("run.jsonl"));
    let dir = image.sibling("");
    let explain = ["explain", "--json", "--to", str(&account)];
    let lab = [
        "lab",
        "run",
        "open/1tib",
        "--rounds",
        "2",
        "--dir",
        str(&dir),
        "--out",
        str(&kept),
    ];
    let ran = run(explain.iter().chain(&lab));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let all: Value = serde_json::from_str(&fs::read_to_string(&account).unwrap()).unwrap();
    let accounts = all["accounts"].as_array().unwrap();
    let series: Vec<&str> = accounts
        .iter()
        .filter_map(|a| a["series"].as_str())
        .collect();
    assert_eq!(series, ["read only", "writable"]);
    // Two samples, without the warm-up. Each reads the same metadata when it opens the file.
    let read = count(&accounts[0], "bios", "read metadata");
    assert!(read.0 > 0 && read.0.is_multiple_of(2), "{all}");
    assert_eq!(count(&accounts[0], "bios", "flush").0, 0);
    assert!(count(&accounts[1], "bios", "write metadata").0 > 0, "{all}");
}

#[test]
fn recovering_and_measuring_are_explained() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    image.debugfs_write("ssv state 0");
    for command in [&["replay"][..], &["tune", "--measure"]] {
        let mut arguments = command.to_vec();
        let path = image.path();
        arguments.extend([str(&path), "--quiet"]);
        let ran = run(["explain"].iter().chain(&arguments));
        assert!(
            ran.stderr.contains("read bio sizes"),
            "{command:?}: {}",
            ran.stderr
        );
    }
}
