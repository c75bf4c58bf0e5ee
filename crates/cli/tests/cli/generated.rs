//! Help, completions and manual pages, and how the binary ends.

use std::io::Read;
use std::process::Stdio;

use crate::common::{Image, fails, ok, run, throughline, tools_are_missing};

const COMMANDS: [&str; 38] = [
    "info",
    "ls",
    "tree",
    "stat",
    "cat",
    "cp",
    "rm",
    "mkdir",
    "mv",
    "ln",
    "readlink",
    "chmod",
    "chown",
    "touch",
    "find",
    "mknod",
    "getfattr",
    "setfattr",
    "getfacl",
    "setfacl",
    "lsattr",
    "chattr",
    "label",
    "uuid",
    "shell",
    "truncate",
    "df",
    "du",
    "tune",
    "replay",
    "mount",
    "umount",
    "status",
    "install-fuse2fs",
    "install-helpers",
    "lab",
    "completions",
    "man",
];

#[test]
fn every_command_has_help() {
    let all = ok(["--help"]);
    for command in COMMANDS {
        assert!(
            all.contains(&format!("\n  {command} ")),
            "{command} is not in {all}"
        );
        assert!(ok([command, "--help"]).contains("Usage:"), "{command}");
    }
    assert!(ok(["cp", "--help"]).contains("Below the target no symbolic link is followed"));
    assert!(ok(["ln", "--help"]).contains("target is text"));
}

#[test]
fn completions_and_manual_pages_come_from_the_same_model() {
    for shell in ["bash", "zsh", "fish"] {
        let text = ok(["completions", shell]);
        assert!(
            COMMANDS.iter().all(|command| text.contains(command)),
            "{shell}"
        );
    }
    assert!(ok(["man"]).contains(".TH throughline 1"));
    let dir = tempfile::tempdir().unwrap();
    ok(["man", dir.path().to_str().unwrap()]);
    for command in COMMANDS {
        assert!(
            dir.path().join(format!("throughline-{command}.1")).exists(),
            "{command}"
        );
    }
}

#[test]
fn usage_errors_end_with_2() {
    fails(["no-such-command"], 2, "unrecognized subcommand");
    fails(["ls"], 2, "required");
    fails(["ls", "/etc"], 2, "IMAGE:/path");
    fails(["ls", "--offset", "12q", "x:/"], 2, "invalid size");
    fails(["cp", "only-one"], 2, "missing destination");
    fails(["--engine", "magic", "ls", "x:/"], 2, "possible values");
    fails(["lab", "run", "no-such-experiment"], 2, "no experiment");
    assert_eq!(run::<&str>([]).code, Some(2));
}

#[test]
fn an_image_without_a_path_is_explained() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    fails(["ls", image.path().to_str().unwrap()], 2, &image.at("/"));
}

#[test]
fn the_lab_lists_its_experiments() {
    let text = ok(["lab", "list"]);
    assert!(
        text.lines().any(|line| line.starts_with("founding/1 ")),
        "{text}"
    );
}

#[test]
fn a_closed_pipe_is_no_error_to_talk_about() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    ok(["truncate", "-s", "16M", &image.at("/zeroes")]);
    let mut child = throughline()
        .args(["cat", &image.at("/zeroes")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0xffu8];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(141));
}
