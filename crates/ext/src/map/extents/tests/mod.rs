//! In-memory trees with tiny nodes, and so with many levels, compared with a map of blocks.

mod hostile;
mod promised;

use throughline_extfmt::FileBlock;
use throughline_testkit::tier::pick;

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::store::{Budget, Nodes, NodesMut, Root};
use super::super::{Kind, Mapping};
use super::node::{MAX_LEN, Node};
use super::*;
use crate::error::Reason;

/// Checks a node on its own: header and order of entries.
fn check_node(bytes: &[u8]) -> Result<()> {
    let node = Node::new(bytes)?;
    if node.len() == 0 {
        return Err(Error::corrupt("empty extent node"));
    }
    let mut before = None;
    for at in 0..node.len() {
        let key = u64::from(node.key(at));
        if before.is_some_and(|b| key < b) {
            return Err(Error::corrupt(format!(
                "extent node's entry {at} overlaps the one before"
            )));
        }
        before = Some(key + 1);
        if node.depth() == 0 {
            let extent = node.extent(at);
            if extent.len == 0 || extent.end() > END {
                return Err(Error::corrupt(format!(
                    "extent of {} blocks at {}",
                    extent.len, extent.block
                )));
            }
            before = Some(extent.end());
        }
    }
    Ok(())
}

/// Nodes in memory; `room` is how many more may be created.
struct Memory {
    root: Root,
    nodes: HashMap<u64, Vec<u8>>,
    freed: HashSet<u64>,
    next: u64,
    node_bytes: usize,
    room: usize,
}

impl Memory {
    fn new(node_bytes: usize) -> Self {
        let (nodes, freed) = (HashMap::new(), HashSet::new());
        Self {
            root: empty_root(),
            nodes,
            freed,
            next: 1 << 33,
            node_bytes,
            room: usize::MAX,
        }
    }
}

impl Nodes for Memory {
    type Node = Vec<u8>;

    fn root(&self) -> Root {
        self.root
    }

    fn node(&self, block: FsBlock) -> Result<Vec<u8>> {
        let bytes = self
            .nodes
            .get(&block.0)
            .expect("a node that is in use")
            .clone();
        check_node(&bytes)?;
        Ok(bytes)
    }

    fn check_entries(&self, node: &[u8]) -> Result<()> {
        check_node(node)
    }

    fn check_run(&self, block: FsBlock, len: u32) -> Result<()> {
        let end = block
            .0
            .checked_add(len.into())
            .ok_or_else(|| Error::corrupt("run"))?;
        if end > 1 << 40 {
            Err(Error::corrupt("run"))
        } else {
            Ok(())
        }
    }
}

impl NodesMut for Memory {
    fn edit_root(&mut self, edit: impl FnOnce(&mut Root)) -> Result<()> {
        edit(&mut self.root);
        Ok(())
    }

    fn edit(&mut self, block: FsBlock, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        edit(self.nodes.get_mut(&block.0).expect("a node that is in use"));
        Ok(())
    }

    fn create(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<FsBlock> {
        self.room = self.room.checked_sub(1).ok_or(Reason::NoSpace)?;
        self.next += 1;
        let mut bytes = vec![0; self.node_bytes];
        fill(&mut bytes);
        self.nodes.insert(self.next, bytes);
        Ok(FsBlock(self.next))
    }

    fn free(&mut self, block: FsBlock) -> Result<()> {
        self.nodes.remove(&block.0).expect("a node is freed once");
        self.freed.insert(block.0);
        self.room = self.room.saturating_add(1);
        Ok(())
    }
}

fn extent(block: u32, len: u32, start: u64, unwritten: bool) -> Extent {
    Extent {
        block: FileBlock(block),
        len,
        start: FsBlock(start),
        unwritten,
    }
}

/// xorshift, seeded.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

type Model = BTreeMap<u32, (u64, bool)>;

/// Walks the whole tree: every node must be reachable once, in order, with none left over; returns blocks and
/// depth.
fn dump(store: &Memory) -> (Model, u16) {
    fn walk(store: &Memory, bytes: &[u8], depth: u16, out: &mut Model, seen: &mut HashSet<u64>) {
        let node = Node::new(bytes).expect("a node");
        assert_eq!(node.depth(), depth);
        for at in 0..node.len() {
            if depth == 0 {
                let e = node.extent(at);
                for i in 0..e.len {
                    let before = out.insert(e.block.0 + i, (e.start.0 + u64::from(i), e.unwritten));
                    assert!(before.is_none(), "block {} mapped twice", e.block.0 + i);
                }
            } else {
                let child = node.child(at).0;
                assert!(seen.insert(child), "node {child} reached twice");
                let bytes = &store.nodes[&child];
                check_node(bytes).expect("a good node");
                assert_eq!(Node::new(bytes).expect("a node").key(0), node.key(at));
                walk(store, bytes, depth - 1, out, seen);
            }
        }
    }
    let (mut out, mut seen) = (Model::new(), HashSet::new());
    let depth = Node::new(&store.root).expect("a root").depth();
    walk(store, &store.root, depth, &mut out, &mut seen);
    assert_eq!(
        seen.len(),
        store.nodes.len(),
        "nodes that nothing points to"
    );
    (out, depth)
}

fn model_lookup(model: &Model, block: u32, max: u32) -> Mapping {
    let first = model.get(&block).copied();
    let mut len = 0;
    while len < max {
        let here = model.get(&(block + len)).copied();
        let same = match (first, here) {
            (None, None) => true,
            (Some((p, u)), Some((q, v))) => u == v && q == p + u64::from(len),
            _ => false,
        };
        if !same {
            break;
        }
        len += 1;
    }
    let kind = match first {
        None => Kind::Hole,
        Some((p, true)) => Kind::Unwritten(FsBlock(p)),
        Some((p, false)) => Kind::Data(FsBlock(p)),
    };
    Mapping {
        kind,
        len_blocks: len,
    }
}

/// Lookups may stop early at a border of extents or leaves, so compare run by run.
fn compare_lookup(store: &Memory, model: &Model, block: u32, max: u32) {
    let expected = model_lookup(model, block, max);
    let (mut at, mut kind) = (0, None);
    while at < expected.len_blocks {
        let found = lookup(store, block + at, max - at).expect("a lookup");
        assert!(
            found.len_blocks >= 1 && at + found.len_blocks <= expected.len_blocks,
            "{found:?} in {expected:?}"
        );
        let base = match found.kind {
            Kind::Hole => Kind::Hole,
            Kind::Data(b) => Kind::Data(FsBlock(b.0 - u64::from(at))),
            Kind::Unwritten(b) => Kind::Unwritten(FsBlock(b.0 - u64::from(at))),
        };
        assert_eq!(*kind.get_or_insert(base), base);
        at += found.len_blocks;
    }
    assert_eq!(kind, Some(expected.kind));
}

struct World {
    store: Memory,
    model: Model,
    random: Random,
    space: u32,
    next_block: u64,
}

impl World {
    fn range(&mut self) -> (u32, u32) {
        let start = self.random.below(self.space.into()) as u32;
        let len = if self.random.below(4) == 0 { 40 } else { 3 };
        let len = 1 + self.random.below(len) as u32;
        (start, (start + len).min(self.space))
    }

    fn insert(&mut self) {
        let (from, to) = self.range();
        let unwritten = self.random.below(3) == 0;
        let mut at = from;
        while at < to {
            let hole = lookup(&self.store, at, to - at).expect("a lookup");
            if hole.kind == Kind::Hole {
                // Sometimes right after the previous block, so that extents merge.
                let before = at
                    .checked_sub(1)
                    .and_then(|b| self.model.get(&b))
                    .map(|(p, _)| p + 1);
                let block = match before {
                    Some(p)
                        if self.random.below(2) == 0 && !self.model.values().any(|v| v.0 == p) =>
                    {
                        p
                    }
                    _ => self.next_block,
                };
                self.next_block += 200;
                let new = extent(at, hole.len_blocks, block, unwritten);
                match insert(&mut self.store, new) {
                    Ok(()) => {
                        for i in 0..hole.len_blocks {
                            self.model.insert(at + i, (block + u64::from(i), unwritten));
                        }
                    }
                    Err(Error::Caller(Reason::NoSpace)) => {}
                    Err(e) => panic!("insert {new:?}: {e}"),
                }
            }
            at += hole.len_blocks;
        }
    }

    fn remove(&mut self) {
        let (from, to) = self.range();
        let mut freed = Vec::new();
        let budget = Budget {
            runs: 2,
            blocks: 1 + self.random.below(30) as u32,
        };
        let mut end = Some(u64::from(to));
        while let Some(e) = end {
            match remove(&mut self.store, from.into(), e, budget, |x| freed.push(x)) {
                Ok(rest) => end = rest,
                Err(Error::Caller(Reason::NoSpace)) => break,
                Err(e) => panic!("remove {from}..{to}: {e}"),
            }
        }
        for e in freed {
            for i in 0..e.len {
                let was = self.model.remove(&(e.block.0 + i));
                assert_eq!(was, Some((e.start.0 + u64::from(i), e.unwritten)));
            }
        }
        if end.is_none() {
            assert_eq!(
                self.model.range(from..to).count(),
                0,
                "{from}..{to} is empty"
            );
        }
    }

    fn convert(&mut self) {
        let (from, to) = self.range();
        let unwritten = self.random.below(2) == 0;
        let (mut at, mut done) = (u64::from(from), u64::from(to));
        loop {
            match set_unwritten(&mut self.store, at, to.into(), unwritten, 1) {
                Ok(Some(next)) => at = next,
                Ok(None) => break,
                Err(Error::Caller(Reason::NoSpace)) => {
                    done = at;
                    // Extents before the failing one are changed; the failing one is not.
                    break;
                }
                Err(e) => panic!("convert {from}..{to}: {e}"),
            }
        }
        for (_, v) in self.model.range_mut(from..done as u32) {
            v.1 = unwritten;
        }
    }

    fn collapse(&mut self) {
        let (from, to) = self.range();
        let by = to - from;
        let room = std::mem::replace(&mut self.store.room, usize::MAX);
        let mut end = Some(u64::from(to));
        while let Some(e) = end {
            end = remove(
                &mut self.store,
                from.into(),
                e,
                Budget {
                    runs: 3,
                    blocks: 20,
                },
                drop,
            )
            .expect("remove");
        }
        let mut cursor = Some(u64::from(to));
        while let Some(c) = cursor {
            cursor = shift_left(&mut self.store, c, by, 1).expect("shift");
        }
        self.store.room = room;
        let moved = |k: u32| if k >= to { k - by } else { k };
        self.model = self
            .model
            .iter()
            .filter(|(k, _)| !(from..to).contains(k))
            .map(|(k, v)| (moved(*k), *v))
            .collect();
    }

    fn spread(&mut self) {
        let (from, to) = self.range();
        let by = to - from;
        let room = std::mem::replace(&mut self.store.room, usize::MAX);
        split_at(&mut self.store, from).expect("split");
        let mut cursor = Some(END);
        while let Some(c) = cursor {
            cursor = shift_right(&mut self.store, from.into(), c, by, 1).expect("shift");
        }
        self.store.room = room;
        self.model = self
            .model
            .iter()
            .map(|(k, v)| (if *k >= from { k + by } else { *k }, *v))
            .collect();
        // Keep the space constant.
        remove(&mut self.store, self.space.into(), END, Budget::ALL, drop).expect("remove");
        self.model.split_off(&self.space);
    }
}

#[test]
fn random_changes_agree_with_a_map() {
    let mut deepest = 0;
    for seed in 1..=pick(12, 24, 24u64) {
        println!("seed {seed}");
        let node_bytes = [60, 72, 100, 160][seed as usize % 4];
        let mut world = World {
            store: Memory::new(node_bytes),
            model: Model::new(),
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            space: if seed % 3 == 0 { 4000 } else { 400 },
            next_block: 1000,
        };
        for step in 0..1500 {
            if step == 700 && seed % 2 == 0 {
                world.store.room = 3;
            }
            match world.random.below(100) {
                0..50 => world.insert(),
                50..75 => world.remove(),
                75..95 => world.convert(),
                95..98 => world.collapse(),
                _ => world.spread(),
            }
            if step % 8 == 0 {
                let (blocks, depth) = dump(&world.store);
                deepest = deepest.max(depth);
                assert_eq!(blocks, world.model, "seed {seed} step {step}");
                let (from, to) = world.range();
                compare_lookup(&world.store, &world.model, from, to - from);
            }
        }
        remove(&mut world.store, 0, END, Budget::ALL, drop).expect("remove all");
        assert!(world.store.nodes.is_empty());
        assert_eq!(world.store.root, empty_root());
    }
    assert!(deepest >= 4, "trees were only {deepest} deep");
}

#[test]
fn appended_runs_grow_one_extent() {
    let mut store = Memory::new(1024);
    for i in 0..64u32 {
        insert(
            &mut store,
            extent(i * 1024, 1024, 5000 + u64::from(i) * 1024, false),
        )
        .expect("insert");
    }
    let root = Node::new(&store.root).expect("root");
    assert_eq!(
        (root.depth(), root.len()),
        (0, 2),
        "two extents of the greatest length"
    );
    assert_eq!(
        lookup(&store, 0, u32::MAX).expect("lookup").len_blocks,
        MAX_LEN
    );
}

#[test]
fn appending_fills_leaves() {
    let mut store = Memory::new(1024);
    for i in 0..20_000u32 {
        insert(&mut store, extent(i * 2, 1, 5000 + u64::from(i) * 3, false)).expect("insert");
    }
    let (_, depth) = dump(&store);
    assert_eq!(depth, 2);
    assert!(
        store.nodes.len() < 20_000 / 80,
        "{} nodes",
        store.nodes.len()
    );
}

#[test]
fn a_full_depth_tree_refuses_more() {
    let mut store = Memory::new(60);
    let mut count = 0u32;
    let error = loop {
        let new = extent(count * 2, 1, 5000 + u64::from(count) * 3, false);
        match insert(&mut store, new) {
            Ok(()) => count += 1,
            Err(e) => break e,
        }
        assert!(count < 100_000);
    };
    assert!(matches!(error, Error::Caller(Reason::TooLarge)), "{error}");
    let (blocks, depth) = dump(&store);
    assert_eq!((blocks.len() as u32, depth), (count, 5));
}
