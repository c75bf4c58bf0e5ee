//! [`Sums`]: the checksums of inodes, group descriptors and the superblock, computed when a transaction is
//! sealed ([`throughline_journal::Sum`]).

use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::Op;
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use throughline_extfmt::{
    Geometry, GroupDesc, GroupNumber, InodeImage, InodeNumber, Superblock, group_desc,
};
use throughline_journal::{Part, Sum};
use zerocopy::IntoBytes;

/// What computes the checksums of a volume.
pub(crate) struct Sums {
    pub(crate) inode: Arc<dyn Sum>,
    pub(crate) group_desc: Arc<dyn Sum>,
    pub(crate) superblock: Arc<dyn Sum>,
}

impl Sums {
    pub(crate) fn new(geo: &Geometry, disk: &Arc<Disk>, kbytes_at_open: u64) -> Self {
        Self {
            inode: Arc::new(InodeSum(geo.clone())),
            group_desc: Arc::new(GroupDescSum(geo.clone())),
            superblock: Arc::new(SuperblockSum {
                disk: Arc::clone(disk),
                kbytes_at_open,
                at: (SUPERBLOCK_OFFSET % u64::from(geo.block_bytes)) as usize,
            }),
        }
    }
}

/// The superblock as a part of its block.
pub(crate) const SUPERBLOCK_PART: Part = Part {
    index: 0,
    number: 0,
};

struct InodeSum(Geometry);

impl Sum for InodeSum {
    fn set(&self, block: &mut [u8], part: Part) {
        if self.0.csum_seed.is_none() {
            return;
        }
        let Some(bytes) = part_bytes(block, part, self.0.inode_bytes) else {
            return;
        };
        if let Ok(mut image) = InodeImage::read(bytes) {
            image.update_checksum(&self.0, InodeNumber(part.number));
            bytes.copy_from_slice(image.as_bytes());
        }
    }
}

struct GroupDescSum(Geometry);

impl Sum for GroupDescSum {
    fn set(&self, block: &mut [u8], part: Part) {
        let Some(bytes) = part_bytes(block, part, self.0.desc_bytes) else {
            return;
        };
        if let Ok(mut desc) = GroupDesc::read(bytes) {
            group_desc::write_with_checksum(&self.0, GroupNumber(part.number), &mut desc, bytes);
        }
    }
}

/// The bytes of a part; parts have the same size. `None` if the block does not have it.
fn part_bytes(block: &mut [u8], part: Part, part_bytes: u16) -> Option<&mut [u8]> {
    let part_bytes = usize::from(part_bytes);
    let at = (part.index as usize).checked_mul(part_bytes)?;
    block.get_mut(at..at.checked_add(part_bytes)?)
}

/// The checksum stays the same, so that a torn write of the superblock is harmless
/// ([`Superblock::keep_checksum`]). Also updates `s_kbytes_written`: adding up the counters of all queues
/// costs more than the change of the superblock.
struct SuperblockSum {
    disk: Arc<Disk>,
    /// `s_kbytes_written` when the volume was opened.
    kbytes_at_open: u64,
    /// Offset of the superblock in its block.
    at: usize,
}

impl Sum for SuperblockSum {
    fn set(&self, block: &mut [u8], _: Part) {
        let Some(bytes) = block.get_mut(self.at..self.at.saturating_add(SUPERBLOCK_BYTES)) else {
            return;
        };
        if let Ok(mut superblock) = Superblock::read(bytes) {
            set_kbytes_written(&mut superblock, &self.disk, self.kbytes_at_open);
            superblock.keep_checksum();
            bytes.copy_from_slice(superblock.as_bytes());
        }
    }
}

/// Sets `s_kbytes_written`: its value when the volume was opened, and what was written since.
pub(crate) fn set_kbytes_written(superblock: &mut Superblock, disk: &Disk, at_open: u64) {
    let written = disk.counters().bytes(Op::Write) / 1024;
    superblock
        .s_kbytes_written
        .set(at_open.saturating_add(written));
}
