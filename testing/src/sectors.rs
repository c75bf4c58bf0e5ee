//! Self-describing contents: each sector of 512 bytes contains its file, offset and version, and every other
//! byte follows from these. A reader can tell correct data from old, torn or foreign data.

/// Size of a sector in bytes.
pub const SECTOR_BYTES: usize = 512;
/// First bytes of every sector.
pub const MAGIC: [u8; 8] = *b"tlSector";

/// Contents of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sector {
    /// Zeros.
    Zero,
    /// Written by [`fill`].
    Data {
        /// The file it was written to.
        file: u64,
        /// Its offset in that file, in bytes.
        offset: u64,
        /// The number of the write.
        version: u64,
    },
    /// Neither: torn or foreign.
    Garbage,
}

/// Fills `bytes`, which must be whole sectors, for offset `offset` of a file.
pub fn fill(bytes: &mut [u8], file: u64, offset: u64, version: u64) {
    for (index, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
        fill_one(
            sector,
            file,
            offset + (index * SECTOR_BYTES) as u64,
            version,
        );
    }
}

/// As [`fill`], in a new vector.
pub fn filled(len: usize, file: u64, offset: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, file, offset, version);
    bytes
}

fn fill_one(sector: &mut [u8], file: u64, offset: u64, version: u64) {
    let head = [u64::from_le_bytes(MAGIC), file, offset, version];
    let mut state = file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ offset.rotate_left(17) ^ version;
    for (index, word) in sector.chunks_mut(8).enumerate() {
        state = state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(head[1] | 1);
        let value = head.get(index).copied().unwrap_or(state ^ (state >> 29));
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
}

/// Parses one sector.
///
/// # Panics
/// If the length is not that of a sector: a bug in the test.
pub fn parse(sector: &[u8]) -> Sector {
    assert_eq!(sector.len(), SECTOR_BYTES);
    if sector.iter().all(|byte| *byte == 0) {
        return Sector::Zero;
    }
    let word = |index: usize| {
        let bytes = sector[index * 8..][..8].try_into();
        u64::from_le_bytes(bytes.expect("eight bytes"))
    };
    let (file, offset, version) = (word(1), word(2), word(3));
    let mut expected = [0; SECTOR_BYTES];
    fill_one(&mut expected, file, offset, version);
    match sector == expected {
        true => Sector::Data {
            file,
            offset,
            version,
        },
        false => Sector::Garbage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_identifies_itself_and_every_byte_counts() {
        let bytes = filled(1024, 3, 4096, 7);
        let data = |offset| Sector::Data {
            file: 3,
            offset,
            version: 7,
        };
        assert_eq!(parse(&bytes[..512]), data(4096));
        assert_eq!(parse(&bytes[512..]), data(4608));
        assert_eq!(parse(&[0; 512]), Sector::Zero);
        for at in 0..512 {
            let mut torn = bytes[..512].to_vec();
            torn[at] ^= 1;
            assert_eq!(parse(&torn), Sector::Garbage, "byte {at}");
        }
    }
}
