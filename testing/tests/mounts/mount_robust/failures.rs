//! Failures around a mount in use: its image, its clients, its connection, a second user of the image.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;
use throughline_testing::sectors::filled;
use throughline_testing::{DiskImage, Mounted, program};

use crate::mount_robust::work::{e2fsck, root, wait_until};

fn image() -> Option<DiskImage> {
    let possible = Mounted::possible();
    possible
        .then(|| DiskImage::make("-t ext4", "64m"))
        .flatten()
}

fn synced(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).expect("a file");
    file.write_all(bytes).expect("a write");
    file.sync_all().expect("a sync");
}

#[test]
fn a_second_mount_of_an_image_is_refused_and_names_the_first() {
    let Some(image) = image() else { return };
    let first = Mounted::new(image.path(), "");
    for options in ["", "ro"] {
        let refused = match Mounted::start(image.path(), options) {
            Err(refused) => refused,
            Ok(_) => panic!("mounted twice, with '{options}'"),
        };
        assert!(
            refused.contains(&first.pid().to_string()),
            "process {} is not named: {refused}",
            first.pid()
        );
    }
    synced(&first.path("file"), b"the first goes on");
    first.unmount();
    let readers = [0, 1].map(|_| Mounted::new(image.path(), "ro"));
    for reader in readers {
        let read = std::fs::read(reader.path("file")).expect("the file");
        assert_eq!(read, b"the first goes on");
        reader.unmount();
    }
}

#[test]
fn a_busy_mount_stays_and_goes_on() {
    let Some(image) = image() else { return };
    if !root("umount(2) needs root") {
        return;
    }
    let mounted = Mounted::new(image.path(), "");
    let file = File::create(mounted.path("file")).expect("a file");
    let busy = unmount(mounted.root(), UnmountFlags::NOFOLLOW);
    assert_eq!(busy, Err(Errno::BUSY));
    file.write_all_at(b"still here", 0).expect("a write");
    file.sync_all().expect("a sync");
    drop(file);
    mounted.unmount();
    e2fsck(image.path()).expect("sound");
}

/// The image is unlinked while it is mounted: the server still has the file open.
#[test]
fn an_image_that_is_removed_goes_on() {
    let Some(image) = image() else { return };
    let mounted = Mounted::new(image.path(), "");
    let second = image.sibling("second name");
    std::fs::hard_link(image.path(), &second).expect("another name");
    std::fs::remove_file(image.path()).expect("a removal");
    let bytes = filled(5 << 20, 2, 0, 1);
    synced(&mounted.path("file"), &bytes);
    std::fs::create_dir(mounted.path("dir")).expect("a directory");
    assert!(std::fs::read(mounted.path("file")).expect("the file") == bytes);
    std::fs::remove_file(&second).expect("a removal");
    synced(&mounted.path("dir/file"), &bytes);
    mounted.unmount();
}

/// The image file is truncated to half its size while it is mounted: what was past the end fails with an I/O
/// error, and nothing else happens.
#[test]
fn an_image_that_is_cut_gives_errors() {
    let Some(image) = image() else { return };
    let bytes = filled(40 << 20, 2, 0, 1);
    let mounted = Mounted::new(image.path(), "");
    synced(&mounted.path("large"), &bytes);
    mounted.unmount();
    let mounted = Mounted::new(image.path(), "");
    let cut = OpenOptions::new().write(true).open(image.path());
    cut.and_then(|image| image.set_len(16 << 20))
        .expect("a cut");
    let error = std::fs::read(mounted.path("large")).expect_err("half of it is gone");
    assert_eq!(
        error.raw_os_error(),
        Some(Errno::IO.raw_os_error()),
        "{error}"
    );
    let file = OpenOptions::new().write(true).open(mounted.path("large"));
    let file = file.expect("the file");
    // A plain file grows again where it is written. Its old data is lost, and the volume may stop changes
    // because of that.
    let _ = file.write_all_at(&bytes[..1 << 20], 36 << 20);
    let _ = file.sync_all();
    let _ = File::create(mounted.path("new"));
    drop(file);
    let (_, log) = mounted.end();
    assert!(!log.contains("panicked"), "{log}");
}

/// Programs that write, read, list and lock are killed repeatedly in the middle of it. Other programs are
/// unaffected.
#[test]
fn clients_that_are_killed_leave_nothing_behind() {
    let Some(image) = image() else { return };
    let mounted = Mounted::new(image.path(), "");
    let script = "while :; do dd if=/dev/zero of=$0 bs=64k count=40; cat $0; ls -l .; \
         mv $0 $0.2; rm $0.2; done";
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..10 {
        let mut clients: Vec<_> = (0..3)
            .map(|client| {
                let name = format!("client-{client}");
                let mut command = Command::new("sh");
                command
                    .args(["-c", script, &name])
                    .current_dir(mounted.root());
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
                command.process_group(0).spawn().expect("a shell")
            })
            .collect();
        wait_until("a client has made its file", || {
            std::fs::read_dir(mounted.root()).expect("the root").count() > 1
        });
        std::thread::sleep(std::time::Duration::from_millis(random.u64(..40)));
        clients.iter_mut().for_each(program::kill_group);
        let path = mounted.path(&format!("round-{round}"));
        synced(&path, &filled(100 << 10, round, 0, 1));
    }
    mounted.unmount();
    e2fsck(image.path()).expect("sound");
}

/// The kernel's list of FUSE connections, mounted while this lives: not every system mounts it.
struct Control(TempDir);

impl Control {
    fn new() -> Option<Control> {
        let dir = TempDir::new().expect("a directory");
        match mount("none", dir.path(), "fusectl", MountFlags::empty(), None) {
            Ok(()) => Some(Control(dir)),
            Err(why) => {
                throughline_testkit::left_out!("no fusectl can be mounted: {why}");
                None
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// The administrator aborts the connection. Users of the mount get errors; the server exits cleanly, and the
/// image contains everything that was written, with an empty journal.
#[test]
fn a_connection_that_is_aborted_ends_the_server_well() {
    let Some(image) = image() else { return };
    if !root("aborting a connection needs root") {
        return;
    }
    let mounted = Mounted::new(image.path(), "");
    // The connection's number is that of the mount's anonymous device.
    let device = std::fs::metadata(mounted.root()).expect("the root").dev();
    let Some(control) = Control::new() else {
        return;
    };
    let number = rustix::fs::minor(device);
    let abort = control.0.path().join(format!("{number}/abort"));
    let bytes = filled(3 << 20, 4, 0, 1);
    let file = File::create(mounted.path("file")).expect("a file");
    file.write_all_at(&bytes, 0).expect("a write");
    std::fs::write(&abort, b"1").expect("an abort");
    let cut_off = [Errno::NOTCONN, Errno::CONNABORTED].map(Some);
    let errno_of = |e: std::io::Error| e.raw_os_error().map(Errno::from_raw_os_error);
    let refused = file.sync_all().map_err(errno_of);
    assert!(
        refused.is_err_and(|errno| cut_off.contains(&errno)),
        "{refused:?}"
    );
    drop(file);
    let (status, log) = mounted.end();
    assert!(status.success(), "{status}: {log}");
    e2fsck(image.path()).expect("sound");
    let clean = image.debugfs("stats -h");
    assert!(
        !clean.contains("needs_recovery"),
        "the journal is not empty:\n{clean}"
    );
    let mounted = Mounted::new(image.path(), "ro");
    let mut found = Vec::new();
    let read = File::open(mounted.path("file")).and_then(|mut file| file.read_to_end(&mut found));
    read.expect("the file");
    assert!(found == bytes);
    mounted.unmount();
}

/// A failed mount explains the reason and leaves the image unlocked.
#[test]
fn invalid_mounts_are_refused() {
    let Some(image) = image() else { return };
    let file = image.sibling("no directory");
    std::fs::write(&file, b"").expect("a file");
    assert!(Mounted::at(image.path(), &file, "").is_err());
    std::fs::write(&file, filled(1 << 20, 1, 0, 1)).expect("a file");
    let refused = Mounted::start(&file, "").err().expect("not an image");
    assert!(!refused.contains("panicked"), "{refused}");
    let empty = image.sibling("empty");
    File::create(&empty).expect("a file");
    assert!(Mounted::start(&empty, "").is_err());
    assert!(Mounted::start(&image.sibling("not there"), "").is_err());
    // None of them kept the image open.
    Mounted::new(image.path(), "").unmount();
}
