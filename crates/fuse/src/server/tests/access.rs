//! Access to the mount, and the owners and permissions that it shows.

use rustix::io::Errno;

use super::bytes::{self, Bytes, Setattr, op};
use super::device::Kind;
use super::harness::{Caller, mount_with};
use crate::nodes::ROOT_NODEID;
use crate::options::{Access, MountOptions};

/// A user who is neither root nor the user who runs the tests.
fn stranger() -> Caller {
    Caller::user(4242, 4242)
}

#[test]
fn with_allow_root_other_users_may_use_and_close_only_what_is_open() {
    let options = MountOptions {
        access: Access::OwnerAndRoot,
        ..MountOptions::default()
    };
    let Some(mount) = mount_with(Kind::Ext4, &options) else {
        return;
    };
    let node = mount.file_with("file", b"data");
    let fh = mount.open(node, 2);
    mount.by(stranger());
    let ftruncate = Setattr {
        valid: Setattr::SIZE | Setattr::FH,
        fh,
        ..Setattr::default()
    };
    let refused: &[(u32, Bytes)] = &[
        (op::LOOKUP, bytes::named("file")),
        (op::GETATTR, bytes::getattr(None)),
        (op::SETATTR, Setattr::default().bytes()),
        (op::READLINK, Bytes::new()),
        (op::SYMLINK, bytes::symlink("a", "b")),
        (op::MKNOD, bytes::mknod(0o100_644, 0, "a")),
        (op::MKDIR, bytes::mkdir(0o755, "a")),
        (op::UNLINK, bytes::named("file")),
        (op::RMDIR, bytes::named("lost+found")),
        (op::RENAME, bytes::rename("file", ROOT_NODEID, "a")),
        (op::LINK, bytes::link(node, "a")),
        (op::OPEN, bytes::open(0)),
        (op::STATFS, Bytes::new()),
        (op::SETXATTR, bytes::setxattr("user.a", b"", 0, 0)),
        (op::GETXATTR, bytes::getxattr("user.a", 0)),
        (op::LISTXATTR, bytes::listxattr(0)),
        (op::REMOVEXATTR, bytes::named("user.a")),
        (op::OPENDIR, bytes::open(0)),
        (op::CREATE, bytes::create(0, 0o644, "a")),
        (op::BMAP, bytes::bmap(0, 1024)),
        (op::IOCTL, bytes::ioctl(0x8008_6601, &[])),
        (op::RENAME2, bytes::rename2(0, "file", ROOT_NODEID, "a")),
        (op::TMPFILE, bytes::create(0, 0o644, "")),
        (op::STATX, bytes::statx(None)),
        // The kernel refuses this too to users without access.
        (op::SETATTR, ftruncate.bytes()),
    ];
    for (number, body) in refused {
        mount.ask_root(*number, body).fails(Errno::ACCESS);
    }
    let data = mount.ask(op::READ, node, bytes::read(fh, 0, 100)).ok();
    assert_eq!(*data, *b"data");
    mount
        .ask(op::WRITE, node, bytes::write(fh, 0, b"more"))
        .ok();
    mount.ask(op::FSYNC, node, bytes::fsync(fh, 0)).done();
    // Whatever reads or writes an open file, as read(2) and write(2) do. For lseek(SEEK_END) and cached
    // reads, the kernel needs the attributes of the open file.
    let of_open_files: &[(u32, Bytes)] = &[
        (op::GETATTR, bytes::getattr(Some(fh))),
        (op::LSEEK, bytes::lseek(fh, 0, 3)),
        (op::FALLOCATE, bytes::fallocate(fh, 0, 0, 1)),
    ];
    for (number, body) in of_open_files {
        mount.ask(*number, node, body).ok();
    }
    // Left to the kernel, because the file may be mapped.
    let copy = bytes::copy((fh, 0), (node, fh, 8192), 1);
    let reply = mount.ask(op::COPY_FILE_RANGE, node, copy);
    reply.fails(Errno::OPNOTSUPP);
    mount.ask_root(op::READDIR, bytes::read(0, 0, 4096)).ok();
    mount.ask_root(op::FSYNCDIR, bytes::fsync(0, 0)).done();
    mount.ask_root(op::RELEASEDIR, bytes::release(0)).done();
    mount.ask_root(op::SYNCFS, Bytes::new()).done();
    mount.ask(op::RELEASE, node, bytes::release(fh)).done();
    mount.send_unanswered(op::FORGET, node, Bytes::new().u64(1));
    assert_eq!((mount.known(), mount.handles()), (0, 0));
    mount
        .ask_root(op::READDIRPLUS, bytes::read(0, 0, 4096))
        .ok();
    let owner = rustix::process::getuid().as_raw();
    for caller in [Caller::root(), Caller::user(owner, 4242)] {
        mount.by(caller);
        mount.ask_root(op::GETATTR, bytes::getattr(None)).ok();
    }
    mount.by(stranger());
    mount.ask_root(op::DESTROY, Bytes::new()).done();
}

#[test]
fn options_override_owner_group_and_permissions() {
    let options = MountOptions {
        uid: Some(7),
        gid: Some(8),
        umask: Some(0o027),
        ..MountOptions::default()
    };
    let Some(mount) = mount_with(Kind::Ext4, &options) else {
        return;
    };
    let node = mount.file("file");
    let attr = mount.attr(node);
    assert_eq!((attr.uid, attr.gid, attr.mode), (7, 8, 0o100_750));
    let stat = mount.ask(op::STATX, node, bytes::statx(None)).ok();
    let (uid, gid, mode) = (stat.u32(32 + 20), stat.u32(32 + 24), stat.u16(32 + 28));
    assert_eq!((uid, gid, mode), (7, 8, 0o100_750));
    // On the volume, owner and group are the caller's.
    let mount = mount.again(&MountOptions::default());
    let attr = mount.attr(mount.find("file"));
    assert_eq!((attr.uid, attr.gid, attr.mode), (0, 0, 0o100_644));
}

#[test]
fn a_new_file_has_the_callers_group_or_that_of_its_directory() {
    for (of_directory, gid) in [(false, 43), (true, 99)] {
        let options = MountOptions {
            group_of_directory: of_directory,
            ..MountOptions::default()
        };
        let Some(mount) = mount_with(Kind::Ext4, &options) else {
            return;
        };
        let dir = mount.dir("dir");
        let set = Setattr {
            valid: Setattr::GID,
            gid: 99,
            ..Setattr::default()
        };
        mount.ask(op::SETATTR, dir, set.bytes()).ok();
        mount.by(Caller::user(42, 43));
        let made = mount.ask(op::MKNOD, dir, bytes::mknod(0o100_600, 0, "file"));
        let attr = made.ok().attr();
        assert_eq!((attr.uid, attr.gid), (42, gid));
        // A missing directory is reported as such.
        let lost = mount.ask(op::MKNOD, 999, bytes::mknod(0o100_600, 0, "file"));
        lost.fails(Errno::NOENT);
    }
}

#[test]
fn the_server_applies_the_umask_only_with_acls() {
    for (acl, mode) in [(true, 0o100_640), (false, 0o100_666)] {
        let options = MountOptions {
            acl,
            ..MountOptions::default()
        };
        let Some(mount) = mount_with(Kind::Ext4, &options) else {
            return;
        };
        let body = Bytes::new().u32(0o100_666).u32(0).u32(0o027).u32(0);
        let made = mount.ask_root(op::MKNOD, body.name("file"));
        assert_eq!(made.ok().attr().mode, mode);
    }
}
