//! Appends one transaction to a recovered log: the blocks that result from applying the fast commits.
//!
//! ```text
//!  whole log home, flushed ─► superblock: start = end of the log, sequence n  (log empty; fast commits for n
//!                                                                              still count)
//!  ─► descriptors and copies ─► flush ─► commit of n, FUA                       (fast commits superseded)
//! ```
//!
//! So the fast commits take effect whole or not at all: after a power cut before the commit they are applied
//! again; after a later cut the transaction is replayed.

use throughline_block::Purpose;
use throughline_extfmt::FsBlock;
use throughline_extfmt::checksum::crc32_be;
use throughline_extfmt::jbd2::log::{Commit, DescriptorWriter};
use throughline_extfmt::jbd2::{JournalCsum, escape};

use super::log::Log;
use super::{Replay, ReplayBlock};
use crate::error::{Error, Result};

/// The most bytes of blocks waiting to be written.
const BATCH_BYTES: usize = 4 << 20;

impl Log<'_> {
    /// Fails if `count` blocks are too many for one transaction.
    pub(super) fn check_room(&self, count: usize) -> Result<()> {
        let descriptors = count.div_ceil(self.format.tags_per_block());
        let needed = count.saturating_add(descriptors).saturating_add(1);
        let room = (self.geometry.end - self.geometry.first) as usize;
        match needed > room {
            true => Err(Error::Unsupported(format!(
                "the fast commits change {count} blocks, too many for one transaction in a log of {room} \
                 blocks. Mount the image with Linux, or run e2fsck, to replay them"
            ))),
            false => Ok(()),
        }
    }

    /// Appends `blocks`, ascending and distinct, for which there is room, as the transaction after the last
    /// one of `replay`, which must be home. Returns the replay of the new transaction.
    pub(super) fn append(
        &self,
        replay: &Replay,
        blocks: &[(FsBlock, Box<[u8]>)],
    ) -> Result<Replay> {
        let mut writer = Writer::new(self, replay);
        self.start_at(writer.at, replay.next_sequence)?;
        for tagged in blocks.chunks(self.format.tags_per_block()) {
            writer.tagged(tagged)?;
        }
        writer.write_out()?;
        self.disk.flush()?;
        writer.commit()?;
        Ok(Replay {
            blocks: writer.placed,
            transactions: 1,
            next_sequence: writer.sequence.wrapping_add(1),
            head: writer.at,
            ..Replay::default()
        })
    }
}

/// Writes one transaction into the log.
struct Writer<'l, 'a> {
    log: &'l Log<'a>,
    sequence: u32,
    /// The next block of the journal to write.
    at: u32,
    /// Blocks to be written: byte offset and content.
    waiting: Vec<(u64, Vec<u8>)>,
    /// The running checksum of version 1.
    sum: u32,
    placed: Vec<ReplayBlock>,
}

impl<'l, 'a> Writer<'l, 'a> {
    fn new(log: &'l Log<'a>, replay: &Replay) -> Self {
        Self {
            log,
            sequence: replay.next_sequence,
            at: replay.head,
            waiting: Vec::new(),
            sum: !0,
            placed: Vec::new(),
        }
    }

    /// Writes a descriptor with a tag for each of `blocks`, and their copies.
    fn tagged(&mut self, blocks: &[(FsBlock, Box<[u8]>)]) -> Result<()> {
        let format = self.log.format;
        let mut descriptor = vec![0; format.block_bytes as usize];
        let mut tags = DescriptorWriter::new(&mut descriptor, &format, self.sequence);
        let mut copies = Vec::with_capacity(blocks.len());
        for (home, content) in blocks {
            let mut copy = content.to_vec();
            let escaped = escape(&mut copy);
            let sum = format.data_checksum(self.sequence, &copy);
            assert!(
                tags.push(*home, escaped, sum),
                "a descriptor holds its tags"
            );
            copies.push((*home, escaped, copy));
        }
        tags.finish();
        self.put(descriptor)?;
        for (home, escaped, copy) in copies {
            let copy = self.put(copy)?;
            self.placed.push(ReplayBlock {
                home,
                copy,
                escaped,
            });
        }
        Ok(())
    }

    /// Queues a block for the next place in the log, and returns that place.
    fn put(&mut self, block: Vec<u8>) -> Result<FsBlock> {
        if self.log.format.csum == JournalCsum::V1 {
            self.sum = crc32_be(self.sum, &block);
        }
        let place = self.log.place(self.at)?;
        self.at = self.log.next(self.at);
        self.waiting.push((self.log.offset_of(place)?, block));
        if self.waiting.len() * self.log.block_bytes() as usize >= BATCH_BYTES {
            self.write_out()?;
        }
        Ok(place)
    }

    fn write_out(&mut self) -> Result<()> {
        let pieces: Vec<(u64, &[u8])> = self
            .waiting
            .iter()
            .map(|(offset, block)| (*offset, &block[..]))
            .collect();
        Purpose::Journal.during(|| self.log.disk.write_batch(&pieces))?;
        self.waiting.clear();
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let format = self.log.format;
        let mut block = vec![0; format.block_bytes as usize];
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        let commit = Commit {
            time: (since.as_secs(), since.subsec_nanos()),
            crc32: (format.csum == JournalCsum::V1).then_some(self.sum),
        };
        format.write_commit(&mut block, self.sequence, &commit);
        let offset = self.log.offset_of(self.log.place(self.at)?)?;
        self.at = self.log.next(self.at);
        Ok(Purpose::Journal.during(|| self.log.disk.write_at(offset, &block, true))?)
    }
}
