//! The files of a new volume, in the order in which their blocks are taken: the root directory, lost+found,
//! the reserved descriptors, the journal, the block of multiple-mount protection, the orphan file.

use std::ops::Range;

use throughline_extfmt::dir::{self, DirFormat};
use throughline_extfmt::features::{Compat, Incompat};
use throughline_extfmt::indirect;
use throughline_extfmt::inode::{FileType, Time};
use throughline_extfmt::jbd2::{BlockHeader, BlockType, JournalSuperblock};
use throughline_extfmt::mmp::{MMP_MAGIC, MmpBlock, SEQ_CLEAN};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::{Geometry, GroupNumber, InodeImage, InodeNumber, orphan};
use zerocopy::{FromZeros, IntoBytes};

use super::build::Build;
use super::journal::JournalSize;
use super::quota;
use crate::error::Result;
use crate::pack::directory::fill;

/// `/lost+found`: the first inode that is not reserved.
pub(crate) const LOST_AND_FOUND: InodeNumber = InodeNumber(11);
/// The orphan file follows it, unless there is a quota file of projects.
pub(crate) const ORPHAN_FILE: InodeNumber = InodeNumber(12);

/// lost+found is made large enough for a few hundred names, so that a check that finds files on a full volume
/// has a place for them: 16 KiB, but not more than the blocks that an inode points to directly.
const LOST_AND_FOUND_BYTES: u32 = 16 << 10;
const LOST_AND_FOUND_BLOCKS: std::ops::RangeInclusive<u32> = 2..=12;

/// Begins the attributes in an inode.
const XATTR_MAGIC: u32 = throughline_extfmt::xattr::XATTR_MAGIC;

const REGULAR: u16 = 0o100_600;

impl Build<'_> {
    /// The inodes that have a number but no content: they are in use, and their checksums are valid.
    pub(crate) fn reserved_inodes(&mut self) -> Result<()> {
        let time = Timestamp::from_seconds(self.request.time as i64);
        for number in 1..self.geo.first_ino.0.min(LOST_AND_FOUND.0) {
            // All zero: not even the size of the extra fields is set.
            let mut inode = InodeImage::read(&vec![0; self.geo.inode_bytes.into()])?;
            if number == InodeNumber::BAD_BLOCKS.0 {
                for which in [Time::Access, Time::Change, Time::Modify] {
                    inode.set_time(which, time);
                }
            }
            self.add(InodeNumber(number), inode);
        }
        Ok(())
    }

    /// Makes the root directory and lost+found, as far as no tree brings them.
    pub(crate) fn directories(&mut self, root: bool, lost_and_found: bool) -> Result<()> {
        if root {
            self.root_directory()?;
        }
        match lost_and_found {
            true => self.lost_and_found(),
            false => Ok(()),
        }
    }

    fn root_directory(&mut self) -> Result<()> {
        let goal = self.geo.first_data_block.0;
        let root = InodeNumber::ROOT;
        let directory = FileType::Directory.mode_bits();
        let mut inode = self.inode(directory | 0o755, 3);
        let (uid, gid) = self.request.root_owner;
        inode.base_mut().set_uid(uid);
        inode.base_mut().set_gid(gid);
        let names = [
            (&b"."[..], root, FileType::Directory),
            (&b".."[..], root, FileType::Directory),
            (&b"lost+found"[..], LOST_AND_FOUND, FileType::Directory),
        ];
        self.directory(root, inode, 1, goal, &names, false)
    }

    fn lost_and_found(&mut self) -> Result<()> {
        let (root, directory) = (InodeNumber::ROOT, FileType::Directory.mode_bits());
        let mut count = lost_and_found_blocks(self.geo.block_bytes);
        let mut inode = self.inode(directory | 0o700, 2);
        let names = [
            (&b"."[..], LOST_AND_FOUND, FileType::Directory),
            (&b".."[..], root, FileType::Directory),
        ];
        if self.is_inline() {
            // As a directory that began inline and grew out of its inode: it has one block less, and an area
            // of attributes that is empty.
            count -= 1;
            if let Some(magic) = inode.xattr_area_mut().get_mut(..4) {
                magic.copy_from_slice(&XATTR_MAGIC.to_le_bytes());
            }
        }
        let group = self
            .geo
            .inode_place(LOST_AND_FOUND)
            .map_or(0, |(group, _)| group.0);
        let group = group >> self.geo.log_groups_per_flex << self.geo.log_groups_per_flex;
        let goal = self.geo.group_first_block(GroupNumber(group)).0;
        let is_inline = self.is_inline();
        self.directory(
            LOST_AND_FOUND,
            inode,
            u64::from(count),
            goal,
            &names,
            is_inline,
        )
    }

    fn is_inline(&self) -> bool {
        self.geo.incompat.contains(Incompat::INLINE_DATA)
    }

    /// Makes a directory of `count` blocks, with its names in the first.
    fn directory(
        &mut self,
        ino: InodeNumber,
        mut inode: InodeImage,
        count: u64,
        goal: u64,
        names: &[(&[u8], InodeNumber, FileType)],
        free_after: bool,
    ) -> Result<()> {
        let runs = self.map(ino, &mut inode, count, goal)?;
        let format = DirFormat::new(&self.geo);
        let seed = self.geo.inode_seed(ino, 0);
        for (at, block) in runs.into_iter().flatten().enumerate() {
            let mut content = vec![0; self.geo.block_bytes as usize];
            match at {
                0 => {
                    fill(&mut content, &format, names, seed);
                    if free_after {
                        free_behind(&mut content, &format, names.len());
                    }
                }
                _ => dir::init(&mut content, &format),
            }
            dir::update_checksum(&mut content, seed);
            self.content.insert(block, content);
        }
        self.add(ino, inode);
        Ok(())
    }

    /// Makes the inode that owns the reserved descriptor blocks: its double-indirect block points to those
    /// after the primary descriptors, and each of them to its counterparts in the backups.
    pub(crate) fn resize_inode(&mut self) -> Result<()> {
        if !self.geo.compat.contains(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let mut inode = self.inode(REGULAR, 1);
        // Behind the metadata of the first group, as it is without flex groups.
        let group = GroupNumber(0);
        let goal = self.geo.first_data_block.0
            + u64::from(self.geo.fixed_blocks(group))
            + 1
            + u64::from(self.geo.inode_table_blocks);
        let double = self.take(goal.min(self.geo.blocks - 1), 1)?.start;
        inode.base_mut().set_block_pointer(13, double as u32);
        let pointers = u64::from(self.geo.block_bytes / indirect::POINTER_BYTES);
        let size = (pointers * pointers + pointers + u64::from(indirect::DIRECT))
            * u64::from(self.geo.block_bytes);
        inode.base_mut().set_size_bytes(size);
        let (blocks, count) = reserved_blocks(&self.geo, double);
        self.content.extend(blocks);
        self.set_blocks(&mut inode, count)?;
        self.add(InodeNumber::RESIZE, inode);
        Ok(())
    }

    /// Makes the journal: its superblock, and a log of zeros.
    pub(crate) fn journal(&mut self, size: JournalSize, goal: u64) -> Result<()> {
        let mut inode = self.inode(REGULAR, 1);
        let total = u64::from(size.blocks) + u64::from(size.fast_commit_blocks);
        let runs = self.map(InodeNumber::JOURNAL, &mut inode, total, goal)?;
        let mut sb = JournalSuperblock::new_zeroed();
        sb.s_header = BlockHeader::new(BlockType::SuperblockV2, 0);
        sb.s_blocksize.set(self.geo.block_bytes);
        sb.s_maxlen.set(total as u32);
        sb.s_first.set(1);
        sb.s_sequence.set(1);
        sb.s_nr_users.set(1);
        sb.s_num_fc_blks.set(size.fast_commit_blocks);
        sb.s_uuid = self.geo.uuid;
        let first = runs.first().map_or(0, |run| run.start);
        self.content.insert(first, self.block_of(sb.as_bytes()));
        self.zeroed.extend(runs);
        self.add(InodeNumber::JOURNAL, inode);
        Ok(())
    }

    /// A block that begins with `bytes`.
    fn block_of(&self, bytes: &[u8]) -> Vec<u8> {
        let mut block = bytes.to_vec();
        block.resize(self.geo.block_bytes as usize, 0);
        block
    }

    /// Makes the block of multiple-mount protection. No machine has had the volume open, so none is named.
    pub(crate) fn mmp(&mut self) -> Result<Option<u64>> {
        if !self.geo.incompat.contains(Incompat::MMP) {
            return Ok(None);
        }
        let place = self.take(self.geo.first_data_block.0, 1)?.start;
        let mut mmp = MmpBlock::new_zeroed();
        mmp.mmp_magic.set(MMP_MAGIC);
        mmp.mmp_seq.set(SEQ_CLEAN);
        mmp.mmp_time.set(self.request.time);
        mmp.mmp_check_interval.set(self.request.mmp_interval);
        mmp.update_checksum(self.geo.csum_seed);
        self.content.insert(place, self.block_of(mmp.as_bytes()));
        Ok(Some(place))
    }

    /// Makes the orphan file.
    pub(crate) fn orphan_file(&mut self) -> Result<()> {
        if !self.geo.compat.contains(Compat::ORPHAN_FILE) {
            return Ok(());
        }
        let count = orphan_blocks(self)?;
        let mut inode = self.inode(REGULAR, 1);
        let goal = self.geo.first_data_block.0;
        let ino = quota::orphan_file(self.request);
        let runs: Vec<Range<u64>> = self.map(ino, &mut inode, count, goal)?;
        let seed = self.geo.inode_seed(ino, 0);
        for block in runs.into_iter().flatten() {
            let mut content = vec![0; self.geo.block_bytes as usize];
            orphan::init(&mut content, throughline_extfmt::FsBlock(block), seed);
            self.content.insert(block, content);
        }
        self.add(ino, inode);
        Ok(())
    }
}

/// The blocks of pointers of the resize inode, the double-indirect one at `double`, and how many blocks it
/// has in all: reserved ones of descriptors, each with its counterparts in the backups.
pub(crate) fn reserved_blocks(geo: &Geometry, double: u64) -> (Vec<(u64, Vec<u8>)>, u64) {
    let backups: Vec<u64> = geo
        .superblock_groups()
        .skip(1)
        .map(|group| geo.group_first_block(group).0)
        .collect();
    let reserved = u32::from(geo.reserved_gdt_blocks);
    let pointers = geo.block_bytes / indirect::POINTER_BYTES;
    let primary = geo.desc_block(0).0;
    let zeros = vec![0; geo.block_bytes as usize];
    let (mut blocks, mut top) = (Vec::new(), zeros.clone());
    for index in geo.desc_blocks..geo.desc_blocks + reserved {
        let place = primary + u64::from(index);
        let mut block = zeros.clone();
        for (at, backup) in (0..).zip(&backups) {
            let counterpart = backup + 1 + u64::from(index);
            indirect::set_pointer(&mut block, at, counterpart as u32);
        }
        indirect::set_pointer(&mut top, index % pointers, place as u32);
        blocks.push((place, block));
    }
    blocks.push((double, top));
    let count = u64::from(reserved) * (backups.len() as u64 + 1) + 1;
    (blocks, count)
}

/// Blocks of lost+found.
pub(crate) fn lost_and_found_blocks(block_bytes: u32) -> u32 {
    (LOST_AND_FOUND_BYTES / block_bytes)
        .clamp(*LOST_AND_FOUND_BLOCKS.start(), *LOST_AND_FOUND_BLOCKS.end())
}

/// Makes the space behind the last of `count` short names a free record, instead of a part of its own.
fn free_behind(content: &mut [u8], format: &DirFormat, count: usize) {
    let used = count * dir::record_bytes(2);
    let rest = format.usable(content.len()) - used;
    let lengths = [
        (used - dir::record_bytes(2), dir::record_bytes(2)),
        (used, rest),
    ];
    for (at, len) in lengths {
        let len = dir::rec_len_to_disk(len, format.block_bytes);
        content[at + 4..at + 6].copy_from_slice(&len.to_le_bytes());
    }
}

/// Blocks of the orphan file.
fn orphan_blocks(build: &Build<'_>) -> Result<u64> {
    const LEAST: u64 = 32;
    const MOST: u64 = 512;
    let block_bytes = u64::from(build.geo.block_bytes);
    match build.request.orphan_file_bytes {
        Some(bytes) => Ok(bytes.div_ceil(block_bytes).max(1)),
        None => Ok((build.geo.blocks / 4096).clamp(LEAST, MOST)),
    }
}
