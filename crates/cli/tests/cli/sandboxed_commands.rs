//! Commands that work on images run in a sandbox. All their threads are in it before they read input.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Image, throughline, tools_are_missing};

/// A command that waits for its standard input. Ended on drop.
struct Waiting(Child);

impl Waiting {
    fn start(words: &[&str]) -> Waiting {
        let started = throughline()
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        Waiting(started.unwrap())
    }

    /// The mode of seccomp of each thread; 2 is a filter.
    fn seccomp(&self) -> Vec<u32> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        let mode = |status: String| {
            let line = status.lines().find(|line| line.starts_with("Seccomp:"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        threads
            .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("status")).ok())
            .filter_map(mode)
            .collect()
    }

    fn is_in_sandbox(&self) -> bool {
        let modes = self.seccomp();
        !modes.is_empty() && modes.iter().all(|mode| *mode == 2)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The lines of a shell, until it has carried out a command.
fn ask(shell: &mut Child, out: &mut impl BufRead, command: &str) -> String {
    writeln!(shell.stdin.as_mut().unwrap(), "{command}").unwrap();
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    line
}

#[test]
fn commands_that_work_on_images_are_in_a_sandbox() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let made = image.sibling("made");
    let made = made.to_str().unwrap();
    for words in [
        &["shell", image.str()][..],
        &["pack", "-", "-o", made],
        &["mkfs", "-F", "-d", "-", made, "32M"],
        &["cp", "-", &image.at("/file")],
    ] {
        let command = Waiting::start(words);
        let end = Instant::now() + Duration::from_secs(60);
        while !command.is_in_sandbox() {
            assert!(Instant::now() < end, "{words:?}: {:?}", command.seccomp());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_shell_works_in_the_sandbox_and_without() {
    if tools_are_missing() {
        return;
    }
    for (word, in_sandbox) in [("--quiet", true), ("--no-sandbox", false)] {
        let image = Image::ext4();
        let mut shell = Waiting::start(&[word, "shell", image.str()]);
        let mut out = BufReader::new(shell.0.stdout.take().unwrap());
        assert_eq!(ask(&mut shell.0, &mut out, "ls"), "lost+found\n");
        assert_eq!(shell.is_in_sandbox(), in_sandbox, "{word}");
        writeln!(shell.0.stdin.as_mut().unwrap(), "mkdir a").unwrap();
        drop(shell.0.stdin.take());
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        assert!(shell.0.wait().unwrap().success(), "{rest}");
        image.assert_clean();
        assert!(image.debugfs("stat /a").contains("Type: directory"));
    }
}
