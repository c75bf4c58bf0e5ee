//! Parts of a block with checksums of their own: checked once per load, summed once per transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_extfmt::{Corrupt, FsBlock};
use throughline_journal::{Budget, Journal, Part, Sum};

use super::{BLOCK, evict_all, journal, journal_with, memory, on_device};

/// Parts of 16 bytes; the first byte is the sum of the others and the part's number.
#[derive(Default)]
struct Adder {
    runs: AtomicU64,
}

const PART_BYTES: usize = 16;

fn right(block: &[u8], part: Part) -> u8 {
    let at = part.index as usize * PART_BYTES;
    let others = &block[at + 1..at + PART_BYTES];
    others
        .iter()
        .fold(part.number as u8, |sum, byte| sum.wrapping_add(*byte))
}

impl Sum for Adder {
    fn set(&self, block: &mut [u8], part: Part) {
        block[part.index as usize * PART_BYTES] = right(block, part);
        self.runs.fetch_add(1, Ordering::Relaxed);
    }
}

fn check(block: &[u8], part: Part) -> Result<(), Corrupt> {
    match block[part.index as usize * PART_BYTES] == right(block, part) {
        true => Ok(()),
        false => Err(Corrupt::new("wrong sum")),
    }
}

const PLACE: FsBlock = FsBlock(9);
const PART: Part = Part {
    index: 200,
    number: 1200,
};

fn set(journal: &Journal, sum: &Arc<dyn Sum>, value: u8) -> throughline_journal::Result<()> {
    let mut handle = journal.begin(1)?;
    let changed = handle.modify_part(
        PLACE,
        (PART, sum),
        |block| check(block, PART),
        |block| block[PART.index as usize * PART_BYTES + 5] = value,
    );
    handle.stop().and(changed)
}

#[test]
fn a_part_is_summed_once_per_transaction_and_checked_once_per_load() {
    let device = memory();
    let few = Budget {
        clean_bytes: 32 * u64::from(BLOCK),
        ..Budget::default()
    };
    let journal = journal_with(&device, few);
    let adder = Arc::new(Adder::default());
    let sum = Arc::clone(&adder) as Arc<dyn Sum>;

    // The block of zeroes has a wrong sum, as the part's number is not 0.
    assert!(set(&journal, &sum, 1).is_err());
    assert!(
        journal
            .read_part(PLACE, PART.index, |block| check(block, PART))
            .is_err()
    );
    assert_eq!(journal.dirty_bytes(), 0);
    let mut handle = journal.begin(1).unwrap();
    let made = handle.modify_part(PLACE, (PART, &sum), |_| Ok(()), |_| ());
    made.unwrap();
    handle.stop().unwrap();
    journal.sync().unwrap();
    check(&on_device(&device, PLACE.0), PART).unwrap();

    let runs = adder.runs.load(Ordering::Relaxed);
    for value in 1..=5 {
        set(&journal, &sum, value).unwrap();
        let seen = journal.read_part(PLACE, PART.index, |block| check(block, PART));
        assert_eq!(seen.unwrap()[PART.index as usize * PART_BYTES + 5], value);
    }
    assert_eq!(adder.runs.load(Ordering::Relaxed), runs);
    let snapshot = journal.read(PLACE).unwrap();
    journal.sync().unwrap();
    assert_eq!(adder.runs.load(Ordering::Relaxed), runs + 1);
    let written = on_device(&device, PLACE.0);
    check(&written, PART).unwrap();
    assert_eq!(written[PART.index as usize * PART_BYTES + 5], 5);
    assert!(check(&snapshot, PART).is_err(), "a snapshot has changed");
    drop(snapshot);

    // Loaded again, it is checked again; another part of the block is checked on its own.
    evict_all(&journal);
    let mut checks = 0;
    for _ in 0..2 {
        let counted = |block: &[u8]| {
            checks += 1;
            check(block, PART)
        };
        journal.read_part(PLACE, PART.index, counted).unwrap();
    }
    assert_eq!(checks, 1);
    let other = Part {
        index: 1,
        number: 1001,
    };
    assert!(
        journal
            .read_part(PLACE, 1, |block| check(block, other))
            .is_err()
    );
}

#[test]
fn a_created_block_forgets_its_parts() {
    let device = memory();
    let journal = journal(&device);
    let sum = Arc::new(Adder::default()) as Arc<dyn Sum>;
    let mut handle = journal.begin(1).unwrap();
    handle
        .modify_part(PLACE, (PART, &sum), |_| Ok(()), |_| ())
        .unwrap();
    handle.create(PLACE, |_| ()).unwrap();
    handle.stop().unwrap();
    assert!(
        journal
            .read_part(PLACE, PART.index, |block| check(block, PART))
            .is_err()
    );
    journal.sync().unwrap();
    assert!(on_device(&device, PLACE.0).iter().all(|&byte| byte == 0));
}
