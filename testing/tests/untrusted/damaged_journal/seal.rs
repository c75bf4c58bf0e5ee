//! Corrects the checksums of a log after a change, so that the checks after them are reached.

use throughline_extfmt::checksum::{crc32_be, crc32c};
use throughline_extfmt::jbd2::{CHECKSUM_CRC32, JournalCsum, JournalFormat, JournalSuperblock};
use zerocopy::IntoBytes;

use super::craft::Part;

/// The offset of the checksum in a commit block.
const COMMIT_SUM: usize = 16;

/// Corrects every checksum of the log in `bytes`, whose blocks are at `parts`.
pub(crate) fn seal(bytes: &mut [u8], parts: &[(usize, u32, Part)], format: &JournalFormat) {
    let size = format.block_bytes as usize;
    let mut sum = !0;
    for (index, (at, _, part)) in parts.iter().enumerate() {
        match part {
            Part::Superblock => seal_superblock(bytes, *at),
            Part::Descriptor(tags) => {
                let copies: Vec<usize> = parts[index + 1..][..tags.len()]
                    .iter()
                    .map(|(at, _, _)| *at)
                    .collect();
                seal_tags(bytes, *at, tags, &copies, format);
                seal_tail(&mut bytes[*at..at + size], format);
                sum = crc32_be(sum, &bytes[*at..at + size]);
            }
            Part::Copy(_) => sum = crc32_be(sum, &bytes[*at..at + size]),
            Part::Revoke => seal_tail(&mut bytes[*at..at + size], format),
            Part::Commit => {
                seal_commit(&mut bytes[*at..at + size], sum, format);
                sum = !0;
            }
        }
    }
}

fn seal_superblock(bytes: &mut [u8], at: usize) {
    let place = &mut bytes[at..at + size_of::<JournalSuperblock>()];
    // Without its magic number it has no checksum.
    if let Ok(mut sb) = JournalSuperblock::read(place) {
        sb.update_checksum();
        place.copy_from_slice(sb.as_bytes());
    }
}

/// The checksums in tags include the descriptor's own sequence number.
fn seal_tags(
    bytes: &mut [u8],
    at: usize,
    tags: &[usize],
    copies: &[usize],
    format: &JournalFormat,
) {
    let size = format.block_bytes as usize;
    let sequence = u32::from_be_bytes(bytes[at + 8..][..4].try_into().expect("four bytes"));
    for (tag, copy) in tags.iter().zip(copies) {
        let sum = format.data_checksum(sequence, &bytes[*copy..copy + size]);
        let tag = at + tag;
        match format.csum {
            JournalCsum::V3 => bytes[tag + 12..tag + 16].copy_from_slice(&sum.to_be_bytes()),
            JournalCsum::V2 => {
                bytes[tag + 4..tag + 6].copy_from_slice(&(sum as u16).to_be_bytes());
            }
            _ => {}
        }
    }
}

fn seal_tail(block: &mut [u8], format: &JournalFormat) {
    if format.has_crc32c() {
        let (content, tail) = block.split_at_mut(format.block_bytes as usize - 4);
        let sum = crc32c(crc32c(format.csum_seed, content), &[0; 4]);
        tail.copy_from_slice(&sum.to_be_bytes());
    }
}

fn seal_commit(block: &mut [u8], sum: u32, format: &JournalFormat) {
    let place = COMMIT_SUM..COMMIT_SUM + 4;
    if format.csum == JournalCsum::V1 {
        let known = block[12] == CHECKSUM_CRC32 && block[13] == 4;
        if known {
            block[place].copy_from_slice(&sum.to_be_bytes());
        }
    } else if format.has_crc32c() {
        block[place.clone()].fill(0);
        let sum = crc32c(format.csum_seed, block);
        block[place].copy_from_slice(&sum.to_be_bytes());
    }
}
