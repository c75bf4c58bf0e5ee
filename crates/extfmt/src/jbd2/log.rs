//! Reading and writing of log blocks: descriptors with their tags, revoke records, commit
//! blocks.

use std::mem::{offset_of, size_of};

use zerocopy::{FromBytes, IntoBytes};

use super::{
    BlockHeader, BlockTag3, BlockType, CHECKSUM_CRC32, CommitHeader, JournalCsum, JournalFormat,
    RevokeHeader, TagFlags,
};
use crate::checksum::crc32c;
use crate::error::ensure;
use crate::units::FsBlock;
use crate::{Corrupt, Result};

/// Bytes of the uuid after a tag without [`TagFlags::SAME_UUID`].
const UUID_BYTES: usize = 16;
/// Offset of the low byte of a tag's flags, in every version.
const TAG_FLAGS_BYTE: usize = 7;

/// One tag: the home location of the next data block of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// The home block.
    pub block: FsBlock,
    /// Flags; a reader needs [`TagFlags::ESCAPE`].
    pub flags: TagFlags,
    /// Checksum of the data block, see [`JournalFormat::data_checksum`].
    pub checksum: u32,
}

impl JournalFormat {
    /// The size of a tag in bytes, without a uuid.
    pub fn tag_bytes(&self) -> usize {
        match (self.csum, self.bit64) {
            (JournalCsum::V3, _) => size_of::<BlockTag3>(),
            // Version 2 has two unused bytes, intended for a wider checksum.
            (JournalCsum::V2, true) => 14,
            (JournalCsum::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// The capacity of a descriptor block in tags.
    pub fn tags_per_block(&self) -> usize {
        let head = size_of::<BlockHeader>().saturating_add(UUID_BYTES);
        let room = self.usable().saturating_sub(head);
        room.checked_div(self.tag_bytes()).unwrap_or_default()
    }

    /// The size of a revoke record in bytes.
    fn revoke_bytes(&self) -> usize {
        if self.bit64 { 8 } else { 4 }
    }

    /// The capacity of a revoke block in records.
    pub fn revokes_per_block(&self) -> usize {
        let room = self.usable().saturating_sub(size_of::<RevokeHeader>());
        room.checked_div(self.revoke_bytes()).unwrap_or_default()
    }

    /// The tags of a descriptor block (with a checked header), in the order of the data blocks.
    pub fn tags<'a>(&self, block: &'a [u8]) -> Tags<'a> {
        let end = self.usable().min(block.len());
        Tags {
            bytes: &block[..end],
            offset: size_of::<BlockHeader>(),
            format: *self,
        }
    }

    /// The records of a revoke block (with a checked header): blocks whose copies in earlier
    /// transactions must not be replayed.
    pub fn revokes<'a>(&self, block: &'a [u8]) -> Result<impl Iterator<Item = FsBlock> + use<'a>> {
        let (header, _) = RevokeHeader::ref_from_prefix(block)
            .map_err(|_| Corrupt::new("revoke block is cut short"))?;
        let (head, used) = (size_of::<RevokeHeader>(), header.r_count.get() as usize);
        let width = self.revoke_bytes();
        let end = self.usable().min(block.len());
        let records = block.get(head..used).filter(|_| used <= end);
        let records = records
            .ok_or_else(|| Corrupt::new(format!("revoke block has {used} bytes of {end}")))?;
        ensure!(
            records.len().is_multiple_of(width),
            "revoke block has {used} bytes"
        );
        Ok(records.chunks_exact(width).map(|record| {
            FsBlock(
                record
                    .iter()
                    .fold(0u64, |sum, &byte| sum << 8 | u64::from(byte)),
            )
        }))
    }

    fn read_tag(&self, bytes: &[u8]) -> Option<Tag> {
        let word = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes))
        };
        let low = word(0)?;
        let (flags, high, checksum) = if self.csum == JournalCsum::V3 {
            (word(4)?, word(8)?, word(12)?)
        } else {
            let high = if self.bit64 { word(8)? } else { 0 };
            (word(4)? & 0xFFFF, high, word(4)? >> 16)
        };
        let high = if self.bit64 { high } else { 0 };
        Some(Tag {
            block: FsBlock(u64::from(high) << 32 | u64::from(low)),
            flags: TagFlags::from_bits_retain(flags),
            checksum,
        })
    }

    fn write_tag(&self, tag: &Tag, bytes: &mut [u8]) {
        let (low, high) = (tag.block.0 as u32, (tag.block.0 >> 32) as u32);
        let flags = tag.flags.bits();
        let words = if self.csum == JournalCsum::V3 {
            [low, flags, high, tag.checksum]
        } else {
            [low, tag.checksum << 16 | flags & 0xFFFF, high, 0]
        };
        for (place, word) in bytes.chunks_mut(4).zip(words) {
            let word = word.to_be_bytes();
            place.copy_from_slice(&word[..place.len()]);
        }
    }
}

/// The tags of a descriptor block.
#[derive(Clone)]
pub struct Tags<'a> {
    bytes: &'a [u8],
    offset: usize,
    format: JournalFormat,
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let len = self.format.tag_bytes();
        let end = self.offset.saturating_add(len);
        let tag = self.format.read_tag(self.bytes.get(self.offset..end)?)?;
        self.offset = if tag.flags.contains(TagFlags::LAST_TAG) {
            self.bytes.len()
        } else if tag.flags.contains(TagFlags::SAME_UUID) {
            end
        } else {
            end.saturating_add(UUID_BYTES)
        };
        Some(tag)
    }
}

/// Builds a descriptor block.
pub struct DescriptorWriter<'a> {
    block: &'a mut [u8],
    format: JournalFormat,
    /// Offsets of the last tag and of the next one.
    last: Option<usize>,
    next: usize,
}

impl<'a> DescriptorWriter<'a> {
    /// Starts a descriptor block of transaction `sequence`; `block` is `block_bytes` long.
    pub fn new(block: &'a mut [u8], format: &JournalFormat, sequence: u32) -> Self {
        start_block(block, format, BlockType::Descriptor, sequence);
        Self {
            block,
            format: *format,
            last: None,
            next: size_of::<BlockHeader>(),
        }
    }

    /// Adds the tag of a data block; `false`, with nothing added, if the block is full.
    #[must_use]
    pub fn push(&mut self, home: FsBlock, escaped: bool, checksum: u32) -> bool {
        let mut flags = TagFlags::empty();
        flags.set(TagFlags::ESCAPE, escaped);
        flags.set(TagFlags::SAME_UUID, self.last.is_some());
        let (start, len) = (self.next, self.format.tag_bytes());
        let end = start.saturating_add(len);
        let with_uuid = if self.last.is_some() {
            end
        } else {
            end.saturating_add(UUID_BYTES)
        };
        if with_uuid > self.format.usable() {
            return false;
        }
        self.format.write_tag(
            &Tag {
                block: home,
                flags,
                checksum,
            },
            &mut self.block[start..end],
        );
        if with_uuid > end {
            self.block[end..with_uuid].copy_from_slice(&self.format.uuid);
        }
        self.last = Some(start);
        self.next = with_uuid;
        true
    }

    /// Marks the last tag and sets the block's checksum. A block without tags is not valid.
    pub fn finish(self) {
        if let Some(last) = self.last {
            let flags = last.saturating_add(TAG_FLAGS_BYTE);
            self.block[flags] |= TagFlags::LAST_TAG.bits() as u8;
        }
        self.format.update_tail(self.block);
    }
}

/// Builds a revoke block.
pub struct RevokeWriter<'a> {
    block: &'a mut [u8],
    format: JournalFormat,
    next: usize,
}

impl<'a> RevokeWriter<'a> {
    /// Starts a revoke block of transaction `sequence`; `block` is `block_bytes` long.
    pub fn new(block: &'a mut [u8], format: &JournalFormat, sequence: u32) -> Self {
        start_block(block, format, BlockType::Revoke, sequence);
        Self {
            block,
            format: *format,
            next: size_of::<RevokeHeader>(),
        }
    }

    /// Adds a record; `false`, with nothing added, if the block is full.
    #[must_use]
    pub fn push(&mut self, home: FsBlock) -> bool {
        let width = self.format.revoke_bytes();
        let end = self.next.saturating_add(width);
        if end > self.format.usable() {
            return false;
        }
        let bytes = home.0.to_be_bytes();
        let skip = bytes.len().saturating_sub(width);
        self.block[self.next..end].copy_from_slice(&bytes[skip..]);
        self.next = end;
        true
    }

    /// Sets the count and the block's checksum.
    pub fn finish(self) {
        if let Ok((header, _)) = RevokeHeader::mut_from_prefix(self.block) {
            header.r_count.set(self.next as u32);
        }
        self.format.update_tail(self.block);
    }
}

fn start_block(block: &mut [u8], format: &JournalFormat, kind: BlockType, sequence: u32) {
    assert_eq!(
        block.len() as u64,
        u64::from(format.block_bytes),
        "a whole block"
    );
    block.fill(0);
    let header = BlockHeader::new(kind, sequence);
    block[..size_of::<BlockHeader>()].copy_from_slice(header.as_bytes());
}

/// A commit block, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Time of the commit: seconds since 1970, nanoseconds.
    pub time: (u64, u32),
    /// With checksums version 1, if the writer set it: the crc32 of the transaction's
    /// descriptors and data, [`crate::checksum::crc32_be`] with seed `!0`.
    pub crc32: Option<u32>,
}

impl JournalFormat {
    /// Reads a commit block (with a checked header) and checks its checksum of version 2 or 3. A checksum of
    /// version 1 covers the transaction; the caller must check it.
    pub fn read_commit(&self, block: &[u8]) -> Result<Commit> {
        let (commit, _) = CommitHeader::ref_from_prefix(block)
            .map_err(|_| Corrupt::new("commit block is cut short"))?;
        let found = commit.h_chksum[0].get();
        if self.has_crc32c() {
            let right = self.commit_checksum(block);
            ensure!(
                found == right,
                "commit block checksum is {found:#010x}, should be {right:#010x}"
            );
        }
        let sum = (commit.h_chksum_type, commit.h_chksum_size);
        let is_crc32 = sum == (CHECKSUM_CRC32, 4);
        ensure!(
            self.csum != JournalCsum::V1 || is_crc32 || (sum, found) == ((0, 0), 0),
            "commit block has a checksum of unknown type {}",
            commit.h_chksum_type
        );
        Ok(Commit {
            time: (commit.h_commit_sec.get(), commit.h_commit_nsec.get()),
            crc32: (self.csum == JournalCsum::V1 && is_crc32).then_some(found),
        })
    }

    /// Fills `block` (`block_bytes` long) with the commit of transaction `sequence`.
    pub fn write_commit(&self, block: &mut [u8], sequence: u32, commit: &Commit) {
        start_block(block, self, BlockType::Commit, sequence);
        let (seconds, nanoseconds) = commit.time;
        if let Ok((header, _)) = CommitHeader::mut_from_prefix(block) {
            header.h_commit_sec.set(seconds);
            header.h_commit_nsec.set(nanoseconds);
            if let Some(crc) = commit.crc32.filter(|_| self.csum == JournalCsum::V1) {
                header.h_chksum_type = CHECKSUM_CRC32;
                header.h_chksum_size = 4;
                header.h_chksum[0].set(crc);
            }
        }
        if self.has_crc32c() {
            let crc = self.commit_checksum(block);
            if let Ok((header, _)) = CommitHeader::mut_from_prefix(block) {
                header.h_chksum[0].set(crc);
            }
        }
    }

    fn commit_checksum(&self, block: &[u8]) -> u32 {
        const FIELD: usize = offset_of!(CommitHeader, h_chksum);
        let crc = crc32c(self.csum_seed, block.get(..FIELD).unwrap_or_default());
        let crc = crc32c(crc, &[0; 4]);
        crc32c(
            crc,
            block.get(FIELD.saturating_add(4)..).unwrap_or_default(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use throughline_testkit::cases::config;

    fn formats() -> impl Strategy<Value = JournalFormat> {
        let csum = prop_oneof![
            Just(JournalCsum::None),
            Just(JournalCsum::V1),
            Just(JournalCsum::V2),
            Just(JournalCsum::V3)
        ];
        (
            10u32..=16,
            any::<bool>(),
            csum,
            any::<u32>(),
            any::<[u8; 16]>(),
        )
            .prop_map(|(log, bit64, csum, csum_seed, uuid)| JournalFormat {
                block_bytes: 1 << log,
                bit64,
                csum,
                csum_seed,
                uuid,
            })
    }

    fn home(format: &JournalFormat, index: usize) -> FsBlock {
        let wide = (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
        FsBlock(if format.bit64 {
            wide
        } else {
            wide & 0xFFFF_FFFF
        })
    }

    proptest! {
        #![proptest_config(config(256))]

        #[test]
        fn descriptors_round_trip(format in formats(), sequence: u32, part in 1usize..100) {
            let mut block = vec![0xAAu8; format.block_bytes as usize];
            let capacity = format.tags_per_block();
            let count = (capacity * part / 100).max(1);
            let sum = |index: usize| format.data_checksum(sequence, &index.to_le_bytes());
            let mut writer = DescriptorWriter::new(&mut block, &format, sequence);
            for index in 0..count {
                prop_assert!(writer.push(home(&format, index), index % 3 == 0, sum(index)));
            }
            writer.finish();
            prop_assert_eq!(BlockHeader::read(&block), Some((BlockType::Descriptor, sequence)));
            prop_assert!(format.verify_tail(&block).is_ok());
            let tags: Vec<Tag> = format.tags(&block).collect();
            prop_assert_eq!(tags.len(), count);
            for (index, tag) in tags.iter().enumerate() {
                prop_assert_eq!(tag.block, home(&format, index));
                prop_assert_eq!(tag.flags.contains(TagFlags::ESCAPE), index % 3 == 0);
                prop_assert_eq!(tag.flags.contains(TagFlags::SAME_UUID), index > 0);
                prop_assert_eq!(tag.flags.contains(TagFlags::LAST_TAG), index + 1 == count);
                prop_assert_eq!(tag.checksum, sum(index));
            }
            block[20] ^= 1;
            prop_assert_eq!(format.verify_tail(&block).is_err(), format.has_crc32c());
        }

        #[test]
        fn a_full_descriptor_accepts_no_more_tags(format in formats()) {
            let mut block = vec![0u8; format.block_bytes as usize];
            let mut writer = DescriptorWriter::new(&mut block, &format, 1);
            let mut count = 0;
            while writer.push(FsBlock(count), false, 0) {
                count += 1;
            }
            writer.finish();
            prop_assert_eq!(count as usize, format.tags_per_block());
            prop_assert_eq!(format.tags(&block).count(), format.tags_per_block());
        }

        #[test]
        fn revokes_round_trip(format in formats(), sequence: u32) {
            let mut block = vec![0u8; format.block_bytes as usize];
            let mut writer = RevokeWriter::new(&mut block, &format, sequence);
            let mut count = 0;
            while writer.push(home(&format, count)) {
                count += 1;
            }
            writer.finish();
            prop_assert_eq!(count, format.revokes_per_block());
            prop_assert!(format.verify_tail(&block).is_ok());
            let list: Vec<FsBlock> = format.revokes(&block).unwrap().collect();
            let expected: Vec<FsBlock> = (0..count).map(|index| home(&format, index)).collect();
            prop_assert_eq!(list, expected);
        }

        #[test]
        fn commits_round_trip(format in formats(), sequence: u32, seconds: u64, at in 0usize..1024) {
            let mut block = vec![0u8; format.block_bytes as usize];
            let crc32 = (format.csum == JournalCsum::V1).then_some(0x1234_5678);
            let commit = Commit { time: (seconds, 5), crc32 };
            format.write_commit(&mut block, sequence, &commit);
            prop_assert_eq!(BlockHeader::read(&block), Some((BlockType::Commit, sequence)));
            prop_assert_eq!(format.read_commit(&block).unwrap(), commit);
            block[at] ^= 0x10;
            if format.has_crc32c() {
                prop_assert!(format.read_commit(&block).is_err());
            }
        }

        #[test]
        fn any_bytes_are_read(format in formats(), bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            prop_assert!(format.tags(&bytes).count() <= bytes.len());
            if let Ok(revokes) = format.revokes(&bytes) {
                prop_assert!(revokes.count() <= bytes.len());
            }
            let _ = format.read_commit(&bytes);
            let _ = format.verify_tail(&bytes);
        }
    }

    #[test]
    fn escaping() {
        let mut data = [0xC0, 0x3B, 0x39, 0x98, 7];
        assert!(crate::jbd2::escape(&mut data));
        assert_eq!(data, [0, 0, 0, 0, 7]);
        assert!(!crate::jbd2::escape(&mut data));
        crate::jbd2::unescape(&mut data);
        assert_eq!(data, [0xC0, 0x3B, 0x39, 0x98, 7]);
    }
}
