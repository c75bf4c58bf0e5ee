//! `status`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use throughline_testing::program::wait as wait_child;

use super::*;
use crate::common::noise;

#[test]
fn a_mount_says_what_it_does() {
    if skipped() {
        return;
    }
    let image = image();
    let point = mounted(&image, "commit=30");
    let data = noise(2 << 20, 9);
    fs::write(point.path("file"), &data).unwrap();
    let file = fs::File::open(point.path("file")).unwrap();
    file.sync_all().unwrap();
    assert!(fs::read(point.path("file")).unwrap() == data);
    drop(file);
    let state = point.status();
    assert_eq!(state["image"], image.path().to_str().unwrap());
    assert_eq!(state["read_only"], false);
    assert_eq!(state["journal"]["state"], "in use");
    assert!(state["stopped"].is_null());
    for (part, name, least) in [
        ("requests", "written_bytes", data.len() as u64),
        ("requests", "read_bytes", data.len() as u64),
        ("requests", "served", 4),
        ("requests", "now", 1),
        ("device", "queue_depth", 1),
        ("io", "write_bytes", data.len() as u64),
        ("cache", "budget_bytes", 1 << 20),
        ("dirty", "limit_bytes", 1 << 18),
        ("writeback", "bytes", data.len() as u64),
        ("journal", "commits", 1),
        ("journal", "log_bytes", 1 << 20),
        ("metadata", "inodes", 1),
    ] {
        let value = state[part][name].as_u64();
        assert!(value >= Some(least), "{part}.{name}: {value:?} of {state}");
    }
    // Its help names every part.
    let help = ok(["status", "--help"]).text();
    for part in state.as_object().unwrap().keys() {
        assert!(help.contains(part.as_str()), "{part} is in no help");
    }
    let text = ok(["status", point.str()]).text();
    for title in [
        "Mount:",
        "Server:",
        "Requests:",
        "Read:",
        "Written:",
        "Device:",
        "Cache:",
        "Dirty memory:",
        "Pauses:",
        "Journal:",
    ] {
        assert!(text.contains(title), "no {title}: {text}");
    }
    // It is in no list, and no file but the root has it.
    let listed = rustix::fs::listxattr(&point.dir, &mut Vec::<u8>::with_capacity(4096)[..]);
    assert!(matches!(listed, Ok(0) | Err(_)), "{listed:?}");
    fails(
        ["status", point.path("lost+found").to_str().unwrap()],
        1,
        &["nothing is mounted there"],
    );
    ok(["umount", point.str()]);
    fails(["status", point.str()], 1, &["nothing is mounted there"]);
    fails(["status", "/proc"], 1, &["no mount of throughline"]);
}

/// It ends by itself, with 0, when the mount does.
#[test]
fn a_mount_is_watched_until_it_ends() {
    if skipped() {
        return;
    }
    for json in [false, true] {
        let image = image();
        let point = mounted(&image, "");
        let mut arguments = vec!["status", "--watch", "1", point.str()];
        if json {
            arguments.push("--json");
        }
        let mut watcher = throughline()
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
        let wanted = if json { "\"mounted_s\"" } else { "requests/s" };
        let found = lines.by_ref().any(|line| line.unwrap().contains(wanted));
        assert!(found, "no {wanted}");
        ok(["umount", point.str()]);
        for line in lines {
            line.unwrap();
        }
        let status = wait_child(&mut watcher, LIMIT).unwrap();
        assert_eq!(status.code(), Some(0));
    }
}

/// Without a directory, all mounts.
#[test]
fn mounts_are_listed() {
    if skipped() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let point = Point::new(&image, "listed");
    let path = image.path();
    let path = path.to_str().unwrap();
    crate::common::ok(["mount", path, point.str()]);
    let line = format!("{path} on {} type fuse.throughline (rw", point.str());
    let listed = crate::common::ok(["mount"]);
    assert!(listed.contains(&line), "no {line} in {listed}");
    let states = crate::common::ok(["status"]);
    let line = format!("{path} at {}: read and write, process ", point.str());
    assert!(states.contains(&line), "no {line} in {states}");
    let json = crate::common::run(["status", "--json"]).json();
    let ours = json.as_array().unwrap().iter();
    let mut ours = ours.filter(|state| state["directory"] == point.str());
    assert_eq!(ours.next().unwrap()["read_only"], false);
    crate::common::ok(["umount", point.str()]);
    assert!(!crate::common::ok(["mount"]).contains(point.str()));
    crate::common::fails(["mount", path], 1, "required");
}
