//! Recognizes an ext volume by its superblock.

use std::io;

use crate::source::{ReadAt, long, read, short, word};

/// Offset of the superblock in a volume.
const SUPERBLOCK_BYTES: u64 = 1024;

/// What the superblock of an ext volume says about it. It is not checked further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The label of the volume.
    pub label: String,
    /// The UUID, in lower case with hyphens.
    pub uuid: String,
    /// The length of the volume.
    pub len_bytes: u64,
}

/// The volume at byte `start_bytes`, if there is the superblock of one: its magic, and plausible fields.
///
/// # Errors
/// Of the device.
pub fn volume_at(disk: &(impl ReadAt + ?Sized), start_bytes: u64) -> io::Result<Option<Signature>> {
    let Some(at) = start_bytes.checked_add(SUPERBLOCK_BYTES) else {
        return Ok(None);
    };
    let Some(bytes) = read::<0x160>(disk, at)? else {
        return Ok(None);
    };
    let (log_block, revision) = (word(&bytes, 0x18), word(&bytes, 0x4c));
    // Blocks of 1 KiB to 64 KiB, revisions 0 and 1.
    if short(&bytes, 0x38) != 0xef53 || log_block > 6 || revision > 1 {
        return Ok(None);
    }
    // A copy says in which group it is. It belongs to a volume that begins before.
    if revision > 0 && short(&bytes, 0x5a) != 0 {
        return Ok(None);
    }
    let is_64bit = word(&bytes, 0x60) & 0x80 != 0;
    let high = if is_64bit { word(&bytes, 0x150) } else { 0 };
    let blocks = u64::from(high) << 32 | u64::from(word(&bytes, 0x4));
    let label = bytes.get(0x78..0x88).unwrap_or_default();
    let label = label.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Some(Signature {
        label: String::from_utf8_lossy(label).into_owned(),
        uuid: uuid(bytes.get(0x68..0x78).unwrap_or_default()),
        len_bytes: blocks.saturating_mul(1024 << log_block),
    }))
}

/// A UUID whose bytes are in order, as text.
pub(crate) fn uuid(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// What follows from 16 bytes at byte `at` as GPT has them: the first three fields are little-endian.
pub(crate) fn guid(from: &[u8], at: usize) -> String {
    let (first, second, third) = (
        word(from, at),
        short(from, at.saturating_add(4)),
        short(from, at.saturating_add(6)),
    );
    let rest = long(from, at.saturating_add(8)).to_le_bytes();
    let fields = first.to_be_bytes().into_iter();
    let fields = fields
        .chain(second.to_be_bytes())
        .chain(third.to_be_bytes());
    uuid(&fields.chain(rest).collect::<Vec<u8>>())
}
