//! The superblock of a hash tree of dm-verity, and its place behind a volume: in the next block of 4 KiB.
//! (The kernel's `Documentation/admin-guide/device-mapper/verity.rst`, and cryptsetup's description of the
//! format on disk.) A volume with a tree is only valid as a whole, so nothing may write it.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Geometry;

/// Bytes of a block of data, and of one of hashes, in trees of format 1 as `veritysetup format` makes them.
pub const BLOCK_BYTES: u64 = 4096;
/// What the superblock begins with.
pub const MAGIC: [u8; 8] = *b"verity\0\0";
/// The algorithm that is always there.
pub const SHA256: &[u8] = b"sha256";

/// The superblock.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct VeritySuperblock {
    /// [`MAGIC`].
    pub signature: [u8; 8],
    /// The format: 1.
    pub version: U32,
    /// 1: the salt is hashed before a block.
    pub hash_type: U32,
    /// The UUID of the tree.
    pub uuid: [u8; 16],
    /// The name of the algorithm, and zeros.
    pub algorithm: [u8; 32],
    /// Bytes of a block of data.
    pub data_block_bytes: U32,
    /// Bytes of a block of hashes.
    pub hash_block_bytes: U32,
    /// Blocks of data.
    pub data_blocks: U64,
    /// Bytes of the salt.
    pub salt_bytes: U16,
    /// Zeros.
    pub pad: [u8; 6],
    /// The salt, and zeros.
    pub salt: [u8; 256],
}

const _: () = {
    assert!(size_of::<VeritySuperblock>() == 344);
    assert!(offset_of!(VeritySuperblock, data_blocks) == 72);
    assert!(offset_of!(VeritySuperblock, salt) == 88);
};

impl VeritySuperblock {
    /// The superblock at the start of `bytes`, if there is one.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (found, _) = Self::read_from_prefix(bytes).ok()?;
        (found.signature == MAGIC).then_some(found)
    }
}

/// Where a tree behind a volume begins, in bytes from the volume's start; `None` if a device of `len_bytes`
/// has no room for one.
pub fn place_behind(geo: &Geometry, len_bytes: u64) -> Option<u64> {
    let end = geo.blocks.saturating_mul(geo.block_bytes.into());
    let place = end.checked_next_multiple_of(BLOCK_BYTES)?;
    (len_bytes >= place.saturating_add(BLOCK_BYTES)).then_some(place)
}
