//! The examples of the help work: a shell runs them as they stand there, on an image that has what they name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::common::{built, good, ok, str, tools_are_missing};

/// Commands whose examples need a mount, root or an installed program, and have tests of their own.
const ELSEWHERE: [&str; 5] = ["mount", "umount", "status", "install-helpers", "lab"];
/// Examples with one of these words need a network, a device, root, or other programs.
const NOT_HERE: [&str; 9] = [
    "docker://",
    "s3://",
    "curl ",
    "/dev/vg",
    "--kernel",
    "| jq",
    "| man",
    "zstd",
    "whole.img",
];
/// Examples of these make an image, which must not be there.
const MAKING: [&str; 2] = ["mkfs", "pack"];

/// What the image has.
const FILLED: &str = "\
mkdir -p /etc /bin /dev /home/ann /usr/lib /usr/src /usr/local/bin /var/log /var/old /var/www /srv /root /run
cp host:text /etc/os-release
cp host:text /etc/fstab
cp host:text /etc/motd
cp host:text /etc/hostname
cp host:text /etc/passwd
cp host:text /etc/passwd-
cp host:text /etc/resolv.conf
cp host:text /etc/app.conf
cp host:text /bin/ping
cp host:text /bin/vi
cp host:text /usr/lib/libx.so.1
cp host:text /usr/local/bin/tool
cp host:text /usr/src/code.o
cp host:text /var/log/sys.log
cp host:text /var/log/old.gz
ln -s vi /bin/sh
ln -s ../etc/fstab /etc/localtime
touch /dev/sda
setfattr -n user.origin -v here /etc/os-release
chattr +i /etc/passwd
";

/// A directory with what the examples name.
fn fill(place: &Path) {
    fs::write(place.join("text"), "an error in a text\n").unwrap();
    fs::write(place.join("big"), vec![1; 1 << 20]).unwrap();
    fs::write(place.join("changes"), "mkdir /no/such\nmkdir /made\n").unwrap();
    fs::copy(place.join("text"), place.join("app.conf")).unwrap();
    for folder in [
        "photos",
        "rootfs",
        "overlay",
        "site",
        "images",
        ".config/fish/completions",
    ] {
        fs::create_dir_all(place.join(folder)).unwrap();
        fs::copy(place.join("text"), place.join(folder).join("file")).unwrap();
    }
    for folder in [".local/bin", ".local/share/bash-completion/completions"] {
        fs::create_dir_all(place.join(folder)).unwrap();
    }
    symlink("file", place.join("rootfs/link")).unwrap();
    fs::write(place.join("filled"), FILLED).unwrap();
    shell(
        place,
        "throughline mkfs -q disk.img 16M; throughline shell disk.img -f filled",
    );
    for copy in ["a.img", "b.img", "copy.img", "images/one.img"] {
        fs::copy(place.join("disk.img"), place.join(copy)).unwrap();
    }
    shell(
        place,
        "throughline mkdir --overlay changes.qcow2 disk.img:/changed",
    );
}

/// Runs a command as a user does who is in this directory, which is home.
#[track_caller]
fn shell(place: &Path, command: &str) {
    let programs = built("throughline");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", str(programs.parent().unwrap()));
    let mut shell = Command::new("sh");
    shell.args(["-euc", command]).current_dir(place);
    good(shell.env("PATH", path).env("HOME", place));
}

/// The examples of a command's help.
fn examples(words: &[&str]) -> Vec<String> {
    let help = ok(words.iter().chain(&["--help"]));
    let (_, text) = help.split_once("\nExamples:\n").expect("examples");
    let lines = text.lines().take_while(|line| !line.is_empty());
    let mut found: Vec<String> = Vec::new();
    for line in lines {
        match (line.strip_prefix("    "), found.last_mut()) {
            (Some(line), Some(commands)) => commands.extend([line, "\n"]),
            _ => found.push(String::new()),
        }
    }
    found
}

#[test]
fn the_examples_of_the_help_work() {
    if tools_are_missing() || throughline_testkit::tier::is_too_long("the examples of the help") {
        return;
    }
    let screen = ok(["--help"]);
    let named = screen.lines().filter_map(|line| line.strip_prefix("  "));
    let named = named.filter_map(|line| line.split("  ").next());
    let names: Vec<&str> = named.flat_map(|names| names.split(", ")).collect();
    assert!(names.len() > 40, "{names:?}");
    let shown = names
        .into_iter()
        .filter(|name| !name.is_empty() && !name.contains(['/', ' ']));
    let mut commands: Vec<Vec<&str>> = shown.map(|name| vec![name]).collect();
    commands.extend(["diff", "commit", "rebase"].map(|below| vec!["overlay", below]));
    let mut ran = 0;
    for command in commands {
        if ELSEWHERE.contains(&command[0]) {
            continue;
        }
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        fill(place);
        if command == ["overlay", "rebase"] {
            fs::copy(place.join("disk.img"), place.join("new.img")).unwrap();
        }
        for example in examples(&command) {
            if NOT_HERE.iter().any(|word| example.contains(word)) {
                continue;
            }
            if MAKING.contains(&command[0]) {
                // The last one may have made none.
                let _ = fs::remove_file(place.join("disk.img"));
            }
            // A command of the file `changes` fails.
            let command = match example.contains("--keep-going") {
                true => format!("! {example}"),
                false => example,
            };
            shell(place, &command);
            ran += 1;
        }
    }
    assert!(ran > 70, "{ran} examples");
}
