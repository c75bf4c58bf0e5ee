//! Inodes of all sizes: every field is read back, and setting it leaves the others unchanged.

use crate::common;

use proptest::prelude::*;
use throughline_extfmt::features::{Incompat, RoCompat};
use throughline_extfmt::inode::{EXTRA_ISIZE, FileType, InodeFlags, InodeImage, Time};
use throughline_extfmt::time::{MAX_SECONDS, MIN_SECONDS, Timestamp};
use throughline_extfmt::{FsBlock, InodeNumber};
use throughline_testkit::cases::config;

const NUMBER: InodeNumber = InodeNumber(12);

fn sizes() -> impl Strategy<Value = u16> {
    prop_oneof![Just(128u16), Just(256), Just(1024)]
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn fields_round_trip(
        size in sizes(), uid: u32, gid: u32, generation: u32, version: u64, acl in 0u64..1 << 48,
        seconds in MIN_SECONDS..=MAX_SECONDS, nanoseconds in 0u32..1_000_000_000, projid: u32,
    ) {
        let geometry = common::geometry();
        let mut inode = InodeImage::new(size, 0);
        inode.set_mode(FileType::Regular.mode_bits() | 0o640);
        inode.set_uid(uid);
        inode.set_gid(gid);
        inode.set_generation(generation);
        inode.set_version(version);
        inode.set_file_acl(&geometry, FsBlock(acl));
        let time = Timestamp { seconds, nanoseconds };
        for which in [Time::Access, Time::Change, Time::Modify, Time::Create] {
            inode.set_time(which, time);
        }
        let has_extra = size > 128;
        prop_assert_eq!(inode.set_projid(projid), has_extra);
        inode.update_checksum(&geometry, NUMBER);

        let mut read = InodeImage::read(inode.as_bytes()).unwrap();
        prop_assert_eq!(read.verify_checksum(&geometry, NUMBER), Ok(()));
        prop_assert!(read.verify_checksum(&geometry, InodeNumber(13)).is_err());
        prop_assert_eq!((read.uid(), read.gid(), read.generation()), (uid, gid, generation));
        prop_assert_eq!(read.file_acl(&geometry), FsBlock(acl));
        prop_assert_eq!(read.mode(), 0o100640);
        if has_extra {
            prop_assert_eq!((read.version(), read.projid()), (version, projid));
            prop_assert_eq!(read.time(Time::Create), Some(time));
            prop_assert_eq!(read.time(Time::Modify), Some(time));
        } else {
            prop_assert_eq!((read.version(), read.projid()), (version & 0xFFFF_FFFF, 0));
            prop_assert_eq!(read.time(Time::Create), None);
            let short = Timestamp::from_seconds(seconds.min(i64::from(i32::MAX)));
            prop_assert_eq!(read.time(Time::Access), Some(short));
        }
        // Any flipped bit is detected, by 32 bits of checksum, or 16 in small inodes.
        read.base_mut().i_block[5] ^= 4;
        prop_assert!(read.verify_checksum(&geometry, NUMBER).is_err());
    }

    #[test]
    fn device_numbers_round_trip(major in 0u32..1 << 12, minor in 0u32..1 << 20) {
        let mut inode = InodeImage::new(256, 0);
        prop_assert!(inode.set_device_number(major, minor));
        prop_assert_eq!(inode.device_number(), (major, minor));
        prop_assert!(!inode.set_device_number(1 << 12, 0) && !inode.set_device_number(0, 1 << 20));
    }

    #[test]
    fn block_counts_round_trip(blocks in 0u64..1 << 50) {
        let mut geometry = common::geometry();
        let mut inode = InodeImage::new(256, 0);
        let count = blocks * 2; // units of 512 bytes, 1 KiB blocks
        let fits = count >> 1 < 1 << 48;
        prop_assert_eq!(inode.set_blocks_512(&geometry, count), fits);
        if fits {
            prop_assert_eq!(inode.blocks_512(&geometry), count);
            let huge = inode.flags().contains(InodeFlags::HUGE_FILE);
            prop_assert_eq!(huge, count >= 1 << 48);
        }
        geometry.ro_compat.remove(RoCompat::HUGE_FILE);
        prop_assert_eq!(inode.set_blocks_512(&geometry, count), u32::try_from(count).is_ok());
    }
}

#[test]
fn sizes_are_wide_where_the_format_says() {
    let mut geometry = common::geometry();
    let mut inode = InodeImage::new(256, 0);
    let (large, low) = (0x12_3456_789Au64, 0x3456_789Au64);
    for (kind, expected) in [
        (FileType::Regular, large),
        (FileType::Directory, low),
        (FileType::Symlink, low),
    ] {
        inode.set_mode(kind.mode_bits());
        inode.set_size_bytes(large);
        assert_eq!(inode.size_bytes(&geometry), Ok(expected), "{kind:?}");
    }
    geometry.incompat |= Incompat::LARGE_DIR;
    inode.set_mode(FileType::Directory.mode_bits());
    assert_eq!(inode.size_bytes(&geometry), Ok(large));
    inode.set_mode(FileType::Regular.mode_bits());
    inode.set_size_bytes(u64::MAX);
    assert!(inode.size_bytes(&geometry).is_err());
}

#[test]
fn extra_fields_are_there_as_far_as_they_reach() {
    let mut bytes = [0u8; 256];
    // An inode from a kernel that had only the fields up to i_mtime_extra.
    bytes[128] = 12;
    let mut inode = InodeImage::read(&bytes).unwrap();
    let time = Timestamp {
        seconds: 1 << 33,
        nanoseconds: 5,
    };
    for which in [Time::Change, Time::Modify, Time::Access, Time::Create] {
        inode.set_time(which, time);
    }
    assert_eq!(inode.time(Time::Change), Some(time));
    assert_eq!(inode.time(Time::Modify), Some(time));
    assert_eq!(
        inode.time(Time::Access),
        Some(Timestamp::from_seconds(i64::from(i32::MAX)))
    );
    assert_eq!(inode.time(Time::Create), None);
    assert_eq!(inode.xattr_range(), Some(140..256));
    assert!(
        inode.as_bytes()[140..].iter().all(|&byte| byte == 0),
        "attributes are not touched"
    );
    for bad in [1, 3, 130, 132] {
        bytes[128] = bad;
        assert!(InodeImage::read(&bytes).is_err(), "{bad}");
    }
    assert_eq!(InodeImage::new(256, 0).extra_isize(), EXTRA_ISIZE);
    assert_eq!(InodeImage::new(256, 64).extra_isize(), 64);
    assert_eq!(InodeImage::new(256, 5000).extra_isize(), 128);
    assert_eq!(InodeImage::new(128, 32).extra_isize(), 0);
}

#[test]
fn fast_links_are_short_and_not_mapped() {
    let mut inode = InodeImage::new(256, 0);
    inode.set_mode(FileType::Symlink.mode_bits() | 0o777);
    inode.i_block_mut()[..6].copy_from_slice(b"target");
    inode.set_size_bytes(6);
    assert_eq!(inode.fast_symlink_target(), Some(&b"target"[..]));
    inode.set_size_bytes(60);
    assert_eq!(inode.fast_symlink_target(), None);
    inode.set_size_bytes(6);
    inode.set_flags(InodeFlags::EXTENTS);
    assert!(!inode.is_fast_symlink());
    inode.set_flags(InodeFlags::empty());
    inode.set_mode(FileType::Regular.mode_bits());
    assert!(!inode.is_fast_symlink());
}

#[test]
fn types_have_their_codes() {
    for code in 1..=7 {
        let kind = FileType::from_dir_code(code).unwrap();
        assert_eq!(kind.dir_code(), code);
        assert_eq!(FileType::from_mode(kind.mode_bits() | 0o7777), Some(kind));
    }
    assert_eq!(FileType::from_dir_code(0), None);
    assert_eq!(FileType::from_dir_code(8), None);
    assert_eq!(FileType::from_mode(0o644), None);
    assert_eq!(FileType::from_mode(0xF000), None);
}
