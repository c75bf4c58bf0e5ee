//! Unmounting while another mount namespace still has the mount, as a container does that was started
//! meanwhile: `umount` says what it waits for, and ends with the server, or after `--timeout`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use throughline_testkit::program::{command, has};

use super::{Point, image, ok, run, skipped};
use crate::common::{Image, throughline};

/// What the process with its own mount namespace runs. It unmounts the mounts of other tests there.
const CONTAINER: &str = r#"
cat /proc/self/mountinfo > list
while read -r id parent device root at rest; do
  case "$at $rest" in
    "/ "* | "$0 "*) ;;
    *" - fuse"* | *" - ext"*) umount -l "$at" ;;
  esac
done < list
echo up
read end || true
"#;

/// A process with a mount namespace of its own, which has this mount. It ends when its input does.
fn container(image: &Image, point: &Point) -> Child {
    let mut container = command("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", CONTAINER])
        .arg(point.str())
        .current_dir(image.sibling(".").canonicalize().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    let mut says = container.stdout.take().unwrap();
    says.read_exact(&mut up).unwrap();
    container
}

/// A mounted image that a container has, too; `None` if this cannot be tested here.
fn shared() -> Option<(Image, Point, Child)> {
    if skipped() || !has(&["unshare", "sh"]) {
        return None;
    }
    let image = image();
    let point = Point::new(&image, "shared");
    ok(["mount", image.str(), point.str()]);
    let other = container(&image, &point);
    Some((image, point, other))
}

fn end(mut container: Child) {
    drop(container.stdin.take());
    assert!(container.wait().unwrap().success());
}

#[test]
fn umount_says_that_another_namespace_has_the_mount() {
    let Some((_image, point, other)) = shared() else {
        return;
    };
    let named = format!(
        "Another mount namespace still has the mount: that of process {} (",
        other.id()
    );
    let mut umount = throughline();
    umount.args(["umount", point.str()]).stderr(Stdio::piped());
    let mut umount = umount.spawn().unwrap();
    let mut says = BufReader::new(umount.stderr.take().unwrap());
    let mut line = String::new();
    says.read_line(&mut line).unwrap();
    assert!(line.contains(&named), "{line}");
    assert!(!point.is_mounted());
    end(other);
    assert!(umount.wait().unwrap().success());
}

#[test]
fn umount_waits_as_long_as_it_is_told() {
    let Some((image, point, other)) = shared() else {
        return;
    };
    // What never waits has no bound.
    let ran = run(["umount", "--lazy", "--timeout", "1", point.str()]);
    assert!(ran.stderr.contains("cannot be used with"), "{}", ran.stderr);
    assert!(point.is_mounted());
    let ran = run(["umount", "--timeout", "1", point.str()]);
    assert_eq!(ran.code, Some(124), "{}", ran.stderr);
    assert!(
        ran.stderr.contains(&format!("process {} (", other.id())),
        "{}",
        ran.stderr
    );
    assert!(!point.is_mounted());
    end(other);
    // The server ends with the last of its mounts, and the image is free.
    while run(["label", image.str(), "free"]).code != Some(0) {}
    ok(["mount", image.str(), point.str()]);
    ok(["umount", "--timeout", "60", point.str()]);
}
