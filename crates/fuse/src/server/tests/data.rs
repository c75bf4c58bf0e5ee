//! READ, WRITE and FSYNC.

use rustix::io::Errno;
use throughline::OpenOptions;

use super::bytes::{self, op};
use super::device::Kind;
use super::harness::{Caller, DATA_BYTES, Mount, Notice, mount, mount_of};

const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
/// `O_DSYNC` of Linux. In rustix, `OFlags::DSYNC` is `O_SYNC`.
const O_DSYNC: u32 = 0o10000;
const O_SYNC: u32 = rustix::fs::OFlags::SYNC.bits();

/// `FUSE_WRITE_LOCKOWNER`, `FUSE_READ_LOCKOWNER`: the data is a program's, not that of the kernel's cache.
const LOCK_OWNER: u32 = 1 << 1;
/// `FUSE_WRITE_KILL_SUIDGID`.
const KILL: u32 = 1 << 2;

/// READ with `read_flags` and the open flags of the file.
fn read_with(fh: u64, offset: u64, size: u32, read_flags: u32, flags: u32) -> bytes::Bytes {
    let ask = bytes::Bytes::new().u64(fh).u64(offset).u32(size);
    ask.u32(read_flags).u64(0).u32(flags).u32(0)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn written_data_is_read_at_any_offset() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let fh = mount.open(node, O_RDWR);
    let data = pattern(10_000);
    for (at, part) in [(0, &data[..4096]), (4096, &data[4096..])] {
        let wrote = mount.ask(op::WRITE, node, bytes::write(fh, at, part)).ok();
        assert_eq!((wrote.len(), wrote.u32(0)), (8, part.len() as u32));
    }
    assert_eq!(mount.attr(node).size, 10_000);
    for (at, size, end) in [(0, 100, 100), (5000, 65_000, 10_000), (9999, 1, 10_000)] {
        let read = mount
            .ask(op::READ, node, bytes::read(fh, at as u64, size))
            .ok();
        assert_eq!(*read, data[at..end]);
    }
    for at in [10_000, 1 << 40, u64::MAX] {
        let read = mount.ask(op::READ, node, bytes::read(fh, at, 100));
        assert!(read.ok().is_empty(), "{at}");
    }
    let nothing = mount.ask(op::READ, node, bytes::read(fh, 0, 0)).ok();
    assert!(nothing.is_empty());
    let nothing = mount
        .ask(op::WRITE, node, bytes::write(fh, 1 << 30, b""))
        .ok();
    assert_eq!((nothing.u32(0), mount.attr(node).size), (0, 10_000));
}

#[test]
fn a_hole_is_read_as_zeros() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let fh = mount.open(node, O_WRONLY);
    mount
        .ask(op::WRITE, node, bytes::write(fh, 20_000, b"end"))
        .ok();
    let data = mount.contents(node);
    assert_eq!(data.len(), 20_003);
    assert!(data[..20_000].iter().all(|byte| *byte == 0));
}

#[test]
fn a_file_does_not_grow_past_its_limit() {
    for kind in [Kind::Ext4, Kind::Ext2] {
        let Some(mount) = mount_of(kind) else { return };
        let node = mount.file("file");
        let fh = mount.open(node, O_RDWR);
        for at in [1 << 50, u64::MAX - 10] {
            let reply = mount.ask(op::WRITE, node, bytes::write(fh, at, b"data"));
            reply.fails(Errno::FBIG);
            let ask = bytes::write_with(fh, at, LOCK_OWNER, 0, b"data");
            mount.ask(op::WRITE, node, ask).fails(Errno::FBIG);
        }
        assert_eq!(mount.attr(node).size, 0);
    }
}

#[test]
fn direct_reads_and_writes_see_the_same_bytes() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let fh = mount.open(node, O_RDWR | O_DIRECT);
    let data = pattern(16_384);
    let ask = bytes::write_with(fh, 0, LOCK_OWNER, O_RDWR | O_DIRECT, &data);
    mount.ask(op::WRITE, node, ask).ok();
    let ask = read_with(fh, 4096, 8192, LOCK_OWNER, O_RDWR | O_DIRECT);
    let read = mount.ask(op::READ, node, ask).ok();
    assert_eq!(*read, data[4096..12_288]);
    let read = mount.ask(op::READ, node, bytes::read(fh, 0, 16_384)).ok();
    assert_eq!(*read, data[..]);
}

/// The content of a file after a crash at this moment.
fn after_a_crash(mount: &Mount, name: &str) -> Vec<u8> {
    let image = throughline::Memory::from(mount.device.to_vec());
    let mut options = OpenOptions::new();
    let volume = options.write(true).allow_unclean(true).open_device(image);
    volume.expect("a volume").read(name).expect("the file")
}

#[test]
fn a_synchronous_write_survives_a_crash_and_so_does_an_fsync() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let fh = mount.open(node, O_RDWR);
    mount.ask(op::FSYNC, node, bytes::fsync(fh, 0)).done();
    for (number, flags) in [(0_u8, O_SYNC), (1, O_DSYNC)] {
        let ask = bytes::write_with(fh, u64::from(number), 0, flags, &[number]);
        mount.ask(op::WRITE, node, ask).ok();
        assert_eq!(after_a_crash(&mount, "/file").last(), Some(&number));
    }
    for (number, data_only) in [(2_u8, 0), (3, 1)] {
        let ask = bytes::write(fh, u64::from(number), &[number]);
        mount.ask(op::WRITE, node, ask).ok();
        mount
            .ask(op::FSYNC, node, bytes::fsync(fh, data_only))
            .done();
        assert_eq!(after_a_crash(&mount, "/file").last(), Some(&number));
    }
    assert_eq!(after_a_crash(&mount, "/file"), [0, 1, 2, 3]);
}

#[test]
fn a_synchronous_write_fails_with_the_device() {
    for (number, flags, data_only) in [
        (op::FSYNC, 0, 0),
        (op::FSYNC, 0, 1),
        (op::WRITE, O_SYNC, 0),
        (op::WRITE, O_DSYNC, 0),
    ] {
        let Some(mount) = mount() else { return };
        let node = mount.file("file");
        let fh = mount.open(node, O_RDWR);
        mount
            .ask(op::WRITE, node, bytes::write(fh, 0, b"data"))
            .ok();
        mount.device.fail_writes(true);
        let reply = match number {
            op::FSYNC => mount.ask(op::FSYNC, node, bytes::fsync(fh, data_only)),
            _ => mount.ask(op::WRITE, node, bytes::write_with(fh, 0, 0, flags, b"more")),
        };
        // Not the device's own errno, which has another meaning for a program.
        reply.fails(Errno::IO);
        // It fails again until the data is written.
        let again = mount.ask(op::FSYNC, node, bytes::fsync(fh, 0));
        assert!(!again.is_ok());
    }
}

#[test]
fn a_read_succeeds_again_after_a_device_error() {
    for flags in [0, O_DIRECT] {
        let Some(mount) = mount() else { return };
        mount.file_with("file", &pattern(5000));
        let mount = mount.again(&crate::options::MountOptions::default());
        let node = mount.find("file");
        let fh = mount.open(node, O_RDONLY | flags);
        mount.device.fail_reads(true);
        let read = || mount.ask(op::READ, node, read_with(fh, 0, 4096, 0, flags));
        read().fails(Errno::IO);
        mount.device.fail_reads(false);
        assert_eq!(*read().ok(), pattern(5000)[..4096]);
    }
}

#[test]
fn a_write_past_the_kernels_cache_makes_it_drop_the_range() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", &pattern(20_000));
    let fh = mount.open(node, O_RDWR);
    let write = || {
        let ask = bytes::write_with(fh, 5000, LOCK_OWNER, O_RDWR, b"data");
        let reply = mount.ask(op::WRITE, node, ask);
        let notices = reply.notices.clone();
        reply.ok();
        notices
    };
    // The kernel's cache is empty: before any read, and after a read past the cache.
    assert_eq!(write(), []);
    let ask = read_with(fh, 0, 4096, LOCK_OWNER, O_RDWR);
    mount.ask(op::READ, node, ask).ok();
    assert_eq!(write(), []);
    mount.ask(op::READ, node, bytes::read(fh, 0, 4096)).ok();
    // The range is widened to whole pages.
    let pages = Notice {
        nodeid: node,
        offset: 4096,
        len: 4096,
    };
    assert_eq!(write(), [pages]);
    // Writes from the kernel's cache do not make it stale.
    let reply = mount.ask(op::WRITE, node, bytes::write(fh, 5000, b"data"));
    assert_eq!(reply.notices, []);
}

#[test]
fn a_write_clears_setuid_if_the_kernel_requests_it() {
    let Some(mount) = mount() else { return };
    let made = mount.ask_root(op::MKNOD, bytes::mknod(0o106_755, 0, "file"));
    let node = made.ok().nodeid();
    let fh = mount.open(node, O_RDWR);
    mount.by(Caller::user(42, 43));
    let plain = mount.ask(op::WRITE, node, bytes::write(fh, 0, b"data"));
    assert_eq!(plain.notices, []);
    assert_eq!(mount.attr(node).mode, 0o106_755);
    for flags in [KILL, KILL | LOCK_OWNER] {
        let set = bytes::Setattr {
            valid: bytes::Setattr::MODE,
            mode: 0o6755,
            ..bytes::Setattr::default()
        };
        mount.ask(op::SETATTR, node, set.bytes()).ok();
        let ask = bytes::write_with(fh, 0, flags, 0, b"data");
        let reply = mount.ask(op::WRITE, node, ask);
        assert_eq!(reply.notices, [Notice::attributes(node)]);
        reply.ok();
        assert_eq!(mount.attr(node).mode, 0o100_755);
    }
}

/// It is read ahead, and dropped from our cache behind the reader.
#[test]
fn a_long_direct_stream_is_read_correctly() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", &pattern(100));
    let size = bytes::Setattr {
        valid: bytes::Setattr::SIZE,
        size: 13 << 20,
        ..bytes::Setattr::default()
    };
    mount.ask(op::SETATTR, node, size.bytes()).ok();
    let fh = mount.open(node, O_RDONLY | O_DIRECT);
    let mut sum = 0;
    for at in 0..(13 << 20) / DATA_BYTES as u64 {
        let at = at * DATA_BYTES as u64;
        let ask = read_with(fh, at, DATA_BYTES as u32, LOCK_OWNER, O_DIRECT);
        let data = mount.ask(op::READ, node, ask).ok();
        assert_eq!(data.len(), DATA_BYTES);
        sum += data.iter().map(|byte| usize::from(*byte)).sum::<usize>();
    }
    assert_eq!(sum, (0..100).sum::<usize>());
}

/// Setgid without group execution is not a privilege for members of the group.
#[test]
fn setgid_without_group_execution_is_cleared_on_files_of_other_groups() {
    let Some(mount) = mount() else { return };
    let made = mount.ask_root(op::MKNOD, bytes::mknod(0o102_644, 0, "file"));
    let node = made.ok().nodeid();
    let fh = mount.open(node, O_RDWR);
    // The supplementary groups are those of this process.
    let own = rustix::process::getgroups().expect("our groups");
    let member = own.iter().any(|gid| gid.is_root());
    for (gid, mode) in [
        (0, 0o102_644),
        (43, if member { 0o102_644 } else { 0o100_644 }),
    ] {
        mount.by(Caller::user(42, gid));
        let ask = bytes::write_with(fh, 0, KILL, 0, b"data");
        mount.ask(op::WRITE, node, ask).ok();
        assert_eq!(mount.attr(node).mode, mode, "group {gid}");
    }
}

#[test]
fn a_write_to_a_full_volume_fails_and_earlier_writes_stay() {
    let Some(mount) = mount_of(Kind::Small) else {
        return;
    };
    let node = mount.file("file");
    let fh = mount.open(node, O_RDWR);
    let part = vec![7; 16 << 10];
    let mut at = 0;
    loop {
        let reply = mount.ask(op::WRITE, node, bytes::write(fh, at, &part));
        if !reply.is_ok() {
            reply.fails(Errno::NOSPC);
            break;
        }
        let wrote = reply.ok().u32(0);
        assert!(wrote > 0);
        at += u64::from(wrote);
        assert!(at < 256 << 10, "more than the volume");
    }
    assert!(at > 0);
    mount.ask(op::FSYNC, node, bytes::fsync(fh, 0)).done();
    let read = mount.ask(op::READ, node, bytes::read(fh, at - 1, 100)).ok();
    assert_eq!(read[0], 7);
}

/// The kernel caches what was read, so our cache drops it, in folios of 2 MiB.
#[test]
fn a_long_stream_is_read_correctly_while_our_cache_drops_it() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let fh = mount.open(node, O_WRONLY);
    let part = pattern(DATA_BYTES);
    let parts = 34;
    for at in 0..parts {
        let ask = bytes::write(fh, at * DATA_BYTES as u64, &part);
        let wrote = mount.ask(op::WRITE, node, ask).ok().u32(0);
        assert_eq!(wrote as usize, DATA_BYTES);
    }
    mount.ask(op::FSYNC, node, bytes::fsync(fh, 0)).done();
    let fh = mount.open(node, O_RDONLY);
    for _ in 0..2 {
        for at in 0..parts {
            let ask = bytes::read(fh, at * DATA_BYTES as u64, DATA_BYTES as u32);
            assert_eq!(*mount.ask(op::READ, node, ask).ok(), part[..]);
        }
    }
}
