//! The error of a call whose own commit fails is that of the device (EIO); once changes are stopped, calls
//! that begin later are refused (EROFS). As in the kernel's ext4.

use crate::failing;

use std::sync::atomic::Ordering;

use failing::volume_with;
use throughline::{
    Attributes, Error, Fallocate, InodeFlags, Result, TakeDown, Volume, VolumeOptions,
};

const EIO: Option<i32> = Some(5);
const EROFS: Option<i32> = Some(30);

/// A call, by name. It is told which attempt it is, and so which of three files and directories are its own.
type Call = (&'static str, fn(&Volume, usize) -> Result<()>);

/// Runs each call three times on a volume of its own, with something to commit, whose device has begun to
/// fail.
fn fails_and_is_refused(options: &VolumeOptions, calls: &[Call]) {
    for (name, call) in calls {
        let Some((volume, fails)) = volume_with(options) else {
            return;
        };
        for attempt in 0..3 {
            volume.create_dir(format!("/dir{attempt}")).unwrap();
            volume.create_new(format!("/file{attempt}")).unwrap();
        }
        fails.store(true, Ordering::SeqCst);
        let first = call(&volume, 0).expect_err(name);
        assert_eq!(first.raw_os_error(), EIO, "{name}: {first}");
        assert!(matches!(first, Error::Device(_)), "{name}: {first}");
        assert!(volume.stopped().is_some(), "{name}");
        for attempt in 1..3 {
            let later = call(&volume, attempt).expect_err(name);
            assert_eq!(later.raw_os_error(), EROFS, "{name}, later: {later}");
            assert!(matches!(later, Error::Stopped(_)), "{name}, later: {later}");
            // It does not help that the device works again.
            fails.store(false, Ordering::SeqCst);
        }
    }
}

fn named(kind: &str, attempt: usize) -> String {
    format!("/{kind}{attempt}")
}

#[test]
fn calls_that_make_durable() {
    let calls: &[Call] = &[
        ("sync", |volume, _| volume.sync()),
        ("fsync", |volume, _| volume.open_file("/file0")?.sync_all()),
        ("fdatasync", |volume, _| {
            volume.open_file("/file0")?.sync_data()
        }),
        ("fsync of a directory", |volume, _| {
            volume.open_dir("/")?.sync()
        }),
        ("set_label", |volume, _| volume.set_label(b"new")),
        ("set_uuid", |volume, _| volume.set_uuid([7; 16])),
        ("take_down", |volume, _| volume.take_down(TakeDown::Flush)),
        ("end_writing", |volume, _| volume.end_writing()),
    ];
    fails_and_is_refused(&VolumeOptions::new(), calls);
}

/// These end the use of the volume, so there is no second time.
#[test]
fn calls_that_end_the_use_of_a_volume() {
    let calls: [fn(Volume) -> Result<()>; 2] =
        [|volume| volume.take_down(TakeDown::FlushLog), Volume::close];
    for call in calls {
        for stopped_before in [false, true] {
            let Some((volume, fails)) = volume_with(&VolumeOptions::new()) else {
                return;
            };
            volume.create_new("/file").unwrap();
            fails.store(true, Ordering::SeqCst);
            if stopped_before {
                volume.sync().unwrap_err();
            }
            let error = call(volume).unwrap_err();
            let expected = if stopped_before { EROFS } else { EIO };
            assert_eq!(error.raw_os_error(), expected, "{error}");
        }
    }
}

#[test]
fn changes_of_names_with_dirsync() {
    let calls: &[Call] = &[
        ("create", |volume, attempt| {
            volume.create_new(named("new", attempt)).map(drop)
        }),
        ("mkdir", |volume, attempt| {
            volume.create_dir(named("new", attempt)).map(drop)
        }),
        ("symlink", |volume, attempt| {
            volume.symlink("target", named("new", attempt))
        }),
        ("link", |volume, attempt| {
            volume.hard_link("/file0", named("new", attempt))
        }),
        ("unlink", |volume, attempt| {
            volume.remove_file(named("file", attempt))
        }),
        ("rmdir", |volume, attempt| {
            volume.remove_dir(named("dir", attempt))
        }),
        ("rename", |volume, attempt| {
            volume.rename(named("file", attempt), named("new", attempt))
        }),
    ];
    fails_and_is_refused(VolumeOptions::new().synchronous_names(true), calls);
}

#[test]
fn changes_of_files_with_sync() {
    let calls: &[Call] = &[
        ("mode", |volume, attempt| {
            let mode = Attributes::new().mode(0o600);
            volume.set_attributes(named("file", attempt), &mode)
        }),
        ("flags", |volume, attempt| {
            let node = volume.node(named("file", attempt))?;
            node.set_flags(node.flags() | InodeFlags::NODUMP)
        }),
        ("setxattr", |volume, attempt| {
            let file = volume.open_file(named("file", attempt))?;
            file.xattrs().set("user.name", "value")
        }),
        ("truncate", |volume, attempt| {
            volume.open_file(named("file", attempt))?.set_len(10_000)
        }),
        ("fallocate", |volume, attempt| {
            let file = volume.open_file(named("file", attempt))?;
            file.allocate(Fallocate::Allocate, 0, 9000)
        }),
    ];
    fails_and_is_refused(VolumeOptions::new().synchronous(true), calls);
}
