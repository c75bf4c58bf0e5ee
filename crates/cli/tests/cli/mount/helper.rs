//! `mount -t fuse.throughline`, fstab and umount(8) through the helper from `install-helpers`, in a mount
//! namespace with a private `/sbin`.

use std::fs;
use std::process::Command;

use throughline_testing::program::has;

use super::*;

/// Runs a script as root in a mount namespace with a private `/sbin`: `$T` is the binary, `$IMAGE` the image,
/// `$DIR` the mount point.
pub(super) fn script(image: &Image, point: &Point, text: &str) -> Option<Ran> {
    if !has(&["unshare", "mount", "findmnt"]) {
        return None;
    }
    let work = image.sibling("work");
    fs::create_dir(&work).unwrap();
    let own = "mount -t tmpfs none \"$W\" && mkdir \"$W/up\" \"$W/work\" &&
        mount -t overlay none -o \"lowerdir=$(realpath /sbin),upperdir=$W/up,workdir=$W/work\" \"$(realpath /sbin)\" ||
        { echo 'no overlay' >&2; exit 77; }
        trap '$T umount -l $DIR 2>/dev/null || true' EXIT";
    let ran = program(
        Command::new("unshare")
            .args(["-m", "--propagation", "private", "sh", "-ec"])
            .arg(format!("{own}\n{text}"))
            .env("T", env!("CARGO_BIN_EXE_throughline"))
            .env("IMAGE", image.path())
            .env("DIR", &point.dir)
            .env("W", &work),
    );
    if ran.code == Some(77) {
        throughline_testkit::missing!("{}", ran.stderr);
        return None;
    }
    Some(ran)
}

#[test]
fn mount_and_fstab_know_the_type_once_the_helper_is_installed() {
    if skipped() {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let text = "
        mkdir $W/modprobe
        $T install-helpers --copy=/sbin --io-uring --modprobe $W/modprobe
        grep '^options' $W/modprobe/throughline-fuse.conf
        readlink /sbin/mount.fuse.throughline
        mount -t fuse.throughline $IMAGE $DIR -o noexec
        findmnt -n -o FSTYPE,SOURCE $DIR
        echo by-mount > $DIR/by-mount
        umount $DIR
        ! findmnt $DIR
        echo \"$IMAGE $DIR fuse.throughline noauto,nofail,x-systemd.automount,noatime,commit=2 0 0\" > $W/fstab
        mount -T $W/fstab $DIR
        cat $DIR/by-mount
        echo by-fstab > $DIR/by-fstab
        umount $DIR
        mount -r -t fuse.throughline $IMAGE $DIR
        ! touch $DIR/x 2> $W/said
        grep 'Read-only file system' $W/said
        umount $DIR
        $T install-helpers --copy=/sbin --remove --modprobe $W/modprobe
        ! ls $W/modprobe/* 2> $W/said
        ! ls /sbin/mount.fuse.throughline 2> $W/said";
    let Some(ran) = script(&image, &point, text) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    let output = ran.text();
    let shown = format!("fuse.throughline {}", image.path().display());
    for text in [
        &shown,
        "by-mount\n",
        "fstab",
        "Read-only file system",
        "options fuse enable_uring=1\n",
    ] {
        assert!(output.contains(text), "no {text:?}: {output}");
    }
    // umount(8) does not wait until the image is closed; reading succeeds once the lock is released.
    wait("the image is closed", || {
        run(["ls", &image.at("/")]).code == Some(0)
    });
    assert_eq!(ok(["cat", &image.at("/by-fstab")]).text(), "by-fstab\n");
    image.assert_clean();
}

#[test]
fn mount_passes_on_the_messages_of_the_helper() {
    if skipped() {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let text = "
        try() { code=0; \"$@\" || code=$?; echo \"exit $code\" >&2; }
        $T -q install-helpers --copy=/sbin
        try mount -t fuse.throughline $IMAGE $DIR -o no_such_option
        try mount -t fuse.throughline $IMAGE.none $DIR
        try mount -s -t fuse.throughline $IMAGE $DIR -o no_such_option
        umount $DIR
        try mount -f -t fuse.throughline $IMAGE $DIR
        ! findmnt $DIR
        try mount.fuse.throughline $IMAGE
        try mount.fuse.throughline $IMAGE $DIR -o ro,noatime -n -v -N /proc/self/ns/mnt -t fuse.throughline
        umount $DIR";
    let Some(ran) = script(&image, &point, text) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
    let exits: Vec<_> = ran
        .stderr
        .lines()
        .filter(|line| line.starts_with("exit"))
        .collect();
    assert_eq!(
        exits,
        ["exit 1", "exit 32", "exit 0", "exit 0", "exit 1", "exit 0"],
        "{}",
        ran.stderr
    );
    for text in [
        "mount.fuse.throughline: unknown mount option 'no_such_option'",
        "No such file or directory",
        "usage: mount.fuse.throughline",
    ] {
        assert!(ran.stderr.contains(text), "no {text:?}: {}", ran.stderr);
    }
}

#[test]
fn links_are_made_and_removed_with_care() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let link = dir.path().join("fuse2fs");
    assert!(
        ok(["install-fuse2fs", path])
            .text()
            .contains("runs throughline")
    );
    let this = fs::canonicalize(env!("CARGO_BIN_EXE_throughline")).unwrap();
    assert_eq!(fs::canonicalize(&link).unwrap(), this);
    // Repeating it is not an error.
    ok(["install-fuse2fs", path]);
    // A dangling link, or one to another throughline, is replaced.
    for stale in ["/no/such/dir/throughline", "/no/such/file"] {
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(stale, &link).unwrap();
        ok(["install-fuse2fs", path]);
        assert_eq!(fs::canonicalize(&link).unwrap(), this);
    }
    ok(["install-fuse2fs", "--remove", path]);
    assert!(!link.exists());
    ok(["install-fuse2fs", "--remove", path]);
    // Another program of that name is kept.
    fs::write(&link, "#!/bin/sh\n").unwrap();
    fails(
        ["install-fuse2fs", path],
        1,
        &["File exists", "another directory"],
    );
    fails(
        ["install-fuse2fs", "--remove", path],
        1,
        &["not a link to this program"],
    );
    assert!(link.exists());
    let copy = format!("--copy={path}");
    let mut arguments = vec!["install-helpers", "--sbin", path];
    // The program may be in a directory of the user who made it.
    if crate::common::is_root() {
        arguments.push(&copy);
    }
    let helper = ok(arguments).text();
    for text in [
        "mount -t fuse.throughline",
        "fuse.throughline  defaults",
        "0 0",
    ] {
        assert!(helper.contains(text), "{helper}");
    }
    assert!(dir.path().join("mount.fuse.throughline").exists());
    fails(["install-fuse2fs", "/no/such/dir"], 1, &["No such file"]);
}
