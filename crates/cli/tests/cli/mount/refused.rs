//! Mounts that fail: exit codes of mount(8), the reason and the next step.

use std::fs;
use std::process::Command;

use super::*;

#[test]
fn wrong_arguments_end_with_1() {
    if skipped() {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let path = image.str();
    for (options, texts) in [
        (
            "noatimes",
            &["unknown mount option 'noatimes'", "did you mean 'noatime'?"][..],
        ),
        ("ro,comit=5", &["'comit'", "did you mean 'commit'?"]),
        ("umask=999", &["octal"]),
        ("bind", &["'mount --bind'"]),
        ("noload", &["add 'ro'"]),
        ("resize,ro", &["does not go with 'ro'"]),
        ("without=nonsense", &["there is no such choice"]),
        ("cache_size=12", &["too little memory"]),
    ] {
        fails(["mount", "-o", options, path, point.str()], 1, texts);
    }
    // A directory that is not mounted cannot be remounted.
    fails(
        ["mount", "-o", "remount,ro", path, point.str()],
        32,
        &["not mounted"],
    );
    fails(["mount", "-o", "ro"], 1, &["required"]);
    fails(["mount", path], 1, &["required"]);
    fails(
        ["mount", "--no-such-flag", path, point.str()],
        1,
        &["unexpected argument"],
    );
    assert!(!point.is_mounted());
    assert_eq!(run(["mount", "--help"]).code, Some(0));
}

#[test]
fn a_mount_that_fails_exits_with_32() {
    if skipped() {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let path = image.str();
    let (file, none) = (image.sibling("file"), image.sibling("none"));
    fs::write(&file, "no image").unwrap();
    let (file, none) = (file.to_str().unwrap(), none.to_str().unwrap());
    fails(
        ["mount", path, none],
        32,
        &["cannot mount at", "No such file or directory", "mkdir"],
    );
    fails(["mount", path, file], 32, &["Not a directory", "mkdir"]);
    fails(
        ["mount", none, point.str()],
        32,
        &["cannot open", "No such file or directory"],
    );
    fails(
        ["mount", point.str(), point.str()],
        32,
        &["Is a directory", "image file"],
    );
    // A short text file is probably a mistyped name. An empty file may be meant for a new file system.
    fails(
        ["mount", file, point.str()],
        32,
        &["cannot open", "check the name"],
    );
    fs::write(file, "").unwrap();
    fails(
        ["mount", file, point.str()],
        32,
        &["cannot open", "throughline mkfs"],
    );
    assert!(!point.is_mounted());
    // A directory that contains files can be a mount point. The files are hidden while it is mounted.
    fs::write(point.path("hidden"), "").unwrap();
    ok(["mount", path, point.str()]);
    assert!(!point.path("hidden").exists());
    ok(["umount", point.str()]);
    assert!(point.path("hidden").exists());
}

#[test]
fn a_second_mount_is_refused_and_the_first_named() {
    if skipped() {
        return;
    }
    let image = image();
    let first = mounted(&image, "");
    let second = Point::new(&image, "second");
    let path = image.str();
    let process = format!("in use by process {} (throughline)", first.pid());
    fails(
        ["mount", path, second.str()],
        32,
        &[&process, "throughline umount"],
    );
    fails(["mount", "-r", path, second.str()], 32, &[&process]);
    fails(
        ["mount", path, first.str()],
        32,
        &["is mounted there", "unmount it first"],
    );
    ok(["umount", first.str()]);
    // Several mounts may read the same image.
    ok(["mount", "-r", path, first.str()]);
    ok(["mount", "-r", path, second.str()]);
    fails(["rm", &image.at("/x")], 1, &["in use by"]);
    ok(["umount", first.str(), second.str()]);
}

#[test]
fn a_damaged_image_is_sent_to_e2fsck() {
    if skipped() {
        return;
    }
    let image = image();
    image.patch(|bytes| bytes[1024 + 0x18..1024 + 0x20].fill(0xff));
    let point = Point::new(&image, "mnt");
    let path = image.path();
    fails(
        ["mount", path.to_str().unwrap(), point.str()],
        32,
        &["e2fsck"],
    );
}

/// Runs a script in a separate mount namespace, where it may change `/dev`.
fn apart(script: &str, arguments: &[&str]) -> Ran {
    program(
        Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-ec", script, "sh"])
            .args(arguments),
    )
}

#[test]
fn without_fuse_the_error_names_the_next_step() {
    if skipped() {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let path = image.path();
    let arguments = [
        env!("CARGO_BIN_EXE_throughline"),
        path.to_str().unwrap(),
        point.str(),
    ];
    let possible = apart(
        "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3",
        &[],
    );
    if possible.code != Some(0) {
        throughline_testkit::missing!("no /dev of our own: {}", possible.stderr);
        return;
    }
    let ran = apart(
        "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; exec \"$@\"",
        &[arguments[0], "mount", arguments[1], arguments[2]],
    );
    assert_eq!(ran.code, Some(32), "{}", ran.stderr);
    for text in [
        "cannot open /dev/fuse: No such file",
        "modprobe fuse",
        "--device /dev/fuse",
    ] {
        assert!(ran.stderr.contains(text), "{}", ran.stderr);
    }
    image.assert_clean();
}
