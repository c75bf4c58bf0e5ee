//! Valid logs at every position of the ring, and with wrapping sequence numbers: recovery gives the last
//! state, byte for byte, and `e2fsck` agrees.

use std::sync::Arc;

use throughline::OpenOptions;
use throughline::internal::OpenBlockDevice;
use throughline_testkit::e2fs;

use super::BASES;
use super::craft::{Base, Crafted, Place};
use super::disk::{bytes_of, load};

use throughline_testkit::tier::{self, soak};

/// The image after our recovery.
fn recovered(crafted: &Crafted) -> Result<Vec<u8>, String> {
    let device = load(&crafted.bytes);
    let volume = OpenOptions::new()
        .write(true)
        .open_block_device(Arc::clone(&device) as _)
        .map_err(|e| e.to_string())?;
    volume.close().map_err(|e| e.to_string())?;
    Ok(bytes_of(&*device))
}

/// The image after recovery by `e2fsck`, which must find no other problems.
fn by_e2fsck(crafted: &Crafted) -> Result<Vec<u8>, String> {
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let image = dir.path().join("image");
    std::fs::write(&image, &crafted.bytes).map_err(|e| e.to_string())?;
    for (options, good) in [("-fy", 1), ("-fn", 0)] {
        let ran = e2fs::e2fsck(&image, &[options]);
        if !(0..=good).contains(&ran.code()) {
            return Err(format!("e2fsck {options}: {}", ran.stdout));
        }
    }
    std::fs::read(&image).map_err(|e| e.to_string())
}

/// Checks that `bytes` are the base's state `state`, except for the journal, the superblock, the two unused
/// blocks and the data of the fast commit's file.
pub(crate) fn is_state(base: &Base, bytes: &[u8], state: usize) -> Result<(), String> {
    let size = base.kind.block_bytes as usize;
    let blocks = bytes.chunks(size).zip(base.states[state].chunks(size));
    for (block, (found, expected)) in (0u64..).zip(blocks) {
        let aside = base.reserved.contains(&block)
            || base.quick_data.contains(&block)
            || [base.superblock_block(), base.revoked, base.escaped].contains(&block);
        if !aside && found != expected {
            return Err(format!("block {block} is not that of state {state}"));
        }
    }
    Ok(())
}

fn is_last(base: &Base, bytes: &[u8]) -> Result<(), String> {
    is_state(base, bytes, base.states.len() - 1)?;
    let size = base.kind.block_bytes as usize;
    let block = |block: u64| &bytes[block as usize * size..][..size];
    if block(base.escaped) != super::craft::magical(size) {
        return Err("the escaped block is not what it was".into());
    }
    if block(base.revoked).contains(&0xEE) {
        return Err("the revoked block was replayed".into());
    }
    Ok(())
}

fn judge(base: &Base, place: Place, ask: bool) {
    let crafted = base.craft(place);
    let what = format!("{}, {place:?}", base.kind.name);
    let ours = recovered(&crafted).and_then(|bytes| is_last(base, &bytes));
    ours.unwrap_or_else(|error| panic!("{what}: {error}"));
    if ask {
        let theirs = by_e2fsck(&crafted).and_then(|bytes| is_last(base, &bytes));
        theirs.unwrap_or_else(|error| panic!("{what}, by e2fsck: {error}"));
    }
}

#[test]
fn at_every_place_of_the_ring() {
    for base in &*BASES {
        let around = base.log_end - base.log_blocks();
        for start in 1..base.log_end {
            // If the log wraps around, its end falls on each of its blocks in turn.
            let wraps = start >= around && start % tier::pick(5, 1, 1) == 0;
            if wraps || start % tier::pick(389, 97, 97) == 1 || soak() {
                let sequence = start * 3;
                // e2fsck 1.47.0 loses a log that wraps around if there is a fast commit area; the kernel does
                // not.
                let ask = start % 31 == 0 && (start < around || !base.fast_commits());
                judge(base, Place { start, sequence }, ask);
            }
        }
    }
}

#[test]
fn sequence_numbers_go_around() {
    for base in &*BASES {
        for sequence in [
            u32::MAX - 3,
            u32::MAX - 2,
            u32::MAX - 1,
            u32::MAX,
            0,
            1,
            1 << 31,
        ] {
            judge(base, Place { start: 5, sequence }, true);
        }
    }
}

/// The result of the log with a fast commit after it, from our recovery and from `e2fsck`.
#[test]
fn a_fast_commit_on_top() {
    for base in BASES.iter().filter(|base| base.fast_commits()) {
        let place = Place {
            start: 1,
            sequence: 10,
        };
        let mut crafted = base.craft(place);
        super::fast::add(base, &mut crafted, place.sequence + 3);
        let theirs = by_e2fsck(&crafted).unwrap_or_else(|text| panic!("{text}"));
        let ours = recovered(&crafted).unwrap_or_else(|text| panic!("{text}"));
        for (who, bytes) in [("e2fsck", theirs), ("we", ours)] {
            let volume = OpenOptions::new()
                .write(true)
                .open_block_device(load(&bytes) as _)
                .unwrap();
            let file = volume.open_file(super::craft::QUICK);
            let file = file.unwrap_or_else(|error| panic!("{who}: {error}"));
            let mut found = vec![0; 6000];
            let len = file.read_at(&mut found, 0).unwrap();
            assert!(
                found[..len] == super::craft::QUICK_BYTES,
                "{who}: {len} bytes"
            );
        }
    }
}
