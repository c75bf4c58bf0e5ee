//! `mount -f` at a terminal: its standard input is not the terminal, and the terminal's keys still reach it.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use super::{Point, image, skipped};

/// ^Z, which the shell answers with the exit status of a job that SIGTSTP stopped, and ^C.
const STOP: u8 = 0x1a;
const END: u8 = 0x03;

#[test]
fn keys_stop_and_end_a_mount_in_the_foreground() {
    if skipped() {
        return;
    }
    if Command::new("script").arg("--version").output().is_err() {
        throughline_testkit::missing!("script(1) is missing");
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let mount = format!(
        "{} mount -f {} {}",
        env!("CARGO_BIN_EXE_throughline"),
        image.path().display(),
        point.str()
    );
    // With job control, so that the terminal has a foreground job and a shell that takes over when it stops.
    let shell = format!("set -m; {mount}; echo stopped by $?; fg >/dev/null; echo ended by $?");
    let mut script = Command::new("script")
        .args(["-qec", &format!("bash -c '{shell}'"), "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut shown) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    point.wait_mounted(true);
    let pid = point.pid();
    let input = fs::read_link(format!("/proc/{pid}/fd/0")).unwrap();
    assert_eq!(input.to_str(), Some("/dev/null"));
    fs::write(point.path("before"), b"before").unwrap();
    keys.write_all(&[STOP]).unwrap();
    let text = read_until(&mut shown, "stopped by 148");
    assert!(!text.contains("ended"), "{text}");
    // Served only once the job runs again.
    fs::write(point.path("after"), b"after").unwrap();
    keys.write_all(&[END]).unwrap();
    read_until(&mut shown, "ended by 0");
    assert!(script.wait().unwrap().success());
    assert!(!point.is_mounted());
    image.assert_clean();
    assert_eq!(image.contents("/before"), b"before");
    assert_eq!(image.contents("/after"), b"after");
}

/// What the terminal shows, up to this text.
fn read_until(from: &mut impl Read, wanted: &str) -> String {
    let mut seen = String::new();
    while !seen.ends_with(wanted) {
        let mut byte = [0];
        from.read_exact(&mut byte)
            .unwrap_or_else(|error| panic!("{error} behind {seen:?}"));
        seen.push(byte[0].into());
    }
    seen
}
