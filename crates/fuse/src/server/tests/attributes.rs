//! GETATTR, STATX, SETATTR and STATFS.

use rustix::io::Errno;

use super::bytes::{self, Setattr, op};
use super::device::Kind;
use super::harness::{Attr, Body, Caller, Mount, Reply, mount, mount_with};
use super::names::NO_NODES;
use crate::nodes::{ROOT_INO, ROOT_NODEID};
use crate::options::MountOptions;

fn set(mount: &Mount, nodeid: u64, set: &Setattr) -> Reply {
    mount.ask(op::SETATTR, nodeid, set.bytes())
}

/// The fields of `struct fuse_statx` that `struct fuse_attr` also has.
fn of_statx(body: &Body) -> Attr {
    let at = 32;
    assert_eq!(body.len(), 288);
    let time = |at: usize| (body.u64(at).cast_signed(), body.u32(at + 8));
    Attr {
        ino: body.u64(at + 32),
        size: body.u64(at + 40),
        atime: time(at + 64),
        mtime: time(at + 112),
        mode: body.u16(at + 28).into(),
        nlink: body.u32(at + 16),
        uid: body.u32(at + 20),
        gid: body.u32(at + 24),
        rdev: (body.u32(at + 128) << 8) | body.u32(at + 132),
        blksize: body.u32(at + 4),
    }
}

#[test]
fn both_requests_show_the_same_attributes() {
    let Some(mount) = mount() else { return };
    let file = mount.file_with("file", b"data");
    let device = mount.ask_root(op::MKNOD, bytes::mknod(0o060_600, 0x0812, "device"));
    for nodeid in [ROOT_NODEID, file, device.ok().nodeid()] {
        let attr = mount.attr(nodeid);
        let stat = mount.ask(op::STATX, nodeid, bytes::statx(None)).ok();
        assert_eq!(of_statx(&stat), attr);
        assert_eq!(stat.u32(32) & 0x7ff, 0x7ff, "STATX_BASIC_STATS");
        let ino = if nodeid == ROOT_NODEID {
            ROOT_INO
        } else {
            nodeid
        };
        assert_eq!(attr.ino, ino);
    }
}

#[test]
fn a_missing_node_has_no_attributes() {
    let Some(mount) = mount() else { return };
    for nodeid in NO_NODES {
        for (number, body) in [
            (op::GETATTR, bytes::getattr(None)),
            (op::STATX, bytes::statx(None)),
            (op::SETATTR, Setattr::default().bytes()),
        ] {
            let reply = mount.ask(number, *nodeid, body);
            assert!(
                reply.is_errno(Errno::NOENT),
                "{number} of {nodeid}: {reply:?}"
            );
        }
    }
}

#[test]
fn an_open_handle_selects_its_node() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", b"data");
    let fh = mount.open(node, 2);
    let other = mount.file("other");
    let of = |fh| {
        mount
            .ask(op::GETATTR, other, bytes::getattr(fh))
            .ok()
            .attr()
            .ino
    };
    assert_eq!(of(Some(fh)), node);
    assert_eq!(of(None), other);
    let stat = mount.ask(op::STATX, other, bytes::statx(Some(fh))).ok();
    assert_eq!(of_statx(&stat).ino, node);
    let by_handle = Setattr {
        valid: Setattr::FH | Setattr::SIZE,
        fh,
        size: 2,
        ..Setattr::default()
    };
    assert_eq!(set(&mount, other, &by_handle).ok().attr().ino, node);
    assert_eq!(mount.attr(node).size, 2);
    // After its release, the node of the header is used.
    mount.ask(op::RELEASE, node, bytes::release(fh)).done();
    assert_eq!(of(Some(fh)), other);
    assert_eq!(of(Some(0)), other);
}

#[test]
fn setting_attributes_changes_no_others() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", b"data");
    let all = Setattr {
        valid: Setattr::MODE | Setattr::UID | Setattr::GID | Setattr::ATIME | Setattr::MTIME,
        mode: 0o100_640,
        uid: 7,
        gid: 70_000,
        atime: (-5, 999_999_999),
        mtime: (4_000_000_000, 1),
        ..Setattr::default()
    };
    let attr = set(&mount, node, &all).ok().attr();
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o100_640, 7, 70_000));
    assert_eq!(
        (attr.atime, attr.mtime),
        ((-5, 999_999_999), (4_000_000_000, 1))
    );
    assert_eq!(attr.size, 4);
    let mode = Setattr {
        valid: Setattr::MODE,
        mode: 0o7777,
        uid: 99,
        ..Setattr::default()
    };
    let changed = set(&mount, node, &mode).ok().attr();
    assert_eq!(
        changed,
        Attr {
            mode: 0o107_777,
            ..attr
        }
    );
    assert_eq!(mount.attr(node), changed);
}

#[test]
fn the_flag_for_the_current_time_overrides_the_time_in_the_request() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let before = mount.attr(node);
    let now = Setattr {
        valid: Setattr::ATIME | Setattr::ATIME_NOW | Setattr::MTIME | Setattr::MTIME_NOW,
        ..Setattr::default()
    };
    let attr = set(&mount, node, &now).ok().attr();
    assert!(attr.atime >= before.atime && attr.mtime >= before.mtime);
}

#[test]
fn a_time_out_of_range_is_invalid() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let before = mount.attr(node);
    for valid in [Setattr::ATIME, Setattr::MTIME] {
        // The nanoseconds add seconds to the last possible second.
        let time = (i64::MAX, u32::MAX);
        let wrong = Setattr {
            valid,
            atime: time,
            mtime: time,
            ..Setattr::default()
        };
        set(&mount, node, &wrong).fails(Errno::INVAL);
    }
    assert_eq!(mount.attr(node), before);
}

#[test]
fn a_file_is_extended_and_truncated() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", b"data");
    for size in [2, 5000, 0, 4096] {
        let resize = Setattr {
            valid: Setattr::SIZE,
            size,
            ..Setattr::default()
        };
        assert_eq!(set(&mount, node, &resize).ok().attr().size, size);
    }
    assert_eq!(mount.contents(node), [0; 4096]);
}

#[test]
fn an_impossible_size_is_refused() {
    let Some(mount) = mount() else { return };
    let file = mount.file("file");
    let dir = mount.dir("dir");
    let fifo = mount.ask_root(op::MKNOD, bytes::mknod(0o010_600, 0, "fifo"));
    let fifo = fifo.ok().nodeid();
    let size = |node, size| {
        let resize = Setattr {
            valid: Setattr::SIZE,
            size,
            ..Setattr::default()
        };
        set(&mount, node, &resize)
    };
    size(file, 1 << 50).fails(Errno::FBIG);
    size(file, u64::MAX).fails(Errno::FBIG);
    size(dir, 0).fails(Errno::ISDIR);
    size(fifo, 0).fails(Errno::INVAL);
    assert_eq!(mount.attr(file).size, 0);
}

#[test]
fn an_immutable_file_keeps_its_attributes() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    mount.set_flags(node, 0x10);
    let before = mount.attr(node);
    for valid in [
        Setattr::MODE,
        Setattr::UID,
        Setattr::GID,
        Setattr::SIZE,
        Setattr::ATIME,
        Setattr::MTIME | Setattr::MTIME_NOW,
        Setattr::KILL_PRIVILEGES | Setattr::SIZE,
    ] {
        let change = Setattr {
            valid,
            ..Setattr::default()
        };
        set(&mount, node, &change).fails(Errno::PERM);
    }
    assert_eq!(mount.attr(node), before);
}

fn with_mode(mount: &Mount, name: &str, mode: u32) -> u64 {
    let made = mount.ask_root(op::MKNOD, bytes::mknod(0o100_000 | mode, 0, name));
    made.ok().nodeid()
}

#[test]
fn a_new_size_clears_setuid_if_the_kernel_requests_it() {
    let Some(mount) = mount() else { return };
    let node = with_mode(&mount, "file", 0o6755);
    mount.by(Caller::user(42, 43));
    for (valid, mode) in [
        (Setattr::SIZE, 0o106_755),
        (Setattr::SIZE | Setattr::KILL_PRIVILEGES, 0o100_755),
    ] {
        let resize = Setattr {
            valid,
            size: 10,
            ..Setattr::default()
        };
        assert_eq!(set(&mount, node, &resize).ok().attr().mode, mode);
    }
}

#[test]
fn a_new_owner_clears_setuid_and_setgid() {
    let Some(mount) = mount() else { return };
    let node = with_mode(&mount, "file", 0o6755);
    let owner = Setattr {
        valid: Setattr::UID | Setattr::KILL_PRIVILEGES,
        uid: 42,
        ..Setattr::default()
    };
    assert_eq!(set(&mount, node, &owner).ok().attr().mode, 0o100_755);
}

/// The kernel sends this SETATTR for `chown(-1, -1)`, and before a write.
#[test]
fn setting_nothing_clears_setuid_for_the_owner_and_for_writers_only() {
    let Some(mount) = mount() else { return };
    let nothing = Setattr::default();
    let node = with_mode(&mount, "file", 0o6755);
    mount.by(Caller::user(42, 43));
    set(&mount, node, &nothing).fails(Errno::PERM);
    assert_eq!(mount.attr(node).mode, 0o106_755);
    let reader = mount.open(node, 0);
    set(&mount, node, &nothing).fails(Errno::PERM);
    mount.ask(op::RELEASE, node, bytes::release(reader)).done();
    mount.open(node, 1);
    assert_eq!(set(&mount, node, &nothing).ok().attr().mode, 0o100_755);
    // Without these bits, any user may do it.
    let plain = with_mode(&mount, "plain", 0o644);
    set(&mount, plain, &nothing).ok();
    mount.by(Caller::root());
    let node = with_mode(&mount, "roots", 0o4755);
    assert_eq!(set(&mount, node, &nothing).ok().attr().mode, 0o100_755);
    // A directory keeps its bits.
    let dir = mount.ask_root(op::MKDIR, bytes::mkdir(0o2755, "dir"));
    let dir = dir.ok().nodeid();
    assert_eq!(set(&mount, dir, &nothing).ok().attr().mode, 0o042_755);
}

#[test]
fn without_permission_checks_any_user_may_set_attributes() {
    let options = MountOptions {
        fakeroot: true,
        ..MountOptions::default()
    };
    let Some(mount) = mount_with(Kind::Ext4, &options) else {
        return;
    };
    let node = with_mode(&mount, "file", 0o4755);
    mount.by(Caller::user(42, 43));
    let attr = set(&mount, node, &Setattr::default()).ok().attr();
    assert_eq!(attr.mode, 0o100_755);
}

#[test]
fn setgid_without_group_execution_is_cleared_only_for_callers_outside_the_group() {
    let Some(mount) = mount() else { return };
    for (gid, left) in [(43, 0o100_644), (0, 0o102_644)] {
        let name = format!("of {gid}");
        let node = with_mode(&mount, &name, 0o2644);
        mount.by(Caller::user(0xffff_fff0, gid));
        let owner = Setattr {
            valid: Setattr::UID,
            uid: 0xffff_fff0,
            ..Setattr::default()
        };
        // No process has this ID, so the caller has no supplementary groups.
        let caller = Caller {
            pid: u32::MAX,
            ..Caller::user(0xffff_fff0, gid)
        };
        mount.by(caller);
        assert_eq!(set(&mount, node, &owner).ok().attr().mode, left);
        mount.by(Caller::root());
    }
}

#[test]
fn statfs_shows_the_space_of_the_volume() {
    for minix_df in [false, true] {
        let options = MountOptions {
            minix_df,
            ..MountOptions::default()
        };
        let Some(mount) = mount_with(Kind::Ext4, &options) else {
            return;
        };
        let stat = mount.ask_root(op::STATFS, []).ok();
        assert_eq!(stat.len(), 80);
        let (blocks, free, available) = (stat.u64(0), stat.u64(8), stat.u64(16));
        assert_eq!(blocks == 4096, minix_df, "{blocks}");
        assert!(free < blocks && available <= free);
        assert!(stat.u64(32) < stat.u64(24), "free inodes");
        let (block_bytes, name_max, fragment) = (stat.u32(40), stat.u32(44), stat.u32(48));
        assert_eq!((block_bytes, name_max, fragment), (1024, 255, 1024));
    }
}
