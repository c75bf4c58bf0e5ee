//! A small volume for tests that need a geometry and no image.

use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::superblock::{CHECKSUM_CRC32C, MAGIC, SUPERBLOCK_BYTES};
use throughline_extfmt::{Geometry, Superblock};
use zerocopy::FromZeros;

/// A superblock with 8192 blocks of 1 KiB in one group, 1024 inodes of 256 bytes, ext4's usual
/// features, and a valid checksum.
pub(crate) fn superblock() -> Superblock {
    let mut sb = Superblock::new_zeroed();
    assert_eq!(size_of_val(&sb), SUPERBLOCK_BYTES);
    sb.s_magic.set(MAGIC);
    sb.s_rev_level.set(1);
    sb.s_inodes_count.set(1024);
    sb.s_blocks_count_lo.set(8193);
    sb.s_first_data_block.set(1);
    sb.s_blocks_per_group.set(8192);
    sb.s_clusters_per_group.set(8192);
    sb.s_inodes_per_group.set(1024);
    sb.s_first_ino.set(11);
    sb.s_inode_size.set(256);
    sb.s_desc_size.set(64);
    sb.s_uuid = *b"sixteen bytes id";
    sb.s_checksum_type = CHECKSUM_CRC32C;
    sb.s_feature_compat
        .set((Compat::DIR_INDEX | Compat::EXT_ATTR).bits());
    let incompat = Incompat::FILETYPE | Incompat::EXTENTS | Incompat::BIT64 | Incompat::FLEX_BG;
    sb.s_feature_incompat.set(incompat.bits());
    let ro_compat = RoCompat::METADATA_CSUM
        | RoCompat::SPARSE_SUPER
        | RoCompat::HUGE_FILE
        | RoCompat::LARGE_FILE
        | RoCompat::EXTRA_ISIZE;
    sb.s_feature_ro_compat.set(ro_compat.bits());
    sb.update_checksum();
    sb
}

/// Its geometry.
pub(crate) fn geometry() -> Geometry {
    superblock()
        .validate()
        .expect("the test's superblock is valid")
}
