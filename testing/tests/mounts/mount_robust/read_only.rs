//! Mounted read-only, an image stays unchanged to the last byte, whatever its state, while all of it is read.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, XattrFlags, utimensat};
use rustix::io::Errno;
use throughline_testing::sectors::filled;
use throughline_testing::{DiskImage, Mounted, View, program};

use crate::mount_robust::work::debugfs_write;

/// Fills an image. If `crash`, leaves it as a crash does: with a journal to replay, and with an open file
/// without a name.
fn populate(image: &DiskImage, crash: bool) {
    let mut mounted = Mounted::new(image.path(), "");
    let dir = mounted.path("dir");
    std::fs::create_dir(&dir).expect("a directory");
    for number in 0..200 {
        let bytes = filled(1024 * (number % 40), number as u64, 0, 1);
        std::fs::write(dir.join(format!("file-{number}")), bytes).expect("a file");
    }
    std::os::unix::fs::symlink("dir/file-3", mounted.path("link")).expect("a link");
    let ghost = File::create_new(mounted.path("ghost")).expect("a file");
    (&ghost)
        .write_all(&filled(64 << 10, 9, 0, 1))
        .expect("a write");
    std::fs::remove_file(mounted.path("ghost")).expect("a removal");
    let synced = File::open(mounted.root()).expect("the root");
    synced.sync_all().expect("a sync");
    ghost.sync_all().expect("a sync");
    if crash {
        mounted.kill();
        return;
    }
    drop((ghost, synced));
    mounted.unmount();
}

/// Every call that would change something fails with EROFS.
fn try_to_change(root: &Path) {
    let refused = |what: &str, errno: Option<i32>| {
        assert_eq!(errno, Some(Errno::ROFS.raw_os_error()), "{what}");
    };
    let io = |result: std::io::Result<()>| result.err().and_then(|e| e.raw_os_error());
    let raw = |result: rustix::io::Result<()>| result.err().map(Errno::raw_os_error);
    let file = root.join("dir/file-7");
    refused("create", io(File::create_new(root.join("new")).map(drop)));
    refused(
        "open",
        io(OpenOptions::new().write(true).open(&file).map(drop)),
    );
    refused("mkdir", io(std::fs::create_dir(root.join("new"))));
    refused("unlink", io(std::fs::remove_file(&file)));
    refused("rename", io(std::fs::rename(&file, root.join("new"))));
    refused("link", io(std::fs::hard_link(&file, root.join("new"))));
    refused("chmod", raw(rustix::fs::chmod(&file, Mode::RUSR)));
    refused(
        "chown",
        io(std::os::unix::fs::chown(&file, Some(7), Some(7))),
    );
    let flags = XattrFlags::empty();
    refused(
        "setxattr",
        raw(rustix::fs::setxattr(&file, "user.new", b"value", flags)),
    );
    let time = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    refused(
        "utimensat",
        raw(utimensat(CWD, &file, &times, AtFlags::empty())),
    );
}

/// Mounts read-only, reads everything, and tries to change it.
fn read_all(image: &DiskImage, what: &str, options: &str) -> View {
    let before = std::fs::read(image.path()).expect("the image");
    let mounted = Mounted::new(image.path(), options);
    let view = View::of(mounted.root());
    if view.entry("dir/file-7").is_some() {
        try_to_change(mounted.root());
    }
    let again = View::of(mounted.root());
    view.assert_same(&again, what);
    mounted.unmount();
    let after = std::fs::read(image.path()).expect("the image");
    assert!(
        before == after,
        "{what}: reading with '{options}' changed the image"
    );
    view
}

#[test]
fn a_journalled_image_that_is_read_stays_as_it_is() {
    if !Mounted::possible() || !program::has(&["debugfs"]) {
        return;
    }
    for recipe in ["-t ext4", "-t ext4 -b 1024 -O orphan_file", "-t ext3"] {
        let Some(clean) = DiskImage::make(recipe, "24m") else {
            continue;
        };
        let crashed = clean.copy();
        populate(&clean, false);
        populate(&crashed, true);
        let whole = read_all(&clean, "clean", "ro");
        assert_eq!(
            read_all(&clean, "clean", "ro,noload").entries().len(),
            whole.entries().len()
        );
        // The overlay shows everything that was synced, although none of it is in its final place.
        let replayed = read_all(&crashed, "crashed", "ro");
        assert_eq!(
            replayed.entries().keys().collect::<Vec<_>>(),
            whole.entries().keys().collect::<Vec<_>>()
        );
        let bare = read_all(&crashed, "crashed", "ro,noload");
        assert!(bare.entries().len() <= whole.entries().len());
        debugfs_write(&clean, "set_super_value state 3");
        read_all(&clean, "with errors", "ro");
        debugfs_write(&clean, "set_super_value state 2");
        read_all(&clean, "with errors and not clean", "ro,errors=continue");
    }
}

#[test]
fn an_unclean_image_without_a_journal_that_is_read_stays_as_it_is() {
    if !Mounted::possible() || !program::has(&["debugfs"]) {
        return;
    }
    for recipe in ["-t ext2 -b 1024", "-t ext4 -O ^has_journal"] {
        let Some(image) = DiskImage::make(recipe, "24m") else {
            continue;
        };
        populate(&image, false);
        read_all(&image, recipe, "ro");
        debugfs_write(&image, "set_super_value state 0");
        read_all(&image, recipe, "ro");
        let Some(crashed) = DiskImage::make(recipe, "24m") else {
            continue;
        };
        populate(&crashed, true);
        read_all(&crashed, recipe, "ro");
    }
}
