//! Write-back by the kernel of what programs stored in mappings, on a volume without space for it: it is
//! taken whole or refused whole, and each sync fails until the bytes are on the device, written again, or
//! removed.

use rustix::io::Errno;
use throughline::{Device, DirtyLimits};

use super::bytes::{self, Bytes, Setattr, op};
use super::device::Kind;
use super::harness::{Caller, Mount, mount_of};
use crate::nodes::ROOT_NODEID;

const O_RDWR: u32 = 2;
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
/// `FUSE_WRITE_CACHE`.
const WRITE_CACHE: u32 = 1;
/// `FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`.
const PUNCH: u32 = 3;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;
/// Bytes that are stored, in blocks of 1 KiB. A quarter of them has space.
const STORED: usize = 16 << 10;
const FREE: u64 = 4 << 10;
/// `EXT4_MMP_MAGIC`, `EXT4_MMP_SEQ_CLEAN`.
const MMP_MAGIC: u32 = 0x004d_4d50;
const MMP_CLEAN: u32 = 0xff4d_4d50;
/// The size of the file, which is a hole.
const SIZE: u64 = 128 << 10;

/// A file on a volume with four free blocks.
struct Full {
    mount: Mount,
    node: u64,
    fh: u64,
}

impl Full {
    fn new() -> Option<Full> {
        Full::made(Kind::Ext4, Caller::root())
    }

    /// A volume that a user has filled, who also stores.
    fn made(kind: Kind, user: Caller) -> Option<Full> {
        let mount = mount_of(kind)?;
        mount.by(user);
        let node = mount.file("stored");
        set_size(&mount, node, SIZE).done_or_body();
        let filler = mount.file("filler");
        let fh = mount.open(filler, O_RDWR);
        let (mut end, piece) = (0, [5; 1024]);
        let mut left = 16 << 20;
        while mount
            .ask(op::WRITE, filler, bytes::write(fh, end, &piece))
            .is_ok()
        {
            end += piece.len() as u64;
            left -= piece.len();
            assert!(left > 0, "it never fills up");
        }
        mount.ask(op::FSYNC, filler, bytes::fsync(fh, 0)).done();
        set_size(&mount, filler, end - FREE).done_or_body();
        mount.ask(op::FSYNC, filler, bytes::fsync(fh, 0)).done();
        mount.ask(op::RELEASE, filler, bytes::release(fh)).done();
        let fh = mount.open(node, O_RDWR);
        Some(Full { mount, node, fh })
    }

    /// As the kernel writes back a mapping.
    fn write_back(&self, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let ask = bytes::write_with(self.fh, offset, WRITE_CACHE, 0, data);
        let reply = self.mount.ask(op::WRITE, self.node, ask);
        match reply.is_ok() {
            true => Ok(reply.ok().u32(0)),
            false => {
                assert!(reply.is_errno(Errno::NOSPC), "{reply:?}");
                Err(Errno::NOSPC)
            }
        }
    }

    /// Each sync of the file and of the volume fails, whoever asks and however often.
    #[track_caller]
    fn is_short(&self) {
        let Full { mount, node, .. } = self;
        for _ in 0..2 {
            let again = mount.open(*node, 0);
            for (fh, flags) in [(self.fh, 0), (self.fh, 1), (again, 0)] {
                let sync = mount.ask(op::FSYNC, *node, bytes::fsync(fh, flags));
                sync.fails(Errno::NOSPC);
            }
            mount.ask(op::RELEASE, *node, bytes::release(again)).done();
            mount.ask_root(op::SYNCFS, []).fails(Errno::NOSPC);
        }
    }

    /// Syncs succeed; with another server, which has nothing in memory, the file begins with these bytes.
    #[track_caller]
    fn holds(self, begin: &[u8]) {
        self.holds_at(&[(0, begin.to_vec())]);
    }

    /// The same, for bytes at some places. The rest of the file is a hole.
    #[track_caller]
    fn holds_at(self, wanted: &[(u64, Vec<u8>)]) {
        let Full { mount, node, fh } = self;
        mount.ask(op::FSYNC, node, bytes::fsync(fh, 0)).done();
        mount.ask_root(op::SYNCFS, []).done();
        mount.ask(op::RELEASE, node, bytes::release(fh)).done();
        let mount = mount.again(&crate::options::MountOptions::default());
        let node = mount.find("stored");
        let found = mount.contents(node);
        let mut all = vec![0; found.len()];
        for (at, bytes) in wanted {
            all[*at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        assert!(found[..] == all, "{:?}", differs(&found, &all));
    }

    fn make_room(&self) {
        let filler = self.mount.find("filler");
        set_size(&self.mount, filler, 0).done_or_body();
        forget(&self.mount, filler, 1);
    }

    /// Closes the file and lets the kernel forget it.
    fn reopened(mut self) -> Full {
        let Full { mount, node, fh } = &mut self;
        mount.ask(op::RELEASE, *node, bytes::release(*fh)).done();
        forget(mount, *node, 1);
        *node = mount.find("stored");
        *fh = mount.open(*node, O_RDWR);
        self
    }

    /// What a program reads, through the cache and past it.
    #[track_caller]
    fn reads(&self, begin: &[u8]) {
        for flags in [0, O_DIRECT] {
            let ask = Bytes::new().u64(self.fh).u64(0).u32(SIZE as u32 / 4);
            let ask = ask.u32(0).u64(0).u32(flags).u32(0);
            let found = self.mount.ask(op::READ, self.node, ask).ok();
            assert!(
                found[..begin.len()] == *begin,
                "{:?}",
                differs(&found, begin)
            );
            assert!(found[begin.len()..].iter().all(|byte| *byte == 0));
        }
    }

    fn punch(&self, offset: u64, len: u64) {
        let ask = bytes::fallocate(self.fh, PUNCH, offset, len);
        self.mount.ask(op::FALLOCATE, self.node, ask).done();
    }

    fn seek(&self, offset: u64, whence: u32) -> u64 {
        let ask = bytes::lseek(self.fh, offset, whence);
        self.mount.ask(op::LSEEK, self.node, ask).ok().u64(0)
    }
}

fn differs(found: &[u8], wanted: &[u8]) -> Option<usize> {
    found.iter().zip(wanted).position(|(a, b)| a != b)
}

fn set_size(mount: &Mount, node: u64, size: u64) -> super::harness::Reply {
    let set = Setattr {
        valid: Setattr::SIZE,
        size,
        ..Setattr::default()
    };
    mount.ask(op::SETATTR, node, set.bytes())
}

trait DoneOrBody {
    fn done_or_body(self);
}

impl DoneOrBody for super::harness::Reply {
    #[track_caller]
    fn done_or_body(self) {
        self.ok();
    }
}

fn forget(mount: &Mount, node: u64, lookups: u64) {
    mount.send_unanswered(op::FORGET, node, Bytes::new().u64(lookups));
}

#[test]
fn what_fits_in_part_is_taken_whole_and_each_sync_fails_until_there_is_space() {
    let Some(full) = Full::new() else { return };
    let stored = [b'A'; STORED];
    assert_eq!(full.write_back(0, &stored), Ok(STORED as u32));
    full.is_short();
    full.reads(&stored);
    assert_eq!(
        (full.seek(0, SEEK_DATA), full.seek(0, SEEK_HOLE)),
        (0, STORED as u64)
    );
    let full = full.reopened();
    full.is_short();
    full.reads(&stored);
    full.make_room();
    full.holds(&stored);
}

#[test]
fn a_volume_with_bytes_that_have_no_space_is_not_closed_in_silence() {
    let Some(full) = Full::new() else { return };
    assert_eq!(full.write_back(0, &[b'A'; STORED]), Ok(STORED as u32));
    let full = full.reopened();
    forget(&full.mount, full.node, 1);
    full.mount.server.end();
    let closed = full.mount.server.volume.end_writing();
    assert_eq!(
        closed.expect_err("bytes are lost").raw_os_error(),
        Some(Errno::NOSPC.raw_os_error())
    );
}

/// The sequence of the block of multiple-mount protection.
fn mmp_sequence(mount: &Mount) -> u32 {
    let mut block = [0; 1024];
    for at in 0..mount.device.len_bytes() / 1024 {
        mount
            .device
            .read_exact_at(&mut block, at * 1024)
            .expect("a read");
        let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("4 bytes"));
        if word(0) == MMP_MAGIC {
            return word(4);
        }
    }
    panic!("no block of multiple-mount protection");
}

#[test]
fn other_machines_stay_away_from_a_volume_that_could_not_be_closed() {
    let Some(full) = Full::made(Kind::Mmp, Caller::root()) else {
        return;
    };
    assert_eq!(full.write_back(0, &[b'A'; STORED]), Ok(STORED as u32));
    full.mount
        .server
        .volume
        .end_writing()
        .expect_err("no space");
    assert_ne!(
        mmp_sequence(&full.mount),
        MMP_CLEAN,
        "it is still written to"
    );
    full.make_room();
    full.mount.server.volume.end_writing().expect("closed");
    assert_eq!(mmp_sequence(&full.mount), MMP_CLEAN);
}

/// A block behind them that has its place is written, and the sync fails all the same.
#[test]
fn bytes_without_space_are_not_hidden_by_those_behind_them() {
    let Some(full) = Full::new() else { return };
    let behind = SIZE / 4;
    assert_eq!(full.write_back(behind, &[b'B'; 1024]), Ok(1024));
    full.mount
        .ask(op::FSYNC, full.node, bytes::fsync(full.fh, 0))
        .done();
    assert_eq!(full.write_back(0, &[b'A'; STORED]), Ok(STORED as u32));
    for _ in 0..2 {
        assert_eq!(full.write_back(behind, &[b'C'; 1024]), Ok(1024));
        full.is_short();
    }
    full.make_room();
    full.holds_at(&[(0, [b'A'; STORED].to_vec()), (behind, vec![b'C'; 1024])]);
}

/// What root stores in the same file does not lead what waits for space into root's reserve.
#[test]
fn what_a_user_stored_waits_for_space_that_is_not_reserved() {
    let user = Caller::user(1001, 1001);
    let Some(full) = Full::made(Kind::Ext4, user) else {
        return;
    };
    assert_eq!(full.write_back(0, &[b'A'; STORED]), Ok(STORED as u32));
    full.is_short();
    full.mount.by(Caller::root());
    let by_root = full.mount.open(full.node, O_RDWR);
    let ask = bytes::write_with(by_root, SIZE / 2, WRITE_CACHE, 0, b"R");
    full.mount.ask(op::WRITE, full.node, ask).ok();
    full.is_short();
    full.mount.by(user);
    full.is_short();
    full.make_room();
    full.mount
        .ask(op::FSYNC, full.node, bytes::fsync(by_root, 0))
        .done();
}

#[test]
fn bytes_without_space_can_be_removed_or_written_again() {
    type Case = (&'static str, fn(&Full), fn(&mut Vec<u8>));
    let cases: [Case; 7] = [
        (
            "truncate",
            |full| set_size(&full.mount, full.node, 0).done_or_body(),
            |bytes| bytes.clear(),
        ),
        ("punch", |full| full.punch(0, SIZE), |bytes| bytes.clear()),
        (
            "truncate within a block",
            |full| set_size(&full.mount, full.node, 5000).done_or_body(),
            |bytes| bytes.truncate(5000),
        ),
        (
            "punch within blocks",
            |full| full.punch(500, 3000),
            |bytes| bytes[500..3500].fill(0),
        ),
        (
            "a longer file",
            |full| set_size(&full.mount, full.node, SIZE / 2).done_or_body(),
            |_| {},
        ),
        (
            "a store in the same place",
            |full| assert_eq!(full.write_back(1024, &[b'B'; 2048]), Ok(2048)),
            |bytes| bytes[1024..3072].fill(b'B'),
        ),
        (
            // It takes the space that there is, and fails without it.
            "a write in the same place",
            |full| {
                let again = |at: u64| {
                    let ask = bytes::write(full.fh, 8192 + at * 1024, &[b'A'; 1024]);
                    full.mount.ask(op::WRITE, full.node, ask).is_ok()
                };
                let fails = (0..8).filter(|at| !again(*at)).count();
                assert!(fails >= 4, "{fails}");
            },
            |_| {},
        ),
    ];
    for (what, act, change) in cases {
        let Some(full) = Full::new() else { return };
        let mut stored = vec![b'A'; STORED];
        assert_eq!(full.write_back(0, &stored), Ok(STORED as u32), "{what}");
        act(&full);
        change(&mut stored);
        if !stored.is_empty() {
            full.is_short();
            full.reads(&stored);
            full.make_room();
        }
        full.holds(&stored);
    }
}

#[test]
fn what_cannot_be_kept_is_refused_whole_and_its_range_is_remembered() {
    let Some(full) = Full::new() else { return };
    let limits = DirtyLimits::new(Some(DirtyLimits::MIN_BYTES), None);
    full.mount.server.volume.tune().dirty_limits(limits);
    // A quarter of the limit is kept.
    let piece = 16 << 10;
    let taken = (0..SIZE / piece)
        .map(|at| {
            full.write_back(at * piece, &vec![b'A'; piece as usize])
                .is_ok()
        })
        .filter(|taken| *taken)
        .count() as u64;
    let most = (DirtyLimits::MIN_BYTES / 4 + FREE) / piece;
    assert!((most - 1..=most).contains(&taken), "{taken}");
    let full = full.reopened();
    full.is_short();
    full.reads(&vec![b'A'; 32 << 10]);
    full.make_room();
    // The rest is gone.
    full.is_short();
    for at in 0..SIZE / piece - 1 {
        assert_eq!(
            full.write_back(at * piece, &[b'B'; 16 << 10]),
            Ok(piece as u32)
        );
    }
    full.is_short();
    // The last piece is removed, by a program that has the file open in another way.
    full.punch(SIZE - piece, piece);
    let Full { mount, node, .. } = &full;
    let data = (0..SIZE / piece - 1).all(|at| {
        let read = bytes::read(full.fh, at * piece, piece as u32);
        mount
            .ask(op::READ, *node, read)
            .ok()
            .iter()
            .all(|byte| *byte == b'B')
    });
    assert!(data);
    set_size(mount, *node, 32 << 10).done_or_body();
    full.holds(&[b'B'; 32 << 10]);
}

#[test]
fn a_file_without_names_takes_what_it_lost_with_it() {
    let Some(full) = Full::new() else { return };
    let limits = DirtyLimits::new(Some(DirtyLimits::MIN_BYTES), None);
    full.mount.server.volume.tune().dirty_limits(limits);
    for at in 0..8 {
        let _ = full.write_back(at << 14, &[b'A'; 16 << 10]);
    }
    full.is_short();
    let Full { mount, node, fh } = full;
    mount
        .ask(op::UNLINK, ROOT_NODEID, bytes::named("stored"))
        .done();
    mount.ask_root(op::SYNCFS, []).fails(Errno::NOSPC);
    mount.ask(op::RELEASE, node, bytes::release(fh)).done();
    forget(&mount, node, 1);
    mount.ask_root(op::SYNCFS, []).done();
    mount.close();
}
