//! OPEN, RELEASE, FLUSH, and invalid handles.

use rustix::io::Errno;

use super::bytes::{self, Bytes, op};
use super::harness::{Caller, Mount, Notice, mount};
use super::names::NO_NODES;
use crate::nodes::ROOT_NODEID;
use crate::options::{Choices, MountOptions};

const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;

const DIRECT_IO: u32 = 1 << 0;
const KEEP_CACHE: u32 = 1 << 1;
const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// `FUSE_OPEN_KILL_SUIDGID`.
const KILL: u32 = 1;

#[test]
fn the_reply_to_open_selects_the_cache() {
    let Some(mount) = mount() else { return };
    let full = mount.file_with("full", b"data");
    let empty = mount.file("empty");
    let past = DIRECT_IO | PARALLEL_DIRECT_WRITES | KEEP_CACHE;
    for (node, flags, wanted) in [
        (full, O_RDONLY, KEEP_CACHE),
        (full, O_WRONLY, past),
        (full, O_RDWR, KEEP_CACHE),
        (empty, O_RDWR, past),
        (full, O_RDWR | O_TRUNC, past),
    ] {
        let open = mount.ask(op::OPEN, node, bytes::open(flags)).ok();
        assert_eq!(open.len(), 16);
        assert_eq!(open.u32(8), wanted, "flags {flags:o}");
        assert_eq!(open.u32(12), 0);
    }
    assert_eq!(mount.handles(), 5);
}

#[test]
fn every_open_file_has_a_handle_of_its_own_until_it_is_released() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let handles: Vec<_> = (0..40).map(|_| mount.open(node, O_RDWR)).collect();
    let different: std::collections::BTreeSet<_> = handles.iter().collect();
    assert_eq!(different.len(), 40);
    assert!(!different.contains(&0));
    for fh in &handles {
        mount.ask(op::RELEASE, node, bytes::release(*fh)).done();
    }
    assert_eq!(mount.handles(), 0);
    // Only now is a number used again.
    let again: Vec<_> = (0..40).map(|_| mount.open(node, O_RDWR)).collect();
    assert!(again.iter().any(|fh| different.contains(fh)));
    for fh in &again {
        mount.ask(op::RELEASE, node, bytes::release(*fh)).done();
    }
    // A second release, and the release of an unknown handle: the kernel expects success.
    mount
        .ask(op::RELEASE, node, bytes::release(handles[0]))
        .done();
    mount
        .ask(op::RELEASE, node, bytes::release(u64::MAX))
        .done();
    assert_eq!(mount.handles(), 0);
}

#[test]
fn only_a_regular_file_is_opened() {
    let Some(mount) = mount() else { return };
    let dir = mount.dir("dir");
    let fifo = mount.ask_root(op::MKNOD, bytes::mknod(0o010_600, 0, "fifo"));
    let fifo = fifo.ok().nodeid();
    let link = mount.ask_root(op::SYMLINK, bytes::symlink("link", "target"));
    let link = link.ok().nodeid();
    let open = |node, flags| mount.ask(op::OPEN, node, bytes::open(flags));
    open(dir, O_RDONLY).fails(Errno::ISDIR);
    open(ROOT_NODEID, O_RDONLY).fails(Errno::ISDIR);
    open(fifo, O_RDONLY).fails(Errno::INVAL);
    open(link, O_RDONLY).fails(Errno::INVAL);
    for node in NO_NODES {
        open(*node, O_RDONLY).fails(Errno::NOENT);
    }
    assert_eq!(mount.handles(), 0);
}

#[test]
fn immutable_and_append_only_files_are_not_opened_for_other_changes() {
    let Some(mount) = mount() else { return };
    let fixed = mount.file_with("fixed", b"data");
    let grows = mount.file_with("grows", b"data");
    mount.set_flags(fixed, 0x10);
    mount.set_flags(grows, 0x20);
    let open = |node, flags| mount.ask(op::OPEN, node, bytes::open(flags));
    for flags in [O_WRONLY, O_RDWR, O_WRONLY | O_APPEND, O_RDONLY | O_TRUNC] {
        open(fixed, flags).fails(Errno::PERM);
    }
    for flags in [O_WRONLY, O_RDWR, O_WRONLY | O_APPEND | O_TRUNC] {
        open(grows, flags).fails(Errno::PERM);
    }
    assert_eq!(mount.handles(), 0);
    open(fixed, O_RDONLY).ok();
    open(grows, O_WRONLY | O_APPEND).ok();
    assert_eq!(mount.contents(fixed), b"data");
    assert_eq!(mount.contents(grows), b"data");
}

#[test]
fn an_open_with_o_trunc_empties_the_file() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", &[7; 5000]);
    mount.open(node, O_WRONLY | O_TRUNC);
    assert_eq!(mount.attr(node).size, 0);
}

#[test]
fn an_open_that_cannot_empty_the_file_leaves_no_handle() {
    let Some(mount) = mount() else { return };
    mount.file_with("file", &[7; 5000]);
    let options = MountOptions {
        read_only: true,
        choices: Choices {
            direct_io: true,
            ..Choices::default()
        },
        ..MountOptions::default()
    };
    let mount = mount.again(&options);
    let node = mount.find("file");
    let open = mount.ask(op::OPEN, node, bytes::open(O_WRONLY | O_TRUNC));
    open.fails(Errno::ROFS);
    assert_eq!(mount.handles(), 0);
    assert_eq!(mount.contents(node), [7; 5000]);
}

fn with_mode(mount: &Mount, name: &str, mode: u32) -> u64 {
    let made = mount.ask_root(op::MKNOD, bytes::mknod(0o100_000 | mode, 0, name));
    made.ok().nodeid()
}

#[test]
fn an_open_for_writing_clears_setuid_if_the_kernel_requests_it() {
    let Some(mount) = mount() else { return };
    let node = with_mode(&mount, "file", 0o6755);
    mount.by(Caller::user(42, 43));
    let plain = mount.ask(op::OPEN, node, bytes::open(O_WRONLY));
    assert_eq!(plain.notices, []);
    assert_eq!(mount.attr(node).mode, 0o106_755);
    let kills = Bytes::new().u32(O_WRONLY | O_TRUNC).u32(KILL);
    let reply = mount.ask(op::OPEN, node, &kills);
    // Before the reply, because the kernel decides from its cached mode which user the file runs as.
    assert_eq!(reply.notices, [Notice::attributes(node)]);
    reply.ok();
    assert_eq!(mount.attr(node).mode, 0o100_755);
    // The bits are cleared already.
    assert_eq!(mount.ask(op::OPEN, node, &kills).notices, []);
    let lost = mount.ask(op::OPEN, 999, &kills);
    lost.fails(Errno::NOENT);
}

#[test]
fn an_unknown_handle_is_ebadf() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let closed = mount.open(node, O_RDWR);
    mount.ask(op::RELEASE, node, bytes::release(closed)).done();
    let good = mount.open(node, O_RDWR);
    let bad = [0, closed + 16, 999, u64::MAX];
    for fh in bad {
        let asked = [
            (op::READ, bytes::read(fh, 0, 100)),
            (op::WRITE, bytes::write(fh, 0, b"data")),
            (op::FSYNC, bytes::fsync(fh, 0)),
            (op::FALLOCATE, bytes::fallocate(fh, 0, 0, 1)),
            (op::LSEEK, bytes::lseek(fh, 0, 3)),
            (
                op::COPY_FILE_RANGE,
                bytes::copy((fh, 0), (node, good, 0), 1),
            ),
            (
                op::COPY_FILE_RANGE,
                bytes::copy((good, 0), (node, fh, 0), 1),
            ),
        ];
        for (number, body) in asked {
            let reply = mount.ask(number, node, body);
            assert!(reply.is_errno(Errno::BADF), "{number}: {reply:?}");
        }
    }
    assert_eq!(mount.attr(node).size, 0);
}

#[test]
fn a_released_handle_is_unknown() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let fh = mount.open(node, O_RDWR);
    mount.ask(op::RELEASE, node, bytes::release(fh)).done();
    let read = mount.ask(op::READ, node, bytes::read(fh, 0, 100));
    read.fails(Errno::BADF);
    let write = mount.ask(op::WRITE, node, bytes::write(fh, 0, b"data"));
    write.fails(Errno::BADF);
}

#[test]
fn the_kernel_learns_that_a_close_needs_no_request() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let fh = mount.open(node, O_RDWR);
    let reply = mount.ask(op::FLUSH, node, Bytes::new().u64(fh).u64(0).u64(0));
    reply.fails(Errno::NOSYS);
}

#[test]
fn a_read_only_mount_reads_files_that_were_not_opened() {
    let Some(mount) = mount() else { return };
    // More files than the server keeps open.
    let nodes: Vec<u64> = (0..300)
        .map(|i| mount.file_with(&format!("file{i}"), format!("data of {i}").as_bytes()))
        .collect();
    let options = MountOptions {
        read_only: true,
        ..MountOptions::default()
    };
    let mount = mount.again(&options);
    for round in 0..2 {
        for (i, node) in nodes.iter().enumerate() {
            let open = mount.ask(op::OPEN, *node, bytes::open(O_RDONLY));
            open.fails(Errno::NOSYS);
            let read = mount.ask(op::READ, *node, bytes::read(0, 0, 100)).ok();
            assert_eq!(*read, *format!("data of {i}").as_bytes(), "round {round}");
        }
    }
    assert_eq!(mount.handles(), 0);
    let node = nodes[7];
    let get = mount.ask(op::GETATTR, node, bytes::getattr(Some(0)));
    assert_eq!(get.ok().attr().size, 9);
    mount.ask(op::FSYNC, node, bytes::fsync(0, 0)).done();
    let hole = mount.ask(op::LSEEK, node, bytes::lseek(0, 0, 4)).ok();
    assert_eq!(hole.u64(0), 9);
    // As if root had made the mount writable.
    let write = mount.ask(op::WRITE, node, bytes::write(0, 0, b"data"));
    write.fails(Errno::ROFS);
    for nodeid in NO_NODES {
        let read = mount.ask(op::READ, *nodeid, bytes::read(0, 0, 100));
        read.fails(Errno::NOENT);
    }
    let root = mount.ask(op::READ, ROOT_NODEID, bytes::read(0, 0, 100));
    root.fails(Errno::ISDIR);
}

#[test]
fn files_are_opened_by_a_request_where_an_open_must_choose_the_cache() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let options = MountOptions {
        read_only: true,
        choices: Choices {
            direct_io: true,
            ..Choices::default()
        },
        ..MountOptions::default()
    };
    let mount = mount.again(&options);
    assert_ne!(mount.open(node, O_RDONLY), 0);
    let read = mount.ask(op::READ, node, bytes::read(0, 0, 100));
    read.fails(Errno::BADF);
}
