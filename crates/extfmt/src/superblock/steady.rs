//! Writes of the superblock that no power cut makes invalid.
//!
//! The superblock spans two sectors of 512 bytes, with its checksum at the end of the second. A device writes
//! each sector whole, but after a power cut one may be new and the other old: then the checksum is wrong, and
//! a volume without a backup can no longer be opened by `e2fsck` nor by the kernel. So no write changes both
//! sectors:
//!
//! ```text
//!   old ──► fields of the second sector, and the checksum ──► fields of the first sector ──► new
//! ```
//!
//! While a volume is in use nearly all changes are in the first sector. The checksum remains as it is: it is
//! made right again by four bytes of the first sector that have no meaning, the last ones of
//! `s_last_mounted`, behind the NUL byte that ends the name.

use zerocopy::IntoBytes;

use super::{SUPERBLOCK_BYTES, Superblock};
use crate::features::RoCompat;

/// The most bytes of the name in `s_last_mounted`.
pub const MAX_LAST_MOUNTED: usize = 59;

const SECTOR: usize = 512;
/// The free bytes of `s_last_mounted`, as places in the superblock.
const FREE: std::ops::Range<usize> = 0xC4..0xC8;
const CHECKSUM_AT: usize = 0x3FC;
/// The polynomial of crc32c, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

impl Superblock {
    /// Makes these bytes right for the checksum that is stored in them: the counterpart of
    /// [`Superblock::update_checksum`].
    pub fn keep_checksum(&mut self) {
        if !self.ro_compat().contains(RoCompat::METADATA_CSUM) {
            return;
        }
        self.s_last_mounted[MAX_LAST_MOUNTED..].fill(0);
        // A crc is linear: the free bytes change it by a register that holds them and then takes in as many
        // zeros as there are bytes from their start on. This is undone bit by bit.
        let difference = self.checksum() ^ self.s_checksum.get();
        let register =
            (FREE.start..CHECKSUM_AT).fold(difference, |register, _| undo_zero(register));
        self.s_last_mounted[MAX_LAST_MOUNTED + 1..].copy_from_slice(&register.to_le_bytes());
    }

    /// The byte that alone explains a wrong checksum, if there is one: it was damaged. A superblock that is
    /// torn differs from a valid one in several.
    pub fn damaged_byte(&self) -> Option<usize> {
        let difference = self.checksum() ^ self.s_checksum.get();
        let stored = difference.to_le_bytes();
        let mut wrong = stored.iter().enumerate().filter(|(_, byte)| **byte != 0);
        if let (Some((at, _)), None) = (wrong.next(), wrong.next()) {
            return Some(CHECKSUM_AT.saturating_add(at));
        }
        let mut register = difference;
        (0..CHECKSUM_AT).rev().find(|_| {
            register = undo_zero(register);
            (1..=0xFF).contains(&register)
        })
    }

    /// The superblocks to write, in this order and each durable before the next, to get from `old` to these
    /// fields. Each is valid and differs from the one before in one sector only; one that does not differ
    /// need not be written. The last one has these fields, and the checksum of the first one.
    pub fn steps_from(&self, old: &Superblock) -> [Superblock; 2] {
        let mut second = mixed(old, self);
        second.s_checksum = old.s_checksum;
        second.update_checksum();
        let mut whole = *self;
        whole.s_checksum = second.s_checksum;
        whole.keep_checksum();
        [second, whole]
    }

    /// As [`Superblock::steps_from`], with the first sector first: it has the size of the volume.
    pub fn steps_size_first(&self, old: &Superblock) -> [Superblock; 2] {
        let mut first = mixed(self, old);
        first.keep_checksum();
        let mut whole = *self;
        whole.s_last_mounted = first.s_last_mounted;
        whole.s_checksum = first.s_checksum;
        whole.update_checksum();
        [first, whole]
    }
}

/// The register of the crc before it took in a byte of zeros.
fn undo_zero(register: u32) -> u32 {
    (0..8).fold(register, |register, _| {
        let is_mixed = register >> 31 == 1;
        let before = if is_mixed {
            register ^ POLYNOMIAL
        } else {
            register
        };
        (before << 1) | u32::from(is_mixed)
    })
}

/// The first sector of one superblock and the second sector of another.
fn mixed(first: &Superblock, second: &Superblock) -> Superblock {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    bytes[..SECTOR].copy_from_slice(&first.as_bytes()[..SECTOR]);
    bytes[SECTOR..].copy_from_slice(&second.as_bytes()[SECTOR..]);
    zerocopy::transmute!(bytes)
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;

    fn numbered(seed: u8) -> Superblock {
        let bytes: Vec<u8> = (0..SUPERBLOCK_BYTES)
            .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed))
            .collect();
        let mut sb = Superblock::read_from_bytes(&bytes).expect("its length");
        sb.s_rev_level.set(super::super::REV_DYNAMIC);
        sb.s_feature_ro_compat.set(RoCompat::METADATA_CSUM.bits());
        sb.s_checksum_type = super::super::CHECKSUM_CRC32C;
        sb
    }

    #[test]
    fn one_damaged_byte_is_found_and_a_torn_superblock_has_none() {
        let mut sound = numbered(1);
        sound.update_checksum();
        assert_eq!(sound.damaged_byte(), None);
        for at in 0..SUPERBLOCK_BYTES {
            for change in [1, 0x80, 0xff] {
                let mut damaged = sound;
                damaged.as_mut_bytes()[at] ^= change;
                assert_eq!(damaged.damaged_byte(), Some(at), "byte {at}");
            }
        }
        let mut later = sound;
        later.s_mtime.set(1_700_000_000);
        later.s_wtime.set(1_700_000_000);
        later.update_checksum();
        assert_eq!(mixed(&sound, &later).damaged_byte(), None);
        assert_eq!(mixed(&later, &sound).damaged_byte(), None);
    }

    /// Whatever sector of the two is old after a cut, the checksum is right.
    #[test]
    fn no_mixture_of_two_steps_is_invalid() {
        for seed in 0..50 {
            let mut old = numbered(seed);
            old.update_checksum();
            let new = numbered(seed.wrapping_mul(7).wrapping_add(3));
            let ways = [(new.steps_from(&old), 1), (new.steps_size_first(&old), 0)];
            for ([middle, whole], changed) in ways {
                let sector =
                    |sb: &Superblock, at: usize| sb.as_bytes()[at * SECTOR..][..SECTOR].to_vec();
                assert_eq!(sector(&old, 1 - changed), sector(&middle, 1 - changed));
                assert_eq!(sector(&middle, changed), sector(&whole, changed));
                middle.verify_checksum().expect("one sector alone");
                whole.verify_checksum().expect("all");
                let (mut stored, mut wanted) = (whole, new);
                for sb in [&mut stored, &mut wanted] {
                    sb.s_last_mounted[MAX_LAST_MOUNTED..].fill(0);
                    sb.s_checksum.set(0);
                }
                assert_eq!(
                    stored.as_bytes(),
                    wanted.as_bytes(),
                    "no other byte differs"
                );
                // A change of the first sector only is one write.
                let mut later = whole;
                later.s_wtime.set(seed.into());
                let [second, _] = later.steps_from(&whole);
                assert_eq!(second.as_bytes(), whole.as_bytes());
            }
        }
    }
}
