//! An unprivileged user mounts through `fusermount3`, works, and unmounts. The kernel then sees the same in
//! the image as the mount showed.
//!
//! Permissions of `/dev/fuse` differ between hosts, so this runs in a mount namespace where it is open to all
//! users. The user's part is this test's executable, started again.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, setxattr};
use throughline_testing::sectors::filled;
use throughline_testing::{DiskImage, Mount, Mounted, View, program};

use crate::mount_robust::work::{PATIENCE, root};

const IMAGE: &str = "THROUGHLINE_ORDINARY_IMAGE";
/// A user with a name, which `fusermount3` requires, and without privileges: nobody.
const USER: u32 = 65_534;

/// Creates a FUSE device node that is open to all users, and runs the rest as the user.
const SCRIPT: &str = "set -e; mknod $0/fuse c 10 229; chmod 666 $0/fuse; mount --bind $0/fuse /dev/fuse; \
    user=$1; shift; exec setpriv --reuid $user --regid $user --clear-groups --inh-caps=-all \"$@\"";

/// An ACL in the kernel's format: version 2, then tag, permissions and id of each entry.
fn acl() -> Vec<u8> {
    const NONE: u32 = u32::MAX;
    let entries = [
        (1_u16, 6_u16, NONE),
        (2, 5, 1234),
        (4, 4, NONE),
        (16, 5, NONE),
        (32, 0, NONE),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, number) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(number.to_le_bytes());
    }
    bytes
}

fn work(root: &Path) {
    let dir = root.join("dir");
    std::fs::create_dir(&dir).expect("a directory");
    for number in 0..50 {
        let bytes = filled(1024 * number as usize, number, 0, 1);
        std::fs::write(dir.join(format!("file-{number}")), bytes).expect("a file");
    }
    let none = XattrFlags::empty();
    setxattr(dir.join("file-1"), "user.colour", b"blue", none).expect("an attribute");
    setxattr(dir.join("file-2"), "user.large", &[7; 700], none).expect("an attribute");
    setxattr(dir.join("file-3"), "system.posix_acl_access", &acl(), none).expect("an ACL");
    setxattr(&dir, "system.posix_acl_default", &acl(), none).expect("an ACL");
    File::create(dir.join("heir")).expect("a file");
    std::fs::create_dir(dir.join("heirs")).expect("a directory");
    symlink("file-1", dir.join("symbolic")).expect("a link");
    std::fs::hard_link(dir.join("file-4"), root.join("hard")).expect("a link");
    std::fs::set_permissions(dir.join("file-5"), Permissions::from_mode(0o4751)).expect("chmod");
    let mut file = File::create(root.join("synced")).expect("a file");
    file.write_all(b"promised").expect("a write");
    file.sync_all().expect("a sync");
    std::fs::rename(dir.join("file-6"), dir.join("renamed")).expect("a rename");
    std::fs::remove_file(dir.join("file-7")).expect("a removal");
    let others = chown(root.join("synced"), Some(0), None);
    assert!(others.is_err(), "given away without the right to");
    let owner = std::fs::metadata(root.join("synced"))
        .expect("the file")
        .uid();
    assert_eq!(owner, USER);
}

/// Not a test: the user's part. Does nothing unless started as such.
#[test]
fn the_users_part() {
    let Some(image) = std::env::var_os(IMAGE).map(PathBuf::from) else {
        return;
    };
    assert!(!rustix::process::geteuid().is_root());
    let mounted = Mounted::new(&image, "acl");
    work(mounted.root());
    mounted.unmount();
    let read_only = Mounted::new(&image, "ro,acl");
    assert!(read_only.path("dir/renamed").exists());
    assert!(File::create(read_only.path("new")).is_err());
    read_only.unmount();
    // And one that only fusermount3 unmounts.
    let mut killed = Mounted::new(&image, "acl");
    killed.kill();
    drop(killed);
    Mounted::new(&image, "acl").unmount();
    println!("all operations done");
}

#[test]
fn a_user_without_rights_mounts_uses_and_unmounts() {
    if !root("becoming an ordinary user needs root")
        || !Mounted::possible()
        || !program::has(&["unshare", "setpriv", "fusermount3"])
    {
        return;
    }
    let Some(image) = DiskImage::make(&format!("-t ext4 -E root_owner={USER}:{USER}"), "64m")
    else {
        return;
    };
    let home = tempfile::tempdir().expect("a directory");
    let host = home.path();
    // What the user needs, readable by the user.
    let this = std::env::current_exe().expect("this executable");
    let program = host.join("program");
    std::fs::copy(&this, &program).expect("a copy");
    let place = host.join("image");
    std::fs::copy(image.path(), &place).expect("a copy");
    let temporary = host.join("tmp");
    std::fs::create_dir(&temporary).expect("a directory");
    for path in [host, &place, &temporary] {
        chown(path, Some(USER), Some(USER)).expect("chown");
    }
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT])
        .arg(host)
        .arg(USER.to_string())
        .arg(&program)
        .args([
            "--exact",
            "mount_robust::ordinary::the_users_part",
            "--nocapture",
        ])
        .env(IMAGE, &place)
        .env("TMPDIR", &temporary);
    let ran = program::run(&mut command, PATIENCE);
    if ran.stderr.contains("unshare failed") || ran.stderr.contains("mknod") {
        throughline_testkit::left_out!("no namespace for the user: {}", ran.stderr);
        return;
    }
    let ran = ran.good("the user's part");
    assert!(ran.stdout.contains("all operations done"), "{ran:?}");
    crate::mount_robust::work::e2fsck(&place).expect("sound");
    let Some(kernel) = Mount::or_skip(&place, false) else {
        return;
    };
    let theirs = View::of(kernel.root());
    assert!(theirs.entry("dir/heirs").is_some(), "nothing is there");
    kernel.close();
    let ours = Mounted::new(&place, "ro,acl");
    View::of(ours.root()).assert_same(&theirs, "our mount and the kernel's");
    ours.unmount();
}
