//! `status`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use throughline_testing::program::wait as wait_child;

use super::*;
use crate::common::noise;

const READINGS: u64 = 100;

/// The requests that the server answers while a file in the cache is opened, read and closed 100 times. This
/// includes the few requests of `status`, and of other programs that query all mounts.
#[track_caller]
fn requests_of_readings(point: &Point) -> u64 {
    let served = || point.status()["requests"]["served"].as_u64().unwrap();
    let read = || assert_eq!(fs::read(point.path("file")).unwrap(), b"content");
    read();
    let before = served();
    for _ in 0..READINGS {
        read();
    }
    served() - before
}

#[test]
fn a_file_in_the_cache_is_read_without_requests_on_a_read_only_mount() {
    if skipped() {
        return;
    }
    let image = image();
    let point = mounted(&image, "rw");
    fs::write(point.path("file"), b"content").unwrap();
    // Control: on this mount and the next, each reading sends a request, and the count shows it.
    assert!(requests_of_readings(&point) >= READINGS);
    ok(["umount", point.str()]);
    for (options, each) in [("ro,direct_io", true), ("ro", false)] {
        ok(["mount", "-o", options, image.str(), point.str()]);
        let requests = requests_of_readings(&point);
        assert_eq!(requests >= READINGS, each, "{options}: {requests}");
        ok(["umount", point.str()]);
    }
}

#[test]
fn root_gets_a_longer_readahead_of_the_kernel() {
    if skipped() || !throughline_testkit::tier::as_root() {
        return;
    }
    let image = image();
    let point = mounted(&image, "rw");
    let device = rustix::fs::stat(point.path(".")).unwrap().st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if fs::OpenOptions::new().write(true).open(&place).is_err() {
        throughline_testkit::missing!("{place} cannot be written");
        return;
    }
    assert_eq!(fs::read_to_string(&place).unwrap(), "1024\n");
}

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
    assert_eq!(state["image"], image.str());
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
    // The help describes every field.
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
    // The attribute is not in the list, and only the root directory has it.
    let listed = rustix::fs::listxattr(&point.dir, &mut Vec::<u8>::with_capacity(4096)[..]);
    assert!(matches!(listed, Ok(0) | Err(_)), "{listed:?}");
    fails(
        ["status", point.path("lost+found").to_str().unwrap()],
        1,
        &["nothing is mounted there"],
    );
    ok(["umount", point.str()]);
    fails(["status", point.str()], 1, &["nothing is mounted there"]);
    fails(["status", "/proc"], 1, &["not a throughline mount"]);
}

/// It exits with 0 when the mount ends.
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

/// Without a directory, all mounts are listed.
#[test]
fn mounts_are_listed() {
    if skipped() {
        return;
    }
    let image = Image::new("16M", &["-t", "ext4"]);
    let point = Point::new(&image, "listed");
    let path = image.str();
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

const USUAL_CACHE_BYTES: u64 = 256 << 20;

/// The default memory limit depends neither on the image's owner nor on whether the mount is writable.
#[test]
fn a_mount_uses_little_memory_unless_more_is_configured() {
    if skipped() {
        return;
    }
    let budget = |point: &Point| point.status()["cache"]["budget_bytes"].as_u64().unwrap();
    let image = image();
    let usual = throughline::internal::default_budget_bytes().min(USUAL_CACHE_BYTES);
    for (owner, options) in [(0, "rw"), (65_534, "rw"), (65_534, "ro")] {
        std::os::unix::fs::chown(image.path(), Some(owner), Some(owner)).unwrap();
        let point = mounted_again(&image, &["-o", options]);
        assert_eq!(budget(&point), usual, "{owner} {options}");
        ok(["umount", point.str()]);
    }
    for arguments in [["--cache", "300M"], ["-o", "cache_size=300M"]] {
        let point = mounted_again(&image, &arguments);
        assert_eq!(budget(&point), 300 << 20, "{arguments:?}");
        ok(["umount", point.str()]);
    }
}

fn mounted_again(image: &Image, arguments: &[&str]) -> Point {
    let dir = image.sibling("again");
    let _ = fs::create_dir(&dir);
    let point = Point { dir };
    let path = image.path();
    let place = ["mount", path.to_str().unwrap(), point.str()];
    ok(place.iter().chain(arguments));
    point
}

/// The server of the mount `below` is stopped. The image of the mount `upper` is on `below`; the mount
/// `other` is independent. All are in a mount namespace of their own, so that no other process waits for the
/// stopped server.
const HUNG: &str = r#"
    pid() { "$BINARY" status --json "$1" | tr ',{' '\n\n' | sed -n 's/^ *"pid": *\([0-9]*\)$/\1/p'; }
    cd "$DIR"; mkdir below upper other
    "$BINARY" mount below.img below
    cp image.img below/image
    "$BINARY" mount below/image upper; head -c 300000 /dev/urandom > upper/file
    "$BINARY" umount upper; "$BINARY" mount below/image upper
    "$BINARY" mount other.img other
    stopped=$(pid below)
    trap 'kill -CONT $stopped' EXIT
    kill -STOP $stopped
    cat upper/file > read & mkdir upper/dir &
    for look in 1 2 3; do "$BINARY" status --json upper > look; done
    "$BINARY" status other > look
    "$BINARY" status; "$BINARY" mount; "$BINARY" status --json > list.json
    kill -CONT $stopped
    wait
    for point in upper other below; do "$BINARY" umount $point; done
    test $(wc -c < read) = 300000"#;

#[test]
fn a_mount_that_does_not_answer_stops_no_look_at_others() {
    if skipped() {
        return;
    }
    let below = Image::new("64M", &["-t", "ext4"]);
    let upper = Image::new("16M", &["-t", "ext4", "-b", "4096"]);
    let other = Image::new("16M", &["-t", "ext4"]);
    let dir = below.sibling("hung");
    fs::create_dir(&dir).unwrap();
    for (image, name) in [(&below, "below"), (&upper, "image"), (&other, "other")] {
        fs::copy(image.path(), dir.join(name).with_extension("img")).unwrap();
    }
    let ran = program(
        std::process::Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-ec", HUNG])
            .env("BINARY", env!("CARGO_BIN_EXE_throughline"))
            .env("DIR", &dir),
    );
    let output = ran.text();
    assert_eq!(ran.code, Some(0), "{output}{}", ran.stderr);
    let line = |image: &str, point: &str, what: &str| {
        let dir = dir.display();
        let line = format!("{dir}/{image} at {dir}/{point}: {what}");
        assert!(output.contains(&line), "no {line} in {output}");
    };
    line("below.img", "below", "its server does not answer");
    line("below/image", "upper", "read and write, process");
    line("other.img", "other", "read and write, process");
    let listed = format!("{0}/below.img on {0}/below type", dir.display());
    assert!(output.contains(&listed), "no {listed} in {output}");
    let list = fs::read(dir.join("list.json")).unwrap();
    let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
    let hung = list
        .as_array()
        .unwrap()
        .iter()
        .find(|mount| mount["directory"] == dir.join("below").to_str().unwrap());
    let hung = hung.unwrap();
    assert_eq!(
        (&hung["answers"], &hung["ended"]),
        (&false.into(), &false.into())
    );
}
