//! The walk over the log, transaction by transaction.
//!
//! Invariants:
//! - The walk visits each block of the log at most once, so it ends whatever the log says.
//! - A transaction enters the result whole at its commit block, or not at all.

use std::collections::BTreeMap;

use throughline_extfmt::FsBlock;
use throughline_extfmt::checksum::crc32_be;
use throughline_extfmt::jbd2::{BlockType, JBD2_MAGIC, JournalIncompat};

use super::blocks::{
    commit_sum_is_right, data_is_right, good_commit, kind_of, revokes, tags, tail_is_right,
    transaction_sum,
};
use super::log::Log;
use super::{Replay, ReplayBlock};
use crate::error::{Error, Result};

/// The most records of revoke blocks in one transaction; jbd2 writes far fewer than blocks of the journal.
const MAX_REVOKES: usize = 16 << 20;

/// Walks over the log from its start and collects what the committed transactions hold.
pub(crate) fn scan(log: &Log<'_>) -> Result<Replay> {
    let mut walk = Walk::new(log);
    let mut newest: BTreeMap<FsBlock, ReplayBlock> = BTreeMap::new();
    let mut replay = Replay {
        next_sequence: log.sequence,
        recorded_errno: log.recorded_errno,
        ..Replay::default()
    };
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

/// How the walk over one transaction ended.
enum Outcome {
    /// At its commit block, everything right.
    Committed(Transaction),
    /// At a block that is not of this transaction, before anything wrong was seen.
    End,
    /// At something wrong.
    Bad(String),
}

#[derive(Default)]
struct Transaction {
    blocks: Vec<ReplayBlock>,
    revokes: Vec<FsBlock>,
    /// Running sum of version 1.
    sum: u32,
    /// The first data block whose sum is wrong. Counts only if the transaction was committed.
    bad_data: Option<String>,
}

struct Walk<'l, 'a> {
    log: &'l Log<'a>,
    /// The next block to visit.
    at: u32,
    /// Blocks that may still be visited.
    left: u32,
    /// What was read ahead: blocks from `window_start` on.
    window: Vec<u8>,
    window_start: u32,
}

impl<'l, 'a> Walk<'l, 'a> {
    fn new(log: &'l Log<'a>) -> Self {
        Self {
            log,
            at: log.start,
            left: log.last - log.first,
            window: Vec::new(),
            window_start: 0,
        }
    }

    /// Visits one block; `None` after all of the log.
    fn visit(&mut self) -> Result<Option<(u32, &[u8])>> {
        if self.left == 0 {
            return Ok(None);
        }
        let (at, size) = (self.at, self.log.block_bytes as usize);
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

    /// Passes over one block without looking at it.
    fn skip(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let at = self.at;
        self.at = self.log.next(at);
        Some(at)
    }

    /// Walks to the end of the transaction `sequence`.
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
            match kind_of(bytes, sequence) {
                Some(BlockType::Descriptor) => {
                    if !tail_is_right(log, bytes) {
                        return Ok(bad(sequence, at, "descriptor block has a wrong checksum"));
                    }
                    if log.commit_sums {
                        transaction.sum = crc32_be(transaction.sum, bytes);
                    }
                    let tags = tags(log, bytes);
                    if let Some(end) = self.data(&mut transaction, sequence, &tags)? {
                        return Ok(end);
                    }
                }
                Some(BlockType::Revoke) => {
                    if !tail_is_right(log, bytes) {
                        return Ok(bad(sequence, at, "revoke block has a wrong checksum"));
                    }
                    let Some(records) = revokes(log, bytes) else {
                        return Ok(bad(sequence, at, "revoke block is longer than a block"));
                    };
                    transaction.revokes.extend(records);
                    if transaction.revokes.len() > MAX_REVOKES {
                        return Err(Error::Unsupported(format!(
                            "over {MAX_REVOKES} revokes in one transaction"
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

    /// Visits the data blocks of one descriptor.
    fn data(
        &mut self,
        transaction: &mut Transaction,
        sequence: u32,
        tags: &[super::blocks::Tag],
    ) -> Result<Option<Outcome>> {
        let log = self.log;
        for tag in tags {
            let at = if log.commit_sums || log.block_sums() {
                let Some((at, data)) = self.visit()? else {
                    return Ok(Some(Outcome::End));
                };
                if log.commit_sums {
                    transaction.sum = crc32_be(transaction.sum, data);
                }
                if transaction.bad_data.is_none() && !data_is_right(log, tag, sequence, data) {
                    transaction.bad_data = Some(format!(
                        "the copy of block {} has a wrong checksum",
                        tag.home
                    ));
                }
                at
            } else {
                let Some(at) = self.skip() else {
                    return Ok(Some(Outcome::End));
                };
                at
            };
            if tag.home.0 >= log.fs_blocks {
                return Ok(Some(bad(
                    sequence,
                    at,
                    format!("block {} is past the end of the volume", tag.home),
                )));
            }
            if log.holds(tag.home) {
                return Ok(Some(bad(
                    sequence,
                    at,
                    format!("block {} is the journal's own", tag.home),
                )));
            }
            transaction.blocks.push(ReplayBlock {
                home: tag.home,
                copy: log.place(at),
                escaped: tag.escaped,
            });
        }
        Ok(None)
    }

    /// Fails if transaction `sequence`, in which `what` is wrong, had been committed: then the log is damaged, not
    /// torn. It had if a later block of the log commits it or a transaction after it. Where commits may overtake
    /// what they commit, nothing can be told apart, and the log just ends.
    fn refuse_if_committed(&mut self, sequence: u32, what: &str) -> Result<()> {
        if self.log.incompat.contains(JournalIncompat::ASYNC_COMMIT) {
            return Ok(());
        }
        let log = self.log;
        while let Some((at, bytes)) = self.visit()? {
            // The magic number first: nearly every block is passed over with one look.
            if bytes.first_chunk() == Some(&JBD2_MAGIC.to_be_bytes())
                && let Some(later) = good_commit(log, bytes)
                && later.wrapping_sub(sequence) <= log.last
            {
                let text =
                    format!("{what}, and block {at} of the journal commits transaction {later}");
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

/// Judges a transaction whose commit block was reached.
fn end_at_commit(
    log: &Log<'_>,
    transaction: Transaction,
    sequence: u32,
    at: u32,
    bytes: &[u8],
) -> Outcome {
    if !commit_sum_is_right(log, bytes) {
        return bad(sequence, at, "commit block has a wrong checksum");
    }
    if log.commit_sums && transaction_sum(bytes).is_some_and(|sum| sum != transaction.sum) {
        return bad(
            sequence,
            at,
            "the commit block's checksum is not that of its transaction",
        );
    }
    match transaction.bad_data {
        Some(what) => bad(sequence, at, what),
        None => Outcome::Committed(transaction),
    }
}
