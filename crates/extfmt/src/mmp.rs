//! Multiple-mount protection: a block that a writer updates periodically, so that a second writer
//! detects that the volume is in use.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::error::ensure;
use crate::{Corrupt, Result};

/// `mmp_magic`.
pub const MMP_MAGIC: u32 = 0x004D_4D50;
/// `mmp_seq` of a volume that is cleanly unmounted.
pub const SEQ_CLEAN: u32 = 0xFF4D_4D50;
/// `mmp_seq` while `e2fsck` runs.
pub const SEQ_FSCK: u32 = 0xE24D_4D50;
/// Highest `mmp_seq` of a mounted volume.
pub const SEQ_MAX: u32 = 0xE24D_4D4F;
/// Seconds between updates if the superblock has none, and the shortest interval that a checker assumes.
pub const MIN_CHECK_INTERVAL: u16 = 5;
/// The longest interval between checks, in seconds.
pub const MAX_CHECK_INTERVAL: u16 = 300;

/// The MMP block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct MmpBlock {
    pub mmp_magic: U32,
    pub mmp_seq: U32,
    pub mmp_time: U64,
    pub mmp_nodename: [u8; 64],
    pub mmp_bdevname: [u8; 32],
    pub mmp_check_interval: U16,
    pub mmp_pad1: U16,
    pub mmp_pad2: [U32; 226],
    pub mmp_checksum: U32,
}

const _: () = {
    assert!(size_of::<MmpBlock>() == 1024);
    assert!(offset_of!(MmpBlock, mmp_check_interval) == 0x70);
    assert!(offset_of!(MmpBlock, mmp_checksum) == 0x3FC);
};

impl MmpBlock {
    /// Reads the block (its first 1024 bytes) and checks its magic number, and its checksum if
    /// the volume has `metadata_csum` (`fs_seed`).
    pub fn read(bytes: &[u8], fs_seed: Option<u32>) -> Result<Self> {
        let (block, _) =
            Self::read_from_prefix(bytes).map_err(|_| Corrupt::new("MMP block is cut short"))?;
        let magic = block.mmp_magic.get();
        ensure!(
            magic == MMP_MAGIC,
            "MMP magic is {magic:#010x}, not {MMP_MAGIC:#010x}"
        );
        if let Some(seed) = fs_seed {
            let (found, right) = (block.mmp_checksum.get(), block.checksum(seed));
            ensure!(
                found == right,
                "MMP checksum is {found:#010x}, should be {right:#010x}"
            );
        }
        Ok(block)
    }

    /// The correct checksum of the block.
    pub fn checksum(&self, fs_seed: u32) -> u32 {
        crc32c(fs_seed, &self.as_bytes()[..offset_of!(Self, mmp_checksum)])
    }

    /// Recomputes the checksum, if the volume has one.
    pub fn update_checksum(&mut self, fs_seed: Option<u32>) {
        if let Some(seed) = fs_seed {
            self.mmp_checksum.set(self.checksum(seed));
        }
    }

    /// The host that last updated the block, up to the first NUL byte.
    pub fn nodename(&self) -> &[u8] {
        self.mmp_nodename
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default()
    }

    /// The device name on that host, up to the first NUL byte.
    pub fn bdevname(&self) -> &[u8] {
        self.mmp_bdevname
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default()
    }
}
