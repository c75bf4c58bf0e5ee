//! libfuse's options: accepted as by fuse2fs of e2fsprogs, with the documented effects.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use throughline_testing::program::find;

use super::like_fuse2fs::Fuse2fs;
use super::user::{own_image, script};
use super::*;

/// Options without a visible effect.
const UNSEEN: &str = "sync_read,async_read,no_remote_lock,no_remote_flock,no_remote_posix_lock,splice_read,no_splice_read,\
splice_write,no_splice_write,splice_move,no_splice_move,modules=,modules=iconv,big_writes,hard_remove,use_ino";

/// Whether a mount results, and what the list of mounts shows.
fn seen(command: &mut Command, arguments: &[&str]) -> (bool, String) {
    let image = image();
    let host = image.sibling("host");
    fs::write(&host, "four").unwrap();
    ok(["cp", host.to_str().unwrap(), &image.at("/f")]);
    ok(["chmod", "4751", &image.at("/f")]);
    let point = Point::new(&image, "mnt");
    program(command.args(arguments).arg(image.path()).arg(&point.dir));
    // When either program returns, its mount is in the list, if there is one.
    let mounted = point.is_mounted();
    let mut shown = String::new();
    if mounted {
        let line = mounts();
        let line = line.iter().find(|line| line.contains(point.str())).unwrap();
        let place = line.split(' ').nth(5).unwrap().split(',').next().unwrap();
        let modes = ["f", "lost+found"].map(|name| {
            let found = fs::metadata(point.path(name)).unwrap();
            format!("{:o}", found.permissions().mode())
        });
        let text = fs::read_to_string(point.path("f")).unwrap();
        shown = format!("{place} {modes:?} {text}");
        point.unmount();
        wait("no process uses the image", || {
            users_of(&image.path()).is_empty()
        });
    }
    (mounted, shown)
}

#[test]
fn options_are_taken_as_the_real_fuse2fs_takes_them() {
    if skipped() {
        return;
    }
    let ours = Fuse2fs::new();
    let real = find("fuse2fs");
    for (arguments, mounts) in [
        (&["-o", UNSEEN][..], true),
        (&["-o", "direct_io"], true),
        (&["-o", "umask=027"], true),
        (&["-o", "umask=0,allow_other"], true),
        (&["-o", "fuse2fs_debug"], true),
        (&["-r"], true),
        (&["-o", "umask=999"], false),
        (&["-o", "modules=nosuch"], false),
        (&["-o", "modules=subdir"], false),
        (&["-o", "remount,ro"], false),
    ] {
        let mine = seen(&mut ours.command(), arguments);
        assert_eq!(mine.0, mounts, "{arguments:?}");
        match &real {
            Some(real) => assert_eq!(
                mine,
                seen(&mut Command::new(real), arguments),
                "{arguments:?}"
            ),
            None => throughline_testkit::missing!("fuse2fs is not installed"),
        }
    }
}

/// Even after SIGKILL, and even if only the owner has access; fuse2fs of e2fsprogs leaves its mount in that
/// case.
#[test]
fn auto_unmount_takes_the_mount_away_whatever_ends_the_server() {
    if skipped() {
        return;
    }
    for options in ["auto_unmount", "auto_unmount,allow_other"] {
        let image = image();
        let point = mounted(&image, options);
        let server = point.pid();
        signal(server, rustix::process::Signal::KILL);
        point.wait_mounted(false);
        wait_gone(server);
        // After an unmount, nothing is left either.
        ok(["mount", "-o", options, image.str(), point.str()]);
        let server = point.pid();
        ok(["umount", point.str()]);
        wait_gone(server);
        assert!(!point.is_mounted());
        image.assert_clean();
    }
}

#[test]
fn auto_unmount_is_a_users_too() {
    if skipped() {
        return;
    }
    let image = own_image();
    let point = Point::new(&image, "mnt");
    let killed = "
        kill -9 $($T status --json $DIR | sed -n \"s/.*\\\"pid\\\": *\\([0-9]*\\).*/\\1/p\" | head -1)
        for i in $(seq 6000); do grep -q \" $DIR \" /proc/self/mounts || break; sleep 0.01; done
        ! grep \" $DIR \" /proc/self/mounts";
    let text = format!(
        "$T mount -o auto_unmount $IMAGE $DIR
        {killed}
        unshare -Urm true || {{ echo unshare: no user namespaces >&2; exit 0; }}
        unshare -Urm sh -ec '$T mount -o auto_unmount $IMAGE $DIR
        {killed}'"
    );
    let Some(ran) = script(&image, &point, "", &text) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}{}", ran.text(), ran.stderr);
}
