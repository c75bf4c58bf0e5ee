//! Superblock, geometry, descriptors and layout without an image: what is refused, and locations
//! computed by hand.

use crate::common;

use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::group_desc::{self, GroupDesc};
use throughline_extfmt::{
    FsBlock, Geometry, GroupNumber, InodeNumber, Superblock, bitmap, fast_commit, mmp, orphan,
};
use zerocopy::{FromZeros, IntoBytes};

/// The test's superblock with a change and a valid checksum.
fn changed(change: impl FnOnce(&mut Superblock)) -> Superblock {
    let mut sb = common::superblock();
    change(&mut sb);
    sb.update_checksum();
    sb
}

/// A superblock of `groups` full groups of 8192 blocks.
fn many_groups(groups: u32, change: impl FnOnce(&mut Superblock)) -> Geometry {
    let sb = changed(|sb| {
        sb.s_blocks_count_lo.set(1 + groups * 8192);
        sb.s_inodes_count.set(groups * 1024);
        change(sb);
    });
    sb.validate().unwrap()
}

#[test]
fn numbers_that_disagree_are_refused() {
    assert!(common::superblock().validate().is_ok());
    type Change = fn(&mut Superblock);
    let cases: &[(Change, &str)] = &[
        (|sb| sb.s_rev_level.set(2), "revision"),
        (|sb| sb.s_log_block_size.set(7), "block size"),
        (|sb| sb.s_log_block_size.set(u32::MAX), "block size"),
        (|sb| sb.s_blocks_per_group.set(0), "per group"),
        (|sb| sb.s_blocks_per_group.set(8193), "per group"),
        (|sb| sb.s_inodes_per_group.set(0), "inodes per group"),
        (|sb| sb.s_inodes_per_group.set(8193), "inodes per group"),
        (|sb| sb.s_inodes_count.set(1023), "inodes are not"),
        (|sb| sb.s_inode_size.set(64), "inode size"),
        (|sb| sb.s_inode_size.set(300), "inode size"),
        (|sb| sb.s_inode_size.set(2048), "inode size"),
        (|sb| sb.s_desc_size.set(32), "descriptor size"),
        (|sb| sb.s_desc_size.set(2048), "descriptor size"),
        (|sb| sb.s_first_data_block.set(0), "first data block"),
        (|sb| sb.s_first_ino.set(10), "first inode"),
        (|sb| sb.s_first_ino.set(5000), "first inode"),
        (|sb| sb.s_blocks_count_lo.set(1), "no block group"),
        (|sb| sb.s_blocks_count_hi.set(u32::MAX), "2^63"),
        (|sb| sb.s_blocks_count_hi.set(0x10_0000), "groups"),
        (
            |sb| sb.s_reserved_gdt_blocks.set(257),
            "reserved descriptor",
        ),
        (|sb| sb.s_checksum_type = 2, "checksum type"),
        (|sb| sb.s_log_groups_per_flex = 32, "flex"),
    ];
    for (change, why) in cases {
        let error = changed(change).validate().unwrap_err();
        assert!(error.what().contains(why), "{why}: {error}");
    }
    let mut sb = common::superblock();
    sb.s_wtime.set(1);
    assert!(sb.validate().unwrap_err().what().contains("checksum"));
    assert!(Superblock::read(&sb.as_bytes()[..1023]).is_err());
    sb.s_magic.set(0);
    assert!(
        Superblock::read(sb.as_bytes())
            .unwrap_err()
            .what()
            .contains("magic")
    );
}

#[test]
fn revision_0_has_fixed_numbers() {
    let mut sb = common::superblock();
    sb.s_rev_level.set(0);
    let geometry = sb.validate().unwrap();
    assert_eq!((geometry.inode_bytes, geometry.desc_bytes), (128, 32));
    assert_eq!(geometry.first_ino, InodeNumber(11));
    assert_eq!(geometry.csum_seed, None);
    assert!(geometry.compat.is_empty() && geometry.incompat.is_empty());
    assert!(geometry.ro_compat.is_empty());
}

#[test]
fn wide_fields() {
    let mut sb = common::superblock();
    sb.set_free_blocks_count(0x12_3456_789A);
    assert_eq!(sb.free_blocks_count(), 0x12_3456_789A);
    sb.set_wtime(0x1_8000_0000);
    sb.set_mtime(0xFF_FFFF_FFFF);
    assert_eq!((sb.wtime(), sb.mtime()), (0x1_8000_0000, 0xFF_FFFF_FFFF));
    sb.s_volume_name[..5].copy_from_slice(b"label");
    assert_eq!(sb.volume_name(), b"label");
    sb.s_volume_name = [b'x'; 16];
    assert_eq!(sb.volume_name(), [b'x'; 16]);
    // Without 64bit, the upper half is ignored.
    sb.s_feature_incompat.set(0);
    assert_eq!(sb.free_blocks_count(), 0x3456_789A);
}

#[test]
fn blocks_and_inodes_have_their_groups() {
    let geometry = many_groups(3, |sb| sb.s_blocks_count_lo.set(1 + 2 * 8192 + 100));
    assert_eq!(geometry.groups, 3);
    let group = |block| geometry.group_of_block(FsBlock(block)).map(|group| group.0);
    let found: Vec<_> = [0, 1, 8192, 8193, 16385, 16484, 16485].map(group).into();
    assert_eq!(
        found,
        [None, Some(0), Some(0), Some(1), Some(2), Some(2), None]
    );
    assert_eq!(geometry.group_blocks(GroupNumber(2)), 100);
    assert_eq!(geometry.group_blocks(GroupNumber(3)), 0);
    let place = |inode| {
        geometry
            .inode_place(InodeNumber(inode))
            .map(|(g, i)| (g.0, i))
    };
    assert_eq!(
        [0, 1, 1024, 1025, 3072, 3073].map(place),
        [
            None,
            Some((0, 0)),
            Some((0, 1023)),
            Some((1, 0)),
            Some((2, 1023)),
            None
        ]
    );
    assert_eq!(geometry.inode_in_table(7), (1, 768));
    assert!(!geometry.holds_blocks(FsBlock(1), 1));
    assert!(geometry.holds_blocks(FsBlock(2), 16483));
    assert!(!geometry.holds_blocks(FsBlock(2), 16484));
    assert!(!geometry.holds_blocks(FsBlock(2), u64::MAX));
}

#[test]
fn descriptors_follow_the_superblock() {
    // 64-byte descriptors, 16 a block: 40 groups need 3 blocks.
    let geometry = many_groups(40, |sb| sb.s_reserved_gdt_blocks.set(5));
    assert_eq!(geometry.desc_place(GroupNumber(0)), (FsBlock(2), 0));
    assert_eq!(geometry.desc_place(GroupNumber(17)), (FsBlock(3), 64));
    let groups: Vec<u32> = geometry.superblock_groups().map(|group| group.0).collect();
    assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27]);
    let backups = geometry.desc_block_backups(2);
    assert_eq!(backups[..2], [FsBlock(8193 + 3), FsBlock(3 * 8192 + 1 + 3)]);
    let fixed: Vec<u32> = (0..4)
        .map(|group| geometry.fixed_blocks(GroupNumber(group)))
        .collect();
    assert_eq!(fixed, [1 + 3 + 5, 1 + 3 + 5, 0, 1 + 3 + 5]);
}

#[test]
fn meta_groups_keep_their_own_descriptors() {
    let geometry = many_groups(40, |sb| {
        sb.s_feature_incompat
            .set(sb.s_feature_incompat.get() | Incompat::META_BG.bits());
        sb.s_first_meta_bg.set(1);
    });
    // The first block is old style, the others lie in groups 16 and 32.
    assert_eq!(geometry.desc_place(GroupNumber(15)), (FsBlock(2), 15 * 64));
    assert_eq!(
        geometry.desc_place(GroupNumber(16)),
        (FsBlock(16 * 8192 + 1), 0)
    );
    assert_eq!(
        geometry.desc_place(GroupNumber(39)),
        (FsBlock(32 * 8192 + 1), 7 * 64)
    );
    let first = |group: u64| FsBlock(group * 8192 + 1);
    assert_eq!(geometry.desc_block_backups(1), [first(17), first(31)]);
    assert_eq!(geometry.desc_block_backups(2), [first(33)]);
    let fixed = [0, 1, 2, 16, 17, 18, 25, 27, 31, 32];
    let fixed = fixed.map(|group| geometry.fixed_blocks(GroupNumber(group)));
    // Groups 25 and 27 hold a superblock, but no descriptors.
    assert_eq!(fixed, [2, 2, 0, 1, 1, 0, 1, 1, 1, 1]);
}

#[test]
fn sparse_super2_names_its_backups() {
    let geometry = many_groups(40, |sb| {
        sb.s_feature_compat.set(Compat::SPARSE_SUPER2.bits());
        sb.s_backup_bgs = [1.into(), 39.into()];
    });
    let groups: Vec<u32> = geometry.superblock_groups().map(|group| group.0).collect();
    assert_eq!(groups, [0, 1, 39]);
}

#[test]
fn descriptors_round_trip_with_either_checksum() {
    let crc32c = common::geometry();
    let mut crc16 = crc32c.clone();
    crc16.ro_compat = RoCompat::GDT_CSUM;
    crc16.csum_seed = None;
    crc16.desc_bytes = 32;
    let mut none = crc16.clone();
    none.ro_compat = RoCompat::empty();
    for (geometry, checked) in [(crc32c, true), (crc16, true), (none, false)] {
        let group = GroupNumber(0);
        let mut desc = GroupDesc::new_zeroed();
        desc.set_block_bitmap(100);
        desc.set_inode_bitmap(101);
        desc.set_inode_table(102);
        desc.set_free_blocks(7);
        let mut block = vec![0xEEu8; 1024];
        let len = usize::from(geometry.desc_bytes);
        group_desc::write_with_checksum(&geometry, group, &mut desc, &mut block[..len]);
        assert_eq!(
            group_desc::read_checked(&geometry, group, &block, 0),
            Ok(desc)
        );
        assert_eq!(block[len], 0xEE, "nothing after it is touched");
        block[12] ^= 1;
        let again = group_desc::read_checked(&geometry, group, &block, 0);
        assert_eq!(again.is_err(), checked);
        // Impossible locations.
        desc.set_inode_table(8193 - 255);
        assert!(
            desc.check(&geometry, group)
                .unwrap_err()
                .what()
                .contains("inode table")
        );
        desc.set_inode_table(102);
        desc.set_free_inodes(1025);
        assert!(
            desc.check(&geometry, group)
                .unwrap_err()
                .what()
                .contains("free inodes")
        );
    }
}

#[test]
fn bitmaps_of_groups_never_used() {
    let geometry = common::geometry();
    let mut desc = GroupDesc::new_zeroed();
    desc.set_block_bitmap(10);
    desc.set_inode_bitmap(11);
    desc.set_inode_table(20);
    let mut bits = vec![0xAA; 1024];
    geometry.init_block_bitmap(GroupNumber(0), &desc, &mut bits);
    // Block 1 is bit 0: superblock and one descriptor block, bitmaps, 256 blocks of table.
    let set: Vec<u32> = (0..8192)
        .filter(|&bit| bitmap::is_set(&bits, bit))
        .collect();
    let expected: Vec<u32> = [0, 1, 9, 10].into_iter().chain(19..19 + 256).collect();
    assert_eq!(set, expected);
    geometry.init_inode_bitmap(&mut bits);
    assert_eq!(bitmap::find_set(&bits, 0..8192), Some(1024));
    assert_eq!(bitmap::count_set(&bits, 0..8192), 8192 - 1024);
}

#[test]
fn orphan_blocks() {
    let (place, seed) = (FsBlock(77), Some(5));
    let mut block = vec![0xEE; 1024];
    orphan::init(&mut block, place, seed);
    assert_eq!(orphan::check(&block, place, 100, seed), Ok(()));
    assert_eq!(orphan::free_slot(&block), Ok(Some(0)));
    let slots = orphan::slots(1024) as usize;
    assert_eq!(slots, 254);
    for slot in 0..slots {
        orphan::set_slot(&mut block, slot, InodeNumber(slot as u32 + 1), place, seed).unwrap();
    }
    assert_eq!(orphan::free_slot(&block), Ok(None));
    assert!(orphan::set_slot(&mut block, slots, InodeNumber(1), place, seed).is_err());
    assert_eq!(
        orphan::orphans(&block).unwrap().nth(9),
        Some((9, InodeNumber(10)))
    );
    assert!(
        orphan::check(&block, place, 100, seed)
            .unwrap_err()
            .what()
            .contains("names inode")
    );
    assert_eq!(orphan::check(&block, place, 254, seed), Ok(()));
    assert!(
        orphan::check(&block, FsBlock(78), 254, seed).is_err(),
        "moved"
    );
    orphan::set_slot(&mut block, 9, InodeNumber::NONE, place, seed).unwrap();
    assert_eq!(orphan::free_slot(&block), Ok(Some(9)));
}

#[test]
fn mmp_blocks() {
    let mut block = mmp::MmpBlock::new_zeroed();
    block.mmp_magic.set(mmp::MMP_MAGIC);
    block.mmp_seq.set(mmp::SEQ_CLEAN);
    block.mmp_nodename[..4].copy_from_slice(b"host");
    block.update_checksum(Some(3));
    let read = mmp::MmpBlock::read(block.as_bytes(), Some(3)).unwrap();
    assert_eq!((read.nodename(), read.bdevname()), (&b"host"[..], &b""[..]));
    assert!(mmp::MmpBlock::read(block.as_bytes(), Some(4)).is_err());
    assert!(mmp::MmpBlock::read(&block.as_bytes()[1..], None).is_err());
}

#[test]
fn fast_commit_tags() {
    let mut block = Vec::new();
    let mut push = |code: u16, value: &[u8]| {
        block.extend_from_slice(&code.to_le_bytes());
        block.extend_from_slice(&(value.len() as u16).to_le_bytes());
        block.extend_from_slice(value);
    };
    push(9, &[0, 0, 0, 0, 7, 0, 0, 0]);
    push(3, b"\x02\0\0\0\x0c\0\0\0name");
    push(8, &[7, 0, 0, 0, 1, 2, 3, 4]);
    push(7, &[0; 10]);
    let tags: Vec<_> = fast_commit::records(&block)
        .map(|record| record.unwrap())
        .collect();
    use fast_commit::Tag;
    let kinds: Vec<Tag> = tags.iter().map(|record| record.tag).collect();
    assert_eq!(kinds, [Tag::Head, Tag::Create, Tag::Tail, Tag::Pad]);
    assert_eq!(&tags[1].value[8..], b"name");
    assert_eq!(tags[2].offset, 12 + 16);
    // A value too short for its tag, an unknown tag, and one past the end of the block.
    for bad in [&[9, 0, 4, 0, 0, 0, 0, 0][..], &[99, 0, 0, 0], &[7, 0, 1, 0]] {
        let all: Vec<_> = fast_commit::records(bad).collect();
        assert!(all.len() == 1 && all[0].is_err(), "{bad:?}");
    }
}
