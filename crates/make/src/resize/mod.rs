//! Grows a volume that is not open.
//!
//! ```text
//! superblock ─► shape   the new numbers: groups, inodes, descriptors, reserved descriptors, backups
//!            ─► groups  places and bitmaps of the new groups
//!            ─► apply   writes them, in an order that survives a power cut
//! ```
//!
//! The order, each step durable before the next:
//! 1. Beyond the old end: bitmaps, inode tables, copies of superblock and descriptors, and a *record* of what
//!    follows, in the last block. Nothing of this is part of the volume yet.
//! 2. Before the old end: descriptors of the new groups, behind those in use, and the resize inode.
//! 3. The superblock, with the new size, marked as not clean. From now on the volume is the larger one.
//!    Blocks added to a group that existed are not free yet: they are marked as used, as the bits behind the
//!    end of the volume always are.
//! 4. These blocks are freed in bitmap and descriptor; the copies before the old end follow. A resize inode
//!    that is no longer needed is cleared, and its block freed.
//! 5. The superblock, clean and with the final counts. The record is overwritten.
//!
//! Invariants:
//! - Before step 3 the volume is the old one, and after it the larger one. At no moment does a bitmap offer a
//!   block that the volume does not have.
//! - After a cut before step 3, growing again starts anew. After it, the record says what is left. It is
//!   valid only with the very superblock that step 3 wrote, so it is ignored once anyone has used the volume.
//! - Where the descriptors need more blocks than are reserved, the volume gets `meta_bg`, as when the kernel
//!   grows it: nothing has to be moved.

mod apply;
mod groups;
mod own_file;
mod plan;
mod record;
mod reserved;
mod shape;
mod table;
mod tidy;

use throughline_block::Disk;
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use throughline_extfmt::{Geometry, Superblock};

use crate::error::Result;
use crate::writer::read_bytes;

pub use self::apply::{check, finish, grow, refuse_hash_tree};
pub use self::own_file::{NewPlaces, OwnFile, move_own_file};
pub use self::plan::{Contents, Stages, shrunk, stages};
pub use self::record::{Interrupted, interrupted};
pub use self::reserved::move_block as move_resize_block;
pub use self::tidy::{first_copy, tidy};

/// A volume's size before and after it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resized {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks before.
    pub blocks_before: u64,
    /// Blocks now.
    pub blocks: u64,
    /// Block groups before.
    pub groups_before: u32,
    /// Block groups now.
    pub groups: u32,
    /// Inodes before.
    pub inodes_before: u32,
    /// Inodes now.
    pub inodes: u32,
    /// Whether the volume got the feature `meta_bg`, because no descriptor blocks were left in reserve.
    pub became_meta_bg: bool,
}

impl Resized {
    /// From one geometry to another.
    pub fn new(before: &Geometry, after: &Geometry) -> Resized {
        Resized {
            block_bytes: after.block_bytes,
            blocks_before: before.blocks,
            blocks: after.blocks,
            groups_before: before.groups,
            groups: after.groups,
            inodes_before: before.inodes,
            inodes: after.inodes,
            became_meta_bg: before.first_meta_bg.is_none() && after.first_meta_bg.is_some(),
        }
    }
}

/// What growing the volume of `sb` to `blocks` blocks gives. A last group that would hold little beside its
/// metadata is left out, so the result may have fewer blocks.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) if the format does not allow the size, with what it allows.
pub fn grown(sb: &Superblock, blocks: u64) -> Result<Resized> {
    let before = Geometry::new(sb)?;
    let (_, after) = shape::grown(sb, &before, blocks)?;
    Ok(Resized::new(&before, &after))
}

/// Reads the superblock. Only its magic number is checked.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) if there is none; of the device.
fn superblock(disk: &Disk) -> Result<Superblock> {
    let bytes = read_bytes(disk, SUPERBLOCK_OFFSET, SUPERBLOCK_BYTES)?;
    Ok(Superblock::read(&bytes)?)
}
