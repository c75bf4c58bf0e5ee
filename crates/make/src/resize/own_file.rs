//! Moves a file of the volume itself, the journal or the orphan file, on a volume that is closed cleanly.
//!
//! Its blocks are copied, and its mapping is made anew in other blocks. Then its inode is written, which is
//! the moment at which it has moved. All new blocks are marked as used before that, and the old ones stay so:
//! a crash leaves blocks that nobody owns.

use std::collections::VecDeque;

use throughline_block::Disk;
use throughline_extfmt::extent::{Extent, MAX_LEN};
use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::superblock::SUPERBLOCK_OFFSET;
use throughline_extfmt::{FileBlock, FsBlock, Geometry, InodeImage, InodeNumber, orphan};
use zerocopy::IntoBytes;

use super::superblock;
use crate::error::{Error, Result};
use crate::pack::{extents, pointers};
use crate::writer::{Writer, read_bytes};

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// A file of the volume itself, and where its inode is.
pub struct OwnFile {
    /// Its number.
    pub ino: InodeNumber,
    /// Its inode.
    pub image: InodeImage,
    /// Where the inode is, in bytes from the start of the volume.
    pub inode_at: u64,
    /// Its blocks, ascending.
    pub data: Vec<Extent>,
}

/// The new places of a file's blocks.
pub struct NewPlaces {
    data: Vec<Extent>,
    /// Blocks that are copied: from, to, number.
    copies: Vec<(u64, u64, u32)>,
}

impl OwnFile {
    /// How many of its blocks are beyond `end`.
    pub fn beyond(&self, end: u64) -> u64 {
        let beyond = |extent: &Extent| {
            let last = extent.start.0 + u64::from(extent.len);
            last.saturating_sub(extent.start.0.max(end))
        };
        self.data.iter().map(beyond).sum()
    }

    /// Puts the blocks beyond `end` into `runs`, which have as many.
    pub fn place(&self, end: u64, runs: &[(u64, u32)]) -> NewPlaces {
        let mut runs: VecDeque<(u64, u32)> = runs.iter().copied().collect();
        let mut places = NewPlaces {
            data: Vec::new(),
            copies: Vec::new(),
        };
        for extent in &self.data {
            let kept = end.saturating_sub(extent.start.0).min(extent.len.into()) as u32;
            places.add(extent.block, extent.start.0, kept);
            let mut at = kept;
            while at < extent.len {
                let Some((start, len)) = runs.pop_front() else {
                    break;
                };
                let some = len.min(extent.len - at);
                places.add(FileBlock(extent.block.0 + at), start, some);
                let old = extent.start.0 + u64::from(at);
                places.copies.push((old, start, some));
                if some < len {
                    runs.push_front((start + u64::from(some), len - some));
                }
                at += some;
            }
        }
        places
    }

    fn is_extents(&self) -> bool {
        self.image.flags().contains(InodeFlags::EXTENTS)
    }
}

impl NewPlaces {
    fn add(&mut self, block: FileBlock, start: u64, len: u32) {
        if len == 0 {
            return;
        }
        if let Some(last) = self.data.last_mut()
            && last.end() == u64::from(block.0)
            && last.start.0 + u64::from(last.len) == start
            && last.len + len <= MAX_LEN
        {
            last.len += len;
            return;
        }
        self.data.push(Extent {
            block,
            len,
            start: FsBlock(start),
            unwritten: false,
        });
    }

    fn runs(&self) -> Vec<std::ops::Range<u32>> {
        let run = |extent: &Extent| extent.block.0..extent.end() as u32;
        self.data.iter().map(run).collect()
    }

    /// The blocks that the new mapping needs.
    pub fn nodes(&self, file: &OwnFile, block_bytes: u32) -> u64 {
        match file.is_extents() {
            true => extents::count(self.data.len(), block_bytes),
            false => pointers::count(&self.runs(), block_bytes),
        }
    }
}

/// Moves the file. `nodes`: blocks for its mapping.
///
/// # Errors
/// Of the device; `Invalid` if the file is too large for its mapping.
pub fn move_own_file(
    disk: &Disk,
    geo: &Geometry,
    mut file: OwnFile,
    places: &NewPlaces,
    nodes: &[(u64, u32)],
) -> Result<()> {
    let bytes = u64::from(geo.block_bytes);
    let seed = geo.inode_seed(file.ino, file.image.generation());
    let mut sb = superblock(disk)?;
    let is_journal = file.ino == InodeNumber(sb.s_journal_inum.get());
    let mut out = Writer::new(disk, 0);
    let most = (COPY_BYTES / bytes).max(1);
    for (from, to, len) in &places.copies {
        let len = u64::from(*len);
        for at in (0..len).step_by(most as usize) {
            let some = most.min(len - at);
            let mut blocks = read_bytes(disk, (from + at) * bytes, (some * bytes) as usize)?;
            if !is_journal {
                // The checksum includes the place. The volume is clean, so there are no orphans.
                for (block, place) in blocks.chunks_exact_mut(bytes as usize).zip(to + at..) {
                    orphan::init(block, FsBlock(place), seed);
                }
            }
            out.put((to + at) * bytes, &blocks)?;
        }
    }
    let own = nodes
        .iter()
        .flat_map(|(start, len)| *start..start + u64::from(*len));
    let (root, tables) = match file.is_extents() {
        true => {
            let tree = extents::write(&places.data, geo.block_bytes, own, seed)?;
            (tree.root, tree.nodes)
        }
        false => {
            let blocks = places.data.iter().flat_map(|extent| {
                let FsBlock(start) = extent.start;
                start..start + u64::from(extent.len)
            });
            let map = pointers::write(&places.runs(), geo.block_bytes, blocks, own);
            (map.root, map.tables)
        }
    };
    let blocks: u64 = places.data.iter().map(|extent| u64::from(extent.len)).sum();
    let sectors = (blocks + tables.len() as u64) << (geo.block_log - 9);
    for (place, table) in tables {
        out.put(place * bytes, &table)?;
    }
    out.flush()?;
    disk.flush()?;

    *file.image.i_block_mut() = root;
    if !file.image.base_mut().set_blocks_512(geo, sectors) {
        return Err(Error::invalid("too many blocks for a file"));
    }
    file.image.update_checksum(geo, file.ino);
    out.put(file.inode_at, file.image.as_bytes())?;
    if is_journal && sb.s_jnl_backup_type != 0 {
        for (at, word) in sb.s_jnl_blocks.iter_mut().enumerate().take(15) {
            word.set(file.image.base().block_pointer(at));
        }
        sb.keep_checksum();
        out.put(SUPERBLOCK_OFFSET, sb.as_bytes())?;
    }
    out.flush()?;
    Ok(disk.flush()?)
}
