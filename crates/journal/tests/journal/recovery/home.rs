//! Recovery for writing: the result equals the overlay, and faults and power cuts are survived.

use std::sync::Arc;

use fastrand::Rng;
use throughline_block::Disk;
use throughline_device::{BlockDevice, Op};
use throughline_journal::recovery::{Replay, reset, write_home};
use throughline_journal::{Error, OverlayDevice, Result};
use throughline_testing::{Fault, FaultDevice};
use throughline_testkit::e2fs;

use crate::recovery::{FORMATS, Image, transactions};

impl Image {
    fn memory(&self, bytes: &[u8]) -> Arc<dyn BlockDevice> {
        self.disk(bytes).0
    }

    /// A whole recovery for writing.
    fn recover_home(&self, disk: &Disk) -> Result<Replay> {
        let replay = self.recover(disk)?;
        write_home(
            disk,
            self.block_bytes,
            self.fs_blocks(),
            &self.runs,
            &replay,
        )?;
        reset(
            disk,
            self.block_bytes,
            self.fs_blocks(),
            &self.runs,
            &replay,
        )?;
        Ok(replay)
    }

    /// The content of the overlay over `bytes`.
    pub(crate) fn overlaid(&self, bytes: &[u8]) -> Vec<u8> {
        let (device, disk) = self.disk(bytes);
        let replay = Arc::new(self.recover(&disk).unwrap());
        let overlay = OverlayDevice::new(device, replay, self.block_bytes).unwrap();
        content(Arc::new(overlay))
    }

    /// `bytes` with the journal's superblock zeroed.
    fn but_superblock(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        let at = self.journal_offset(0);
        bytes[at..at + self.block_bytes as usize].fill(0);
        bytes
    }

    /// A big-endian field of the journal's superblock.
    fn field(&self, bytes: &[u8], at: usize) -> u32 {
        let at = self.journal_offset(0) + at;
        u32::from_be_bytes(*bytes[at..].first_chunk().unwrap())
    }
}

pub(crate) fn content(device: Arc<dyn BlockDevice>) -> Vec<u8> {
    let mut bytes = vec![0; device.len_bytes() as usize];
    Disk::new(device).unwrap().read_at(0, &mut bytes).unwrap();
    bytes
}

const S_SEQUENCE: usize = 0x18;
const S_START: usize = 0x1c;
const S_ERRNO: usize = 0x20;

#[test]
fn home_is_what_the_overlay_shows_and_the_journal_is_empty() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (index, (block_bytes, features, checksums)) in FORMATS.iter().enumerate() {
        let what = format!("{block_bytes} {features} {checksums}");
        let mut random = Rng::with_seed(index as u64);
        let image = Image::make(dir.path(), *block_bytes, features);
        transactions(&image, dir.path(), &mut random, checksums, 6);
        let before = image.bytes();
        let device = image.memory(&before);
        let replay = image
            .recover_home(&Disk::new(Arc::clone(&device)).unwrap())
            .unwrap();
        assert!(!replay.is_empty(), "{what}");
        let after = content(Arc::clone(&device));
        assert_eq!(image.field(&after, S_START), 0, "{what}");
        assert_eq!(
            image.field(&after, S_SEQUENCE),
            replay.next_sequence + 1,
            "{what}"
        );
        assert!(
            image.but_superblock(after.clone()) == image.but_superblock(image.overlaid(&before)),
            "{what}: home differs from the overlay"
        );
        // The superblock is still valid, and nothing is left to replay.
        let (_, disk) = image.disk(&after);
        let again = image.recover_home(&disk).unwrap();
        assert!(again.is_empty() && again.transactions == 0, "{what}");
        assert_eq!(again.next_sequence, replay.next_sequence + 1, "{what}");
        std::fs::write(&image.path, &after).unwrap();
        image.compare(&what);
    }
}

/// All blocks are written home first, ascending and in few bios; then comes a flush, then the journal's
/// superblock with FUA.
#[test]
fn the_log_is_emptied_after_all_is_home() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = Image::make(dir.path(), 1024, "^metadata_csum,^64bit");
    let data = dir.path().join("data");
    std::fs::write(&data, vec![7; 40 << 10]).unwrap();
    // Two runs of adjacent blocks, the higher one in the first transaction.
    for first in [31000, 30000] {
        let list: Vec<String> = (first..first + 40).map(|b: u32| b.to_string()).collect();
        let list = list.join(",");
        image.debugfs(&format!("jo\njw -b {list} {}\njc\n", data.display()));
    }
    let device = Arc::new(FaultDevice::counting(image.memory(&image.bytes())).logged());
    let disk = Disk::new(Arc::clone(&device) as _).unwrap();
    let replay = image.recover_home(&disk).unwrap();
    let log: Vec<_> = device
        .take_log()
        .into_iter()
        .filter(|request| request.op != Op::Read)
        .collect();
    let superblock = image.journal_offset(0) as u64;
    let flush = log.iter().position(|r| r.op == Op::Flush).unwrap();
    let (home, rest) = log.split_at(flush);
    assert!(home.is_sorted_by_key(|r| r.offset_bytes), "{home:?}");
    assert_eq!(replay.blocks().len(), 80);
    let lengths: Vec<u64> = home.iter().map(|r| r.len_bytes).collect();
    assert_eq!(lengths, [40 << 10, 40 << 10]);
    assert!(
        rest.len() == 2 && rest[1].offset_bytes == superblock && rest[1].fua,
        "{rest:?}"
    );
}

/// Any request fails, wholly or partly, and later ones do not reach the device: a second recovery has the
/// same result.
#[test]
fn a_recovery_cut_off_anywhere_is_recovered_again() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (block_bytes, features, checksums) in [FORMATS[0], FORMATS[8]] {
        let image = Image::make(dir.path(), block_bytes, features);
        let mut random = Rng::with_seed(5);
        transactions(&image, dir.path(), &mut random, checksums, 6);
        let before = image.bytes();
        let goal = image.but_superblock(image.overlaid(&before));
        let mut at = 0;
        loop {
            let memory = image.memory(&before);
            let fault = FaultDevice::new(Arc::clone(&memory), Fault::Torn(at))
                .only(&[Op::Write, Op::Flush])
                .seeded(at);
            let fault = Arc::new(fault);
            let disk = Disk::new(Arc::clone(&fault) as _).unwrap();
            let cut = image.recover_home(&disk);
            if fault.failed() == 0 {
                cut.unwrap();
                break;
            }
            assert!(matches!(cut, Err(Error::Device(_))), "{at}: {cut:?}");
            let disk = Disk::new(Arc::clone(&memory)).unwrap();
            image.recover_home(&disk).unwrap();
            assert!(
                image.but_superblock(content(memory)) == goal,
                "{features} {checksums}: cut at request {at}"
            );
            at += 1;
        }
        assert!(at > 3, "{at} requests");
    }
}

#[test]
fn a_recorded_error_is_reported_once() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for count in [0, 2] {
        let image = Image::make(dir.path(), 1024, "^metadata_csum,^64bit");
        let mut random = Rng::with_seed(1);
        transactions(&image, dir.path(), &mut random, "", count);
        let mut bytes = image.bytes();
        let sequence = image.field(&bytes, S_SEQUENCE);
        let at = image.journal_offset(0) + S_ERRNO;
        bytes[at..at + 4].copy_from_slice(&(-5_i32).to_be_bytes());
        let (device, disk) = image.disk(&bytes);
        assert_eq!(image.recover_home(&disk).unwrap().recorded_errno, 5);
        assert_eq!(image.recover_home(&disk).unwrap().recorded_errno, 0);
        let after = content(device);
        assert_eq!(image.field(&after, S_ERRNO), 0);
        let next = if count == 0 {
            sequence
        } else {
            sequence + count + 1
        };
        assert_eq!(image.field(&after, S_SEQUENCE), next);
    }
}

/// A transaction that would overwrite its own log is refused.
#[test]
fn the_journal_is_not_replayed_over_itself() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = Image::make(dir.path(), 1024, "^metadata_csum,^64bit");
    let data = dir.path().join("data");
    std::fs::write(&data, [7; 1024]).unwrap();
    let own = image.journal_offset(500) / 1024;
    image.debugfs(&format!("jo\njw -b {own} {}\njc\n", data.display()));
    let (_, disk) = image.disk(&image.bytes());
    let refused = image.recover(&disk);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
}
