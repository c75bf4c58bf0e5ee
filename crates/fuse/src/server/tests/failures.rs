//! Every request on a read-only volume, and on a device that fails.

use rustix::io::Errno;

use super::bytes::{self, Bytes, Setattr, op};
use super::device::Faulty;
use super::harness::{Mount, mount};
use crate::nodes::ROOT_NODEID;
use crate::options::{Choices, MountOptions};

/// A volume whose root has `file`, `other` and `dir`, with a directory in `dir`.
fn prepared() -> Option<Faulty> {
    let mount = mount()?;
    mount.file_with("file", &[7; 5000]);
    mount.file("other");
    let dir = mount.dir("dir");
    mount.ask(op::MKDIR, dir, bytes::mkdir(0o755, "inner")).ok();
    let long = bytes::setxattr("user.a", &[7; 900], 0, 0);
    mount.ask(op::SETXATTR, dir, long).done();
    let device = mount.device.clone();
    mount.close();
    Some(device)
}

/// Every request that changes something without a handle: opcode, node, body.
fn changes(file: u64) -> Vec<(u32, u64, Bytes)> {
    let set = |valid| Setattr {
        valid,
        mode: 0o600,
        size: 3,
        ..Setattr::default()
    };
    let root = ROOT_NODEID;
    vec![
        (op::SETATTR, file, set(Setattr::MODE).bytes()),
        (op::SETATTR, file, set(Setattr::SIZE).bytes()),
        (
            op::SETATTR,
            file,
            set(Setattr::MTIME | Setattr::MTIME_NOW).bytes(),
        ),
        (op::MKNOD, root, bytes::mknod(0o100_644, 0, "new")),
        (op::MKDIR, root, bytes::mkdir(0o755, "new")),
        (op::SYMLINK, root, bytes::symlink("new", "target")),
        (op::CREATE, root, bytes::create(2, 0o100_644, "new")),
        (op::TMPFILE, root, bytes::create(2, 0o100_644, "")),
        (op::LINK, root, bytes::link(file, "new")),
        (op::UNLINK, root, bytes::named("file")),
        (op::RMDIR, root, bytes::named("lost+found")),
        (op::RENAME, root, bytes::rename("file", root, "new")),
        (op::RENAME, root, bytes::rename("file", root, "other")),
        (op::RENAME2, root, bytes::rename2(2, "file", root, "dir")),
        (op::RENAME2, root, bytes::rename2(4, "file", root, "new")),
        (op::SETXATTR, file, bytes::setxattr("user.b", b"", 0, 0)),
        (op::REMOVEXATTR, file, bytes::named("user.a")),
        (op::OPEN, file, bytes::open(0o1001)),
        (
            op::IOCTL,
            file,
            bytes::ioctl(0x4008_6602, &0x8_0040_u32.to_ne_bytes()),
        ),
        (op::IOCTL, root, bytes::ioctl(0x4100_9432, b"label\0")),
    ]
}

#[test]
fn no_byte_of_a_read_only_volume_changes() {
    for direct_io in [false, true] {
        no_byte_changes(&MountOptions {
            read_only: true,
            choices: Choices {
                direct_io,
                ..Choices::default()
            },
            ..MountOptions::default()
        });
    }
}

fn no_byte_changes(options: &MountOptions) {
    let Some(device) = prepared() else { return };
    let before = device.to_vec();
    let mount = Mount::on(device, options);
    let file = mount.find("file");
    for (number, node, body) in changes(file) {
        let reply = mount.ask(number, node, body);
        let is_opened_alone = number == op::OPEN && !options.choices.direct_io;
        let wanted = match is_opened_alone {
            true => Errno::NOSYS,
            false => Errno::ROFS,
        };
        assert!(reply.is_errno(wanted), "{number}: {reply:?}");
    }
    let fh = mount.open(file, 2);
    for (number, body) in with_handle(fh) {
        let reply = mount.ask(number, file, body);
        assert!(reply.is_errno(Errno::ROFS), "{number}: {reply:?}");
    }
    assert_eq!(mount.contents(file), [7; 5000]);
    mount.ask(op::FSYNC, file, bytes::fsync(fh, 0)).done();
    mount.ask_root(op::SYNCFS, []).done();
    let device = mount.device.clone();
    mount.close();
    assert!(device.to_vec() == before);
}

/// Every request that changes something through a handle: opcode, body.
fn with_handle(fh: u64) -> Vec<(u32, Bytes)> {
    vec![
        (op::WRITE, bytes::write(fh, 0, b"data")),
        (op::WRITE, bytes::write_with(fh, 0, 2, 0, b"data")),
        (op::FALLOCATE, bytes::fallocate(fh, 0, 0, 8192)),
        (op::FALLOCATE, bytes::fallocate(fh, 3, 0, 4096)),
    ]
}

/// After a failed commit, no change can be made durable.
#[test]
fn after_a_failed_commit_changes_are_refused_and_reads_succeed() {
    let Some(device) = prepared() else { return };
    let mount = Mount::on(device, &MountOptions::default());
    let file = mount.find("file");
    let fh = mount.open(file, 2);
    mount.file("new name");
    mount.device.fail_writes(true);
    mount.ask_root(op::SYNCFS, []).fails(Errno::IO);
    mount.ask_root(op::SYNCFS, []).fails(Errno::ROFS);
    mount.device.fail_writes(false);
    for (number, node, body) in changes(file) {
        let reply = mount.ask(number, node, body);
        assert!(reply.is_errno(Errno::ROFS), "{number}: {reply:?}");
    }
    assert_eq!(mount.contents(file), [7; 5000]);
    assert_eq!(mount.attr(file).size, 5000);
    let write = mount.ask(op::WRITE, file, bytes::write(fh, 0, b"data"));
    write.fails(Errno::ROFS);
    mount.server.end();
}

/// Requests that have to read: neither the inode nor its directory is in memory.
fn reads(dir: u64) -> Vec<(u32, u64, Bytes)> {
    vec![
        (op::LOOKUP, dir, bytes::named("inner")),
        (op::LOOKUP, dir, bytes::named(".")),
        (op::GETATTR, dir, bytes::getattr(None)),
        (op::STATX, dir, bytes::statx(None)),
        (
            op::SETATTR,
            dir,
            Setattr {
                valid: 1,
                ..Setattr::default()
            }
            .bytes(),
        ),
        (op::READLINK, dir, Bytes::new()),
        (op::MKNOD, dir, bytes::mknod(0o100_644, 0, "new")),
        (op::MKDIR, dir, bytes::mkdir(0o755, "new")),
        (op::SYMLINK, dir, bytes::symlink("new", "target")),
        (op::CREATE, dir, bytes::create(2, 0o100_644, "new")),
        (op::TMPFILE, dir, bytes::create(2, 0o100_644, "")),
        (op::LINK, ROOT_NODEID, bytes::link(dir, "new")),
        (op::LINK, dir, bytes::link(dir, "new")),
        (op::UNLINK, dir, bytes::named("inner")),
        (op::RMDIR, dir, bytes::named("inner")),
        (op::RENAME, dir, bytes::rename("inner", ROOT_NODEID, "new")),
        (op::RENAME, ROOT_NODEID, bytes::rename("file", dir, "new")),
        (op::RENAME2, dir, bytes::rename2(1, "inner", dir, "new")),
        (op::OPEN, dir, bytes::open(0)),
        (op::READDIR, dir, bytes::read(0, 0, 4096)),
        (op::READDIRPLUS, dir, bytes::read(0, 0, 4096)),
        (op::FSYNCDIR, dir, bytes::fsync(0, 0)),
        (
            op::SETXATTR,
            dir,
            bytes::setxattr("user.b", &[7; 900], 0, 0),
        ),
        (op::GETXATTR, dir, bytes::getxattr("user.a", 1000)),
        (op::LISTXATTR, dir, bytes::listxattr(1000)),
        (op::REMOVEXATTR, dir, bytes::named("user.a")),
        (op::BMAP, dir, bytes::bmap(0, 1024)),
        (op::IOCTL, dir, bytes::ioctl(0x8008_6601, &[])),
    ]
}

#[test]
fn a_read_error_of_the_device_is_eio_until_reads_succeed_again() {
    let Some(device) = prepared() else { return };
    let dir = {
        let mount = Mount::on(device.clone(), &MountOptions::default());
        let dir = mount.find("dir");
        mount.close();
        dir
    };
    let image = device.to_vec();
    for index in 0..reads(dir).len() {
        let device = Faulty::of(image.clone());
        let mount = Mount::on(device, &MountOptions::default());
        let (number, node, body) = reads(dir).swap_remove(index);
        mount.device.fail_reads(true);
        let failed = mount.ask(number, node, &body);
        assert!(failed.is_errno(Errno::IO), "{number}: {failed:?}");
        assert_eq!((mount.known(), mount.handles()), (0, 0), "{number}");
        mount.device.fail_reads(false);
        let healed = mount.ask(number, node, &body);
        let wrong = healed.is_errno(Errno::IO) || healed.is_errno(Errno::ROFS);
        assert!(!wrong, "{number}, once it can be read: {healed:?}");
        mount.server.end();
    }
}
