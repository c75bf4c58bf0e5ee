//! The superblock of a plan.

use throughline_extfmt::checksum::{CRC32C_INIT, crc32c};
use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::quota::QuotaKind;
use throughline_extfmt::superblock::{CHECKSUM_CRC32C, Flags, MAGIC, REV_DYNAMIC, State};
use throughline_extfmt::{InodeNumber, Superblock};
use zerocopy::FromZeros;

use super::Plan;
use super::build::EXTRA_ISIZE;
use super::numbers::Numbers;
use super::quota;
use crate::request::Request;

/// `s_jnl_backup_type`: the superblock keeps a copy of the journal's inode.
const JOURNAL_BACKUP_BLOCKS: u8 = 1;
/// The largest file without `large_file`.
const LARGE_FILE_BYTES: u64 = i32::MAX as u64;
/// Most blocks of a group of a journal device, which has none.
const JOURNAL_GROUP_BLOCKS: u32 = 65528;
/// Seconds between checks, where there are periodic ones.
const CHECK_INTERVAL_S: u32 = 180 * 24 * 3600;

/// `s_encrypt_algos`: AES-256-XTS for contents, AES-256-CTS for names.
const ENCRYPTION: [u8; 4] = [1, 4, 0, 0];

/// The superblock with all numbers that do not depend on what is in use.
pub(super) fn initial(request: &Request, numbers: &Numbers) -> Superblock {
    let mut sb = Superblock::new_zeroed();
    sb.s_magic.set(MAGIC);
    let log = request.block_bytes.ilog2() - 10;
    sb.s_log_block_size.set(log);
    sb.s_log_cluster_size.set(log);
    sb.s_first_data_block.set(numbers.first_data_block);
    sb.s_blocks_per_group.set(numbers.blocks_per_group);
    sb.s_clusters_per_group.set(numbers.blocks_per_group);
    sb.s_inodes_per_group.set(numbers.inodes_per_group);
    sb.s_inodes_count.set(numbers.inodes());
    sb.s_blocks_count_lo.set(numbers.blocks as u32);
    // Of the blocks that were asked for; of a volume that became shorter, the same part.
    let reserved = (request.reserved_percent * request.blocks as f64 / 100.0) as u64;
    let reserved = u128::from(reserved) * u128::from(numbers.blocks) / u128::from(request.blocks);
    let reserved = reserved as u64;
    sb.s_r_blocks_count_lo.set(reserved as u32);
    sb.s_inode_size.set(request.inode_bytes);
    sb.s_first_ino.set(InodeNumber::GOOD_OLD_FIRST.0);
    if !request.revision_0 {
        sb.s_rev_level.set(REV_DYNAMIC);
        let features = &request.features;
        sb.s_feature_compat.set(features.compat.bits());
        sb.s_feature_incompat.set(features.incompat.bits());
        sb.s_feature_ro_compat.set(features.ro_compat.bits());
    }
    sb.s_uuid = request.uuid;
    sb.s_reserved_gdt_blocks
        .set(numbers.reserved_gdt_blocks as u16);
    if sb.incompat().contains(Incompat::BIT64) {
        sb.s_desc_size.set(numbers.desc_bytes);
        sb.s_blocks_count_hi.set((numbers.blocks >> 32) as u32);
        sb.s_r_blocks_count_hi.set((reserved >> 32) as u32);
    }
    if sb.incompat().contains(Incompat::FLEX_BG) {
        sb.s_log_groups_per_flex = request.groups_per_flex.ilog2() as u8;
    }
    if sb.ro_compat().contains(RoCompat::METADATA_CSUM) {
        sb.s_checksum_type = CHECKSUM_CRC32C;
    }
    if sb.incompat().contains(Incompat::CSUM_SEED) {
        sb.s_checksum_seed.set(crc32c(CRC32C_INIT, &request.uuid));
    }
    if sb.compat().contains(Compat::SPARSE_SUPER2) {
        sb.s_backup_bgs = numbers.backup_bgs.map(Into::into);
    }
    settings(&mut sb, request);
    sb
}

/// The superblock of a journal device.
pub(crate) fn of_journal_device(request: &Request) -> Superblock {
    let mut sb = Superblock::new_zeroed();
    sb.s_magic.set(MAGIC);
    let log = request.block_bytes.ilog2() - 10;
    sb.s_log_block_size.set(log);
    sb.s_log_cluster_size.set(log);
    sb.s_first_data_block.set(u32::from(log == 0));
    let per_group = (8 * request.block_bytes).min(JOURNAL_GROUP_BLOCKS);
    sb.s_blocks_per_group.set(per_group);
    sb.s_clusters_per_group.set(per_group);
    sb.s_blocks_count_lo.set(request.blocks as u32);
    sb.s_inode_size.set(request.inode_bytes);
    sb.s_first_ino.set(InodeNumber::GOOD_OLD_FIRST.0);
    sb.s_rev_level.set(REV_DYNAMIC);
    sb.s_feature_incompat.set(Incompat::JOURNAL_DEV.bits());
    sb.s_uuid = request.uuid;
    settings(&mut sb, request);
    // There are no directories.
    sb.s_flags.set(0);
    if request.features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        sb.s_feature_ro_compat.set(RoCompat::METADATA_CSUM.bits());
        sb.s_checksum_type = CHECKSUM_CRC32C;
        sb.update_checksum();
    }
    sb
}

/// The fields that describe the volume and how it is used.
fn settings(sb: &mut Superblock, request: &Request) {
    sb.s_max_mnt_count.set(u16::MAX);
    sb.set_state(State::VALID);
    sb.s_errors.set(request.on_error as u16);
    sb.s_creator_os.set(request.creator_os);
    if request.periodic_check {
        sb.s_checkinterval.set(CHECK_INTERVAL_S);
    }
    sb.set_wtime(request.time);
    sb.s_lastcheck.set(request.time as u32);
    sb.s_lastcheck_hi = (request.time >> 32) as u8;
    sb.s_mkfs_time.set(request.time as u32);
    sb.s_mkfs_time_hi = (request.time >> 32) as u8;
    let copy = |to: &mut [u8], from: &[u8]| {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    };
    copy(&mut sb.s_volume_name, &request.label);
    copy(&mut sb.s_last_mounted, &request.last_mounted);
    for (word, bytes) in sb
        .s_hash_seed
        .iter_mut()
        .zip(request.hash_seed.as_chunks::<4>().0)
    {
        word.set(u32::from_le_bytes(*bytes));
    }
    sb.s_def_hash_version = request.hash_version;
    if request.features.incompat.contains(Incompat::ENCRYPT) {
        sb.s_encrypt_algos = ENCRYPTION;
    }
    sb.s_encoding.set(request.encoding.0);
    sb.s_encoding_flags.set(request.encoding.1);
    let mut flags = Flags::SIGNED_HASH;
    flags.set(Flags::TEST_FILESYS, request.test_fs);
    sb.s_flags.set(flags.bits());
    sb.s_default_mount_opts.set(request.mount_options);
    sb.s_raid_stride.set(request.stride as u16);
    sb.s_raid_stripe_width.set(request.stripe_width);
    if request.inode_bytes > 128 && !request.revision_0 {
        sb.s_min_extra_isize.set(EXTRA_ISIZE);
        sb.s_want_extra_isize.set(EXTRA_ISIZE);
    }
}

/// Sets what depends on the rest of the plan.
pub(super) fn finish(plan: &mut Plan<'_>, request: &Request, overhead: u64, mmp: Option<u64>) {
    let free_blocks = plan
        .descs
        .iter()
        .map(|desc| u64::from(desc.free_blocks()))
        .sum();
    let free_inodes = plan
        .descs
        .iter()
        .map(|desc| desc.free_inodes())
        .sum::<u32>();
    let largest = plan
        .tree
        .as_ref()
        .map_or(0, |tree| tree.measured.walk.largest);
    let has_large = largest > LARGE_FILE_BYTES
        || plan.inodes.values().any(|inode| {
            inode
                .size_bytes(&plan.geo)
                .is_ok_and(|bytes| bytes > LARGE_FILE_BYTES)
        });
    let sb = &mut plan.superblock;
    if has_large && !request.revision_0 {
        // As the kernel does when a file grows beyond the limit.
        let ro_compat = sb.ro_compat() | RoCompat::LARGE_FILE;
        sb.s_feature_ro_compat.set(ro_compat.bits());
        plan.geo.ro_compat = ro_compat;
    }
    sb.set_free_blocks_count(free_blocks);
    sb.s_free_inodes_count.set(free_inodes);
    sb.s_overhead_clusters.set(overhead as u32);
    if let Some(inode) = plan
        .inodes
        .get(&InodeNumber::JOURNAL.0)
        .filter(|_| plan.journal.is_some())
    {
        sb.s_journal_inum.set(InodeNumber::JOURNAL.0);
        sb.s_jnl_backup_type = JOURNAL_BACKUP_BLOCKS;
        let base = inode.base();
        for (at, word) in sb.s_jnl_blocks.iter_mut().enumerate().take(15) {
            word.set(base.block_pointer(at));
        }
        sb.s_jnl_blocks[15] = base.i_size_high;
        sb.s_jnl_blocks[16] = base.i_size_lo;
    }
    if let Some(place) = mmp {
        sb.s_mmp_block.set(place);
        sb.s_mmp_interval.set(request.mmp_interval);
    }
    if sb.compat().contains(Compat::ORPHAN_FILE) {
        sb.s_orphan_file_inum.set(quota::orphan_file(request).0);
    }
    for kind in quota::kinds(request) {
        let place = match kind {
            QuotaKind::User => &mut sb.s_usr_quota_inum,
            QuotaKind::Group => &mut sb.s_grp_quota_inum,
            QuotaKind::Project => &mut sb.s_prj_quota_inum,
        };
        place.set(quota::inode_of(kind).0);
    }
}
