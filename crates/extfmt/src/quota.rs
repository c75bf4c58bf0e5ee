//! Quota files (`quota`): what each user, group or project uses, and its limits.
//!
//! The format is "vfsv1", version 1 of the second quota format, as in the files that `mke2fs` makes. A file
//! is an array of blocks of 1 KiB, whatever the volume's block size:
//!
//! ```text
//!   block 0        header: magic, version, grace times, number of blocks, heads of two lists
//!   block 1        root of a radix tree: 256 block numbers, indexed by the highest byte of the id
//!   other blocks   inner blocks of the tree, four levels in all, one for each byte of the id;
//!                  leaves: a header and 14 entries of 72 bytes, in no order; free blocks
//! ```
//!
//! Blocks that are free form a list through their headers; so do leaves with room for an entry. Block number
//! 0 means "none". An entry of zeros is free; the entry of id 0 that is otherwise zero has an inode time of
//! 1.

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::ensure;
use crate::superblock::Superblock;
use crate::units::InodeNumber;
use crate::{Corrupt, Result};

/// Size of a block of a quota file.
pub const QUOTA_BLOCK_BYTES: usize = 1024;
/// The root of the tree.
pub const ROOT_BLOCK: u32 = 1;
/// Levels of the tree above the leaves.
pub const LEVELS: u32 = 4;
/// Entries in a leaf.
pub const LEAF_ENTRIES: usize =
    (QUOTA_BLOCK_BYTES - size_of::<LeafHeader>()) / size_of::<DiskEntry>();

/// Whose usage a quota file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaKind {
    /// Of users.
    User,
    /// Of groups.
    Group,
    /// Of projects.
    Project,
}

impl QuotaKind {
    /// All kinds, by number.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// The number of the kind: 0 to 2.
    pub fn index(self) -> usize {
        self as usize
    }

    /// `dqh_magic`.
    pub fn magic(self) -> u32 {
        match self {
            Self::User => 0xD9C0_1F11,
            Self::Group => 0xD9C0_1927,
            Self::Project => 0xD9C0_3F14,
        }
    }

    /// "user", "group" or "project".
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }

    /// The inode of the quota file that a superblock names; `None` if the volume has no such file.
    pub fn inode(self, sb: &Superblock) -> Option<InodeNumber> {
        let ino = match self {
            Self::User => sb.s_usr_quota_inum,
            Self::Group => sb.s_grp_quota_inum,
            Self::Project => sb.s_prj_quota_inum,
        };
        Some(InodeNumber(ino.get())).filter(|ino| *ino != InodeNumber::NONE)
    }
}

/// Block 0 of a quota file.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct QuotaHeader {
    pub dqh_magic: U32,
    pub dqh_version: U32,
    /// Seconds that the soft limit of space may be exceeded.
    pub dqi_bgrace: U32,
    /// The same for inodes.
    pub dqi_igrace: U32,
    pub dqi_flags: U32,
    /// Blocks in the file.
    pub dqi_blocks: U32,
    /// First free block.
    pub dqi_free_blk: U32,
    /// First leaf with a free entry.
    pub dqi_free_entry: U32,
}

/// The first bytes of a leaf or of a free block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct LeafHeader {
    /// Next block in the list that this block is in.
    pub dqdh_next_free: U32,
    /// Previous one, for leaves.
    pub dqdh_prev_free: U32,
    /// Entries in use.
    pub dqdh_entries: U16,
    dqdh_pad1: U16,
    dqdh_pad2: U32,
}

/// What one user, group or project uses, and its limits.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DiskEntry {
    pub dqb_id: U32,
    dqb_pad: U32,
    pub dqb_ihardlimit: U64,
    pub dqb_isoftlimit: U64,
    pub dqb_curinodes: U64,
    /// In units of 1024 bytes.
    pub dqb_bhardlimit: U64,
    /// In units of 1024 bytes.
    pub dqb_bsoftlimit: U64,
    /// In bytes.
    pub dqb_curspace: U64,
    /// When the grace time for space ends, in seconds since 1970; 0: not running.
    pub dqb_btime: U64,
    /// The same for inodes.
    pub dqb_itime: U64,
}

const _: () = {
    assert!(size_of::<QuotaHeader>() == 32);
    assert!(size_of::<LeafHeader>() == 16);
    assert!(size_of::<DiskEntry>() == 72);
    assert!(LEAF_ENTRIES == 14);
};

impl QuotaHeader {
    /// Reads and checks block 0 of a quota file of `file_bytes`.
    pub fn read(block: &[u8], kind: QuotaKind, file_bytes: u64) -> Result<Self> {
        let (header, _) = Self::read_from_prefix(block)
            .map_err(|_| Corrupt::new("quota file header is cut short"))?;
        let (found, right) = (header.dqh_magic.get(), kind.magic());
        ensure!(
            found == right,
            "quota file magic is {found:#010x}, should be {right:#010x}"
        );
        let version = header.dqh_version.get();
        ensure!(version == 1, "quota file version is {version}, should be 1");
        let blocks = header.dqi_blocks.get();
        let bytes = u64::from(blocks).saturating_mul(QUOTA_BLOCK_BYTES as u64);
        ensure!(
            blocks > ROOT_BLOCK && bytes <= file_bytes,
            "quota file of {file_bytes} bytes counts {blocks} blocks"
        );
        for (list, head) in [
            ("free blocks", header.dqi_free_blk.get()),
            ("free entries", header.dqi_free_entry.get()),
        ] {
            if head != 0 {
                header.check_block(head).map_err(|e| {
                    Corrupt::new(format!("head of the list of {list}: {}", e.what()))
                })?;
            }
        }
        Ok(header)
    }

    /// Checks a block number found in the file: neither the header nor the root, and inside the file.
    pub fn check_block(&self, number: u32) -> Result<()> {
        let blocks = self.dqi_blocks.get();
        ensure!(
            number > ROOT_BLOCK && number < blocks,
            "quota block {number} is not one of 2 to {blocks}"
        );
        Ok(())
    }

    /// Copies the header into block 0; other bytes stay.
    pub fn write(&self, block: &mut [u8]) {
        if let Some(place) = block.get_mut(..size_of::<Self>()) {
            place.copy_from_slice(self.as_bytes());
        }
    }
}

/// The block number that an inner block at `level` (0: the root) has for `id`; 0: none.
pub fn child(block: &[u8], id: u32, level: u32) -> u32 {
    let place = block.get(child_place(id, level)..).unwrap_or_default();
    U32::read_from_prefix(place).map_or(0, |(number, _)| number.get())
}

/// Sets the block number that an inner block at `level` has for `id`.
pub fn set_child(block: &mut [u8], id: u32, level: u32, number: u32) {
    let at = child_place(id, level);
    if let Some(place) = block.get_mut(at..at.saturating_add(4)) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

fn child_place(id: u32, level: u32) -> usize {
    let index = id.to_be_bytes().get(level as usize).copied().unwrap_or(0);
    usize::from(index).saturating_mul(4)
}

/// Whether an inner block names no other block.
pub fn is_empty(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

/// The header of a leaf or of a free block.
pub fn leaf_header(block: &[u8]) -> Result<LeafHeader> {
    LeafHeader::read_from_prefix(block)
        .map(|(header, _)| header)
        .map_err(|_| Corrupt::new("quota leaf is cut short"))
}

/// Sets the header of a leaf or of a free block.
pub fn set_leaf_header(block: &mut [u8], header: LeafHeader) {
    if let Some(place) = block.get_mut(..size_of::<LeafHeader>()) {
        place.copy_from_slice(header.as_bytes());
    }
}

/// The slots of a leaf: byte offset and entry, `None` for a free one.
pub fn entries(block: &[u8]) -> impl Iterator<Item = (usize, Option<DiskEntry>)> + '_ {
    let first = size_of::<LeafHeader>();
    (0..LEAF_ENTRIES).filter_map(move |slot| {
        let at = first.saturating_add(slot.saturating_mul(size_of::<DiskEntry>()));
        let bytes = block.get(at..)?;
        let (entry, _) = DiskEntry::read_from_prefix(bytes).ok()?;
        Some((at, (!is_empty(entry.as_bytes())).then_some(entry)))
    })
}

/// The entry of `id` in a leaf, and its byte offset.
pub fn find(block: &[u8], id: u32) -> Option<(usize, DiskEntry)> {
    entries(block)
        .filter_map(|(at, entry)| Some((at, entry?)))
        .find(|(_, entry)| entry.dqb_id.get() == id)
        .map(|(at, entry)| (at, entry.without_mark()))
}

/// The byte offset of the first free slot of a leaf.
pub fn free_slot(block: &[u8]) -> Option<usize> {
    entries(block)
        .find(|(_, entry)| entry.is_none())
        .map(|(at, _)| at)
}

/// Writes an entry at a byte offset of a leaf; `None` makes the slot free.
pub fn set_entry(block: &mut [u8], at: usize, entry: Option<DiskEntry>) {
    let bytes = entry.map_or_else(DiskEntry::default, DiskEntry::with_mark);
    if let Some(place) = block.get_mut(at..at.saturating_add(size_of::<DiskEntry>())) {
        place.copy_from_slice(bytes.as_bytes());
    }
}

impl DiskEntry {
    /// Whether nothing is used and nothing limited: the file need not have the entry.
    pub fn is_idle(&self) -> bool {
        let rest = Self {
            dqb_id: U32::ZERO,
            dqb_btime: U64::ZERO,
            dqb_itime: U64::ZERO,
            ..*self
        };
        is_empty(rest.as_bytes())
    }

    /// An entry of id 0 must not look free.
    fn with_mark(mut self) -> Self {
        if is_empty(self.as_bytes()) {
            self.dqb_itime.set(1);
        }
        self
    }

    fn without_mark(mut self) -> Self {
        if self.is_idle() && self.dqb_id.get() == 0 && self.dqb_itime.get() == 1 {
            self.dqb_itime.set(0);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entry_of_id_0_is_never_free() {
        let mut leaf = vec![0; QUOTA_BLOCK_BYTES];
        let at = free_slot(&leaf).unwrap();
        assert_eq!(at, 16);
        set_entry(&mut leaf, at, Some(DiskEntry::default()));
        let (found, entry) = find(&leaf, 0).unwrap();
        assert_eq!((found, entry.dqb_itime.get()), (16, 0));
        assert_eq!(free_slot(&leaf), Some(88));
        set_entry(&mut leaf, at, None);
        assert!(find(&leaf, 0).is_none());
    }

    #[test]
    fn an_id_has_one_path() {
        let mut block = vec![0; QUOTA_BLOCK_BYTES];
        for level in 0..LEVELS {
            set_child(&mut block, 0x0102_03ff, level, 7 + level);
        }
        assert_eq!(child(&block, 0x01ff_ffff, 0), 7);
        assert_eq!(child(&block, 0xff02_ffff, 1), 8);
        assert_eq!(child(&block, 0xffff_03ff, 2), 9);
        assert_eq!(child(&block, 0xffff_ffff, 3), 10);
        assert_eq!(child(&block[..8], 0xffff_ffff, 3), 0);
    }

    #[test]
    fn a_header_that_lies_is_refused() {
        let mut header = QuotaHeader {
            dqh_magic: U32::new(QuotaKind::Group.magic()),
            dqh_version: U32::new(1),
            dqi_bgrace: U32::new(604_800),
            dqi_igrace: U32::new(604_800),
            dqi_flags: U32::ZERO,
            dqi_blocks: U32::new(6),
            dqi_free_blk: U32::ZERO,
            dqi_free_entry: U32::new(5),
        };
        let read = |h: &QuotaHeader, kind| QuotaHeader::read(h.as_bytes(), kind, 6 * 1024);
        assert!(read(&header, QuotaKind::Group).is_ok());
        assert!(read(&header, QuotaKind::User).is_err());
        header.dqi_free_entry.set(6);
        assert!(read(&header, QuotaKind::Group).is_err());
        header.dqi_free_entry.set(0);
        header.dqi_blocks.set(7);
        assert!(read(&header, QuotaKind::Group).is_err());
        header.dqi_blocks.set(1);
        assert!(read(&header, QuotaKind::Group).is_err());
        assert!(QuotaHeader::read(&[1; 31], QuotaKind::Group, 1 << 20).is_err());
    }
}
