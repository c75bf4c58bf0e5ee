//! The blocks of the log: tags, revokes and commits, of every version, and their checksums.

use throughline_extfmt::FsBlock;
use throughline_extfmt::checksum::crc32c;
use throughline_extfmt::jbd2::{
    BlockHeader, BlockTag, BlockTag3, BlockType, CHECKSUM_CRC32, CommitHeader, JBD2_MAGIC,
    JournalIncompat, RevokeHeader, TagFlags,
};
use zerocopy::FromBytes;

use super::log::Log;

/// A block that a descriptor names.
pub(crate) struct Tag {
    pub(crate) home: FsBlock,
    pub(crate) escaped: bool,
    /// What the sum of its data must be: all of it (version 3), the low half (version 2), or none.
    sum: TagSum,
}

enum TagSum {
    None,
    Low(u16),
    Whole(u32),
}

/// What a log block is, if its header carries the `sequence` that is looked for.
pub(crate) fn kind_of(bytes: &[u8], sequence: u32) -> Option<BlockType> {
    let (header, _) = BlockHeader::read_from_prefix(bytes).ok()?;
    if header.h_magic.get() != JBD2_MAGIC || header.h_sequence.get() != sequence {
        return None;
    }
    [BlockType::Descriptor, BlockType::Commit, BlockType::Revoke]
        .into_iter()
        .find(|kind| *kind as u32 == header.h_blocktype.get())
}

/// The sequence number of a commit block whose own sum, where it has one, is right.
pub(crate) fn good_commit(log: &Log<'_>, bytes: &[u8]) -> Option<u32> {
    let (header, _) = BlockHeader::read_from_prefix(bytes).ok()?;
    let sequence = header.h_sequence.get();
    (kind_of(bytes, sequence) == Some(BlockType::Commit) && commit_sum_is_right(log, bytes))
        .then_some(sequence)
}

/// Whether the tail of a descriptor or revoke block, where blocks have one, matches its content.
pub(crate) fn tail_is_right(log: &Log<'_>, bytes: &[u8]) -> bool {
    if !log.block_sums() {
        return true;
    }
    let Some((content, tail)) = bytes.split_last_chunk::<4>() else {
        return false;
    };
    crc32c(crc32c(log.seed, content), &[0; 4]) == u32::from_be_bytes(*tail)
}

/// Whether a commit block's own sum, where it has one, matches its content.
pub(crate) fn commit_sum_is_right(log: &Log<'_>, bytes: &[u8]) -> bool {
    if !log.block_sums() {
        return true;
    }
    const SUM_AT: usize = std::mem::offset_of!(CommitHeader, h_chksum);
    let (Ok((commit, _)), Some(head), Some(rest)) = (
        CommitHeader::read_from_prefix(bytes),
        bytes.get(..SUM_AT),
        bytes.get(SUM_AT + 4..),
    ) else {
        return false;
    };
    let sum = [head, &[0; 4], rest]
        .iter()
        .fold(log.seed, |sum, part| crc32c(sum, part));
    sum == commit.h_chksum[0].get()
}

/// The sum over its whole transaction that a commit block of version 1 carries; `None` where it has none, as
/// written by an implementation without them.
pub(crate) fn transaction_sum(bytes: &[u8]) -> Option<u32> {
    let (commit, _) = CommitHeader::read_from_prefix(bytes).ok()?;
    let sum = commit.h_chksum[0].get();
    let none = commit.h_chksum_type == 0 && commit.h_chksum_size == 0 && sum == 0;
    // Of a type that is unknown, the stored sum is nobody's: let it not match.
    let known = commit.h_chksum_type == CHECKSUM_CRC32 && commit.h_chksum_size == 4;
    (!none).then_some(if known { sum } else { !sum })
}

/// The tags of a descriptor block.
pub(crate) fn tags(log: &Log<'_>, bytes: &[u8]) -> Vec<Tag> {
    let tag_bytes = tag_bytes(log);
    let tail_bytes = if log.block_sums() { 4 } else { 0 };
    let mut rest = bytes
        .get(size_of::<BlockHeader>()..bytes.len().saturating_sub(tail_bytes))
        .unwrap_or_default();
    let mut tags = Vec::new();
    while let Some((tag, after)) = rest.split_at_checked(tag_bytes) {
        let Some((tag, flags)) = parse_tag(log, tag) else {
            break;
        };
        tags.push(tag);
        let uuid_bytes = if flags.contains(TagFlags::SAME_UUID) {
            0
        } else {
            16
        };
        if flags.contains(TagFlags::LAST_TAG) {
            break;
        }
        rest = after.get(uuid_bytes..).unwrap_or_default();
    }
    tags
}

fn tag_bytes(log: &Log<'_>) -> usize {
    if log.incompat.contains(JournalIncompat::CSUM_V3) {
        return size_of::<BlockTag3>();
    }
    // Version 2 has two bytes more than it uses.
    let extra = if log.incompat.contains(JournalIncompat::CSUM_V2) {
        2
    } else {
        0
    };
    let high = if log.incompat.contains(JournalIncompat::BIT64) {
        4
    } else {
        0
    };
    8 + high + extra
}

fn parse_tag(log: &Log<'_>, bytes: &[u8]) -> Option<(Tag, TagFlags)> {
    let wide = log.incompat.contains(JournalIncompat::BIT64);
    let (low, high, flags, sum);
    if log.incompat.contains(JournalIncompat::CSUM_V3) {
        let (tag, _) = BlockTag3::read_from_prefix(bytes).ok()?;
        (low, high) = (tag.t_blocknr.get(), tag.t_blocknr_high.get());
        (flags, sum) = (tag.t_flags.get(), TagSum::Whole(tag.t_checksum.get()));
    } else {
        // Without `64bit` the tag ends before its last field, which is then not looked at.
        let mut padded = [0; size_of::<BlockTag>()];
        let len = bytes.len().min(padded.len());
        padded.get_mut(..len)?.copy_from_slice(bytes.get(..len)?);
        let tag = BlockTag::read_from_bytes(&padded).ok()?;
        (low, high) = (tag.t_blocknr.get(), tag.t_blocknr_high.get());
        flags = u32::from(tag.t_flags.get());
        let has_sum = log.incompat.contains(JournalIncompat::CSUM_V2);
        sum = if has_sum {
            TagSum::Low(tag.t_checksum.get())
        } else {
            TagSum::None
        };
    }
    let flags = TagFlags::from_bits_retain(flags);
    let home = FsBlock(u64::from(low) | if wide { u64::from(high) << 32 } else { 0 });
    Some((
        Tag {
            home,
            escaped: flags.contains(TagFlags::ESCAPE),
            sum,
        },
        flags,
    ))
}

/// Whether the data block of `tag` matches its sum, where it has one.
pub(crate) fn data_is_right(log: &Log<'_>, tag: &Tag, sequence: u32, data: &[u8]) -> bool {
    let sum = || crc32c(crc32c(log.seed, &sequence.to_be_bytes()), data);
    match tag.sum {
        TagSum::None => true,
        TagSum::Low(stored) => sum() as u16 == stored,
        TagSum::Whole(stored) => sum() == stored,
    }
}

/// The blocks that a revoke block names; `None` if it says that it is longer than it is.
pub(crate) fn revokes<'b>(
    log: &Log<'_>,
    bytes: &'b [u8],
) -> Option<impl Iterator<Item = FsBlock> + use<'b>> {
    let (header, _) = RevokeHeader::read_from_prefix(bytes).ok()?;
    let tail_bytes = if log.block_sums() { 4 } else { 0 };
    let end = usize::try_from(header.r_count.get())
        .ok()
        .filter(|end| end + tail_bytes <= bytes.len())?;
    let records = bytes.get(size_of::<RevokeHeader>()..end)?;
    let width = if log.incompat.contains(JournalIncompat::BIT64) {
        8
    } else {
        4
    };
    Some(records.chunks_exact(width).map(|record| {
        FsBlock(
            record
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    }))
}
