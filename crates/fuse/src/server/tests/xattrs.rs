//! SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR.

use rustix::io::Errno;
use serde_json::Value;

use super::bytes::{self, op};
use super::device::{Faulty, Kind};
use super::harness::{Caller, Mount, Reply, mount, mount_with};
use super::names::NO_NODES;
use crate::nodes::ROOT_NODEID;
use crate::options::MountOptions;

const CREATE: u32 = 1;
const REPLACE: u32 = 2;
/// `FUSE_SETXATTR_ACL_KILL_SGID`.
const KILL_SGID: u32 = 1;
const ACL: &str = "system.posix_acl_access";

fn set(mount: &Mount, node: u64, name: &str, value: &[u8], flags: u32) -> Reply {
    mount.ask(op::SETXATTR, node, bytes::setxattr(name, value, flags, 0))
}

fn get(mount: &Mount, node: u64, name: &str) -> Reply {
    mount.ask(op::GETXATTR, node, bytes::getxattr(name, 60_000))
}

fn list(mount: &Mount, node: u64) -> Vec<String> {
    let all = mount
        .ask(op::LISTXATTR, node, bytes::listxattr(60_000))
        .ok();
    let names = all.split_inclusive(|byte| *byte == 0);
    let mut names: Vec<_> = names
        .map(|name| {
            String::from_utf8_lossy(name)
                .trim_end_matches('\0')
                .to_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn an_attribute_is_set_read_listed_and_removed() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let long = vec![7; 800];
    for (name, value) in [
        ("user.a", &b"value"[..]),
        ("trusted.b", b""),
        ("security.c", &long),
    ] {
        set(&mount, node, name, value, 0).done();
        assert_eq!(*get(&mount, node, name).ok(), *value);
    }
    assert_eq!(list(&mount, node), ["security.c", "trusted.b", "user.a"]);
    mount
        .ask(op::REMOVEXATTR, node, bytes::named("user.a"))
        .done();
    get(&mount, node, "user.a").fails(Errno::NODATA);
    assert_eq!(list(&mount, node), ["security.c", "trusted.b"]);
}

#[test]
fn the_negotiated_short_form_is_parsed() {
    let Some(device) = Faulty::new(Kind::Ext4) else {
        return;
    };
    let mount = Mount::negotiated(device, &MountOptions::default(), false);
    let node = mount.file("file");
    let ask = bytes::setxattr_short("user.a", b"value", CREATE);
    mount.ask(op::SETXATTR, node, &ask).done();
    mount.ask(op::SETXATTR, node, &ask).fails(Errno::EXIST);
    assert_eq!(*get(&mount, node, "user.a").ok(), *b"value");
    mount
        .ask(op::SETXATTR, node, vec![0; 7])
        .fails(Errno::INVAL);
}

#[test]
fn flags_decide_whether_the_attribute_must_exist() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    set(&mount, node, "user.a", b"0", REPLACE).fails(Errno::NODATA);
    set(&mount, node, "user.a", b"1", CREATE).done();
    set(&mount, node, "user.a", b"2", CREATE).fails(Errno::EXIST);
    set(&mount, node, "user.a", b"3", REPLACE).done();
    for flags in [CREATE | REPLACE, 4, 1 << 31] {
        set(&mount, node, "user.a", b"4", flags).fails(Errno::INVAL);
    }
    assert_eq!(*get(&mount, node, "user.a").ok(), *b"3");
}

#[test]
fn the_buffer_size_decides_between_value_length_and_error() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    set(&mount, node, "user.a", b"value", 0).done();
    let get = |room| mount.ask(op::GETXATTR, node, bytes::getxattr("user.a", room));
    let list = |room| mount.ask(op::LISTXATTR, node, bytes::listxattr(room));
    assert_eq!(*get(5).ok(), *b"value");
    assert_eq!(*list(7).ok(), *b"user.a\0");
    for (reply, len) in [(get(0), 5), (list(0), 7)] {
        let body = reply.ok();
        assert_eq!((body.len(), body.u32(0), body.u32(4)), (8, len, 0));
    }
    get(4).fails(Errno::RANGE);
    list(6).fails(Errno::RANGE);
}

#[test]
fn invalid_names_and_values_are_refused() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let long = format!("user.{}", "n".repeat(251));
    for (name, errno) in [
        ("other.a", Errno::OPNOTSUPP),
        ("a", Errno::OPNOTSUPP),
        ("", Errno::OPNOTSUPP),
        (&long, Errno::RANGE),
    ] {
        for reply in [
            set(&mount, node, name, b"value", 0),
            get(&mount, node, name),
            mount.ask(op::REMOVEXATTR, node, bytes::named(name)),
        ] {
            assert!(
                reply.is_errno(errno) || reply.is_errno(Errno::RANGE),
                "{name}: {reply:?}"
            );
        }
    }
    let too_long = vec![0; 65_537 - 4096];
    let reply = set(&mount, node, "user.a", &too_long, 0);
    assert!(
        reply.is_errno(Errno::NOSPC) || reply.is_errno(Errno::TOOBIG),
        "{reply:?}"
    );
    let missing = mount.ask(op::REMOVEXATTR, node, bytes::named("user.a"));
    missing.fails(Errno::NODATA);
    let fifo = mount.ask_root(op::MKNOD, bytes::mknod(0o010_600, 0, "fifo"));
    set(&mount, fifo.ok().nodeid(), "user.a", b"", 0).fails(Errno::PERM);
    mount.set_flags(node, 0x10);
    set(&mount, node, "user.a", b"value", 0).fails(Errno::PERM);
    assert_eq!(list(&mount, node), [""; 0]);
}

#[test]
fn a_missing_node_has_no_extended_attributes() {
    let Some(mount) = mount() else { return };
    for node in NO_NODES {
        set(&mount, *node, "user.a", b"", 0).fails(Errno::NOENT);
        get(&mount, *node, "user.a").fails(Errno::NOENT);
        let list = mount.ask(op::LISTXATTR, *node, bytes::listxattr(100));
        list.fails(Errno::NOENT);
        let remove = mount.ask(op::REMOVEXATTR, *node, bytes::named("user.a"));
        remove.fails(Errno::NOENT);
    }
}

#[test]
fn trusted_names_are_listed_for_root_only() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    set(&mount, node, "trusted.a", b"", 0).done();
    set(&mount, node, "user.b", b"", 0).done();
    mount.by(Caller::user(42, 43));
    assert_eq!(list(&mount, node), ["user.b"]);
}

#[test]
fn user_attributes_can_be_hidden() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    set(&mount, node, "user.a", b"value", 0).done();
    set(&mount, node, "security.b", b"value", 0).done();
    let options = MountOptions {
        user_xattr: false,
        ..MountOptions::default()
    };
    let mount = mount.again(&options);
    let node = mount.find("file");
    set(&mount, node, "user.c", b"", 0).fails(Errno::OPNOTSUPP);
    get(&mount, node, "user.a").fails(Errno::OPNOTSUPP);
    let remove = mount.ask(op::REMOVEXATTR, node, bytes::named("user.a"));
    remove.fails(Errno::OPNOTSUPP);
    assert_eq!(list(&mount, node), ["security.b"]);
}

#[test]
fn privileged_attributes_of_an_untrusted_image_are_hidden() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    for name in ["user.a", "security.b", "trusted.c"] {
        set(&mount, node, name, b"value", 0).done();
    }
    let options = MountOptions {
        untrusted: true,
        ..MountOptions::default()
    };
    let mount = mount.again(&options);
    let node = mount.find("file");
    for name in ["security.b", "trusted.c"] {
        get(&mount, node, name).fails(Errno::OPNOTSUPP);
    }
    assert_eq!(list(&mount, node), ["user.a"]);
}

/// `rw-` for the owner, `r--` for user 42, `rwx` for group and mask, nothing for others.
fn acl() -> Vec<u8> {
    let all = u32::MAX;
    let entries = [
        (1, 6, all),
        (2, 4, 42),
        (4, 7, all),
        (0x10, 7, all),
        (0x20, 0, all),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&u16::to_le_bytes(tag));
        bytes.extend_from_slice(&u16::to_le_bytes(permissions));
        bytes.extend_from_slice(&u32::to_le_bytes(id));
    }
    bytes
}

#[test]
fn an_acl_sets_the_permissions_and_clears_setgid_if_the_kernel_requests_it() {
    let Some(mount) = mount() else { return };
    for (flags, mode) in [(0, 0o102_670), (KILL_SGID, 0o100_670)] {
        let name = format!("file {flags}");
        let made = mount.ask_root(op::MKNOD, bytes::mknod(0o102_755, 0, &name));
        let node = made.ok().nodeid();
        let ask = bytes::setxattr(ACL, &acl(), 0, flags);
        mount.ask(op::SETXATTR, node, ask).done();
        assert_eq!(mount.attr(node).mode, mode);
        assert_eq!(*get(&mount, node, ACL).ok(), acl()[..]);
    }
}

#[test]
fn invalid_acls_are_refused() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    for flags in [0, KILL_SGID] {
        let set = |name, value: &[u8]| {
            let ask = bytes::setxattr(name, value, 0, flags);
            mount.ask(op::SETXATTR, node, ask)
        };
        let mut version = acl();
        version[0] = 3;
        let reply = set(ACL, &version);
        assert!(
            reply.is_errno(Errno::OPNOTSUPP) || reply.is_errno(Errno::INVAL),
            "{reply:?}"
        );
        set(ACL, &acl()[..20]).fails(Errno::INVAL);
        set("system.posix_acl_default", &acl()).fails(Errno::ACCESS);
    }
    let other = bytes::setxattr("user.a", b"", 0, KILL_SGID);
    mount.ask(op::SETXATTR, node, other).fails(Errno::INVAL);
    assert_eq!(mount.attr(node).mode, 0o100_644);
    let options = MountOptions {
        acl: false,
        ..MountOptions::default()
    };
    let mount = mount.again(&options);
    let node = mount.find("file");
    set(&mount, node, ACL, &acl(), 0).fails(Errno::OPNOTSUPP);
    get(&mount, node, ACL).fails(Errno::OPNOTSUPP);
}

#[test]
fn the_status_of_the_mount_is_an_attribute_of_its_root() {
    let Some(mount) = mount_with(Kind::Ext4, &MountOptions::default()) else {
        return;
    };
    mount.ask_root(op::OPEN, bytes::open(0)).fails(Errno::ISDIR);
    let name = crate::STATUS_ATTRIBUTE;
    let text = get(&mount, ROOT_NODEID, name).ok();
    let status: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(status["image"], "image");
    assert_eq!(status["requests"]["refused"], 1);
    assert_eq!(status["requests"]["now"], 1, "this one");
    let length = mount.ask_root(op::GETXATTR, bytes::getxattr(name, 0)).ok();
    assert!(length.u32(0) > 100);
    mount
        .ask_root(op::GETXATTR, bytes::getxattr(name, 10))
        .fails(Errno::RANGE);
    assert_eq!(list(&mount, ROOT_NODEID), [""; 0]);
    let file = mount.file("file");
    get(&mount, file, name).fails(Errno::OPNOTSUPP);
}

#[test]
fn administrators_end_writing_by_an_attribute() {
    let Some(mount) = mount() else { return };
    let name = crate::END_WRITING_ATTRIBUTE;
    let node = mount.file_with("file", b"data");
    // A query of the length has no effect, and neither has a read by another user.
    let length = mount.ask_root(op::GETXATTR, bytes::getxattr(name, 0)).ok();
    assert_eq!(length.u32(0), 9);
    mount.by(Caller::user(4242, 4242));
    get(&mount, ROOT_NODEID, name).fails(Errno::PERM);
    mount.by(Caller::root());
    mount.file("other");
    assert_eq!(*get(&mount, ROOT_NODEID, name).ok(), *b"read-only");
    let late = mount.ask_root(op::MKNOD, bytes::mknod(0o100_644, 0, "late"));
    late.fails(Errno::ROFS);
    assert_eq!(mount.contents(node), b"data");
    let image = throughline::Volume::in_memory(mount.device.to_vec());
    let volume = image.expect("a clean volume");
    assert_eq!(volume.read("/file").expect("the file"), b"data");
}

#[test]
fn a_failure_to_end_writing_is_an_error() {
    let Some(mount) = mount() else { return };
    mount.file("file");
    mount.device.fail_writes(true);
    for errno in [Errno::IO, Errno::ROFS] {
        get(&mount, ROOT_NODEID, crate::END_WRITING_ATTRIBUTE).fails(errno);
    }
}
