//! Unmounting while another mount namespace still has the mount, as a container does that was started
//! meanwhile: `umount` says what it waits for, and ends with the server.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use throughline_testkit::program::{command, has};

use super::{Point, image, ok, skipped};
use crate::common::throughline;

#[test]
fn umount_says_that_another_namespace_has_the_mount() {
    if skipped() || !has(&["unshare", "sh"]) {
        return;
    }
    let image = image();
    let point = Point::new(&image, "shared");
    ok(["mount", image.str(), point.str()]);
    // It ends when its input does.
    let mut container = command("unshare")
        .args([
            "-m",
            "--propagation",
            "private",
            "sh",
            "-c",
            "echo up; read end || true",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    container
        .stdout
        .take()
        .unwrap()
        .read_exact(&mut up)
        .unwrap();
    let mut umount = throughline();
    umount.args(["umount", point.str()]).stderr(Stdio::piped());
    let mut umount = umount.spawn().unwrap();
    let mut says = BufReader::new(umount.stderr.take().unwrap());
    let mut line = String::new();
    says.read_line(&mut line).unwrap();
    assert!(line.contains("another mount namespace"), "{line}");
    assert!(!point.is_mounted());
    drop(container.stdin.take());
    assert!(container.wait().unwrap().success());
    assert!(umount.wait().unwrap().success());
}
