//! The checksums of the format: crc32c as ext4 chains it, crc16 of `uninit_bg`, and the
//! big-endian crc32 of jbd2's first commit checksums.
//!
//! ext4 and jbd2 use crc32c without the customary inversions: a checksum is the register
//! itself, and the seed of one structure is the checksum of what comes before it.

use crate::InodeNumber;

/// The initial register of every chain.
pub const CRC32C_INIT: u32 = !0;

/// Continues the register `seed` over `bytes`.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, bytes)
}

/// Seed of all checksums of an inode: its blocks of extents, directory entries and
/// hash trees, and the inode itself. `fs_seed` is [`crate::Geometry::csum_seed`].
pub fn inode_seed(fs_seed: u32, inode: InodeNumber, generation: u32) -> u32 {
    let seed = crc32c(fs_seed, &inode.0.to_le_bytes());
    crc32c(seed, &generation.to_le_bytes())
}

const fn crc16_table() -> [u16; 256] {
    let mut table = [0u16; 256];
    let mut index = 0usize;
    while index < 256 {
        let mut crc = index as u16;
        let mut bit = 0u32;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0xA001
            } else {
                crc >> 1
            };
            bit = bit.wrapping_add(1);
        }
        table[index] = crc;
        index = index.wrapping_add(1);
    }
    table
}

static CRC16: [u16; 256] = crc16_table();

/// Continues the crc16 (polynomial 0x8005, reflected) register `seed` over `bytes`.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, &byte| {
        (crc >> 8) ^ CRC16[usize::from((crc ^ u16::from(byte)) & 0xFF)]
    })
}

const fn crc32_be_table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut index = 0usize;
    while index < 256 {
        let mut crc = (index as u32) << 24;
        let mut bit = 0u32;
        while bit < 8 {
            crc = if crc >> 31 == 1 {
                (crc << 1) ^ 0x04C1_1DB7
            } else {
                crc << 1
            };
            bit = bit.wrapping_add(1);
        }
        table[index] = crc;
        index = index.wrapping_add(1);
    }
    table
}

static CRC32_BE: [u32; 256] = crc32_be_table();

/// Continues the most-significant-bit-first crc32 (polynomial 0x04C11DB7) register `seed`
/// over `bytes`; jbd2's `checksum` feature (version 1) starts with `!0`.
pub fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, &byte| {
        (crc << 8) ^ CRC32_BE[usize::from((crc >> 24) as u8 ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_check_values() {
        // The "check" column of the CRC catalogue: the sum over "123456789".
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283); // CRC-32/ISCSI
        assert_eq!(crc16(0, b"123456789"), 0xBB3D); // CRC-16/ARC
        assert_eq!(crc16(!0, b"123456789"), 0x4B37); // CRC-16/MODBUS
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_E6E7); // CRC-32/MPEG-2
    }

    #[test]
    fn chaining_is_concatenation() {
        let whole = b"a superblock and its uuid";
        for cut in 0..whole.len() {
            let (a, b) = whole.split_at(cut);
            assert_eq!(crc32c(crc32c(!0, a), b), crc32c(!0, whole));
            assert_eq!(crc16(crc16(!0, a), b), crc16(!0, whole));
            assert_eq!(crc32_be(crc32_be(!0, a), b), crc32_be(!0, whole));
        }
    }
}
