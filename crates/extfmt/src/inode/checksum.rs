//! The checksum of an inode, over all of its bytes.

use std::mem::offset_of;

use super::{BASE_BYTES, InodeBase, InodeExtra, InodeImage};
use crate::checksum::crc32c;
use crate::units::InodeNumber;
use crate::{Corrupt, Geometry, Result};

impl InodeImage {
    /// Whether the upper half of the checksum is present.
    fn has_checksum_hi(&self) -> bool {
        self.reaches(offset_of!(InodeExtra, i_ctime_extra))
    }

    /// The correct checksum of the inode: 32 bits, or the lower 16 if there is no room for more.
    /// `fs_seed` is [`Geometry::csum_seed`].
    pub fn checksum(&self, fs_seed: u32, inode: InodeNumber) -> u32 {
        const LO: usize = offset_of!(InodeBase, l_i_checksum_lo);
        const HI: usize = BASE_BYTES + offset_of!(InodeExtra, i_checksum_hi);
        let mut bytes = self.as_bytes().to_vec();
        bytes[LO..LO + 2].fill(0);
        let wide = self.has_checksum_hi();
        if wide {
            bytes[HI..HI + 2].fill(0);
        }
        let seed = crate::checksum::inode_seed(fs_seed, inode, self.generation());
        let crc = crc32c(seed, &bytes);
        if wide { crc } else { crc & 0xFFFF }
    }

    /// Checks the checksum, if the volume has one. A free inode of all zeroes has none and
    /// is accepted (`mke2fs` leaves tables of these).
    pub fn verify_checksum(&self, geometry: &Geometry, inode: InodeNumber) -> Result<()> {
        let Some(seed) = geometry.csum_seed else {
            return Ok(());
        };
        let lo = u32::from(self.base().l_i_checksum_lo.get());
        let hi = self.extra().filter(|_| self.has_checksum_hi());
        let found = hi.map_or(0, |extra| u32::from(extra.i_checksum_hi.get())) << 16 | lo;
        let right = self.checksum(seed, inode);
        if found == right || self.as_bytes().iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        Err(Corrupt::new(format!(
            "inode checksum is {found:#010x}, should be {right:#010x}"
        )))
    }

    /// Recomputes the checksum, if the volume has one; call before writing.
    pub fn update_checksum(&mut self, geometry: &Geometry, inode: InodeNumber) {
        let Some(seed) = geometry.csum_seed else {
            return;
        };
        self.put_checksum(0);
        let seed = crate::checksum::inode_seed(seed, inode, self.generation());
        self.put_checksum(crc32c(seed, self.as_bytes()));
    }

    fn put_checksum(&mut self, crc: u32) {
        let wide = self.has_checksum_hi();
        self.base_mut().l_i_checksum_lo.set(crc as u16);
        if let Some(extra) = self.extra_mut().filter(|_| wide) {
            extra.i_checksum_hi.set((crc >> 16) as u16);
        }
    }
}
