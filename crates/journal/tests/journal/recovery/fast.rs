//! Fast commits: which ones count, and the transaction that replaces them.

use std::sync::Arc;

use fastrand::Rng;
use throughline_block::Disk;
use throughline_device::{BlockDevice, Op};
use throughline_extfmt::FsBlock;
use throughline_extfmt::checksum::crc32c;
use throughline_extfmt::fast_commit::Change;
use throughline_journal::recovery::{append, reset, write_home};
use throughline_journal::{Error, OverlayDevice, Result};
use throughline_testing::{Fault, FaultDevice};
use throughline_testkit::e2fs;

use crate::recovery::home::content;
use crate::recovery::{FORMATS, Image, transactions};

const AREA_BLOCKS: u32 = 100;
const HEAD: u16 = 9;
const TAIL: u16 = 8;
const PAD: u16 = 7;
const UNLINK: u16 = 5;

/// One block of fast commits with the given tags. `sum` is the running checksum; returns the block and the
/// new sum.
fn block(size: usize, mut sum: u32, tags: &[(u16, Vec<u8>)], tid: u32) -> (Vec<u8>, u32) {
    let mut bytes = Vec::new();
    for (tag, value) in tags {
        let mut value = value.clone();
        if matches!(*tag, TAIL | PAD) {
            // Extends to the end of the block.
            let rest = size - bytes.len() - 4;
            value = vec![0; rest];
        }
        let at = bytes.len();
        bytes.extend(tag.to_le_bytes());
        bytes.extend((value.len() as u16).to_le_bytes());
        if *tag == TAIL {
            value[..4].copy_from_slice(&tid.to_le_bytes());
            sum = crc32c(crc32c(sum, &bytes[at..]), &value[..4]);
            value[4..8].copy_from_slice(&sum.to_le_bytes());
        } else {
            sum = crc32c(crc32c(sum, &bytes[at..]), &value);
        }
        bytes.extend(value);
    }
    bytes.resize(size, 0);
    (bytes, sum)
}

fn unlink(number: u8) -> (u16, Vec<u8>) {
    let mut value = vec![2, 0, 0, 0, number, 0, 0, 0];
    value.push(b'a' + number);
    (UNLINK, value)
}

fn head(features: u32, tid: u32) -> (u16, Vec<u8>) {
    (HEAD, [features.to_le_bytes(), tid.to_le_bytes()].concat())
}

/// An image whose journal has three transactions and an area for fast commits.
fn image(dir: &std::path::Path) -> (Image, Vec<u8>, u32) {
    let image = Image::make(dir, 1024, "^metadata_csum,^64bit");
    transactions(&image, dir, &mut Rng::with_seed(1), "", 3);
    let mut bytes = image.bytes();
    let superblock = image.journal_offset(0);
    bytes[superblock + 0x28..][..4].copy_from_slice(&0x21_u32.to_be_bytes()); // revoke, fast_commit
    bytes[superblock + 0x54..][..4].copy_from_slice(&AREA_BLOCKS.to_be_bytes());
    let next = image.recover(&image.disk(&bytes).1).unwrap().next_sequence;
    (image, bytes, next)
}

fn put(image: &Image, bytes: &mut [u8], at: u32, block: &[u8]) {
    let place = image.journal_offset(1024 - AREA_BLOCKS + 1 + at);
    bytes[place..][..block.len()].copy_from_slice(block);
}

/// The inode numbers that the fast commits unlink.
fn found(image: &Image, bytes: &[u8]) -> Result<Vec<Vec<u32>>> {
    let replay = image.recover(&image.disk(bytes).1)?;
    let number = |change: &Change| match change {
        Change::Unlink(name) => name.ino.0,
        other => panic!("{other:?}"),
    };
    let commits = replay.fast_commits.iter();
    Ok(commits
        .map(|commit| commit.iter().map(number).collect())
        .collect())
}

#[test]
fn whole_ones_of_the_next_transaction_count() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, bytes, next) = image(dir.path());
    assert!(found(&image, &bytes).unwrap().is_empty());
    // The second one spans two blocks, with padding.
    let first = [head(0, next), unlink(1), (TAIL, Vec::new())];
    let (one, _) = block(1024, 0, &first, next);
    let (two, sum) = block(1024, 0, &[unlink(2), (PAD, Vec::new())], next);
    let (three, _) = block(1024, sum, &[unlink(3), (TAIL, Vec::new())], next);
    let mut good = bytes.clone();
    for (at, block) in [&one, &two, &three].into_iter().enumerate() {
        put(&image, &mut good, at as u32, block);
    }
    assert_eq!(found(&image, &good).unwrap(), [vec![1], vec![2, 3]]);
    // Torn: a byte covered by a checksum is changed.
    for (at, byte, left) in [(0, 20, 0), (1, 9, 1), (1, 1000, 1), (2, 3, 1), (2, 24, 1)] {
        let mut torn = good.clone();
        torn[image.journal_offset(1024 - AREA_BLOCKS + 1 + at) + byte] ^= 1;
        assert_eq!(
            found(&image, &torn).unwrap().len(),
            left,
            "block {at}, byte {byte}"
        );
    }
    // Of an earlier transaction, or of one that does not exist.
    for tid in [next.wrapping_sub(1), next + 1] {
        let mut old = bytes.clone();
        let tags = [head(0, tid), unlink(1), (TAIL, Vec::new())];
        put(&image, &mut old, 0, &block(1024, 0, &tags, tid).0);
        assert!(found(&image, &old).unwrap().is_empty());
    }
    // The first fast commit is of this transaction, the following one of an earlier one.
    let mut mixed = good.clone();
    let (old, _) = block(1024, 0, &[unlink(2), (TAIL, Vec::new())], next - 1);
    put(&image, &mut mixed, 1, &old);
    assert_eq!(found(&image, &mixed).unwrap(), [vec![1]]);
    // Unknown features.
    let tags = [head(4, next), unlink(1), (TAIL, Vec::new())];
    let mut strange = bytes.clone();
    put(&image, &mut strange, 0, &block(1024, 0, &tags, next).0);
    let refused = found(&image, &strange);
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
}

/// An appended transaction replaces the fast commits atomically: after a cut before its commit they are still
/// there; after a later cut, it is.
#[test]
fn an_appended_transaction_replaces_the_fast_commits_atomically() {
    if !e2fs::is_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (block_bytes, features, checksums) in [FORMATS[0], FORMATS[3], FORMATS[6], FORMATS[8]] {
        let what = format!("{block_bytes} {features} {checksums}");
        let image = Image::make(dir.path(), block_bytes, features);
        transactions(&image, dir.path(), &mut Rng::with_seed(4), checksums, 4);
        let before = image.bytes();
        let size = block_bytes as usize;
        // Enough for two descriptors of 1 KiB; some blocks begin with the journal's magic number.
        let first = image.fs_blocks() / 4 * 3;
        let changes: Vec<(FsBlock, Box<[u8]>)> = (0..150_u64)
            .map(|n| {
                let mut content = vec![n as u8; size];
                if n % 7 == 0 {
                    content[..4].copy_from_slice(&crate::recovery::MAGIC);
                }
                (FsBlock(first + n), content.into_boxed_slice())
            })
            .collect();
        let run = |disk: &Disk| -> Result<()> {
            let (blocks, runs) = (image.fs_blocks(), &image.runs);
            let replay = image.recover(disk)?;
            write_home(disk, block_bytes, blocks, runs, &replay)?;
            let last = append(disk, block_bytes, blocks, runs, &replay, &changes)?;
            write_home(disk, block_bytes, blocks, runs, &last)?;
            reset(disk, block_bytes, blocks, runs, &last)
        };
        let next = image.recover(&image.disk(&before).1).unwrap().next_sequence;
        let old = image.overlaid(&before);
        let mut new = old.clone();
        for (home, content) in &changes {
            new[home.0 as usize * size..][..size].copy_from_slice(content);
        }
        let home = |bytes: &[u8]| bytes[first as usize * size..][..150 * size].to_vec();
        let (mut seen_old, mut seen_new, mut at) = (0, 0, 0);
        loop {
            let memory = image.disk(&before).0;
            let fault = FaultDevice::new(Arc::clone(&memory), Fault::Torn(at))
                .only(&[Op::Write, Op::Flush])
                .seeded(at);
            let fault = Arc::new(fault);
            let done = run(&Disk::new(Arc::clone(&fault) as _).unwrap());
            let cut = fault.failed() > 0;
            assert_eq!(done.is_err(), cut, "{what}: {done:?}");
            // The state that recovery finds after a power cut at this request.
            let replay = image
                .recover(&Disk::new(Arc::clone(&memory)).unwrap())
                .unwrap();
            let sequence = replay.next_sequence;
            let overlay = OverlayDevice::new(Arc::clone(&memory), Arc::new(replay), block_bytes);
            let shown = home(&content(Arc::new(overlay.unwrap()) as Arc<dyn BlockDevice>));
            if sequence == next {
                assert!(
                    shown == home(&old),
                    "{what}: cut at {at}, the transaction is partly visible"
                );
                seen_old += 1;
            } else {
                assert!(
                    shown == home(&new),
                    "{what}: cut at {at}, the transaction is incomplete"
                );
                seen_new += 1;
            }
            if !cut {
                assert_eq!(sequence, next + 2, "{what}");
                break;
            }
            at += 1;
        }
        assert!(
            seen_old > 3 && seen_new > 2,
            "{what}: {seen_old}, {seen_new}"
        );
    }
}
