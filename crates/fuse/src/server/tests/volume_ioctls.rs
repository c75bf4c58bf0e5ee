//! IOCTL on the volume: its label, trimming, shutdown.

use rustix::io::Errno;

use super::bytes::{self, Bytes, op};
use super::device::Kind;
use super::harness::{Caller, Mount, Reply, mount, mount_of};

const GET_LABEL: u32 = 0x8100_9431;
const SET_LABEL: u32 = 0x4100_9432;
const TRIM: u32 = 0xc018_5879;
const SHUTDOWN: u32 = 0x8004_587d;

fn ask(mount: &Mount, cmd: u32, argument: &[u8]) -> Reply {
    mount.ask_root(op::IOCTL, bytes::ioctl(cmd, argument))
}

fn label(mount: &Mount) -> String {
    let body = ask(mount, GET_LABEL, &[]).ok();
    assert_eq!(body.len(), 16 + 256);
    let text = String::from_utf8_lossy(&body[16..]).into_owned();
    text.trim_end_matches('\0').to_owned()
}

/// A label as the argument of the request.
fn text(label: &str) -> Vec<u8> {
    let mut text = label.as_bytes().to_vec();
    text.resize(256, 0);
    text
}

#[test]
fn the_label_is_read_and_set() {
    let Some(mount) = mount() else { return };
    assert_eq!(label(&mount), "");
    for name in ["data", "sixteen bytes it", ""] {
        ask(&mount, SET_LABEL, &text(name)).ok();
        assert_eq!(label(&mount), name);
    }
}

#[test]
fn an_invalid_label_is_refused() {
    let Some(mount) = mount() else { return };
    ask(&mount, SET_LABEL, &text("kept")).ok();
    // Not terminated.
    for argument in [&[b'a'; 256][..], b"abc", b""] {
        ask(&mount, SET_LABEL, argument).fails(Errno::INVAL);
    }
    ask(&mount, SET_LABEL, &text("seventeen bytes it")).fails(Errno::INVAL);
    assert_eq!(label(&mount), "kept");
}

#[test]
fn other_users_may_not_administer_the_volume() {
    let Some(mount) = mount() else { return };
    mount.by(Caller::user(4242, 4242));
    for (cmd, argument) in [
        (SET_LABEL, &text("a")[..]),
        (TRIM, &[0; 24]),
        (SHUTDOWN, &[]),
    ] {
        ask(&mount, cmd, argument).fails(Errno::PERM);
    }
    assert_eq!(label(&mount), "", "that everybody may read");
    mount.by(Caller::root());
    mount.file("file");
}

#[test]
fn a_device_that_cannot_discard_is_not_trimmed() {
    let Some(mount) = mount() else { return };
    let range = Bytes::new().u64(0).u64(u64::MAX).u64(0);
    let whole = ask(&mount, TRIM, range.as_ref());
    whole.fails(Errno::OPNOTSUPP);
    for len in [0, 23] {
        ask(&mount, TRIM, &vec![0; len]).fails(Errno::INVAL);
    }
}

/// Passes the mode in our own memory. The server reads it there, because this process is the caller.
fn shut_down(mount: &Mount, mode: &u32) -> Reply {
    let address = std::ptr::from_ref(mode).addr() as u64;
    mount.ask_root(op::IOCTL, bytes::ioctl_at(SHUTDOWN, address, &[]))
}

#[test]
fn after_a_shutdown_every_request_fails() {
    for (mode, kept) in [(0, true), (1, false), (2, false)] {
        let Some(mount) = mount() else { return };
        let node = mount.file_with("file", b"data");
        shut_down(&mount, &mode).ok();
        for (number, body) in [
            (op::LOOKUP, bytes::named("other")),
            (op::MKNOD, bytes::mknod(0o100_644, 0, "late")),
            (op::OPEN, bytes::open(1)),
        ] {
            let reply = mount.ask_root(number, body);
            assert!(!reply.is_ok(), "request {number} after shutdown {mode}");
        }
        let write = mount.ask(op::SETATTR, node, size(5));
        write.fails(Errno::IO);
        if kept {
            let image = throughline::Memory::from(mount.device.to_vec());
            let mut options = throughline::OpenOptions::new();
            let volume = options.write(true).allow_unclean(true).open_device(image);
            let data = volume.expect("a volume").read("/file");
            assert_eq!(data.expect("the file"), b"data");
        }
    }
}

fn size(size: u64) -> Bytes {
    let set = bytes::Setattr {
        valid: bytes::Setattr::SIZE,
        size,
        ..bytes::Setattr::default()
    };
    set.bytes()
}

#[test]
fn an_unknown_shutdown_mode_changes_nothing() {
    let Some(mount) = mount() else { return };
    shut_down(&mount, &3).fails(Errno::INVAL);
    mount.file("file");
}

#[test]
fn an_unreadable_shutdown_mode_is_the_one_that_loses_nothing() {
    let Some(mount) = mount_of(Kind::Ext4) else {
        return;
    };
    mount.file_with("file", b"data");
    let nowhere = bytes::ioctl_at(SHUTDOWN, 1, &[]);
    mount.ask_root(op::IOCTL, nowhere).ok();
    let image = throughline::Memory::from(mount.device.to_vec());
    let mut options = throughline::OpenOptions::new();
    let volume = options.write(true).allow_unclean(true).open_device(image);
    let data = volume.expect("a volume").read("/file");
    assert_eq!(data.expect("the file"), b"data");
}

#[test]
fn a_shutdown_fails_with_the_device() {
    let Some(mount) = mount() else { return };
    mount.file_with("file", b"data");
    mount.device.fail_writes(true);
    shut_down(&mount, &0).fails(Errno::IO);
    shut_down(&mount, &0).fails(Errno::ROFS);
}

#[test]
fn setting_the_label_fails_with_the_device() {
    let Some(mount) = mount() else { return };
    mount.device.fail_writes(true);
    ask(&mount, SET_LABEL, &text("new")).fails(Errno::IO);
    ask(&mount, SET_LABEL, &text("new")).fails(Errno::ROFS);
}
