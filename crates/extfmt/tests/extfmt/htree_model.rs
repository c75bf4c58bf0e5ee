//! Index blocks of hash trees against a vector, and what their parsers refuse.

use proptest::prelude::*;
use throughline_extfmt::htree::{self, IndexNode, IndexNodeMut, Root, TreeFormat};
use throughline_extfmt::{FileBlock, InodeNumber};
use throughline_testkit::cases::config;

fn formats() -> impl Strategy<Value = TreeFormat> {
    let block = prop_oneof![Just(1024u32), Just(4096), Just(65536)];
    (block, any::<bool>()).prop_map(|(block_bytes, tail)| TreeFormat {
        block_bytes,
        tail,
        max_levels: 2,
    })
}

const DIR: (InodeNumber, InodeNumber) = (InodeNumber(20), InodeNumber(2));

fn root(block: &mut [u8], format: &TreeFormat) {
    IndexNodeMut::init_root(block, format, DIR, 1, true, FileBlock(1)).unwrap();
}

fn entries(node: &IndexNode<'_>) -> Vec<(u32, u32)> {
    (0..node.count())
        .map(|at| (node.hash(at), node.block(at).0))
        .collect()
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn nodes_agree_with_a_vector(
        format in formats(), is_root: bool,
        hashes in proptest::collection::vec(any::<u32>(), 1..200), cut: usize,
    ) {
        let mut block = vec![0xEEu8; format.block_bytes as usize];
        let mut other = vec![0xEEu8; format.block_bytes as usize];
        if is_root {
            root(&mut block, &format);
        } else {
            IndexNodeMut::init_node(&mut block, &format, FileBlock(1)).unwrap();
        }
        let mut node = if is_root {
            IndexNodeMut::root(&mut block, &format).unwrap()
        } else {
            IndexNodeMut::node(&mut block, &format).unwrap()
        };
        let limit = if is_root { format.root_limit() } else { format.node_limit() } as usize;
        let mut model = vec![(0, 1)];
        for (number, hash) in hashes.into_iter().enumerate() {
            let at = node.as_node().search(hash) + 1;
            let fitted = node.insert(at, hash, FileBlock(number as u32 + 2));
            prop_assert_eq!(fitted, model.len() < limit);
            if fitted {
                model.insert(at, (hash, number as u32 + 2));
            }
        }
        prop_assert_eq!(entries(&node.as_node()), model.clone());
        prop_assert_eq!(node.as_node().check(1000), Ok(()));
        prop_assert!(node.as_node().check(2).is_err() || model.len() == 1);

        let mut fresh = IndexNodeMut::init_node(&mut other, &format, FileBlock(9)).unwrap();
        if model.len() > 1 {
            let cut = 1 + cut % (model.len() - 1);
            let mut moved = model.split_off(cut);
            let hash = node.split_off(cut, &mut fresh);
            prop_assert_eq!(hash, moved[0].0);
            // The first entry of a block has no hash of its own.
            moved[0].0 = 0;
            prop_assert_eq!(entries(&fresh.as_node()), moved);
            prop_assert_eq!(entries(&node.as_node()), model.clone());
        }
        if is_root {
            node.push_down(&mut fresh, FileBlock(77));
            prop_assert_eq!(entries(&node.as_node()), vec![(0, 77)]);
            prop_assert_eq!(entries(&fresh.as_node()), model);
        }
        let seed = format.tail.then_some(5);
        htree::update_checksum(&mut block, &format, is_root, seed).unwrap();
        prop_assert_eq!(htree::verify_checksum(&block, &format, is_root, seed), Ok(()));
        if format.tail {
            prop_assert!(htree::verify_checksum(&block, &format, is_root, Some(6)).is_err());
        }
    }
}

const FORMAT: TreeFormat = TreeFormat {
    block_bytes: 1024,
    tail: true,
    max_levels: 2,
};

#[test]
fn limits_leave_room_for_the_tail() {
    assert_eq!((FORMAT.root_limit(), FORMAT.node_limit()), (123, 126));
    let bare = TreeFormat {
        tail: false,
        ..FORMAT
    };
    assert_eq!((bare.root_limit(), bare.node_limit()), (124, 127));
}

#[test]
fn invalid_roots_are_refused() {
    let mut good = vec![0u8; 1024];
    root(&mut good, &FORMAT);
    let read = Root::read(&good, &FORMAT).unwrap();
    assert_eq!(
        read,
        Root {
            hash_version: 1,
            indirect_levels: 0
        }
    );
    // "." without an inode, its length, its name; ".." the same; reserved word, version, length
    // of the info, levels, flags.
    for (byte, value) in [
        (0, 0),
        (4, 13),
        (8, b'x'),
        (12, 0),
        (16, 0),
        (21, b'x'),
        (24, 1),
        (28, 9),
        (29, 16),
        (30, 2),
        (31, 1),
    ] {
        let mut bad = good.clone();
        bad[byte] = value;
        assert!(Root::read(&bad, &FORMAT).is_err(), "byte {byte}");
        assert!(IndexNode::root(&bad, &FORMAT).is_err(), "byte {byte}");
    }
    let mut deeper = good.clone();
    htree::set_indirect_levels(&mut deeper, 2).unwrap();
    assert!(Root::read(&deeper, &FORMAT).is_err());
    let large = TreeFormat {
        max_levels: 3,
        ..FORMAT
    };
    assert_eq!(Root::read(&deeper, &large).unwrap().indirect_levels, 2);
    // Limit and count.
    for (byte, value) in [(32, 122), (32, 124), (34, 0), (34, 124)] {
        let mut bad = good.clone();
        bad[byte] = value;
        assert!(
            IndexNode::root(&bad, &FORMAT).is_err(),
            "byte {byte}: {value}"
        );
    }
    assert!(IndexNode::node(&good, &FORMAT).is_err());
    assert!(Root::read(&good[..1023], &FORMAT).is_err());
    htree::set_parent(&mut good, InodeNumber(9));
    assert_eq!(good[12..16], [9, 0, 0, 0]);
}

#[test]
fn entries_out_of_bounds_are_refused() {
    let mut block = vec![0u8; 1024];
    let mut node = IndexNodeMut::init_node(&mut block, &FORMAT, FileBlock(3)).unwrap();
    assert!(node.insert(1, 100, FileBlock(4)) && node.insert(2, 200, FileBlock(5)));
    assert_eq!(node.as_node().check(6), Ok(()));
    assert!(node.as_node().check(5).is_err(), "past the directory");
    node.set_block(1, FileBlock(0));
    assert!(node.as_node().check(6).is_err(), "the root again");
    node.set_block(1, FileBlock(4));
    node.set_hash(1, 300);
    assert!(node.as_node().check(6).is_err(), "out of order");
    node.remove(1);
    assert_eq!(entries(&node.as_node()), [(0, 3), (200, 5)]);
    assert_eq!(node.as_node().check(6), Ok(()));
    assert!(htree::is_node(&block, &FORMAT));
}
