//! Ranges of a file: FALLOCATE, LSEEK, BMAP, COPY_FILE_RANGE.

use rustix::io::Errno;

use super::bytes::{self, op};
use super::device::Kind;
use super::harness::{Caller, Mount, Notice, mount, mount_of};
use super::names::NO_NODES;
use crate::nodes::ROOT_NODEID;

const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;

const KEEP: u32 = 1;
const PUNCH: u32 = 2;
const COLLAPSE: u32 = 8;
const ZERO: u32 = 16;
const INSERT: u32 = 32;
const UNSHARE: u32 = 64;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

fn file(mount: &Mount, bytes: usize) -> (u64, u64) {
    let node = mount.file_with("file", &vec![7; bytes]);
    (node, mount.open(node, O_RDWR))
}

#[test]
fn every_mode_of_fallocate_has_its_effect() {
    for (mode, size, zero) in [
        (0, 12_288, 0),
        (KEEP, 8192, 0),
        (KEEP | PUNCH, 8192, 4096),
        (ZERO, 12_288, 4096),
        (KEEP | ZERO, 8192, 4096),
        (COLLAPSE, 4096, 0),
        (INSERT, 16_384, 8192),
    ] {
        let Some(mount) = mount() else { return };
        let (node, fh) = file(&mount, 8192);
        let (at, len) = match mode {
            COLLAPSE => (0, 4096),
            INSERT => (4096, 8192),
            _ => (4096, 8192),
        };
        let reply = mount.ask(op::FALLOCATE, node, bytes::fallocate(fh, mode, at, len));
        reply.done();
        assert_eq!(mount.attr(node).size, size, "mode {mode}");
        let data = mount.contents(node);
        let zeros = data[..8192.min(data.len())]
            .iter()
            .filter(|byte| **byte == 0);
        let zero = if mode == INSERT { 4096 } else { zero };
        assert_eq!(zeros.count(), zero, "mode {mode}");
    }
}

#[test]
fn a_fallocate_of_an_unknown_mode_or_an_impossible_range_fails() {
    let Some(mount) = mount() else { return };
    let (node, fh) = file(&mount, 8192);
    let ask = |mode, at, len| mount.ask(op::FALLOCATE, node, bytes::fallocate(fh, mode, at, len));
    for mode in [
        PUNCH,
        4,
        UNSHARE,
        128,
        1 << 31,
        COLLAPSE | KEEP,
        INSERT | ZERO,
        0xff,
    ] {
        ask(mode, 0, 4096).fails(Errno::OPNOTSUPP);
    }
    for mode in [0, KEEP, KEEP | PUNCH, ZERO, KEEP | ZERO, COLLAPSE, INSERT] {
        ask(mode, 0, 0).fails(Errno::INVAL);
        let past = ask(mode, u64::MAX - 100, 200);
        match mode {
            // Beyond the end, there is nothing to punch.
            mode if mode == KEEP | PUNCH => past.done(),
            _ => drop(past.fails(Errno::FBIG)),
        }
    }
    for mode in [COLLAPSE, INSERT] {
        ask(mode, 1, 1024).fails(Errno::INVAL);
        ask(mode, 0, 1).fails(Errno::INVAL);
        ask(mode, 8192, 1024).fails(Errno::INVAL);
    }
    assert_eq!(mount.contents(node), [7; 8192]);
    let handle = mount.ask(op::FALLOCATE, ROOT_NODEID, bytes::fallocate(0, 0, 0, 1));
    handle.fails(Errno::BADF);
}

#[test]
fn an_allocation_larger_than_the_volume_fails() {
    let Some(mount) = mount() else { return };
    let (node, fh) = file(&mount, 100);
    for mode in [0, KEEP] {
        let ask = bytes::fallocate(fh, mode, 0, 64 << 20);
        mount.ask(op::FALLOCATE, node, ask).fails(Errno::NOSPC);
    }
    let Some(small) = mount_of(Kind::Ext2) else {
        return;
    };
    // Without extents there are no unwritten blocks.
    let (node, fh) = file(&small, 100);
    let ask = bytes::fallocate(fh, 0, 0, 4096);
    small.ask(op::FALLOCATE, node, ask).fails(Errno::OPNOTSUPP);
}

/// During this request, the kernel keeps its cached pages. So it is notified even if it has read none.
#[test]
fn a_fallocate_that_changes_data_makes_the_kernel_drop_it() {
    for (mode, notified) in [
        (0, false),
        (KEEP, false),
        (KEEP | PUNCH, true),
        (ZERO, true),
    ] {
        let Some(mount) = mount() else { return };
        let (node, fh) = file(&mount, 8192);
        let reply = mount.ask(op::FALLOCATE, node, bytes::fallocate(fh, mode, 100, 5000));
        let pages = Notice {
            nodeid: node,
            offset: 0,
            len: 8192,
        };
        assert_eq!(reply.notices.contains(&pages), notified, "mode {mode}");
        reply.done();
    }
}

#[test]
fn fallocate_clears_setuid_except_for_root() {
    let Some(mount) = mount() else { return };
    let made = mount.ask_root(op::MKNOD, bytes::mknod(0o106_755, 0, "file"));
    let node = made.ok().nodeid();
    let fh = mount.open(node, O_RDWR);
    let ask = || mount.ask(op::FALLOCATE, node, bytes::fallocate(fh, 0, 0, 4096));
    assert_eq!(ask().notices, []);
    assert_eq!(mount.attr(node).mode, 0o106_755);
    mount.by(Caller::user(42, 43));
    assert_eq!(ask().notices, [Notice::attributes(node)]);
    assert_eq!(mount.attr(node).mode, 0o100_755);
}

#[test]
fn data_and_holes_are_found() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let fh = mount.open(node, O_RDWR);
    mount
        .ask(op::WRITE, node, bytes::write(fh, 8192, &[7; 1024]))
        .ok();
    mount
        .ask(op::WRITE, node, bytes::write(fh, 32_767, b"x"))
        .ok();
    let seek = |at, whence| mount.ask(op::LSEEK, node, bytes::lseek(fh, at, whence));
    assert_eq!(seek(0, SEEK_DATA).ok().u64(0), 8192);
    assert_eq!(seek(0, SEEK_HOLE).ok().u64(0), 0);
    assert_eq!(seek(8200, SEEK_DATA).ok().u64(0), 8200);
    assert_eq!(seek(8200, SEEK_HOLE).ok().u64(0), 9216);
    assert_eq!(
        seek(32_767, SEEK_HOLE).ok().u64(0),
        32_768,
        "the end is one"
    );
    for whence in [SEEK_DATA, SEEK_HOLE] {
        seek(32_768, whence).fails(Errno::NXIO);
        seek(u64::MAX, whence).fails(Errno::NXIO);
    }
    for whence in [0, 1, 2, 5, u32::MAX] {
        seek(0, whence).fails(Errno::INVAL);
    }
}

#[test]
fn a_block_of_a_file_is_one_of_the_volume() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let fh = mount.open(node, O_RDWR);
    mount
        .ask(op::WRITE, node, bytes::write(fh, 4096, &[7; 1024]))
        .ok();
    mount.ask(op::FSYNC, node, bytes::fsync(fh, 0)).done();
    let ask = |node, block, bytes| mount.ask(op::BMAP, node, bytes::bmap(block, bytes));
    let block = ask(node, 4, 1024).ok().u64(0);
    let image = mount.device.to_vec();
    assert_eq!(image[block as usize * 1024..][..1024], [7; 1024]);
    for hole in [0, 5, 1 << 40] {
        assert_eq!(ask(node, hole, 1024).ok().u64(0), 0);
    }
    ask(node, 0, 4096).fails(Errno::INVAL);
    ask(node, 0, 0).fails(Errno::INVAL);
    ask(ROOT_NODEID, 0, 1024).fails(Errno::ISDIR);
    for node in NO_NODES {
        ask(*node, 0, 1024).fails(Errno::NOENT);
    }
    let fifo = mount.ask_root(op::MKNOD, bytes::mknod(0o010_600, 0, "fifo"));
    ask(fifo.ok().nodeid(), 0, 1024).fails(Errno::INVAL);
}

/// A source with data and an empty target, opened so that the kernel's cache cannot be newer than they are.
fn to_copy(mount: &Mount) -> [(u64, u64); 2] {
    let data: Vec<u8> = (0..10_000).map(|at| (at % 251) as u8).collect();
    let from = mount.file_with("from", &data);
    let to = mount.file("to");
    [
        (from, mount.open(from, O_RDONLY)),
        (to, mount.open(to, O_WRONLY)),
    ]
}

#[test]
fn the_server_copies_whole_pages() {
    let Some(mount) = mount() else { return };
    let [(from, read), (to, write)] = to_copy(&mount);
    let copy = |at, to_at, len| {
        let ask = bytes::copy((read, at), (to, write, to_at), len);
        mount.ask(op::COPY_FILE_RANGE, from, ask)
    };
    assert_eq!(copy(0, 0, 8192).ok().u32(0), 8192);
    // The copy is shorter than requested: the source ends.
    assert_eq!(copy(8192, 8192, 1 << 40).ok().u32(0), 1808);
    assert_eq!(mount.contents(to), mount.contents(from));
    assert_eq!(copy(10_000, 12_288, 100).ok().u32(0), 0);
    assert_eq!(copy(u64::MAX, 12_288, 100).ok().u32(0), 0);
}

#[test]
fn other_copies_are_left_to_the_kernel() {
    let Some(mount) = mount() else { return };
    let [(from, read), (to, write)] = to_copy(&mount);
    let refused = |handle, to_at, len| {
        let ask = bytes::copy((handle, 0), (to, write, to_at), len);
        let reply = mount.ask(op::COPY_FILE_RANGE, from, ask);
        reply.fails(Errno::OPNOTSUPP);
    };
    // The kernel would drop parts of pages that were stored to.
    refused(read, 1, 4096);
    mount
        .ask(op::WRITE, to, bytes::write(write, 0, &[0; 9000]))
        .ok();
    refused(read, 0, 100);
    // The source may have been stored to through a mapping.
    let stored = mount.open(from, O_RDWR);
    refused(read, 0, 4096);
    mount.ask(op::RELEASE, from, bytes::release(stored)).done();
    let ask = bytes::copy((read, 0), (to, write, 0), 4096);
    mount.ask(op::COPY_FILE_RANGE, from, ask).ok();
}

#[test]
fn a_copy_beyond_the_largest_file_fails() {
    let Some(mount) = mount() else { return };
    let [(from, read), (to, write)] = to_copy(&mount);
    let ask = bytes::copy((read, 0), (to, write, 1 << 50), 4096);
    let reply = mount.ask(op::COPY_FILE_RANGE, from, ask);
    reply.fails(Errno::FBIG);
    let whole = bytes::copy((read, 0), (from, read, 4096), 8192);
    let reply = mount.ask(op::COPY_FILE_RANGE, from, whole);
    // The ranges overlap in one file.
    reply.fails(Errno::INVAL);
}

#[test]
fn range_requests_fail_if_the_device_cannot_be_read() {
    let Some(mount) = mount_of(Kind::Ext2) else {
        return;
    };
    // Large enough for an indirect block.
    mount.file_with("from", &[7; 40_000]);
    mount.file("to");
    let mount = mount.again(&crate::options::MountOptions::default());
    let (from, to) = (mount.find("from"), mount.find("to"));
    let (read, write) = (mount.open(from, O_RDONLY), mount.open(to, O_WRONLY));
    mount.device.fail_reads(true);
    for (number, body) in [
        (op::LSEEK, bytes::lseek(read, 20_000, SEEK_DATA)),
        (op::LSEEK, bytes::lseek(read, 20_000, SEEK_HOLE)),
        (op::BMAP, bytes::bmap(20, 1024)),
        (
            op::COPY_FILE_RANGE,
            bytes::copy((read, 0), (to, write, 0), 40_960),
        ),
    ] {
        let reply = mount.ask(number, from, body);
        assert!(reply.is_errno(Errno::IO), "{number}: {reply:?}");
    }
    mount.device.fail_reads(false);
    let ask = bytes::lseek(read, 20_000, SEEK_HOLE);
    assert_eq!(mount.ask(op::LSEEK, from, ask).ok().u64(0), 40_000);
    assert_eq!(mount.attr(to).size, 0);
}

#[test]
fn a_copy_clears_setuid_of_its_target_except_for_root() {
    let Some(mount) = mount() else { return };
    let [(from, read), (to, write)] = to_copy(&mount);
    let set = bytes::Setattr {
        valid: bytes::Setattr::MODE,
        mode: 0o6755,
        ..bytes::Setattr::default()
    };
    mount.ask(op::SETATTR, to, set.bytes()).ok();
    let copy = || {
        let ask = bytes::copy((read, 0), (to, write, 0), 4096);
        mount.ask(op::COPY_FILE_RANGE, from, ask)
    };
    assert_eq!(copy().notices, []);
    mount.by(Caller::user(42, 43));
    assert_eq!(copy().notices, [Notice::attributes(to)]);
    assert_eq!(mount.attr(to).mode, 0o100_755);
}
