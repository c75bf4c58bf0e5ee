//! Confirms what a superblock with a wrong checksum says, on a volume that has no backup of it.
//!
//! A volume of one group has no backup, and a power cut may tear its superblock. The checksums of the group
//! descriptors and of the volume's own inodes are seeded with the UUID, and are found only with the right
//! geometry. They lie each in one sector, so that no power cut makes them wrong, wherever recovery stands.
//! Features that move nothing must agree with the fields that belong to them: most of these are in the other
//! sector. And a single damaged byte is no tear: the checksum tells which it is.

use throughline_block::{Disk, Purpose};
use throughline_extfmt::features::{Compat, Incompat, RoCompat};
use throughline_extfmt::inode::FileType;
use throughline_extfmt::{
    FsBlock, Geometry, GroupNumber, InodeImage, InodeNumber, Superblock, group_desc,
};

/// Bytes that a device writes whole.
const SECTOR: u16 = 512;

/// Whether everything that can be checked agrees with `superblock`, whose geometry is `geo`. `damaged` is the
/// same with the checksum that was found.
pub(super) fn agrees(
    disk: &Disk,
    damaged: &Superblock,
    superblock: &Superblock,
    geo: &Geometry,
) -> bool {
    let journal = InodeNumber(superblock.s_journal_inum.get());
    let has_journal = geo.compat.contains(Compat::HAS_JOURNAL) && journal != InodeNumber::NONE;
    geo.csum_seed.is_some()
        && damaged.damaged_byte().is_none()
        // A larger inode may be torn itself.
        && geo.inode_bytes <= SECTOR
        && features_agree(superblock)
        && descriptors_agree(disk, geo)
        && is_sound(disk, geo, InodeNumber::ROOT, FileType::Directory)
        && (!has_journal || is_sound(disk, geo, journal, FileType::Regular))
}

fn features_agree(sb: &Superblock) -> bool {
    let (compat, incompat, ro_compat) = (sb.compat(), sb.incompat(), sb.ro_compat());
    let quotas = [
        sb.s_usr_quota_inum,
        sb.s_grp_quota_inum,
        sb.s_prj_quota_inum,
    ];
    let has_journal = sb.s_journal_inum.get() != 0 || sb.s_journal_dev.get() != 0;
    let clusters = sb.s_log_cluster_size != sb.s_log_block_size;
    let pairs = [
        (compat.contains(Compat::HAS_JOURNAL), has_journal),
        (
            compat.contains(Compat::ORPHAN_FILE),
            sb.s_orphan_file_inum.get() != 0,
        ),
        (
            incompat.contains(Incompat::CSUM_SEED),
            sb.s_checksum_seed.get() != 0,
        ),
        (
            incompat.contains(Incompat::CASEFOLD),
            sb.s_encoding.get() != 0,
        ),
        (incompat.contains(Incompat::MMP), sb.s_mmp_block.get() != 0),
        (
            ro_compat.contains(RoCompat::QUOTA),
            quotas.iter().any(|ino| ino.get() != 0),
        ),
        (ro_compat.contains(RoCompat::BIGALLOC), clusters),
    ];
    pairs.iter().all(|(feature, field)| feature == field)
}

fn descriptors_agree(disk: &Disk, geo: &Geometry) -> bool {
    let per_block = geo.descs_per_block();
    (0..geo.desc_blocks).all(|index| {
        let Some(block) = read(disk, geo, geo.desc_block(index)) else {
            return false;
        };
        let first = index.saturating_mul(per_block);
        (first..geo.groups.min(first.saturating_add(per_block))).all(|group| {
            let group = GroupNumber(group);
            let (_, at) = geo.desc_index(group);
            group_desc::read_checked(geo, group, &block, at).is_ok()
        })
    })
}

/// Whether the inode is there, with the right checksum and type.
fn is_sound(disk: &Disk, geo: &Geometry, ino: InodeNumber, file_type: FileType) -> bool {
    let read = || {
        let (group, index) = geo.inode_place(ino)?;
        let (block, at) = geo.desc_index(group);
        let descriptors = read(disk, geo, geo.desc_block(block))?;
        let desc = group_desc::read_checked(geo, group, &descriptors, at).ok()?;
        let bytes = u64::from(index) * u64::from(geo.inode_bytes);
        let (block, at) = (bytes >> geo.block_log, bytes % u64::from(geo.block_bytes));
        let table = read(disk, geo, FsBlock(desc.inode_table().0.checked_add(block)?))?;
        let at = usize::try_from(at).ok()?;
        let bytes = table.get(at..at.checked_add(geo.inode_bytes.into())?)?;
        InodeImage::read(bytes).ok()
    };
    read().is_some_and(|image| {
        image.file_type() == Ok(file_type) && image.verify_checksum(geo, ino).is_ok()
    })
}

fn read(disk: &Disk, geo: &Geometry, block: FsBlock) -> Option<Vec<u8>> {
    let logical = disk.limits().logical_block_bytes.max(1);
    let at = block.byte_offset(geo.block_bytes)?;
    let end = at.checked_add(geo.block_bytes.into())?;
    if end > disk.len_bytes() || geo.block_bytes < logical {
        return None;
    }
    let mut bytes = vec![0; geo.block_bytes as usize];
    Purpose::Metadata
        .during(|| disk.read_at(at, &mut bytes))
        .ok()?;
    Some(bytes)
}
