//! Writes a transaction as blocks of the log.
//!
//! Order: revoke blocks, then each descriptor with the copies that it names, then the commit block. All but
//! the commit block go out as one batch of long bios. The flush after them also makes the data durable to
//! which the transaction refers. The commit block follows alone, so it is never on the device without the
//! others, and is never torn.

use throughline_device::AlignedBuf;
use throughline_extfmt::checksum::crc32_be;
use throughline_extfmt::jbd2::log::{Commit, DescriptorWriter, RevokeWriter};
use throughline_extfmt::jbd2::{JBD2_MAGIC, JournalCsum, JournalFormat, escape};

use super::Log;
use crate::buffer::Block;
use crate::cache::SealedBlock;
use crate::error::Result;
use crate::gate::Sealed;

/// The log space of a transaction.
pub(super) struct Layout {
    /// The number of its blocks, of all kinds.
    pub(super) blocks: u32,
    /// The block after its last one.
    pub(super) head: u32,
}

/// The number of log blocks that a transaction needs.
pub(super) fn blocks_needed(format: &JournalFormat, sealed: &Sealed) -> u32 {
    let descriptors = sealed.blocks.len().div_ceil(format.tags_per_block().max(1));
    let revokes = sealed
        .revokes
        .len()
        .div_ceil(format.revokes_per_block().max(1));
    u32::try_from(sealed.blocks.len() + descriptors + revokes + 1).unwrap_or(u32::MAX)
}

/// A block for the log: built for it, or a snapshot written unchanged.
enum Copy<'s> {
    Made(AlignedBuf),
    Snapshot(&'s Block),
}

impl Copy<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Made(bytes) => bytes,
            Self::Snapshot(block) => block,
        }
    }
}

/// Writes a transaction to the log, starting at block `head`. It is durable on return.
pub(super) fn write(log: &Log, sealed: &Sealed, head: u32) -> Result<Layout> {
    let mut copies = revoke_blocks(log, sealed);
    if log.bug.is(crate::planted::Planted::NoRevokes) {
        copies.clear();
    }
    let described = copies.len();
    let tags = log.format.tags_per_block().max(1);
    for part in sealed.blocks.chunks(tags) {
        describe(log, sealed, part, &mut copies);
    }
    let mut at = head;
    let mut pieces = Vec::with_capacity(copies.len() + 1);
    for copy in &copies {
        pieces.push((log.map.offset(at)?, copy.bytes()));
        at = log.after(at);
    }
    let sum = (log.format.csum == JournalCsum::V1).then(|| {
        // As in jbd2: over descriptors and copies, in their order.
        pieces[described..]
            .iter()
            .fold(!0, |sum, (_, bytes)| crc32_be(sum, bytes))
    });
    // If the device may tear the commit block, the block is first written as zeros, with the other blocks.
    // Then only its first sector, which has all its fields, is written last.
    let whole = commit_block(log, sealed, sum);
    let commit = &whole[..log.untorn_bytes().min(whole.len())];
    let zeros = (commit.len() < whole.len()).then(|| log.new_block());
    if let Some(zeros) = &zeros {
        pieces.push((log.map.offset(at)?, zeros));
    }
    log.disk.write_batch(&pieces)?;
    if log.bug.is(crate::planted::Planted::CommitBeforeFlush) {
        log.disk.write_at(log.map.offset(at)?, commit, true)?;
    }
    log.disk.flush()?;
    log.disk.write_at(log.map.offset(at)?, commit, true)?;
    Ok(Layout {
        blocks: copies.len() as u32 + 1,
        head: log.after(at),
    })
}

impl Log {
    /// The number of bytes that the device writes atomically. They contain all of a commit block's fields.
    fn untorn_bytes(&self) -> usize {
        let limits = self.disk.limits();
        limits.physical_block_bytes.max(limits.logical_block_bytes) as usize
    }
}

fn revoke_blocks<'s>(log: &Log, sealed: &Sealed) -> Vec<Copy<'s>> {
    let per_block = log.format.revokes_per_block().max(1);
    let mut copies = Vec::new();
    for part in sealed.revokes.chunks(per_block) {
        let mut bytes = log.new_block();
        let mut writer = RevokeWriter::new(&mut bytes, &log.format, sealed.tid.0);
        for block in part {
            let fits = writer.push(*block);
            assert!(fits, "a revoke block holds its part");
        }
        writer.finish();
        copies.push(Copy::Made(bytes));
    }
    copies
}

/// A descriptor and the copies that it names.
fn describe<'s>(log: &Log, sealed: &Sealed, part: &'s [SealedBlock], copies: &mut Vec<Copy<'s>>) {
    let place = copies.len();
    let mut descriptor = log.new_block();
    let mut writer = DescriptorWriter::new(&mut descriptor, &log.format, sealed.tid.0);
    for block in part {
        let looks_like_ours = block.content.first_chunk() == Some(&JBD2_MAGIC.to_be_bytes());
        let copy = if looks_like_ours {
            let mut bytes = log.new_block();
            bytes.copy_from_slice(&block.content);
            escape(&mut bytes);
            Copy::Made(bytes)
        } else {
            Copy::Snapshot(&block.content)
        };
        let sum = log.format.data_checksum(sealed.tid.0, copy.bytes());
        let fits = writer.push(block.buffer.block, looks_like_ours, sum);
        assert!(fits, "a descriptor holds its part");
        copies.push(copy);
    }
    writer.finish();
    copies.insert(place, Copy::Made(descriptor));
}

fn commit_block(log: &Log, sealed: &Sealed, crc32: Option<u32>) -> AlignedBuf {
    let now = log.clock.since_epoch();
    let commit = Commit {
        time: (now.as_secs(), now.subsec_nanos()),
        crc32,
    };
    let mut bytes = log.new_block();
    log.format.write_commit(&mut bytes, sealed.tid.0, &commit);
    bytes
}
