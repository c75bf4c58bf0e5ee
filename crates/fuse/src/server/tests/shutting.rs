//! DESTROY, SYNCFS, and closing a volume before its mount is gone.

use rustix::io::Errno;
use throughline::Volume;

use super::bytes::{self, Bytes, op};
use super::harness::mount;

/// Some requests of every family: opcode, body.
fn requests(node: u64, fh: u64) -> Vec<(u32, Bytes)> {
    vec![
        (op::LOOKUP, bytes::named("file")),
        (op::GETATTR, bytes::getattr(None)),
        (op::SETATTR, bytes::Setattr::default().bytes()),
        (op::MKNOD, bytes::mknod(0o100_644, 0, "late")),
        (op::UNLINK, bytes::named("file")),
        (op::RENAME, bytes::rename("file", 1, "late")),
        (op::LINK, bytes::link(node, "late")),
        (op::OPEN, bytes::open(0)),
        (op::READ, bytes::read(fh, 0, 100)),
        (op::WRITE, bytes::write(fh, 0, b"late")),
        (op::FSYNC, bytes::fsync(fh, 0)),
        (op::RELEASE, bytes::release(fh)),
        (op::READDIR, bytes::read(0, 0, 4096)),
        (op::READDIRPLUS, bytes::read(0, 0, 4096)),
        (op::GETXATTR, bytes::getxattr("user.a", 0)),
        (op::STATFS, Bytes::new()),
        (op::SYNCFS, Bytes::new()),
        (op::IOCTL, bytes::ioctl(0x8008_6601, &[])),
        (op::COPY_FILE_RANGE, bytes::copy((fh, 0), (node, fh, 0), 1)),
        (op::FALLOCATE, bytes::fallocate(fh, 0, 0, 1)),
        (op::STATX, bytes::statx(None)),
        (op::FLUSH, Bytes::new().raw(&[0; 24])),
    ]
}

#[test]
fn after_an_early_close_all_requests_fail_and_the_volume_is_clean() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", b"data");
    let fh = mount.open(node, 2);
    mount
        .ask(op::WRITE, node, bytes::write(fh, 4, b"more"))
        .ok();
    mount.server.close_early().expect("no error");
    let closed = mount.device.to_vec();
    for (number, body) in requests(node, fh) {
        let reply = mount.ask(number, node, body);
        assert!(reply.is_errno(Errno::NOTCONN), "{number}: {reply:?}");
    }
    mount.send_unanswered(op::FORGET, node, Bytes::new().u64(1));
    mount.send_unanswered(op::BATCH_FORGET, 0, Bytes::new().u32(0).u32(0));
    mount.ask_root(op::DESTROY, []).done();
    mount.ask_root(999, []).fails(Errno::NOSYS);
    assert_eq!((mount.known(), mount.handles()), (0, 0));
    assert!(
        mount.device.to_vec() == closed,
        "written to after it was closed"
    );
    let volume = Volume::in_memory(closed).expect("a clean volume");
    assert_eq!(volume.read("/file").expect("the file"), b"datamore");
}

#[test]
fn a_device_is_cut_off_if_its_volume_cannot_be_closed() {
    let Some(mount) = mount() else { return };
    mount.file_with("file", b"data");
    mount.device.fail_writes(true);
    mount.server.close_early().unwrap_err();
    mount.device.fail_writes(false);
    let left = mount.device.to_vec();
    assert!(mount.server.volume.sync().is_err());
    assert!(mount.device.to_vec() == left);
}

#[test]
fn destroy_closes_the_volume_cleanly() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", b"data");
    mount.open(node, 2);
    mount.ask_root(op::DESTROY, []).done();
    assert_eq!((mount.known(), mount.handles()), (0, 0));
    let late = mount.ask_root(op::MKNOD, bytes::mknod(0o100_644, 0, "late"));
    late.fails(Errno::ROFS);
    let volume = Volume::in_memory(mount.device.to_vec()).expect("a clean volume");
    assert_eq!(volume.read("/file").expect("the file"), b"data");
}

#[test]
fn destroy_fails_if_the_volume_cannot_be_closed() {
    let Some(mount) = mount() else { return };
    mount.file_with("file", b"data");
    mount.device.fail_writes(true);
    mount.ask_root(op::DESTROY, []).fails(Errno::IO);
}

#[test]
fn syncfs_makes_everything_durable() {
    let Some(mount) = mount() else { return };
    mount.file_with("file", b"data");
    mount.ask_root(op::SYNCFS, []).done();
    let image = throughline::Memory::from(mount.device.to_vec());
    let mut options = throughline::OpenOptions::new();
    let volume = options.write(true).allow_unclean(true).open_device(image);
    let data = volume.expect("a volume").read("/file");
    assert_eq!(data.expect("the file"), b"data");
    mount.file_with("other", b"data");
    mount.device.fail_writes(true);
    // The failed commit has stopped the volume.
    mount.ask_root(op::SYNCFS, []).fails(Errno::IO);
    mount.ask_root(op::SYNCFS, []).fails(Errno::ROFS);
}
