//! Extent nodes against a vector of extents.

use proptest::prelude::*;
use throughline_extfmt::extent::{self, Expect, Extent, Index, Node, NodeMut};
use throughline_extfmt::{FileBlock, FsBlock};
use throughline_testkit::cases::config;

use crate::common;

fn extent(seed: u64) -> Extent {
    let unwritten = seed & 1 == 1;
    Extent {
        block: FileBlock((seed >> 8) as u32),
        len: 1
            + (seed >> 40) as u32
                % if unwritten {
                    extent::MAX_UNWRITTEN_LEN
                } else {
                    extent::MAX_LEN
                },
        start: FsBlock(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16),
        unwritten,
    }
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn entries_round_trip(seed: u64) {
        let mut bytes = [0u8; 60];
        let mut node = NodeMut::init(&mut bytes, 0).unwrap();
        prop_assert!(node.insert_extent(0, extent(seed)));
        prop_assert_eq!(node.as_node().extent(0), Some(extent(seed)));
        let index = Index { block: FileBlock(seed as u32), child: FsBlock(seed >> 16) };
        let mut node = NodeMut::init(&mut bytes, 3).unwrap();
        prop_assert!(node.insert_index(0, index));
        prop_assert_eq!(node.as_node().index(0), Some(index));
        prop_assert_eq!(node.as_node().extent(0), None);
    }

    #[test]
    fn nodes_agree_with_a_vector(
        size in prop_oneof![Just(60usize), Just(1024), Just(4096)],
        steps in proptest::collection::vec((0u8..5, any::<usize>(), any::<u64>()), 1..200),
    ) {
        let (mut bytes, mut other_bytes) = (vec![0xEEu8; size], vec![0u8; size]);
        let mut node = NodeMut::init(&mut bytes, 0).unwrap();
        let max = extent::capacity(size) as usize;
        let mut model: Vec<Extent> = Vec::new();
        for (kind, at, seed) in steps {
            match kind {
                0..=2 => {
                    let at = at % (model.len() + 1);
                    let fitted = node.insert_extent(at, extent(seed));
                    prop_assert_eq!(fitted, model.len() < max);
                    if fitted {
                        model.insert(at, extent(seed));
                    }
                }
                3 if !model.is_empty() => {
                    let from = at % model.len();
                    let to = (from + 1 + seed as usize % 3).min(model.len());
                    node.remove(from..to);
                    model.drain(from..to);
                }
                4 => {
                    let at = at % (model.len() + 1);
                    let mut other = NodeMut::init(&mut other_bytes, 0).unwrap();
                    prop_assert!(node.split_off(at, &mut other));
                    let moved = model.split_off(at);
                    prop_assert_eq!(other.as_node().extents().collect::<Vec<_>>(), moved);
                }
                _ => {}
            }
            prop_assert_eq!(node.as_node().extents().collect::<Vec<_>>(), model.clone());
        }
    }

    #[test]
    fn search_finds_the_last_at_or_before(
        starts in proptest::collection::btree_set(0u32..5000, 0..80),
        ask in 0u32..5000
    ) {
        let mut bytes = vec![0u8; 1024];
        let mut node = NodeMut::init(&mut bytes, 0).unwrap();
        for (at, start) in starts.iter().enumerate() {
            let extent = Extent { block: FileBlock(*start), len: 1, start: FsBlock(100), unwritten: false };
            prop_assert!(node.insert_extent(at, extent));
        }
        let found = node.as_node().search(FileBlock(ask));
        prop_assert_eq!(found, starts.iter().rposition(|start| *start <= ask));
    }
}

fn leaf(extents: &[(u32, u32, u64)]) -> Vec<u8> {
    let mut bytes = vec![0u8; 1024];
    let mut node = NodeMut::init(&mut bytes, 0).unwrap();
    for (at, &(block, len, start)) in extents.iter().enumerate() {
        let extent = Extent {
            block: FileBlock(block),
            len,
            start: FsBlock(start),
            unwritten: false,
        };
        assert!(node.insert_extent(at, extent));
    }
    bytes
}

#[test]
fn checks_refuse_what_the_format_does_not_allow() {
    let geometry = common::geometry(); // 1 KiB blocks, 8192 of them
    let below = Expect {
        depth: Some(0),
        first: FileBlock(10),
        end: 1000,
    };
    let check = |extents: &[(u32, u32, u64)], expect: &Expect| {
        Node::new(&leaf(extents)).unwrap().check(&geometry, expect)
    };
    let good = [(10, 5, 100), (15, 5, 105), (900, 100, 500)];
    assert_eq!(check(&good, &below), Ok(()));
    assert_eq!(check(&[], &Expect::ROOT), Ok(()));
    for (bad, why) in [
        (&[][..], "no entries"),
        (&[(9, 1, 100)], "outside"),
        (&[(10, 5, 100), (14, 1, 200)], "outside"),
        (&[(20, 1, 100), (10, 1, 200)], "outside"),
        (&[(990, 11, 100)], "outside"),
        (&[(10, 0, 100)], "empty"),
        (&[(10, 5, 8190)], "out of bounds"),
        (&[(10, 5, 0)], "out of bounds"),
        (&[(10, 5, 1)], "out of bounds"),
        (&[(10, 5, (1 << 48) - 1)], "out of bounds"),
    ] {
        let error = check(bad, &below).unwrap_err();
        assert!(error.what().contains(why), "{bad:?}: {error}");
    }
    let wrong_depth = Expect {
        depth: Some(2),
        ..below
    };
    assert!(
        check(&good, &wrong_depth)
            .unwrap_err()
            .what()
            .contains("depth")
    );
}

#[test]
fn headers_refuse_what_would_not_fit() {
    let good = leaf(&[(1, 1, 100)]);
    assert!(Node::new(&good).is_ok());
    // Magic, entries over max, max over room, depth.
    for (at, value) in [(0, 0), (2, 0xFF), (4, 0xFF), (6, 6)] {
        let mut bad = good.clone();
        bad[at] = value;
        assert!(
            Node::new(&bad).is_err() && NodeMut::new(&mut bad).is_err(),
            "byte {at}"
        );
    }
    assert!(Node::new(&good[..11]).is_err());
    let mut inode_root = [0u8; 60];
    NodeMut::init(&mut inode_root, 5).unwrap();
    assert_eq!(Node::new(&inode_root).unwrap().max(), 4);
    // A block's checksum covers its entries and follows the space for them.
    let mut block = good.clone();
    extent::update_block_checksum(&mut block, Some(1)).unwrap();
    assert_eq!(extent::verify_block_checksum(&block, Some(1)), Ok(()));
    assert!(extent::verify_block_checksum(&block, Some(2)).is_err());
    assert_ne!(block[1020..], good[1020..]);
    block[12] ^= 1;
    assert!(extent::verify_block_checksum(&block, Some(1)).is_err());
    assert_eq!(extent::verify_block_checksum(&block, None), Ok(()));
}

#[test]
fn children_get_the_range_between_indexes() {
    let mut bytes = vec![0u8; 1024];
    let mut node = NodeMut::init(&mut bytes, 2).unwrap();
    for (at, block) in [0u32, 100, 200].into_iter().enumerate() {
        assert!(node.insert_index(
            at,
            Index {
                block: FileBlock(block),
                child: FsBlock(50)
            }
        ));
    }
    let node = node.as_node();
    let ranges: Vec<_> = (0..4)
        .map(|at| {
            node.expect_child(at, 250)
                .map(|e| (e.depth, e.first.0, e.end))
        })
        .collect();
    let one = Some(1);
    let expected = [
        Some((one, 0, 100)),
        Some((one, 100, 200)),
        Some((one, 200, 250)),
        None,
    ];
    assert_eq!(ranges, expected);
}
