//! Taking dirty blocks and ending their write-back, called directly, without a flusher.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cache::testing::{FakeFile, Volume};
use crate::cache::tests::pattern;
use crate::cache::{Backing, DirtyRun};

const BLOCK: u64 = 4096;

/// A file whose flusher is the test: freezing it keeps the real flusher away.
fn quiet() -> (Arc<Volume>, Arc<FakeFile>) {
    let volume = Volume::new(BLOCK, 2000, 64 << 20);
    let file = volume.file();
    (volume, file)
}

fn take(file: &FakeFile) -> Option<DirtyRun> {
    file.space().take_dirty(0..u64::MAX, u64::MAX)
}

/// Ends a run as after a successful write: its reservation is no longer needed.
fn end(file: &FakeFile, run: DirtyRun, ok: bool) {
    let units = run.reserved_units;
    file.space().write_back_ended(file, run, ok);
    if ok {
        file.unreserve(units);
    }
}

#[test]
fn adjacent_blocks_come_as_one_run_over_folios_and_spans() {
    let (volume, file) = quiet();
    let _frozen = file.space().freeze();
    let data = pattern(1, 0, 5_000_000);
    file.write(0, &data).unwrap();
    file.write(6_000_000, b"far").unwrap();
    let run = take(&file).expect("it is dirty");
    assert_eq!(run.range, 0..5_000_000_u64.next_multiple_of(BLOCK));
    assert_eq!(run.file_size, 6_000_003);
    assert_eq!(run.reserved_units, run.range.end / BLOCK);
    let mut at = 0;
    for piece in &run.pieces {
        assert_eq!(piece.file_offset, at);
        let bytes = &piece.pages[piece.range.clone()];
        let until = (at as usize + bytes.len()).min(data.len());
        assert!(bytes[..until - at as usize] == data[at as usize..until]);
        at += bytes.len() as u64;
    }
    assert_eq!(at, run.range.end);
    let far = take(&file).expect("it is dirty");
    assert_eq!(far.range.start, 6_000_000 / BLOCK * BLOCK);
    assert!(take(&file).is_none());
    assert!(!file.space().has_dirty(&(0..u64::MAX)));
    assert!(file.space().is_dirty(0..1) && !file.space().is_dirty(5_500_000..5_600_000));
    end(&file, run, true);
    end(&file, far, true);
    assert!(!file.space().is_dirty(0..u64::MAX));
    assert_eq!((file.space().dirty_bytes(), volume.promised()), (0, 0));
    assert_eq!(volume.cache.throttle().dirty_bytes(), 0);
}

#[test]
fn a_run_is_no_longer_than_asked_and_begins_in_the_range() {
    let (_volume, file) = quiet();
    let _frozen = file.space().freeze();
    file.write(0, &pattern(1, 0, 100 * BLOCK as usize)).unwrap();
    let run = file
        .space()
        .take_dirty(10 * BLOCK..50 * BLOCK, 3 * BLOCK)
        .expect("dirty");
    assert_eq!(run.range, 10 * BLOCK..13 * BLOCK);
    assert!(!file.space().has_dirty(&(10 * BLOCK..13 * BLOCK)));
    assert!(file.space().has_dirty(&(10 * BLOCK..13 * BLOCK + 1)));
    let least = file
        .space()
        .take_dirty(50 * BLOCK..60 * BLOCK, 0)
        .expect("dirty");
    assert_eq!(least.range, 50 * BLOCK..51 * BLOCK);
    let rest = file
        .space()
        .take_dirty(48 * BLOCK..60 * BLOCK, u64::MAX)
        .expect("dirty");
    assert_eq!(rest.range, 48 * BLOCK..50 * BLOCK);
    for run in [run, least, rest] {
        end(&file, run, true);
    }
}

#[test]
fn pages_under_write_back_do_not_change_and_are_not_taken_twice() {
    let (volume, file) = quiet();
    let _frozen = file.space().freeze();
    let old = pattern(1, 0, 64 << 10);
    file.write(0, &old).unwrap();
    let first = take(&file).expect("dirty");
    file.write(BLOCK, &[9; 100]).unwrap();
    let piece = &first.pieces[0];
    assert!(piece.pages[piece.range.clone()] == old[..piece.range.len()]);
    assert_eq!(file.read(BLOCK, 100).unwrap(), [9; 100]);
    // The block counts twice, and its newer contents wait.
    assert_eq!(file.space().dirty_bytes(), (64 << 10) + BLOCK);
    assert_eq!(volume.cache.throttle().dirty_bytes(), (64 << 10) + BLOCK);
    assert!(take(&file).is_none());
    end(&file, first, true);
    assert_eq!(file.space().dirty_bytes(), BLOCK);
    let second = take(&file).expect("dirty");
    assert_eq!(second.range, BLOCK..2 * BLOCK);
    assert_eq!(
        second.pieces[0].pages[second.pieces[0].range.clone()][..100],
        [9; 100]
    );
    end(&file, second, true);
    assert_eq!((file.space().dirty_bytes(), volume.promised()), (0, 0));
}

#[test]
fn pages_that_failed_are_dirty_again_and_count_once() {
    let (volume, file) = quiet();
    let _frozen = file.space().freeze();
    let mut data = pattern(1, 0, 10 * BLOCK as usize);
    file.write(0, &data).unwrap();
    assert_eq!(volume.promised(), 10);
    let run = take(&file).expect("dirty");
    data[..5].fill(8);
    file.write(0, &[8; 5]).unwrap();
    assert_eq!(
        (volume.promised(), file.space().dirty_bytes()),
        (11, 11 * BLOCK)
    );
    end(&file, run, false);
    assert_eq!(
        (volume.promised(), file.space().dirty_bytes()),
        (10, 10 * BLOCK)
    );
    assert_eq!(volume.cache.throttle().dirty_bytes(), 10 * BLOCK);
    let run = take(&file).expect("dirty");
    assert_eq!((run.range.clone(), run.reserved_units), (0..10 * BLOCK, 10));
    assert!(run.pieces[0].pages[..4096] == data[..4096]);
    end(&file, run, true);
    assert_eq!(volume.promised(), 0);
    assert_eq!(volume.cache.throttle().dirty_bytes(), 0);
}

#[test]
fn the_run_with_the_end_of_the_file_ends_there() {
    let (_volume, file) = quiet();
    let _frozen = file.space().freeze();
    file.write(0, &[1; 2 << 20]).unwrap();
    let run = take(&file).expect("dirty");
    assert_eq!((run.range.end, run.file_size), (2 << 20, 2 << 20));
    file.write(2 << 20, &[1; 10]).unwrap();
    let next = take(&file).expect("dirty");
    assert_eq!(
        (next.range.start, next.file_size),
        (2 << 20, (2 << 20) + 10)
    );
    end(&file, next, true);
    end(&file, run, true);
}

#[test]
fn nothing_runs_while_frozen_and_a_freeze_waits() {
    let (_volume, file) = quiet();
    let running = file.space().begin_background().expect("not frozen");
    std::thread::scope(|scope| {
        let freezer = scope.spawn(|| {
            let frozen = file.space().freeze();
            assert!(file.space().begin_background().is_none());
            drop(frozen);
        });
        drop(running);
        freezer.join().expect("a freeze");
    });
    assert!(file.space().begin_background().is_some());
}

#[test]
fn repeatedly_failing_blocks_stay_dirty_throughout() {
    let (_volume, file) = quiet();
    let _frozen = file.space().freeze();
    file.write(0, &pattern(1, 0, 5000)).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let run = take(&file).expect("it is dirty");
                end(&file, run, false);
            }
        });
        let is_dirty = (0..1_000_000).all(|_| file.space().is_dirty(0..BLOCK));
        done.store(true, Ordering::Relaxed);
        assert!(is_dirty, "a flush would have found nothing to do");
    });
}
