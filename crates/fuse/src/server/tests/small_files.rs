//! A writable mount with `small_files`: no OPEN, no RELEASE, and no handles.

use rustix::io::Errno;

use super::bytes::{self, Bytes, Setattr, op};
use super::device::Kind;
use super::harness::{Caller, Mount, Notice, mount_with};
use crate::options::MountOptions;

const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_APPEND: u32 = 0o2000;

const DIRECT_IO: u32 = 1 << 0;
const LOCK_OWNER: u32 = 1 << 1;
const ENTRY_BYTES: usize = 128;

fn mount() -> Option<Mount> {
    let options = MountOptions {
        small_files: true,
        ..MountOptions::default()
    };
    mount_with(Kind::Ext4, &options)
}

/// A new file in the root by CREATE: its node, and the flags of the reply.
#[track_caller]
fn create(mount: &Mount, name: &str) -> (u64, u32) {
    let made = mount.ask_root(op::CREATE, bytes::create(O_WRONLY, 0o644, name));
    let made = made.ok();
    assert_eq!(made.u64(ENTRY_BYTES), 0, "no handle");
    (made.nodeid(), made.u32(ENTRY_BYTES + 8))
}

/// Writes past the kernel's cache; returns the notices before the reply.
#[track_caller]
fn write_past(mount: &Mount, node: u64) -> Vec<Notice> {
    let ask = bytes::write_with(0, 5000, LOCK_OWNER, O_RDWR, b"data");
    let reply = mount.ask(op::WRITE, node, ask);
    let notices = reply.notices.clone();
    reply.ok();
    notices
}

#[test]
fn files_are_created_written_and_read_without_handles() {
    let Some(mount) = mount() else { return };
    // More files than the server keeps open.
    let nodes: Vec<u64> = (0..300)
        .map(|i| {
            let (node, flags) = create(&mount, &format!("file{i}"));
            // A stream of writes to a new file bypasses the kernel's cache, as on other mounts.
            assert_ne!(flags & DIRECT_IO, 0);
            let data = format!("data of {i}");
            let write = bytes::write_with(0, 0, 0, O_WRONLY, data.as_bytes());
            mount.ask(op::WRITE, node, write).ok();
            node
        })
        .collect();
    for round in 0..2 {
        for (i, node) in nodes.iter().enumerate() {
            let open = mount.ask(op::OPEN, *node, bytes::open(O_RDWR));
            open.fails(Errno::NOSYS);
            let read = mount.ask(op::READ, *node, bytes::read(0, 0, 100)).ok();
            assert_eq!(*read, *format!("data of {i}").as_bytes(), "round {round}");
        }
    }
    mount.ask(op::FSYNC, nodes[7], bytes::fsync(0, 0)).done();
    assert_eq!(mount.handles(), 0);
}

#[test]
fn writes_are_checked_where_opens_are_not() {
    let Some(mount) = mount() else { return };
    let fixed = mount.file_with("fixed", b"data");
    let grows = mount.file_with("grows", b"data");
    mount.set_flags(fixed, 0x10);
    mount.set_flags(grows, 0x20);
    let write = |node, flags| {
        let ask = bytes::write_with(0, 4, 0, flags, b"more");
        mount.ask(op::WRITE, node, ask)
    };
    for flags in [O_WRONLY, O_RDWR, O_WRONLY | O_APPEND] {
        write(fixed, flags).fails(Errno::PERM);
    }
    for flags in [O_WRONLY, O_RDWR] {
        write(grows, flags).fails(Errno::PERM);
    }
    assert_eq!(mount.contents(grows), b"data");
    write(grows, O_WRONLY | O_APPEND).ok();
    assert_eq!(mount.contents(fixed), b"data");
    assert_eq!(mount.contents(grows), b"datamore");
}

/// As `chown(-1, -1)` does. The server does not know who has the file open for writing.
#[test]
fn setting_nothing_clears_setuid_only_for_those_who_may_write() {
    let Some(mount) = mount() else { return };
    let (node, _) = create(&mount, "file");
    let set_by = |uid, mode| {
        mount.by(Caller::root());
        let chmod = Setattr {
            valid: Setattr::MODE,
            mode,
            ..Setattr::default()
        };
        mount.ask(op::SETATTR, node, chmod.bytes()).ok();
        mount.by(Caller::user(uid, uid));
        mount.ask(op::SETATTR, node, Setattr::default().bytes())
    };
    set_by(42, 0o4755).fails(Errno::PERM);
    assert_eq!(mount.attr(node).mode, 0o104_755);
    assert_eq!(set_by(42, 0o4777).ok().attr().mode, 0o100_777);
}

#[test]
fn a_removed_file_is_freed_when_the_kernel_forgets_it() {
    let Some(mount) = mount() else { return };
    let free = || mount.ask_root(op::STATFS, Bytes::new()).ok().u64(8);
    mount.file_with("other", b"data");
    let before = free();
    let (node, _) = create(&mount, "file");
    mount
        .ask(op::WRITE, node, bytes::write(0, 0, &[7; 40_000]))
        .ok();
    mount.ask(op::READ, node, bytes::read(0, 0, 100)).ok();
    mount.ask(op::FSYNC, node, bytes::fsync(0, 0)).done();
    mount.ask_root(op::UNLINK, bytes::named("file")).done();
    // Programs may still have it open.
    let read = mount.ask(op::READ, node, bytes::read(0, 0, 100)).ok();
    assert_eq!(*read, [7; 100]);
    assert!(free() < before);
    mount.send_unanswered(op::FORGET, node, Bytes::new().u64(1));
    assert_eq!(free(), before);
}

#[test]
fn the_kernel_may_hold_pages_of_a_file_that_is_opened_again() {
    let Some(mount) = mount() else { return };
    let (node, _) = create(&mount, "file");
    // No page of a new file is in the kernel's cache.
    assert_eq!(write_past(&mount, node), []);
    let page = Notice {
        nodeid: node,
        offset: 4096,
        len: 4096,
    };
    // Other files, so that the server closes this one, whether or not it was read.
    for i in 0..300 {
        create(&mount, &format!("other{i}"));
    }
    assert_eq!(write_past(&mount, node), [page]);
}

#[test]
fn a_copy_is_left_to_the_kernel_because_any_file_may_be_mapped() {
    let Some(mount) = mount() else { return };
    let from = mount.file_with("from", &[7; 8192]);
    let (to, _) = create(&mount, "to");
    let copy = mount.ask(
        op::COPY_FILE_RANGE,
        from,
        bytes::copy((0, 0), (to, 0, 0), 8192),
    );
    // Nor is it known whether the target was opened with `O_SYNC`.
    copy.fails(Errno::NOSYS);
}

#[test]
fn a_read_only_descriptor_sees_what_a_writer_stored() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", &[1; 6000]);
    let read = || mount.ask(op::READ, node, bytes::read(0, 0, 8192)).ok();
    assert_eq!(*read(), [1; 6000]);
    let ask = bytes::write_with(0, 0, 0, O_WRONLY, &[2; 3000]);
    mount.ask(op::WRITE, node, ask).ok();
    assert_eq!(read()[..3000], [2; 3000]);
    let shorter = bytes::Setattr {
        valid: bytes::Setattr::SIZE,
        size: 10,
        ..bytes::Setattr::default()
    };
    mount.ask(op::SETATTR, node, shorter.bytes()).ok();
    assert_eq!(*read(), [2; 10]);
    mount
        .ask(op::OPEN, node, bytes::open(O_RDONLY))
        .fails(Errno::NOSYS);
}
