//! Explains commands of ours; they keep their output and exit codes.

use std::fs;

use super::{MIB, accounts, count, sizes, str};
use crate::common::{Image, fails, noise, run, tools_are_missing};

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
