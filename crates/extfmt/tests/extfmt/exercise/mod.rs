//! The bodies of the fuzz targets, one function per structure: parse the bytes; if they are accepted, call
//! every method, change the structure, and require that the result is accepted again. Nothing may panic.
//!
//! The first byte of an input chooses the format (block size and features), the rest is the
//! structure. The same functions run in the tests of `throughline-extfmt` over the corpus, over
//! mutations of it, and over random bytes.

pub(crate) mod directory;

use throughline_extfmt::acl::Acl;
use throughline_extfmt::dir::{self, DirFormat};
use throughline_extfmt::extent::{self, Expect, Extent, Index, Node, NodeMut};
use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::group_desc::{self, GroupDesc};
use throughline_extfmt::inode::{FileType, InodeImage, Time};
use throughline_extfmt::jbd2::{
    BlockHeader, BlockType, JournalCsum, JournalFormat, JournalSuperblock,
};
use throughline_extfmt::superblock::Superblock;
use throughline_extfmt::time::{MAX_SECONDS, MIN_SECONDS, Timestamp};
use throughline_extfmt::{
    FileBlock, FsBlock, Geometry, GroupNumber, InodeNumber, bitmap, fast_commit, indirect,
    inline_data, mmp, xattr,
};

/// One target: its name and what it does.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// All targets; the corpus has a folder of each name.
pub(crate) const TARGETS: &[Target] = &[
    ("superblock", superblock),
    ("group_desc", group_desc),
    ("inode", inode),
    ("extent_node", extent_node),
    ("dir_block", directory::dir_block),
    ("htree", directory::htree),
    ("xattr_block", xattr_block),
    ("jbd2_block", jbd2_block),
    ("acl", acl),
];

/// The geometry for parsers of single blocks. Bits of `choice`: 0-2 block size,
/// 3 checksums, 4 `64bit`, 5 `filetype`, 6 `large_dir`, 7 `flex_bg`.
fn geometry(choice: u8) -> Geometry {
    let block_log = 10 + u32::from(choice & 7).min(6);
    let bit = |at: u8| choice >> at & 1 == 1;
    let mut incompat = Incompat::EXTENTS;
    incompat.set(Incompat::BIT64, bit(4));
    incompat.set(Incompat::FILETYPE, bit(5));
    incompat.set(Incompat::LARGE_DIR, bit(6));
    incompat.set(Incompat::FLEX_BG, bit(7));
    let mut ro_compat = RoCompat::SPARSE_SUPER | RoCompat::HUGE_FILE;
    ro_compat.set(RoCompat::METADATA_CSUM, bit(3));
    Geometry {
        block_bytes: 1 << block_log,
        block_log,
        cluster_ratio_log: 0,
        blocks: 1 << 40,
        first_data_block: FsBlock(u64::from(block_log == 10)),
        groups: (1u64 << 40 >> (block_log + 3)) as u32,
        blocks_per_group: 8 << block_log,
        clusters_per_group: 8 << block_log,
        inodes: u32::MAX,
        inodes_per_group: 2048,
        inode_bytes: 256,
        inode_table_blocks: (2048 * 256) >> block_log,
        first_ino: InodeNumber(11),
        desc_bytes: if bit(4) { 64 } else { 32 },
        desc_blocks: 1 << 10,
        first_meta_bg: None,
        reserved_gdt_blocks: 0,
        log_groups_per_flex: 4,
        backup_bgs: [0; 2],
        compat: Compat::DIR_INDEX,
        incompat,
        ro_compat,
        csum_seed: bit(3).then_some(0x1234_5678),
        uuid: [7; 16],
    }
}

/// Splits an input into its choice and its bytes.
fn split(data: &[u8]) -> (Geometry, &[u8]) {
    let (&choice, bytes) = data.split_first().unwrap_or((&0, &[]));
    (geometry(choice), bytes)
}

/// The bytes as one block: cut or filled up with zeroes.
fn block(geometry: &Geometry, bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(geometry.block_bytes as usize, 0);
    block
}

/// A superblock, from its first byte (there is no choice here).
pub(crate) fn superblock(data: &[u8]) {
    let Ok(mut sb) = Superblock::read(data) else {
        return;
    };
    let _ = (
        sb.verify_checksum(),
        sb.volume_name(),
        sb.last_mounted(),
        format!("{sb:?}"),
    );
    let _ = (
        sb.compat().names(),
        sb.incompat().names(),
        sb.ro_compat().names(),
    );
    let _ = (
        sb.wtime(),
        sb.mtime(),
        sb.mkfs_time(),
        sb.lastcheck(),
        sb.r_blocks_count(),
    );
    sb.update_checksum();
    if sb.ro_compat().contains(RoCompat::METADATA_CSUM) {
        sb.s_checksum_type = 1;
        sb.update_checksum();
        assert_eq!(sb.verify_checksum(), Ok(()));
    }
    let Ok(geometry) = sb.validate() else {
        return;
    };
    let last = GroupNumber(geometry.groups - 1);
    for group in [
        GroupNumber(0),
        GroupNumber(1),
        GroupNumber(geometry.groups / 2),
        last,
    ] {
        if group <= last {
            layout(&geometry, group);
        }
    }
    assert_eq!(
        geometry.group_of_block(FsBlock(geometry.blocks - 1)),
        Some(last)
    );
    assert_eq!(geometry.group_of_block(FsBlock(geometry.blocks)), None);
    let (group, index) = geometry.inode_place(InodeNumber(geometry.inodes)).unwrap();
    assert_eq!(geometry.inode_at(group, index).0, geometry.inodes);
    let (block, offset) = geometry.inode_in_table(index);
    assert!(block < geometry.inode_table_blocks);
    assert!(offset + usize::from(geometry.inode_bytes) <= geometry.block_bytes as usize);
    if geometry.desc_blocks < 1000 && geometry.groups < 100_000 {
        let _ = geometry.desc_block_backups(0).len() + geometry.desc_block_backups(1).len();
    }
}

/// Checks that the layout of one group is consistent.
fn layout(geometry: &Geometry, group: GroupNumber) {
    let blocks = geometry.group_blocks(group);
    assert!(blocks >= 1 && blocks <= geometry.blocks_per_group);
    assert!(geometry.group_clusters(group) <= geometry.block_bytes * 8);
    assert_eq!(
        geometry.group_of_block(geometry.group_first_block(group)),
        Some(group)
    );
    let (_, offset) = geometry.desc_place(group);
    assert!(offset + usize::from(geometry.desc_bytes) <= geometry.block_bytes as usize);
    assert!(geometry.fixed_blocks(group) <= blocks);
    let mut bits = vec![0u8; geometry.block_bytes as usize];
    let mut elsewhere: GroupDesc = zerocopy::FromZeros::new_zeroed();
    elsewhere.set_block_bitmap(geometry.blocks);
    elsewhere.set_inode_bitmap(geometry.blocks);
    elsewhere.set_inode_table(geometry.blocks);
    geometry.init_block_bitmap(group, &elsewhere, &mut bits);
    let clusters = geometry.group_clusters(group);
    let set = bitmap::count_set(&bits, 0..clusters);
    assert_eq!(
        set,
        geometry
            .fixed_blocks(group)
            .div_ceil(1 << geometry.cluster_ratio_log)
    );
    geometry.init_inode_bitmap(&mut bits);
    assert_eq!(bitmap::find_set(&bits, 0..geometry.inodes_per_group), None);
}

/// A descriptor.
pub(crate) fn group_desc(data: &[u8]) {
    let (geometry, bytes) = split(data);
    let mut place = bytes.to_vec();
    place.resize(usize::from(geometry.desc_bytes), 0);
    let group = GroupNumber(5);
    let _ = group_desc::read_checked(&geometry, group, bytes, 0);
    let _ = group_desc::read_checked(&geometry, group, bytes, bytes.len());
    let mut desc = GroupDesc::read(&place).unwrap();
    let _ = (desc.check(&geometry, group), format!("{desc:?}"));
    let mut bits = vec![0u8; geometry.block_bytes as usize];
    geometry.init_block_bitmap(group, &desc, &mut bits);
    desc.set_free_blocks(7);
    let flags = desc.flags();
    desc.set_flags(flags);
    group_desc::write_with_checksum(&geometry, group, &mut desc, &mut place);
    assert_eq!(
        group_desc::verify_checksum(&geometry, group, &place),
        Ok(())
    );
    assert_eq!(GroupDesc::read(&place).unwrap(), desc);
}

/// An inode, its inline data and attributes.
pub(crate) fn inode(data: &[u8]) {
    let (geometry, bytes) = split(data);
    let Ok(mut image) = InodeImage::read(bytes) else {
        return;
    };
    let number = InodeNumber(12);
    let _ = (
        image.verify_checksum(&geometry, number),
        format!("{image:?}"),
    );
    let _ = (
        image.size_bytes(&geometry),
        image.blocks_512(&geometry),
        image.file_type(),
    );
    let _ = (
        image.device_number(),
        image.file_acl(&geometry),
        image.projid(),
        image.version(),
    );
    let _ = (
        image.fast_symlink_target(),
        image.uid(),
        image.gid(),
        image.dtime(),
    );
    let _ = Node::new(image.i_block()).map(|node| node.check(&geometry, &Expect::ROOT));
    let format = DirFormat::new(&geometry).inline();
    let _ = dir::check(inline_data::dir_region(image.i_block()), &format);
    if let Ok(mut list) = xattr::read_ibody(image.xattr_area()) {
        let mut area = image.xattr_area().to_vec();
        if xattr::write_ibody(&mut area, &list) {
            assert_eq!(xattr::read_ibody(&area).as_ref(), Ok(&list));
        }
        list.pop();
        if let Some(room) = xattr::ibody_room(area.len(), &list, b"data") {
            let value = xattr::Value::Bytes(vec![1; room]);
            list.push(xattr::Attribute {
                name_index: 7,
                name: b"data".to_vec(),
                value,
            });
            assert!(xattr::write_ibody(&mut area, &list));
        }
    }
    for which in [Time::Access, Time::Change, Time::Modify, Time::Create] {
        if let Some(time) = image.time(which) {
            image.set_time(which, time);
            // The first and the last second are set without nanoseconds, but may be found with them.
            let kept = match time.seconds {
                MIN_SECONDS | MAX_SECONDS => Timestamp::from_seconds(time.seconds),
                _ => time,
            };
            assert_eq!(image.time(which), Some(kept));
        }
    }
    image.set_mode(FileType::Regular.mode_bits() | 0o644);
    image.set_size_bytes(1 << 40);
    assert_eq!(image.size_bytes(&geometry), Ok(1 << 40));
    assert!(image.set_blocks_512(&geometry, 1 << 33));
    assert_eq!(image.blocks_512(&geometry), 1 << 33);
    image.update_checksum(&geometry, number);
    assert_eq!(image.verify_checksum(&geometry, number), Ok(()));
    assert_eq!(InodeImage::read(image.as_bytes()), Ok(image));
}

/// A node of an extent tree, or of an indirect map.
pub(crate) fn extent_node(data: &[u8]) {
    let (geometry, bytes) = split(data);
    let mut block = block(&geometry, bytes);
    let _ = indirect::pointer(&block, u32::MAX);
    let _ = extent::verify_block_checksum(&block, geometry.csum_seed);
    let Ok(node) = Node::new(&block) else {
        return;
    };
    for ask in [0, 1, 1000, u32::MAX] {
        if let Some(at) = node.search(FileBlock(ask)) {
            assert!(at < node.len());
            let _ = node
                .extent(at)
                .and_then(|extent| extent.map(FileBlock(ask)));
            let _ = node.expect_child(at, 1 << 32);
        }
    }
    let len = node.len();
    assert!(node.extents().count() + node.indexes().count() == len);
    let expect = Expect {
        depth: Some(node.depth()),
        ..Expect::ROOT
    };
    if node.check(&geometry, &expect).is_ok() {
        // What was checked is ordered and in bounds.
        assert!((1..len).all(|at| node.first_block(at - 1) < node.first_block(at)));
        assert!(
            node.extents()
                .all(|e| geometry.holds_blocks(e.start, u64::from(e.len)))
        );
    }
    let is_leaf = node.is_leaf();
    let mut other_block = vec![0; block.len()];
    let mut other = NodeMut::init(&mut other_block, node.depth()).unwrap();
    let mut node = NodeMut::new(&mut block).unwrap();
    let added = if is_leaf {
        let extent = Extent {
            block: FileBlock(9),
            len: 1,
            start: FsBlock(99),
            unwritten: true,
        };
        node.insert_extent(len / 2, extent)
    } else {
        node.insert_index(
            len / 2,
            Index {
                block: FileBlock(9),
                child: FsBlock(99),
            },
        )
    };
    assert_eq!(node.as_node().len(), len + usize::from(added));
    assert!(node.split_off(len / 2, &mut other));
    assert_eq!(
        node.as_node().len() + other.as_node().len(),
        len + usize::from(added)
    );
    let seed = geometry.csum_seed;
    if extent::update_block_checksum(&mut block, seed).is_ok() {
        assert_eq!(extent::verify_block_checksum(&block, seed), Ok(()));
    }
}

/// A block of attributes, or of multiple-mount protection.
pub(crate) fn xattr_block(data: &[u8]) {
    let (geometry, bytes) = split(data);
    let mut block = block(&geometry, bytes);
    let _ = mmp::MmpBlock::read(&block, geometry.csum_seed);
    let _ = xattr::verify_checksum(&block, FsBlock(9), geometry.csum_seed);
    let _ = xattr::read_ibody(bytes);
    if let Ok(mut list) = xattr::read_block(&block) {
        for attribute in &list {
            if let Some(name) = attribute.full_name()
                && let Some((index, rest)) = xattr::split_name(&name)
            {
                assert!(index == attribute.name_index || !rest.eq(&attribute.name[..]));
            }
        }
        assert!(xattr::write_block(&mut block, &list));
        let mut again = xattr::read_block(&block).unwrap();
        let key = |a: &xattr::Attribute| (a.name_index, a.name.len(), a.name.clone());
        list.sort_by_key(key);
        again.sort_by_key(key);
        assert_eq!(list, again);
        xattr::update_checksum(&mut block, FsBlock(9), geometry.csum_seed);
        assert_eq!(
            xattr::verify_checksum(&block, FsBlock(9), geometry.csum_seed),
            Ok(())
        );
    }
}

/// A block of a journal, of any type. Bits of the first byte: 0-2 block size, 3-4 checksums,
/// 5 `64bit`.
pub(crate) fn jbd2_block(data: &[u8]) {
    let (&choice, bytes) = data.split_first().unwrap_or((&0, &[]));
    let csums = [
        JournalCsum::None,
        JournalCsum::V1,
        JournalCsum::V2,
        JournalCsum::V3,
    ];
    let format = JournalFormat {
        block_bytes: 1 << (10 + u32::from(choice & 7).min(6)),
        bit64: choice & 32 != 0,
        csum: csums[usize::from(choice >> 3 & 3)],
        csum_seed: 1,
        uuid: [3; 16],
    };
    let mut block = bytes.to_vec();
    block.resize(format.block_bytes as usize, 0);
    let _ = format.verify_tail(&block);
    assert!(format.tags(&block).count() <= block.len() / format.tag_bytes());
    assert!(format.tags(bytes).count() <= bytes.len());
    let _ = format.revokes(bytes).map(Iterator::count);
    assert!(fast_commit::records(bytes).count() <= bytes.len() / 4);
    match BlockHeader::read(&block) {
        Some((BlockType::Commit, sequence)) => {
            if let Ok(commit) = format.read_commit(&block) {
                format.write_commit(&mut block, sequence, &commit);
                assert_eq!(format.read_commit(&block), Ok(commit));
            }
        }
        Some((BlockType::Revoke, _)) => {
            if let Ok(revokes) = format.revokes(&block) {
                assert!(revokes.count() <= format.revokes_per_block());
            }
        }
        Some((BlockType::SuperblockV1 | BlockType::SuperblockV2, _)) => {
            let mut sb = JournalSuperblock::read(&block).unwrap();
            sb.update_checksum();
            if let Ok(journal) = sb.validate(format.block_bytes, 100_000) {
                assert!(journal.first >= 1 && journal.first < journal.end);
                assert!(journal.end + journal.fast_commit_blocks <= 100_000);
                assert!(
                    journal
                        .start
                        .is_none_or(|at| at >= journal.first && at < journal.end)
                );
            }
        }
        _ => {}
    }
    if throughline_extfmt::jbd2::escape(&mut block) {
        assert!(BlockHeader::read(&block).is_none());
    }
}

/// An ACL: in the on-disk form, or, if the first byte is odd, in the programs' form.
pub(crate) fn acl(data: &[u8]) {
    let (&choice, bytes) = data.split_first().unwrap_or((&0, &[]));
    let list = match choice & 1 {
        0 => Acl::from_disk(bytes).ok(),
        _ => Acl::from_user(bytes).ok().flatten(),
    };
    let Some(list) = list else {
        return;
    };
    comes_back(&list);
    let (bits, all) = list.permissions();
    assert_eq!(all, list.entries().len() == 3);
    for mode in [0, 0o640, 0o7777, bits, u16::from(choice) << 2] {
        let mut changed = list.clone();
        changed.set_permissions(mode);
        assert_eq!(changed.permissions(), (mode & 0o777, all));
        comes_back(&changed);
        let (inherited, bits) = list.inherited(mode);
        assert_eq!(bits & !mode, 0, "more than was asked for");
        assert_eq!(inherited.is_none(), all);
        if let Some(inherited) = inherited {
            assert_eq!(inherited.permissions(), (bits, false));
            comes_back(&inherited);
        }
    }
}

/// Checks that an ACL survives both forms.
fn comes_back(list: &Acl) {
    let stored = Acl::from_disk(&list.to_disk()).expect("a well-formed ACL");
    let converted = Acl::from_user(&list.to_user()).expect("a well-formed ACL");
    let converted = converted.expect("it has entries");
    for back in [stored, converted] {
        assert_eq!(back.to_user(), list.to_user());
        assert_eq!(back.to_disk(), list.to_disk());
    }
}
