//! Buffered writing: copies into folios. Only the flusher writes to the device.
//!
//! A call proceeds piece by piece. For each piece it acquires room for the blocks that become dirty and
//! reserves space on the volume for the holes among them, then changes folio by folio. What a piece acquired
//! and did not use is returned on every exit.
//!
//! ```text
//!   room (throttle) ─► promise (volume) ─┬─► [span locked] copy, mark dirty, size ─┐
//!                                        │◄── memory · missing edges · others ─────┤  unlocked: obstacle
//!                                        └─────────────────────────────────────────┘
//! ```
//!
//! Invariant: before the span is unlocked, everything the call has copied is dirty, counted, reserved, and
//! within the size.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use throughline_device::Pages;

use crate::cache::fill::read_in;
use crate::cache::folio::Folio;
use crate::cache::promise::Promise;
use crate::cache::refused::lose;
use crate::cache::span::{Span, SpanState, number_of, range_of};
use crate::cache::stream::Writing;
use crate::cache::waits::Ticket;
use crate::cache::{AddressSpace, Backing};
use crate::direct::WriteMemory;
use crate::error::{Error, Reason, Result};
use crate::mapper::Target;
use crate::writeback::LONG_BYTES;
use crate::zeros::zeros;

/// Divisor of the budget: a longer run of writes is treated as a stream, which is seldom read soon.
const LONG_RUN_SHARE: u64 = 8;

/// Result of a buffered write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Bytes copied into the cache: less than given only if an error occurred after them.
    pub bytes: usize,
    /// Bytes that this call dirtied, for [`crate::throttle::Throttle::balance`].
    pub dirtied_bytes: u64,
    /// Start and end in the file, in bytes, of the run of sequential writes that this call continues.
    pub run: (u64, u64),
}

/// Result of [`crate::buffered::write_back`].
#[derive(Clone, Debug)]
pub struct Stored {
    /// As after a write: all bytes.
    pub accepted: Accepted,
    /// Why some of the bytes could not be taken; their ranges are recorded as lost.
    pub lost: Option<Error>,
}

impl From<Accepted> for Stored {
    fn from(accepted: Accepted) -> Stored {
        Stored {
            accepted,
            lost: None,
        }
    }
}

/// See [`crate::buffered::write`].
pub(crate) fn write(
    host: &Arc<dyn Backing>,
    offset: u64,
    bufs: &[IoSlice<'_>],
) -> Result<Accepted> {
    begin(host, offset, bufs, |mut writer| {
        let outcome = writer.all();
        host.space().refused.rewritten(&(offset..writer.at));
        match outcome {
            Err(error) if writer.at == offset => Err(error),
            _ => Ok(writer.accepted(offset)),
        }
    })
}

/// See [`crate::buffered::write_back`].
pub(crate) fn write_back(
    host: &Arc<dyn Backing>,
    offset: u64,
    bufs: &[IoSlice<'_>],
) -> Result<Stored> {
    begin(host, offset, bufs, |mut writer| {
        writer.keeps = Some(u64::MAX);
        let (space, end) = (host.space(), writer.end);
        let block = u64::from(space.block_bytes());
        let (mut lost, mut why) = (Vec::new(), None);
        while let Err(error) = writer.all() {
            // Later blocks may have their space.
            let from = writer.at;
            let to = (from - from % block).saturating_add(block).min(end);
            writer.skip(to);
            lost.push(from..to);
            why = Some(error);
        }
        space.refused.rewritten(&(offset..end));
        if let Some(why) = &why {
            lost.into_iter()
                .for_each(|range| lose(host, range, why.clone()));
        }
        Ok(Stored {
            accepted: writer.accepted(offset),
            lost: why,
        })
    })
}

/// Calls `put` with a writer of the bytes, if there are any.
fn begin<R: From<Accepted>>(
    host: &Arc<dyn Backing>,
    offset: u64,
    bufs: &[IoSlice<'_>],
    put: impl FnOnce(Writer<'_>) -> Result<R>,
) -> Result<R> {
    let given = bufs
        .iter()
        .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
    let end = offset
        .checked_add(given)
        .ok_or(Error::Caller(Reason::TooLarge))?;
    if given == 0 {
        return Ok(R::from(Accepted {
            bytes: 0,
            dirtied_bytes: 0,
            run: (offset, offset),
        }));
    }
    let space = host.space();
    let zeroed_bytes = zero_tail(host, offset)?;
    let writing = space.streams.begin(offset);
    let is_long = end - writing.start() >= LONG_BYTES;
    let _in_call = is_long.then(|| space.cache.writeback.enter_long());
    put(Writer {
        host,
        space,
        memory: WriteMemory::new(bufs),
        at: offset,
        end,
        run_bytes: writing.run_bytes(),
        writing: Some(writing),
        spare: None,
        dirtied_bytes: zeroed_bytes,
        keeps: None,
    })
}

/// Zeroes the rest of the last block before a write past it exposes that rest to readers: on the device it
/// may hold anything. The block becomes dirty, zero from the old size on. Returns the number of bytes
/// dirtied.
fn zero_tail(host: &Arc<dyn Backing>, offset: u64) -> Result<u64> {
    let space = host.space();
    let size = space.size();
    let block = u64::from(space.block_bytes());
    let Some(end) = size
        .checked_next_multiple_of(block)
        .filter(|end| size < *end && *end <= offset)
    else {
        return Ok(0);
    };
    let start = end - block;
    let known = host.map(start, block)?;
    if !matches!(known.target, Target::Data { .. }) {
        return Ok(0);
    }
    let zeros = [IoSlice::new(zeros(end - size))];
    let mut writer = Writer {
        host,
        space,
        memory: WriteMemory::new(&zeros),
        at: size,
        end,
        run_bytes: 0,
        writing: None,
        spare: None,
        dirtied_bytes: 0,
        keeps: None,
    };
    writer.all()?;
    Ok(writer.dirtied_bytes)
}

/// Why the next bytes cannot be written yet.
enum Obstacle {
    /// Another thread is filling their block.
    Coming(Ticket),
    /// A block that is changed in part is not up to date.
    Missing(Range<u64>),
    /// Memory is needed: `bytes`, or less but at least `least`.
    Memory { bytes: u64, least: u64 },
    /// Blocks need room or a reservation that the piece does not have, because they were cleaned meanwhile.
    Unprepared,
}

struct Writer<'a> {
    host: &'a Arc<dyn Backing>,
    space: &'a AddressSpace,
    memory: WriteMemory<'a>,
    /// Next offset in the file.
    at: u64,
    end: u64,
    /// The run that this write belongs to; `None` if the file must not grow, because only the rest of its
    /// last block is zeroed.
    writing: Option<Writing<'a>>,
    /// Length in bytes of the sequential run that this write continues.
    run_bytes: u64,
    /// Memory for the next folio.
    spare: Option<Pages>,
    dirtied_bytes: u64,
    /// For bytes that are kept if there is no space for them: the most bytes for which space is asked at
    /// once, so that there are few attempts while there is none.
    keeps: Option<u64>,
}

impl<'a> Writer<'a> {
    /// The result of a call that began at `offset`.
    fn accepted(&self, offset: u64) -> Accepted {
        Accepted {
            bytes: (self.at - offset) as usize,
            dirtied_bytes: self.dirtied_bytes,
            run: (self.run_start(), self.at),
        }
    }

    /// Leaves out the bytes up to `to`.
    fn skip(&mut self, to: u64) {
        self.memory.skip((to - self.at) as usize);
        self.at = to;
    }

    fn all(&mut self) -> Result<()> {
        while self.at < self.end {
            let outcome = self.piece();
            self.space.cache.writeback.dirtied(self.host);
            outcome?;
        }
        Ok(())
    }

    /// Writes one piece, or less if its promise is used up.
    fn piece(&mut self) -> Result<()> {
        let block = u64::from(self.space.block_bytes());
        let most = self.space.cache.throttle.most_at_once();
        let most = (most - most % block).max(block);
        let piece_end = (self.at - self.at % block).saturating_add(most);
        let piece_end = piece_end
            .min(range_of(number_of(self.at)).end)
            .min(self.end);
        let (mut promise, piece_end) = self.promise(piece_end)?;
        while self.at < piece_end {
            match self.step(piece_end, &mut promise) {
                Ok(folio) => self.passed(&folio),
                Err(Obstacle::Unprepared) => return Ok(()),
                Err(obstacle) => self.resolve(obstacle)?,
            }
        }
        Ok(())
    }

    /// The promise of a piece, and the end of the piece. On a nearly full volume, and near a limit, the piece
    /// is halved, down to one block, until there is space for it.
    fn promise(&mut self, piece_end: u64) -> Result<(Promise<'a>, u64)> {
        let block = u64::from(self.space.block_bytes());
        let start = self.at - self.at % block;
        let most = self.keeps.unwrap_or(u64::MAX);
        let mut end = piece_end.min(start.saturating_add(most));
        loop {
            let promise = Promise::for_range(self.host, self.at..end);
            let half = self.at + (end - self.at) / 2;
            let half = half - half % block;
            let promise = match promise {
                Err(Error::Caller(Reason::NoSpace | Reason::Quota)) if half > self.at => {
                    end = half;
                    continue;
                }
                Err(why @ Error::Caller(Reason::NoSpace | Reason::Quota))
                    if self.keeps.is_some() =>
                {
                    self.keeps = Some(block);
                    return Ok((Promise::to_keep(self.host, self.at..end, why)?, end));
                }
                other => other?,
            };
            self.keeps = self.keeps.map(|_| 2 * (end - start).max(block));
            return Ok((promise, end));
        }
    }

    /// The run has reached `at`, in `folio`.
    fn passed(&mut self, folio: &Range<u64>) {
        let Some(writing) = &mut self.writing else {
            return;
        };
        if let Some(passed) = writing.wrote(self.at, folio) {
            let writeback = &self.space.cache.writeback;
            writeback.dirtied(self.host);
            writeback.stream_passed(self.host, passed, writing);
        }
    }

    /// Start of the run that this write belongs to.
    fn run_start(&self) -> u64 {
        self.writing.as_ref().map_or(self.at, Writing::start)
    }

    /// Writes what fits into one folio. Returns the folio's range.
    fn step(
        &mut self,
        piece_end: u64,
        promise: &mut Promise<'_>,
    ) -> core::result::Result<Range<u64>, Obstacle> {
        let space = self.space;
        let outcome = space.with_span(number_of(self.at), |span, state| {
            if state.find(self.at).is_none() {
                self.insert_folio(span, state)?;
            }
            self.write_folio(span, state, piece_end, promise)
        });
        if outcome.is_ok() {
            // Spare memory for a folio that another thread has created meanwhile.
            self.spare = None;
        }
        outcome
    }

    /// Inserts a new folio into the gap around `at`.
    fn insert_folio(
        &mut self,
        span: &Arc<Span>,
        state: &mut SpanState,
    ) -> core::result::Result<(), Obstacle> {
        let least = self.space.least_folio_bytes();
        let gap = state.gap(self.at, &span.range());
        let start = self.at - self.at % least;
        let left = self.end - start;
        let wanted = (1 << left.ilog2()).max(self.run_bytes.min(gap.end - start));
        let bytes = self.space.folio_bytes(start, wanted.min(gap.end - start));
        let fits = |pages: &Pages| (pages.len() as u64) <= bytes && pages.len() as u64 >= least;
        let Some(pages) = self.spare.take_if(|pages| fits(pages)) else {
            return Err(Obstacle::Memory { bytes, least });
        };
        let (id, len) = (self.space.cache.next_id(), pages.len() as u64);
        let mut folio = Folio::new(id, start, len, self.space.core.block_shift, Some(pages));
        folio.streamed = self.is_long();
        state.insert(Box::new(folio));
        self.space.core.cached(span.number, len);
        Ok(())
    }

    /// Writes into the folio that contains `at`, as far as possible.
    fn write_folio(
        &mut self,
        span: &Arc<Span>,
        state: &mut SpanState,
        piece_end: u64,
        promise: &mut Promise<'_>,
    ) -> core::result::Result<Range<u64>, Obstacle> {
        let space = self.space;
        let Some(folio) = state.find_mut(self.at) else {
            return Err(Obstacle::Unprepared);
        };
        let range = self.at..piece_end.min(folio.end());
        let blocks = folio.blocks(&range);
        if folio.filling.has_any(blocks.clone()) {
            return Err(Obstacle::Coming(space.cache.waits.ticket(span.wait_key())));
        }
        let size = space.core.size();
        let partial = [blocks.start..blocks.start + 1, blocks.end - 1..blocks.end].map(|edge| {
            let bytes = folio.bytes(&edge);
            let is_part = bytes.start < range.start || range.end < bytes.end;
            (is_part && !folio.up_to_date.contains(edge.start)).then_some(bytes)
        });
        // Past the end of the file there is nothing to read in: it is zero.
        if let Some(missing) = partial.iter().flatten().find(|bytes| bytes.start < size) {
            return Err(Obstacle::Missing(missing.clone()));
        }
        let new_blocks = blocks.len() - folio.dirty.count(blocks.clone());
        let new_bytes = new_blocks as u64 * folio.block_bytes();
        if !promise.covers(folio, &blocks, new_bytes) {
            return Err(Obstacle::Unprepared);
        }
        let (len, place) = (folio.len, folio.place(&range));
        let edges = partial
            .each_ref()
            .map(|edge| edge.as_ref().map(|bytes| folio.place(bytes)));
        let spare = &mut self.spare;
        let Some(pages) = folio.own_memory(|bytes| spare.take_if(|pages| pages.len() == bytes))
        else {
            return Err(Obstacle::Memory {
                bytes: len,
                least: len,
            });
        };
        for edge in edges.into_iter().flatten() {
            pages[edge.start..place.start.max(edge.start)].fill(0);
            pages[place.end.min(edge.end)..edge.end].fill(0);
        }
        self.memory.copy_to(&mut pages[place]);
        if self.writing.is_some() {
            space.core.grow_to(range.end);
        }
        folio.up_to_date.insert(blocks.clone());
        promise.used(folio, &blocks, new_bytes);
        folio.dirty.insert(blocks);
        folio.note_use(&range);
        self.at = range.end;
        self.dirtied_bytes += new_bytes;
        let folio = folio.start..folio.end();
        space.core.dirtied(new_bytes);
        if state.dirty_blocks == 0 && new_blocks > 0 {
            space.core.list_dirty(span.number, true);
        }
        state.dirty_blocks += new_blocks;
        Ok(folio)
    }

    /// Whether the run is too long for the file to be kept in the cache.
    fn is_long(&self) -> bool {
        self.run_bytes > self.space.cache.long_run_bytes(LONG_RUN_SHARE)
    }

    fn resolve(&mut self, obstacle: Obstacle) -> Result<()> {
        match obstacle {
            Obstacle::Coming(ticket) => {
                self.space.cache.waits.wait(ticket);
                Ok(())
            }
            Obstacle::Missing(block) => self.read_block(block),
            Obstacle::Memory { bytes, least } => {
                self.spare = None;
                let cache = &self.space.cache;
                if self.is_long() {
                    cache.recycle(bytes);
                }
                self.spare = cache.memory_or_wait(bytes, least)?;
                Ok(())
            }
            Obstacle::Unprepared => Ok(()),
        }
    }

    /// Reads in a block that is changed in part.
    fn read_block(&mut self, block: Range<u64>) -> Result<()> {
        let (fillings, _) = self.space.begin_fill(block, false);
        if !fillings.is_empty() {
            return read_in(&**self.host, fillings);
        }
        // Another thread fills it, or there is no memory. The memory is released at once, for the next fill
        // to take.
        let least = self.space.least_folio_bytes();
        drop(self.space.cache.memory_or_wait(least, least)?);
        Ok(())
    }
}
