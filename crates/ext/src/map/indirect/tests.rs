//! Maps in memory with small tables against a map of blocks, to the triple level.

use std::collections::{BTreeMap, HashMap};

use super::super::store::{Budget, NodesMut, Root};
use super::*;
use crate::error::{Error, Reason};

const BLOCK: u32 = 64;

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
fn routes_cover_every_block_once() {
    let per = 16;
    let mut seen = std::collections::HashSet::new();
    for block in 0..capacity(BLOCK) as u32 {
        let route = Route::new(block, BLOCK).expect("in range");
        assert!(seen.insert((route.levels, route.slots)), "block {block}");
        assert!(route.slots[1..].iter().all(|s| *s < per));
    }
    assert_eq!(capacity(BLOCK), 12 + 16 + 256 + 4096);
    assert_eq!(Route::new(capacity(BLOCK) as u32, BLOCK), None);
    assert_eq!(tables_of(12, BLOCK), 0);
    assert_eq!(tables_of(13, BLOCK), 1);
    assert_eq!(tables_of(12 + 16 + 1, BLOCK), 3);
    assert_eq!(tables_of(capacity(BLOCK), BLOCK), 1 + 17 + 1 + 16 + 256);
}

#[test]
fn random_changes_agree_with_a_map() {
    for seed in 1..=12u64 {
        println!("seed {seed}");
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut store = memory();
        let mut model: BTreeMap<u32, u64> = BTreeMap::new();
        let space = capacity(BLOCK);
        let mut next = 1u64;
        for step in 0..1500 {
            store.room = if random.below(8) == 0 { 1 } else { usize::MAX };
            let from = random.below(space) as u32;
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
                let budget = Budget { runs: 3, blocks: 1 + random.below(50) as u32 };
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
                for block in 0..space as u32 {
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
    insert(&mut store, 0, 100, 500, BLOCK).expect("insert");
    let found = lookup(&store, 12, 100, BLOCK).expect("lookup");
    assert_eq!(
        found,
        Mapping {
            kind: Kind::Data(FsBlock(512)),
            len_blocks: 16
        }
    );
    assert_eq!(
        lookup(&store, 100, u32::MAX, BLOCK).expect("lookup").kind,
        Kind::Hole
    );
    assert!(matches!(
        insert(&mut store, 50, 1, 900, BLOCK),
        Err(Error::Corrupt(_))
    ));
    let far = capacity(BLOCK) as u32;
    assert!(matches!(
        insert(&mut store, far, 1, 900, BLOCK),
        Err(Error::Caller(Reason::TooLarge))
    ));
}
