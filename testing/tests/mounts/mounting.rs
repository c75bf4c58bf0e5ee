//! The test mounts themselves: changes made on one are in the image, and nothing is left behind, however it
//! ends.

use crate::oracle;
use crate::oracle::calls;

use std::fs;
use std::os::unix::fs::symlink;

use throughline::OpenOptions;
use throughline::internal::VolumeLayers;
use throughline_testing::{DiskImage, Mount, Mounted, View};
use throughline_testkit::e2fs;

fn image() -> Option<DiskImage> {
    Mounted::possible()
        .then(|| DiskImage::make("-t ext4 -b 1024", "16m"))
        .flatten()
}

fn mounted(mounted: &Mounted) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    table.contains(mounted.root().to_str().expect("UTF-8"))
}

#[test]
fn changes_on_the_mount_are_in_the_image() {
    let Some(image) = image() else { return };
    let mounted = Mounted::new(image.path(), "");
    fs::create_dir(mounted.path("/dir")).expect("mkdir");
    fs::write(mounted.path("/dir/file"), vec![7; 70_000]).expect("a write");
    fs::hard_link(mounted.path("/dir/file"), mounted.path("/name")).expect("link");
    symlink("dir/file", mounted.path("/symlink")).expect("symlink");
    let live = View::of(mounted.root());
    assert_eq!(live.entry("name").map(|entry| entry.len), Some(70_000));
    assert_eq!(
        live.entry("name")
            .and_then(|entry| entry.same_as.as_deref()),
        Some(&b"dir/file"[..])
    );
    mounted.unmount();
    image.check("unmounted");
    if let Some(kernel) = Mount::or_skip(image.path(), false) {
        live.assert_same(&View::of(kernel.root()), "our mount and the kernel's");
    }
}

#[test]
fn a_mount_ends_when_its_test_panics() {
    let Some(image) = image() else { return };
    let one = Mounted::new(image.path(), "");
    assert!(mounted(&one));
    let (root, server) = (one.root().to_owned(), format!("/proc/{}", one.pid()));
    let test = std::thread::spawn(move || {
        let _one = one;
        panic!("on purpose");
    });
    assert!(test.join().is_err());
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the table of mounts");
    assert!(!table.contains(root.to_str().expect("UTF-8")));
    assert!(!fs::exists(server).expect("/proc"), "the server lives");
}

#[test]
fn a_refused_mount_explains_why() {
    let Some(image) = image() else { return };
    fs::write(image.path(), vec![0; 1 << 20]).expect("no file system any more");
    let refused = Mounted::start(image.path(), "").map(|mounted| mounted.log());
    let why = refused.expect_err("nothing to mount");
    assert!(why.contains("exit status"), "{why}");
}

/// A kernel without the long form of the request: attributes still arrive as sent.
#[test]
fn attributes_are_set_in_both_forms_of_the_request() {
    for options in ["", "without=setxattr_ext"] {
        let Some(image) = image() else { return };
        let mounted = Mounted::new(image.path(), options);
        let path = mounted.path("/file");
        fs::write(&path, b"x").expect("a write");
        let value = b"of some length, not a multiple of eight";
        rustix::fs::setxattr(&path, "user.name", value, rustix::fs::XattrFlags::CREATE)
            .expect("set");
        let mut found = [0; 100];
        let len = rustix::fs::getxattr(&path, "user.name", &mut found).expect("there");
        assert_eq!(found[..len], value[..], "{options}");
        mounted.unmount();
        image.check(options);
    }
}

/// A commit is durable once reported, even if the image is a file on a FUSE mount, where `RWF_DSYNC` has no
/// effect: synced data survives the death of that mount's server.
#[test]
fn a_commit_to_an_image_on_a_mount_is_asked_for_by_fsync() {
    let Some(outer) = Mounted::possible()
        .then(|| DiskImage::make("-t ext4 -b 4096", "64m"))
        .flatten()
    else {
        return;
    };
    let mounted = Mounted::new(outer.path(), "");
    let inner = mounted.path("/inner");
    // Its journal is sparse: a block written to it is lost if the mount does not commit it.
    let sparse = "lazy_journal_init=1,lazy_itable_init=1,nodiscard";
    let arguments = ["-t", "ext4", "-b", "4096", "-E", sparse];
    assert!(e2fs::mke2fs(&inner, "16M", &arguments));
    let file = fs::File::open(&inner).expect("the image");
    file.sync_all().expect("synced");
    drop(file);
    let volume = OpenOptions::new().write(true).open(&inner).expect("opens");
    assert!(!volume.disk().limits().fua, "FUA is assumed of a FUSE file");
    let file = volume.create_file("/promised");
    let file = file.expect("made");
    file.write_all_at(b"durable", 0).expect("written");
    file.sync_all().expect("synced");
    mounted.kill9();
    drop((file, volume));

    let mounted = Mounted::new(outer.path(), "");
    let volume = OpenOptions::new().write(true).open(mounted.path("/inner"));
    let volume = volume.expect("opens again");
    let mut found = [0; 7];
    let file = volume.open_file("/promised").expect("is there");
    file.read_exact_at(&mut found, 0).expect("read");
    assert_eq!(&found, b"durable");
    drop(file);
    volume.close().expect("closed");
    mounted.unmount();
    outer.check("unmounted");
}

/// The names up to the first error.
fn names_in(dir: &std::path::Path) -> Vec<std::ffi::OsString> {
    let names = fs::read_dir(dir).expect("opened");
    names
        .map_while(Result::ok)
        .map(|entry| entry.file_name())
        .collect()
}

/// Entries found before an error in a directory are returned first, together with the lookups the reply
/// counts.
#[test]
fn an_error_in_the_middle_of_a_listing_keeps_the_names_before_it() {
    let Some(image) = image() else { return };
    let mounted = Mounted::new(image.path(), "");
    fs::create_dir(mounted.path("/dir")).expect("mkdir");
    for number in 0..30 {
        fs::write(mounted.path(&format!("/dir/file-{number}")), "x").expect("a write");
    }
    let names = names_in(&mounted.path("/dir"));
    assert_eq!(names.len(), 30);
    mounted.unmount();
    let bad = names[9].to_str().expect("as it was made");
    let request = format!("set_inode_field /dir/{bad} mode 0170644");
    e2fs::debugfs_write(image.path(), &request);
    let mounted = Mounted::new(image.path(), "ro");
    let found = names_in(&mounted.path("/dir"));
    assert!(found.starts_with(&names[..9]), "{found:?} of {names:?}");
    mounted.unmount();
}

/// The threads of `mixed_threads/calls.rs` on a mount. Their server checks the order of locks too.
#[test]
fn calls_of_every_kind_go_on_beside_each_other() {
    use oracle::seeds::{Deadline, seeds, soak};
    let (most, steps) = if soak() { (60, 12_000) } else { (2, 400) };
    for seed in seeds(most) {
        if !Mounted::possible() {
            return;
        }
        let Some(image) = DiskImage::make("-t ext4 -b 1024", "64m") else {
            return;
        };
        let what = format!("calls of every kind on a mount, THROUGHLINE_SEED={seed}");
        let _deadline = Deadline::new(what.clone());
        let mounted = Mounted::new(image.path(), ["", "strictatime"][seed as usize % 2]);
        let target = calls::OnMount(mounted.root().to_owned());
        let ran = calls::run(&target, seed, 10, steps);
        ran.unwrap_or_else(|wrong| panic!("{what} (threads do not repeat): {wrong}"));
        mounted.unmount();
        image.check(&what);
    }
}
