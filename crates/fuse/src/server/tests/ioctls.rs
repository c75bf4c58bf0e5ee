//! IOCTL on inodes: flags, projects, generations.

use rustix::io::Errno;

use super::bytes::{self, Bytes, op};
use super::device::Kind;
use super::harness::{Body, Caller, Mount, Notice, Reply, mount, mount_of};
use super::names::NO_NODES;

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_XATTR: u32 = 0x801c_581f;
const SET_XATTR: u32 = 0x401c_5820;
const GET_VERSION: u32 = 0x8008_7601;
const SET_VERSION: u32 = 0x4008_7602;
const GET_VERSION_OF_EXT: u32 = 0x8008_6603;
const SET_VERSION_OF_EXT: u32 = 0x4008_6604;

const IMMUTABLE: u32 = 0x10;
const NODUMP: u32 = 0x40;
const EXTENTS: u32 = 0x8_0000;

fn ask(mount: &Mount, node: u64, cmd: u32, argument: &[u8]) -> Reply {
    mount.ask(op::IOCTL, node, bytes::ioctl(cmd, argument))
}

/// The bytes after `struct fuse_ioctl_out`, whose result must be 0.
fn output(reply: Reply) -> Body {
    let body = reply.ok();
    assert_eq!(body[..16], [0; 16]);
    Body(body[16..].to_vec())
}

/// `struct fsxattr`.
fn fs_xattr(flags: u32, project: u32) -> Bytes {
    let head = Bytes::new().u32(flags).u32(0).u32(0).u32(project);
    head.raw(&[0; 12])
}

#[test]
fn flags_are_read_and_set() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let flags = || output(ask(&mount, node, GET_FLAGS, &[])).u32(0);
    assert_eq!(flags(), EXTENTS);
    let reply = ask(&mount, node, SET_FLAGS, &(NODUMP | EXTENTS).to_ne_bytes());
    assert_eq!(
        reply.notices,
        [Notice::attributes(node)],
        "the time of change"
    );
    assert!(output(reply).is_empty());
    assert_eq!(flags(), NODUMP | EXTENTS);
}

#[test]
fn impossible_flags_are_refused() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let set = |flags: u32| ask(&mount, node, SET_FLAGS, &flags.to_ne_bytes());
    set(1 << 31).fails(Errno::OPNOTSUPP);
    set(EXTENTS | IMMUTABLE).ok();
    set(EXTENTS | IMMUTABLE | NODUMP).fails(Errno::PERM);
    let both = ask(&mount, node, SET_XATTR, fs_xattr(0x8 | 0x80, 0).as_ref());
    both.fails(Errno::PERM);
    set(EXTENTS).ok();
}

#[test]
fn projects_and_flags_are_set_together() {
    let Some(mount) = mount_of(Kind::Projects) else {
        return;
    };
    let node = mount.file("file");
    let get = || {
        let got = output(ask(&mount, node, GET_XATTR, &[]));
        assert_eq!(got.len(), 28);
        (got.u32(0), got.u32(12))
    };
    assert_eq!(get(), (0, 0));
    let reply = ask(&mount, node, SET_XATTR, fs_xattr(0x80, 77).as_ref());
    assert_eq!(reply.notices, [Notice::attributes(node)]);
    reply.ok();
    assert_eq!(get(), (0x80, 77));
    let flags = output(ask(&mount, node, GET_FLAGS, &[])).u32(0);
    assert_eq!(flags, NODUMP | EXTENTS);
}

#[test]
fn a_volume_without_projects_has_none() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let reply = ask(&mount, node, SET_XATTR, fs_xattr(0, 77).as_ref());
    reply.fails(Errno::OPNOTSUPP);
    ask(&mount, node, SET_XATTR, fs_xattr(0, 0).as_ref()).ok();
}

#[test]
fn the_owner_sets_a_generation_unless_checksums_depend_on_it() {
    let Some(mount) = mount_of(Kind::Ext2) else {
        return;
    };
    let node = mount.file("file");
    for (get, set, version) in [
        (GET_VERSION, SET_VERSION, 77_u32),
        (GET_VERSION_OF_EXT, SET_VERSION_OF_EXT, 78),
    ] {
        let reply = ask(&mount, node, set, &version.to_ne_bytes());
        assert_eq!(reply.notices, [Notice::attributes(node)]);
        reply.ok();
        assert_eq!(output(ask(&mount, node, get, &[])).u32(0), version);
        mount.by(Caller::user(42, 43));
        ask(&mount, node, set, &[0; 4]).fails(Errno::PERM);
        mount.by(Caller::root());
    }
    let owned = bytes::Setattr {
        valid: bytes::Setattr::UID,
        uid: 42,
        ..bytes::Setattr::default()
    };
    mount.ask(op::SETATTR, node, owned.bytes()).ok();
    mount.by(Caller::user(42, 43));
    ask(&mount, node, SET_VERSION, &[0; 4]).ok();
    let Some(mount) = super::harness::mount() else {
        return;
    };
    let node = mount.file("file");
    ask(&mount, node, SET_VERSION, &[0; 4]).fails(Errno::NOTTY);
    ask(&mount, node, GET_VERSION, &[]).ok();
}

#[test]
fn an_argument_that_is_cut_short_is_invalid() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    for (cmd, size) in [
        (SET_FLAGS, 4),
        (SET_XATTR, 28),
        (SET_VERSION, 4),
        (SET_VERSION_OF_EXT, 4),
    ] {
        for len in [0, size - 1] {
            ask(&mount, node, cmd, &vec![0; len]).fails(Errno::INVAL);
        }
    }
}

#[test]
fn an_unknown_command_is_enotty() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    for cmd in [0, 0x5401, 0x8008_6699, u32::MAX] {
        ask(&mount, node, cmd, &[0; 64]).fails(Errno::NOTTY);
    }
    for node in NO_NODES {
        ask(&mount, *node, GET_FLAGS, &[]).fails(Errno::NOENT);
    }
}
