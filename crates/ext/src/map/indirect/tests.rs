//! In-memory maps with small tables, compared with a map of blocks, up to the triple level.

use std::collections::{BTreeMap, HashMap};

use throughline_testkit::tier::pick;

use super::super::store::{Budget, NodesMut, Root};
use super::*;
use crate::error::{Error, Reason};

const BLOCK: u32 = 1024;
/// Number of pointers in a table.
const PER: u64 = 256;

fn capacity() -> u64 {
    12 + PER + PER * PER + PER * PER * PER
}

/// Blocks at the borders between levels.
fn borders() -> [u64; 6] {
    let double = 12 + PER;
    let triple = double + PER * PER;
    [0, 12, double, triple, triple + PER * PER, capacity()]
}

/// Blocks around a border.
fn around(border: u64) -> std::ops::Range<u32> {
    border.saturating_sub(600) as u32..(border + 600).min(capacity()) as u32
}

struct Memory {
    root: Root,
    tables: HashMap<u64, Vec<u8>>,
    next: u64,
    room: usize,
}

impl Nodes for Memory {
    type Node = Vec<u8>;

    fn root(&self) -> Root {
        self.root
    }

    fn node(&self, block: FsBlock) -> Result<Vec<u8>> {
        self.tables
            .get(&block.0)
            .cloned()
            .ok_or_else(|| Error::corrupt("no such table"))
    }

    fn check_entries(&self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn check_run(&self, _: FsBlock, _: u32) -> Result<()> {
        Ok(())
    }
}

impl NodesMut for Memory {
    fn edit_root(&mut self, edit: impl FnOnce(&mut Root)) -> Result<()> {
        edit(&mut self.root);
        Ok(())
    }

    fn edit(&mut self, block: FsBlock, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        self.tables
            .get_mut(&block.0)
            .map(|t| edit(t))
            .ok_or_else(|| Error::corrupt("no such table"))
    }

    fn create(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<FsBlock> {
        self.room = self.room.checked_sub(1).ok_or(Reason::NoSpace)?;
        self.next += 1;
        let mut bytes = vec![0; BLOCK as usize];
        fill(&mut bytes);
        self.tables.insert(self.next, bytes);
        Ok(FsBlock(self.next))
    }

    fn free(&mut self, block: FsBlock) -> Result<()> {
        self.tables
            .remove(&block.0)
            .map(drop)
            .ok_or_else(|| Error::corrupt("freed twice"))
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn memory() -> Memory {
    Memory {
        root: [0; 60],
        tables: HashMap::new(),
        next: 1 << 24,
        room: usize::MAX,
    }
}

#[test]
fn routes_lead_to_one_slot_each() {
    let mut seen = std::collections::HashSet::new();
    let mut blocks: Vec<u32> = borders().into_iter().flat_map(around).collect();
    blocks.sort_unstable();
    blocks.dedup();
    for block in blocks {
        let route = Route::new(block, BLOCK).expect("in range");
        assert!(seen.insert((route.levels, route.slots)), "block {block}");
        assert!(route.slots[1..].iter().all(|s| *s < PER as usize));
    }
    assert_eq!(Route::new(capacity() as u32, BLOCK), None);
}

#[test]
fn random_changes_agree_with_a_map() {
    for seed in 1..=pick(4, 12, 12u64) {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut store = memory();
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        let borders = borders();
        let mut next = 1u64;
        for step in 0..1500 {
            store.room = if random.below(8) == 0 { 1 } else { usize::MAX };
            let window = around(borders[random.below(borders.len() as u64) as usize]);
            let space = u64::from(window.end);
            let from = window.start + random.below(window.len() as u64) as u32;
            let longest = if random.below(3) == 0 { 400 } else { 20 };
            let to = (u64::from(from) + 1 + random.below(longest)).min(space) as u32;
            if random.below(5) < 3 {
                let mut at = from;
                while at < to {
                    let found = lookup(&store, at, to - at, BLOCK).expect("lookup");
                    let len = found.len_blocks;
                    if found.kind == Kind::Hole {
                        let missing = missing_tables(&store, at, len, BLOCK).expect("count");
                        let before = store.tables.len();
                        match insert(&mut store, at, len, next, BLOCK) {
                            Ok(()) => {
                                assert_eq!(store.tables.len() - before, missing as usize);
                                model.extend((0..len).map(|i| (at + i, next + u64::from(i))));
                            }
                            Err(Error::Caller(Reason::NoSpace)) => {}
                            Err(e) => panic!("{e}"),
                        }
                        next += u64::from(len) + random.below(2);
                    } else {
                        let Kind::Data(block) = found.kind else {
                            panic!("{found:?}")
                        };
                        for i in 0..len {
                            assert_eq!(model.get(&(at + i)), Some(&(block.0 + u64::from(i))));
                        }
                    }
                    at += len;
                }
            } else {
                let budget = Budget {
                    runs: 3,
                    blocks: 1 + random.below(50) as u32,
                };
                let mut end = Some(u64::from(to));
                while let Some(e) = end {
                    end = remove(&mut store, from.into(), e, budget, BLOCK, |run| {
                        for i in 0..run.len {
                            assert_eq!(
                                model.remove(&(run.block.0 + i)),
                                Some(run.start.0 + u64::from(i))
                            );
                        }
                    })
                    .expect("remove");
                }
                assert_eq!(model.range(from..to).count(), 0);
            }
            if step % 50 == 0 {
                for block in borders.into_iter().flat_map(around) {
                    let found = lookup(&store, block, 1, BLOCK).expect("lookup").kind;
                    let expected = model
                        .get(&block)
                        .map_or(Kind::Hole, |b| Kind::Data(FsBlock(*b)));
                    assert_eq!(found, expected, "seed {seed} step {step} block {block}");
                }
            }
        }
        remove(&mut store, 0, u64::MAX, Budget::ALL, BLOCK, drop).expect("remove all");
        assert_eq!(store.root, [0; 60]);
        assert!(store.tables.is_empty());
    }
}

#[test]
fn a_run_within_a_table_is_one_lookup() {
    let mut store = memory();
    insert(&mut store, 0, 1000, 5000, BLOCK).expect("insert");
    let found = lookup(&store, 12, 1000, BLOCK).expect("lookup");
    assert_eq!(
        found,
        Mapping {
            kind: Kind::Data(FsBlock(5012)),
            len_blocks: 256
        }
    );
    assert_eq!(
        lookup(&store, 1000, u32::MAX, BLOCK).expect("lookup").kind,
        Kind::Hole
    );
    assert!(matches!(
        insert(&mut store, 50, 1, 9000, BLOCK),
        Err(Error::Corrupt(_))
    ));
    let far = capacity() as u32;
    assert!(matches!(
        insert(&mut store, far, 1, 900, BLOCK),
        Err(Error::Caller(Reason::TooLarge))
    ));
}
