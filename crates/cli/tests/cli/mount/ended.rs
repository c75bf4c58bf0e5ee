//! Mounts that end: unmounted, in use, or left behind by a killed server.

use std::fs;
use std::io::{Read, Write};

use rustix::process::Signal;

use super::*;
use crate::common::noise;

/// When `umount` exits with 0, all writes are on the disk without a sync.
#[test]
fn unmounting_waits_until_the_image_is_closed() {
    if skipped() {
        return;
    }
    let image = Image::new("128M", &["-t", "ext4"]);
    let point = mounted(&image, "");
    let data = noise(40 << 20, 5);
    for round in 0..3 {
        fs::write(point.path(&format!("file{round}")), &data).unwrap();
        let pid = point.pid();
        ok(["umount", point.str()]);
        assert!(
            !Path::new(&format!("/proc/{pid}")).exists()
                || fs::read_to_string(format!("/proc/{pid}/stat"))
                    .is_ok_and(|stat| stat.contains(") Z ")),
            "the server is still there"
        );
        image.assert_clean();
        assert!(image.contents(&format!("/file{round}")) == data);
        fs::remove_file(image.sibling("dumped")).unwrap();
        ok(["rm", &image.at(&format!("/file{round}"))]);
        let path = image.path();
        ok(["mount", path.to_str().unwrap(), point.str()]);
    }
    ok(["umount", point.str()]);
}

/// umount(8) does not wait until the image is closed, but the next mount of the image does.
#[test]
fn an_image_that_is_just_being_closed_can_be_mounted_again() {
    if skipped() {
        return;
    }
    let image = Image::new("128M", &["-t", "ext4"]);
    let point = mounted(&image, "");
    let path = image.str();
    for round in 0..4 {
        fs::write(point.path("file"), noise(20 << 20, round)).unwrap();
        point.unmount();
        let ran = ok(["mount", path, point.str()]);
        assert_eq!(ran.stderr, "", "it was closed cleanly");
        assert!(fs::read(point.path("file")).unwrap() == noise(20 << 20, round));
    }
    ok(["umount", point.str()]);
    image.assert_clean();
}

#[test]
fn a_mount_in_use_stays_but_for_lazy() {
    if skipped() {
        return;
    }
    let image = image();
    let point = mounted(&image, "");
    let mut file = fs::File::options()
        .create(true)
        .read(true)
        .append(true)
        .open(point.path("file"))
        .unwrap();
    file.write_all(b"before").unwrap();
    fails(
        ["umount", point.str()],
        32,
        &["Device or resource busy", "fuser -vm", "umount -l"],
    );
    assert!(point.is_mounted());
    let pid = point.pid();
    ok(["umount", "-l", point.str()]);
    assert!(!point.is_mounted());
    // A process with an open file is not disturbed.
    file.write_all(b" and after").unwrap();
    let mut text = String::new();
    std::io::Seek::rewind(&mut file).unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before and after");
    drop(file);
    wait_gone(pid);
    image.assert_clean();
    assert_eq!(image.contents("/file"), b"before and after");
}

#[test]
fn the_mount_of_a_killed_server_is_cleaned_up() {
    if skipped() {
        return;
    }
    let image = image();
    let point = mounted(&image, "");
    let file = fs::File::create(point.path("kept")).unwrap();
    (&file).write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    drop(file);
    let pid = point.pid();
    signal(pid, Signal::KILL);
    wait_gone(pid);
    let path = image.str();
    fails(
        ["status", point.str()],
        1,
        &["its server has ended", "throughline umount"],
    );
    fails(
        ["mount", path, point.str()],
        32,
        &["whose server has ended", "throughline umount"],
    );
    let ran = ok(["umount", point.str()]);
    assert!(ran.stderr.contains("had already ended"), "{}", ran.stderr);
    assert!(!point.is_mounted());
    let ran = ok(["mount", path, point.str()]);
    assert!(
        ran.stderr.contains("was not closed cleanly"),
        "{}",
        ran.stderr
    );
    assert_eq!(fs::read(point.path("kept")).unwrap(), b"synced");
    ok(["umount", point.str()]);
    image.assert_clean();
}

#[test]
fn mounts_of_others_are_not_unmounted() {
    if skipped() {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    fails(["umount", point.str()], 32, &["not mounted"]);
    fails(
        ["umount", "/proc"],
        32,
        &["proc is mounted there", "umount(8)"],
    );
    fails(
        ["umount", "/no/such/dir"],
        32,
        &["No such file or directory"],
    );
    fails(["umount"], 2, &["required"]);
    assert!(Path::new("/proc/self").exists());
}

/// After a failure, the other mounts are still unmounted.
#[test]
fn several_are_unmounted_at_once() {
    if skipped() {
        return;
    }
    let (a, b) = (image(), image());
    let (first, second) = (mounted(&a, ""), mounted(&b, "ro"));
    let empty = Point::new(&a, "empty");
    let ran = fails(
        ["umount", first.str(), empty.str(), second.str()],
        32,
        &["not mounted"],
    );
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(!first.is_mounted() && !second.is_mounted());
    a.assert_clean();
}
