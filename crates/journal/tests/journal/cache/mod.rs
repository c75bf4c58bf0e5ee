//! The metadata cache, and commits without a log: snapshots, home writes, eviction, checks, faults, threads.

mod gate;
mod parts;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use throughline_block::Disk;
use throughline_device::{BlockDevice, MemoryDevice, Op};
use throughline_extfmt::{Corrupt, FsBlock};
use throughline_journal::{Abort, Budget, Error, Journal};
use throughline_testing::{Fault, FaultDevice};

const BLOCK: u32 = 4096;
const BLOCKS: u64 = 2048;

/// No commits by age.
const NEVER: Duration = Duration::from_secs(3600);

fn memory() -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)))
}

fn journal_with(device: &Arc<dyn BlockDevice>, budget: Budget) -> Journal {
    let disk = Arc::new(Disk::new(Arc::clone(device)).unwrap());
    Journal::without_journal(disk, BLOCK, budget, NEVER).unwrap()
}

fn journal(device: &Arc<dyn BlockDevice>) -> Journal {
    journal_with(device, Budget::default())
}

/// The content on the device, read without any cache.
fn on_device(device: &Arc<dyn BlockDevice>, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK as usize];
    Disk::new(Arc::clone(device))
        .unwrap()
        .read_at(block * u64::from(BLOCK), &mut bytes)
        .unwrap();
    bytes
}

fn put(journal: &Journal, block: u64, byte: u8) {
    let mut handle = journal.begin(1).unwrap();
    handle
        .modify(FsBlock(block), |bytes| bytes.fill(byte))
        .unwrap();
    handle.stop().unwrap();
}

#[test]
fn a_change_is_home_after_sync_and_not_before() {
    let device = memory();
    let journal = journal(&device);
    put(&journal, 7, 0xaa);
    assert_eq!(journal.read(FsBlock(7)).unwrap()[0], 0xaa);
    assert_eq!(on_device(&device, 7)[0], 0);
    assert_eq!(journal.dirty_bytes(), u64::from(BLOCK));
    journal.sync().unwrap();
    assert_eq!(on_device(&device, 7), vec![0xaa; BLOCK as usize]);
    assert_eq!(journal.dirty_bytes(), 0);
    assert_eq!(journal.status().credit_overruns, 0);
}

#[test]
fn a_snapshot_never_changes() {
    let device = memory();
    let journal = journal(&device);
    put(&journal, 3, 1);
    let before = journal.read(FsBlock(3)).unwrap();
    put(&journal, 3, 2);
    let mut handle = journal.begin(1).unwrap();
    let between = journal.read(FsBlock(3)).unwrap();
    handle.create(FsBlock(3), |bytes| bytes[0] = 3).unwrap();
    handle.stop().unwrap();
    assert_eq!((before[0], before[9], between[0]), (1, 1, 2));
    let after = journal.read(FsBlock(3)).unwrap();
    assert_eq!((after[0], after[1]), (3, 0));
}

#[test]
fn create_reads_nothing_and_shows_zeroes() {
    let counting = Arc::new(FaultDevice::counting(memory()));
    let device: Arc<dyn BlockDevice> = Arc::clone(&counting) as _;
    let journal = journal(&device);
    let mut handle = journal.begin(1).unwrap();
    handle
        .create(FsBlock(5), |bytes| {
            assert!(bytes.iter().all(|byte| *byte == 0))
        })
        .unwrap();
    handle.stop().unwrap();
    assert_eq!(counting.requests(), 0);
}

#[test]
fn forgotten_blocks_are_not_written() {
    let device = memory();
    let journal = journal(&device);
    put(&journal, 4, 0x44);
    put(&journal, 5, 0x55);
    let mut handle = journal.begin(2).unwrap();
    handle.forget(FsBlock(4));
    handle.forget(FsBlock(5));
    handle.stop().unwrap();
    assert_eq!(journal.status().resident_bytes, 0);
    assert_eq!(journal.dirty_bytes(), 0);
    journal.sync().unwrap();
    assert_eq!((on_device(&device, 4)[0], on_device(&device, 5)[0]), (0, 0));
    assert_eq!(
        journal.read(FsBlock(4)).unwrap()[0],
        0,
        "read from the device"
    );
}

#[test]
fn a_check_runs_once_per_load_and_again_while_it_fails() {
    let device = memory();
    let journal = journal(&device);
    let runs = AtomicU64::new(0);
    let read = |good: bool| {
        journal.read_checked(FsBlock(9), |_| {
            runs.fetch_add(1, Ordering::Relaxed);
            if good {
                Ok(())
            } else {
                Err(Corrupt::new("bad sum"))
            }
        })
    };
    let error = read(false).unwrap_err();
    assert_eq!(error.to_string(), "corrupt: block 9: bad sum");
    read(false).unwrap_err();
    read(true).unwrap();
    read(false).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    let mut handle = journal.begin(1).unwrap();
    handle.forget(FsBlock(9));
    handle.stop().unwrap();
    read(true).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 4);

    let mut handle = journal.begin(1).unwrap();
    let refused = handle.modify_checked(
        FsBlock(10),
        |_| Err(Corrupt::new("no")),
        |bytes| bytes[0] = 1,
    );
    assert!(matches!(
        refused,
        Err(Error::Corrupt {
            block: Some(FsBlock(10)),
            ..
        })
    ));
    drop(handle); // it changed nothing
    assert!(journal.aborted().is_none());
    assert_eq!(journal.dirty_bytes(), 0);
}

/// Overwrites a block on the device with content that fails its check.
fn turns_bad(device: &Arc<dyn BlockDevice>, block: u64) {
    let disk = Disk::new(Arc::clone(device)).unwrap();
    let bad = vec![0xbd; BLOCK as usize];
    disk.write_at(block * u64::from(BLOCK), &bad, false)
        .unwrap();
}

fn is_good(bytes: &[u8]) -> core::result::Result<(), Corrupt> {
    match bytes[0] {
        0 => Ok(()),
        _ => Err(Corrupt::new("bad")),
    }
}

/// Reads enough blocks to evict all others.
fn evict_all(journal: &Journal) {
    for block in 100..300 {
        journal.read(FsBlock(block)).unwrap();
    }
}

#[test]
fn checked_blocks_are_not_reloaded_before_the_change() {
    let device = memory();
    let budget = Budget {
        clean_bytes: 32 * u64::from(BLOCK),
        dirty_bytes: 32 * u64::from(BLOCK),
    };
    let journal = journal_with(&device, budget);
    // Would be evicted during the check if the cache did not hold it.
    let mut handle = journal.begin(1).unwrap();
    let check = |bytes: &[u8]| {
        turns_bad(&device, 9);
        evict_all(&journal);
        is_good(bytes)
    };
    let found = handle.modify_checked(FsBlock(9), check, |bytes| bytes[1]);
    assert_eq!(found.unwrap(), 0);
    handle.stop().unwrap();
    // Would be evicted between the read and the change if the snapshot did not hold it.
    let seen = journal.read_checked(FsBlock(10), is_good).unwrap();
    turns_bad(&device, 10);
    evict_all(&journal);
    let mut handle = journal.begin(2).unwrap();
    assert_eq!(
        handle.modify(FsBlock(10), |bytes| bytes[1]).unwrap(),
        seen[1]
    );
    drop(seen);
    // Without a holder it is evicted, and checked again.
    drop(journal.read_checked(FsBlock(11), is_good).unwrap());
    turns_bad(&device, 11);
    evict_all(&journal);
    let refused = handle.modify_checked(FsBlock(11), is_good, |bytes| bytes[1]);
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    handle.stop().unwrap();
}

#[test]
fn clean_blocks_stay_within_the_budget_and_dirty_ones_near_it() {
    let device = memory();
    let budget = Budget {
        clean_bytes: 64 * u64::from(BLOCK),
        dirty_bytes: 32 * u64::from(BLOCK),
    };
    let journal = journal_with(&device, budget);
    for block in 0..BLOCKS {
        journal.read(FsBlock(block)).unwrap();
        assert!(journal.status().resident_bytes <= budget.clean_bytes);
    }
    for block in 0..BLOCKS {
        put(&journal, block, block as u8);
        let status = journal.status();
        assert!(status.dirty_bytes <= budget.dirty_bytes + u64::from(BLOCK));
        assert!(status.resident_bytes <= budget.clean_bytes + status.dirty_bytes);
    }
    journal.sync().unwrap();
    for block in 0..BLOCKS {
        assert_eq!(journal.read(FsBlock(block)).unwrap()[77], block as u8);
        assert_eq!(on_device(&device, block)[77], block as u8);
    }
}

#[test]
fn readahead_saves_the_reads() {
    let counting = Arc::new(FaultDevice::counting(memory()));
    let device: Arc<dyn BlockDevice> = Arc::clone(&counting) as _;
    let journal = journal(&device);
    let blocks: Vec<FsBlock> = (0..64)
        .rev()
        .map(FsBlock)
        .chain([FsBlock(u64::MAX), FsBlock(BLOCKS)])
        .collect();
    journal.readahead(&blocks);
    let after = counting.requests();
    assert!(after > 0);
    for block in 0..64 {
        journal.read(FsBlock(block)).unwrap();
    }
    assert_eq!(counting.requests(), after);
}

#[test]
fn blocks_past_the_end_are_corrupt_not_read() {
    let device = memory();
    let journal = journal(&device);
    for block in [BLOCKS, u64::MAX / u64::from(BLOCK), u64::MAX] {
        assert!(
            matches!(journal.read(FsBlock(block)), Err(Error::Corrupt { .. })),
            "{block}"
        );
    }
}

#[test]
fn an_operation_left_half_way_stops_all_changes() {
    let device = memory();
    let journal = journal(&device);
    put(&journal, 1, 0x11);
    drop(journal.begin(1).unwrap()); // touched nothing: no harm
    assert!(journal.aborted().is_none());
    let mut handle = journal.begin(2).unwrap();
    handle.modify(FsBlock(2), |bytes| bytes.fill(0x22)).unwrap();
    drop(handle);
    assert!(matches!(
        journal.aborted().as_deref(),
        Some(Abort::HalfDone { blocks: 1 })
    ));
    assert!(matches!(journal.begin(1), Err(Error::Aborted(_))));
    assert!(matches!(journal.sync(), Err(Error::Aborted(_))));
    assert_eq!((on_device(&device, 1)[0], on_device(&device, 2)[0]), (0, 0));
    assert_eq!(
        journal.read(FsBlock(1)).unwrap()[0],
        0x11,
        "reading still works"
    );
}

#[test]
fn a_panic_in_a_change_leaves_nothing_locked() {
    let device = memory();
    let journal = journal(&device);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut handle = journal.begin(1).unwrap();
        let _ = handle.modify(FsBlock(2), |bytes| {
            bytes[0] = 1;
            panic!("a bug in the layer above");
        });
    }));
    assert!(result.is_err());
    assert!(journal.aborted().is_some());
    journal.read(FsBlock(2)).unwrap();
}

#[test]
fn a_read_only_journal_takes_no_changes() {
    let device = memory();
    let disk = Arc::new(Disk::new(Arc::clone(&device)).unwrap());
    let journal = Journal::read_only(disk, BLOCK, Budget::default()).unwrap();
    assert!(matches!(journal.begin(1), Err(Error::ReadOnly)));
    journal.sync().unwrap();
    for bytes in [0, 512, 3000, 131_072] {
        let disk = Arc::new(Disk::new(Arc::clone(&device)).unwrap());
        assert!(
            matches!(
                Journal::without_journal(disk, bytes, Budget::default(), NEVER),
                Err(Error::Caller(_))
            ),
            "{bytes}"
        );
    }
}

#[test]
fn credits_are_counted() {
    let device = memory();
    let journal = journal(&device);
    let mut handle = journal.begin(1).unwrap();
    for block in [1, 1, 2, 3] {
        handle.modify(FsBlock(block), |_| ()).unwrap();
    }
    assert_eq!(handle.credits_left(), 0);
    handle.stop().unwrap();
    assert_eq!(journal.status().credit_overruns, 2);
}

/// For every n, the n-th request fails: no change is lost after a `sync` that returned `Ok`, and after the
/// first failed write every later `begin` and `sync` returns an error.
#[test]
fn every_fault_is_reported() {
    const SCRIPT: u64 = 40;
    let run = |device: &Arc<dyn BlockDevice>| -> BTreeSet<u64> {
        let journal = journal_with(
            device,
            Budget {
                clean_bytes: 4 * u64::from(BLOCK),
                dirty_bytes: 8 * u64::from(BLOCK),
            },
        );
        let (mut done, mut safe) = (BTreeSet::new(), BTreeSet::new());
        for step in 0..SCRIPT {
            let dead = journal.aborted().is_some();
            match journal.begin(1) {
                Ok(mut handle) => {
                    assert!(!dead, "a begin after an abort");
                    if handle
                        .modify(FsBlock(step * 3), |bytes| bytes.fill(step as u8 + 1))
                        .is_ok()
                    {
                        handle.stop().unwrap();
                        done.insert(step);
                    }
                }
                Err(error) => assert!(matches!(error, Error::Aborted(_)), "{error}"),
            }
            if step % 10 == 9 {
                match journal.sync() {
                    Ok(()) => safe.clone_from(&done),
                    Err(_) => assert!(journal.aborted().is_some()),
                }
            }
        }
        safe
    };
    let counting = Arc::new(FaultDevice::counting(memory()));
    let whole = run(&(Arc::clone(&counting) as Arc<dyn BlockDevice>));
    assert_eq!(whole.len() as u64, SCRIPT);
    for n in 0..counting.requests() {
        for fault in [
            Fault::Once(n),
            Fault::From(n),
            Fault::AfterDone(n),
            Fault::Torn(n),
        ] {
            let below = memory();
            let device: Arc<dyn BlockDevice> =
                Arc::new(FaultDevice::new(Arc::clone(&below), fault));
            for step in run(&device) {
                assert_eq!(on_device(&below, step * 3)[5], step as u8 + 1, "{fault:?}");
            }
        }
    }
}

/// Blocks whose write failed stay dirty and readable, however many others are read.
#[test]
fn a_failed_write_loses_nothing_in_memory() {
    let device: Arc<dyn BlockDevice> =
        Arc::new(FaultDevice::new(memory(), Fault::From(0)).only(&[Op::Write]));
    let budget = Budget {
        clean_bytes: 4 * u64::from(BLOCK),
        dirty_bytes: 64 * u64::from(BLOCK),
    };
    let journal = journal_with(&device, budget);
    for block in 0..16 {
        put(&journal, block, 0x77);
    }
    assert!(
        matches!(journal.sync(), Err(Error::Aborted(reason)) if matches!(*reason, Abort::Write(_)))
    );
    assert_eq!(journal.dirty_bytes(), 16 * u64::from(BLOCK));
    for block in 0..BLOCKS {
        let byte = journal.read(FsBlock(block)).unwrap()[0];
        assert_eq!(byte, if block < 16 { 0x77 } else { 0 });
    }
    for block in 0..16 {
        assert_eq!(journal.read(FsBlock(block)).unwrap()[0], 0x77);
    }
}

/// Threads change counters in shared blocks, read them whole, evict, write home and recreate, with a cache
/// that is far too small. No change is lost, no snapshot is torn, and everything is on the device at the end.
#[test]
fn many_threads_lose_nothing() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 3000;
    const SHARED: u64 = 97;
    let device = memory();
    let budget = Budget {
        clean_bytes: 24 * u64::from(BLOCK),
        dirty_bytes: 16 * u64::from(BLOCK),
    };
    let journal = journal_with(&device, budget);
    let running = AtomicBool::new(true);
    let mut counts = vec![0_u64; SHARED as usize];
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|seed| {
                let journal = &journal;
                scope.spawn(move || work(journal, seed, ROUNDS, SHARED))
            })
            .collect();
        scope.spawn(|| {
            while running.load(Ordering::Relaxed) {
                journal.sync().unwrap();
                let blocks: Vec<FsBlock> = (0..SHARED).map(FsBlock).collect();
                journal.readahead(&blocks);
            }
        });
        for worker in workers {
            for (total, mine) in counts.iter_mut().zip(worker.join().unwrap()) {
                *total += mine;
            }
        }
        running.store(false, Ordering::Relaxed);
    });
    journal.sync().unwrap();
    let status = journal.status();
    assert_eq!(status.dirty_bytes, 0);
    assert!(status.resident_bytes <= budget.clean_bytes);
    for (block, count) in counts.iter().enumerate() {
        let bytes = on_device(&device, block as u64);
        assert!(
            bytes.chunks(8).all(|word| word == count.to_le_bytes()),
            "block {block}"
        );
    }
}

/// One thread of [`many_threads_lose_nothing`]. Returns how often it incremented each shared block.
fn work(journal: &Journal, seed: u64, rounds: u64, shared: u64) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut raised = vec![0; shared as usize];
    for round in 0..rounds {
        let block = random.u64(..shared);
        match random.u8(..8) {
            0..4 => {
                let mut handle = journal.begin(1).unwrap();
                handle
                    .modify(FsBlock(block), |bytes| {
                        for word in bytes.chunks_exact_mut(8) {
                            let old = u64::from_le_bytes(word.try_into().unwrap());
                            word.copy_from_slice(&(old + 1).to_le_bytes());
                        }
                    })
                    .unwrap();
                handle.stop().unwrap();
                raised[block as usize] += 1;
            }
            4..7 => {
                let snapshot = journal.read(FsBlock(block)).unwrap();
                assert!(
                    snapshot.chunks(8).all(|word| word == &snapshot[..8]),
                    "torn, seed {seed}"
                );
            }
            _ => {
                // Create, and perhaps forget, a block that only this thread uses.
                let own = FsBlock(shared + seed);
                let mut handle = journal.begin(1).unwrap();
                handle.create(own, |bytes| bytes.fill(round as u8)).unwrap();
                if random.bool() {
                    handle.forget(own);
                }
                handle.stop().unwrap();
            }
        }
    }
    raised
}
