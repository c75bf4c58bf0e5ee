//! Directories: their blocks, and the roots and nodes of hash trees over them.

use throughline_extfmt::dir::{self, DirFormat};
use throughline_extfmt::hash::HashVersion;
use throughline_extfmt::htree::{self, IndexNode, IndexNodeMut, Root, TreeFormat};
use throughline_extfmt::{FileBlock, FsBlock, InodeNumber, orphan};

use super::{block, split};

/// A directory block, or a block of an orphan file.
pub(crate) fn dir_block(data: &[u8]) {
    let (geometry, bytes) = split(data);
    let format = DirFormat::new(&geometry);
    let mut block = block(&geometry, bytes);
    let _ = (
        dir::verify_checksum(&block, geometry.csum_seed),
        dir::tail(&block),
    );
    let _ = orphan::check(&block, FsBlock(1), geometry.inodes, geometry.csum_seed);
    let _ = orphan::orphans(&block).map(Iterator::count);
    let _ = dir::check(bytes, &format.inline());
    let walked = dir::entries(&block, &format).count();
    assert!(walked <= block.len() / 8 + 1);
    if dir::check(&block, &format).is_err() {
        let _ = dir::insert(&mut block, &format, 0, (b"new", InodeNumber(12), 1));
        let _ = dir::remove(&mut block, &format, 12);
        return;
    }
    let count = |block: &[u8]| {
        let entries = dir::entries(block, &format).map(|entry| entry.unwrap());
        entries.filter(|entry| entry.is_used()).count()
    };
    let before = count(&block);
    let added = dir::insert(&mut block, &format, 0, (b"new", InodeNumber(12), 1)).unwrap();
    assert_eq!(count(&block), before + usize::from(added.is_some()));
    let copy = block.clone();
    let first = dir::entries(&copy, &format)
        .flatten()
        .find(|entry| entry.is_used());
    if let Some(first) = first {
        dir::set_inode(&mut block, &format, first.offset, InodeNumber(13), 2).unwrap();
        dir::remove(&mut block, &format, first.offset).unwrap();
        assert_eq!(count(&block) + 1, count(&copy));
    }
    let list: Vec<_> = dir::entries(&copy, &format)
        .map(|entry| entry.unwrap())
        .collect();
    assert!(dir::fill(&mut block, &format, &list));
    assert_eq!(count(&block), count(&copy));
    dir::update_checksum(&mut block, geometry.csum_seed);
    assert_eq!(dir::verify_checksum(&block, geometry.csum_seed), Ok(()));
}

/// A root or a node of a hash tree.
pub(crate) fn htree(data: &[u8]) {
    let (geometry, bytes) = split(data);
    let format = TreeFormat::new(&geometry);
    let mut block = block(&geometry, bytes);
    for code in 0..=6 {
        let version = HashVersion::from_disk(code, false).unwrap();
        let hash = version.hash(&bytes[..bytes.len().min(255)], [1, 2, 3, 4]);
        assert!(hash.is_none_or(|hash| hash.major & 1 == 0));
    }
    for is_root in [true, false] {
        let _ = htree::verify_checksum(&block, &format, is_root, geometry.csum_seed);
    }
    let _ = Root::read(&block, &format);
    let is_root = !htree::is_node(&block, &format);
    let view = if is_root {
        IndexNode::root
    } else {
        IndexNode::node
    };
    let Ok(node) = view(&block, &format) else {
        return;
    };
    let count = node.count();
    if node.check(1 << 28).is_ok() {
        assert!((1..count).all(|at| node.hash(at - 1) <= node.hash(at)));
    }
    for hash in [0, 2, 0x8000_0000, u32::MAX] {
        let at = node.search(hash);
        assert!(at < count && node.block(at).0 <= htree::BLOCK_MASK);
    }
    let mut other_block = vec![0; block.len()];
    let mut other = IndexNodeMut::init_node(&mut other_block, &format, FileBlock(1)).unwrap();
    let view = if is_root {
        IndexNodeMut::root
    } else {
        IndexNodeMut::node
    };
    let mut node = view(&mut block, &format).unwrap();
    let added = node.insert(count, 0xFFFF_FFF0, FileBlock(3));
    let count = count + usize::from(added);
    if count >= 2 {
        let hash = node.as_node().hash(count / 2);
        assert_eq!(node.split_off(count / 2, &mut other), hash);
        assert_eq!(node.as_node().count() + other.as_node().count(), count);
    }
    if is_root {
        node.push_down(&mut other, FileBlock(7));
        assert_eq!(node.as_node().block(0), FileBlock(7));
    }
    htree::update_checksum(&mut block, &format, is_root, geometry.csum_seed).unwrap();
    assert_eq!(
        htree::verify_checksum(&block, &format, is_root, geometry.csum_seed),
        Ok(())
    );
}
