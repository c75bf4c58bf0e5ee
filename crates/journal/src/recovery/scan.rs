//! Walks the log, transaction by transaction.
//!
//! Invariants:
//! - The walk visits each block of the log at most once, so it ends whatever the log contains.
//! - A transaction is added to the result whole, at its commit block, or not at all.

use std::collections::BTreeMap;

use throughline_extfmt::checksum::crc32_be;
use throughline_extfmt::jbd2::log::{Commit, Tag};
use throughline_extfmt::jbd2::{
    BlockHeader, BlockType, JBD2_MAGIC, JournalCsum, JournalIncompat, TagFlags,
};
use throughline_extfmt::{Corrupt, FsBlock};

use super::log::Log;
use super::{Replay, ReplayBlock};
use crate::error::{Error, Result};

/// The most revoke records accepted in one transaction. jbd2 writes far fewer of them than the journal has
/// blocks.
const MAX_REVOKES: usize = 16 << 20;

/// Walks the log from its start and collects the blocks of the committed transactions.
pub(crate) fn scan(log: &Log<'_>) -> Result<Replay> {
    let mut walk = Walk::new(log);
    let mut newest: BTreeMap<FsBlock, ReplayBlock> = BTreeMap::new();
    let mut replay = nothing(log);
    loop {
        match walk.transaction(replay.next_sequence)? {
            Outcome::Committed(transaction) => {
                newest.extend(
                    transaction
                        .blocks
                        .into_iter()
                        .map(|block| (block.home, block)),
                );
                for home in transaction.revokes {
                    replay.revoked += u64::from(newest.remove(&home).is_some());
                }
                replay.transactions += 1;
                replay.next_sequence = replay.next_sequence.wrapping_add(1);
                replay.head = walk.at;
            }
            Outcome::End => break,
            Outcome::Bad(what) => {
                walk.refuse_if_committed(replay.next_sequence, &what)?;
                replay.torn = Some(what);
                break;
            }
        }
    }
    replay.blocks = newest.into_values().collect();
    Ok(replay)
}

/// The replay of a log without transactions.
pub(crate) fn nothing(log: &Log<'_>) -> Replay {
    Replay {
        next_sequence: log.geometry.sequence,
        head: log.geometry.start.unwrap_or(log.geometry.first),
        // On disk the errno is negative.
        recorded_errno: log.geometry.errno.unsigned_abs(),
        ..Replay::default()
    }
}

/// How the walk over one transaction ended.
enum Outcome {
    /// At its commit block, with everything valid.
    Committed(Transaction),
    /// At a block that does not belong to this transaction, with everything before it valid.
    End,
    /// At invalid content.
    Bad(String),
}

#[derive(Default)]
struct Transaction {
    blocks: Vec<ReplayBlock>,
    revokes: Vec<FsBlock>,
    /// The running checksum of version 1.
    sum: u32,
    /// The first data block with a wrong checksum. It matters only if the transaction was committed.
    bad_data: Option<String>,
}

impl Transaction {
    /// Verifies a data block's checksum, or adds the block to the transaction's.
    fn check_data(&mut self, log: &Log<'_>, tag: &Tag, sequence: u32, data: &[u8]) {
        if log.format.csum == JournalCsum::V1 {
            self.sum = crc32_be(self.sum, data);
        } else if self.bad_data.is_none()
            && log.format.data_checksum(sequence, data) != tag.checksum
        {
            self.bad_data = Some(format!(
                "the copy of block {} has a wrong checksum",
                tag.block
            ));
        }
    }
}

struct Walk<'l, 'a> {
    log: &'l Log<'a>,
    /// The next block of the journal to visit.
    at: u32,
    /// Blocks that may still be visited.
    left: u32,
    /// Blocks read ahead, from `window_start` on.
    window: Vec<u8>,
    window_start: u32,
}

impl<'l, 'a> Walk<'l, 'a> {
    fn new(log: &'l Log<'a>) -> Self {
        Self {
            log,
            at: log.geometry.start.unwrap_or(log.geometry.first),
            left: log.geometry.end - log.geometry.first,
            window: Vec::new(),
            window_start: 0,
        }
    }

    /// Visits one block; `None` once the whole log has been visited.
    fn visit(&mut self) -> Result<Option<(u32, &[u8])>> {
        if self.left == 0 {
            return Ok(None);
        }
        let (at, size) = (self.at, self.log.block_bytes() as usize);
        let held = (self.window.len() / size) as u32;
        if at < self.window_start || at - self.window_start >= held {
            self.window = self.log.read(at, self.log.window(at, self.left))?;
            self.window_start = at;
        }
        self.at = self.log.next(at);
        self.left -= 1;
        let from = (at - self.window_start) as usize * size;
        Ok(Some((at, &self.window[from..from + size])))
    }

    /// Passes over one block without reading it.
    fn skip(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = self.log.next(at);
        Some(at)
    }

    /// Walks to the end of transaction `sequence`.
    fn transaction(&mut self, sequence: u32) -> Result<Outcome> {
        let log = self.log;
        let mut transaction = Transaction {
            sum: !0,
            ..Transaction::default()
        };
        loop {
            let Some((at, bytes)) = self.visit()? else {
                return Ok(Outcome::End);
            };
            match log.kind_of(bytes, sequence) {
                Some(BlockType::Descriptor) => {
                    if let Err(what) = log.format.verify_tail(bytes) {
                        return Ok(bad(sequence, at, what));
                    }
                    if log.format.csum == JournalCsum::V1 {
                        transaction.sum = crc32_be(transaction.sum, bytes);
                    }
                    let tags: Vec<Tag> = log.format.tags(bytes).collect();
                    if let Some(end) = self.data(&mut transaction, sequence, &tags)? {
                        return Ok(end);
                    }
                }
                Some(BlockType::Revoke) => {
                    let tail = log.format.verify_tail(bytes);
                    match tail.and_then(|()| log.format.revokes(bytes)) {
                        Ok(records) => transaction.revokes.extend(records),
                        Err(what) => return Ok(bad(sequence, at, what)),
                    }
                    if transaction.revokes.len() > MAX_REVOKES {
                        return Err(Error::Unsupported(format!(
                            "more than {MAX_REVOKES} revokes in one transaction"
                        )));
                    }
                }
                Some(BlockType::Commit) => {
                    return Ok(end_at_commit(log, transaction, sequence, at, bytes));
                }
                _ => return Ok(Outcome::End),
            }
        }
    }

    /// Visits the data blocks of one descriptor. Returns the outcome if the walk ends in them.
    fn data(
        &mut self,
        transaction: &mut Transaction,
        sequence: u32,
        tags: &[Tag],
    ) -> Result<Option<Outcome>> {
        let log = self.log;
        for tag in tags {
            let at = if log.sums_data() {
                let Some((at, data)) = self.visit()? else {
                    return Ok(Some(Outcome::End));
                };
                transaction.check_data(log, tag, sequence, data);
                at
            } else {
                let Some(at) = self.skip() else {
                    return Ok(Some(Outcome::End));
                };
                at
            };
            if tag.block.0 >= log.fs_blocks {
                return Ok(Some(bad(
                    sequence,
                    at,
                    format!("block {} is past the end of the volume", tag.block),
                )));
            }
            if log.holds(tag.block) {
                return Ok(Some(bad(
                    sequence,
                    at,
                    format!("block {} belongs to the journal itself", tag.block),
                )));
            }
            transaction.blocks.push(ReplayBlock {
                home: tag.block,
                copy: log.place(at)?,
                escaped: tag.flags.contains(TagFlags::ESCAPE),
            });
        }
        Ok(None)
    }

    /// Fails if transaction `sequence`, found invalid because of `what`, was committed: then the log is
    /// damaged, not torn. It was committed if a later block of the log commits it or a transaction after it.
    /// With asynchronous commits, a commit block may reach the disk before its transaction, so damaged and
    /// torn cannot be distinguished, and the log ends here.
    fn refuse_if_committed(&mut self, sequence: u32, what: &str) -> Result<()> {
        if self
            .log
            .geometry
            .incompat
            .contains(JournalIncompat::ASYNC_COMMIT)
        {
            return Ok(());
        }
        let log = self.log;
        while let Some((at, bytes)) = self.visit()? {
            // Check the magic number first: it rules out nearly every block.
            if bytes.first_chunk() == Some(&JBD2_MAGIC.to_be_bytes())
                && let Some(later) = good_commit(log, bytes)
                && later.wrapping_sub(sequence) <= log.geometry.end
            {
                let text =
                    format!("{what}; but block {at} of the journal commits transaction {later}");
                return Err(Error::corrupt(text));
            }
        }
        Ok(())
    }
}

fn bad(sequence: u32, at: u32, what: impl std::fmt::Display) -> Outcome {
    Outcome::Bad(format!(
        "journal transaction {sequence}, block {at} of the journal: {what}"
    ))
}

/// The sequence number of a commit block whose own checksum, if it has one, is right.
fn good_commit(log: &Log<'_>, bytes: &[u8]) -> Option<u32> {
    let (kind, sequence) = BlockHeader::read(bytes)?;
    let is_good = kind == BlockType::Commit && read_commit(log, bytes).is_ok();
    is_good.then_some(sequence)
}

/// The bytes of a commit block that have fields; the others are written as zeros.
const COMMIT_BYTES: usize = 60;

/// The fields of a commit block, which may be torn behind them.
fn read_commit(log: &Log<'_>, bytes: &[u8]) -> core::result::Result<Commit, Corrupt> {
    log.format.read_commit(bytes).or_else(|why| {
        let mut mended = vec![0; bytes.len()];
        if let (Some(to), Some(from)) = (mended.get_mut(..COMMIT_BYTES), bytes.get(..COMMIT_BYTES))
        {
            to.copy_from_slice(from);
        }
        log.format.read_commit(&mended).map_err(|_| why)
    })
}

/// The outcome for a transaction whose commit block was reached.
fn end_at_commit(
    log: &Log<'_>,
    transaction: Transaction,
    sequence: u32,
    at: u32,
    bytes: &[u8],
) -> Outcome {
    let commit = match read_commit(log, bytes) {
        Ok(commit) => commit,
        Err(what) => return bad(sequence, at, what),
    };
    if commit.crc32.is_some_and(|sum| sum != transaction.sum) {
        return bad(
            sequence,
            at,
            "the checksum in the commit block does not match the transaction",
        );
    }
    match transaction.bad_data {
        Some(what) => bad(sequence, at, what),
        None => Outcome::Committed(transaction),
    }
}
