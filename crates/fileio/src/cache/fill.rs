//! Filling the cache from the device. A thread that finds blocks missing claims them for filling
//! ([`AddressSpace::begin_fill`]) and reads them ([`read_in`]).
//!
//! Invariants:
//! - A claimed block is marked as filling: no other thread reads or writes it until it is installed or given
//!   up (the [`Filling`] is dropped). A thread that needs it waits. So installed data never replaces what a
//!   writer stored.
//! - The filler owns the memory meanwhile: for a new folio, the folio's memory; for missing blocks of an
//!   existing folio, a separate buffer, which is copied in.
//! - What the committed size or the mapping does not cover becomes zero.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_block::Pipeline;
use throughline_device::{Op, Pages, Segment};

use crate::cache::folio::Folio;
use crate::cache::span::{Span, SpanState, number_of, range_of};
use crate::cache::{AddressSpace, PageCache};
use crate::error::{Error, Result};
use crate::mapper::{Map, MappedExtent, Target};

/// Divisor of the budget: a longer run of fills is treated as a stream, whose folios are evicted first.
const LONG_RUN_SHARE: u64 = 2;

/// A piece of a file claimed for filling. Read it with [`read_in`], or drop it to give it up.
#[must_use = "what is not read is given up"]
pub(crate) struct Filling {
    cache: Arc<PageCache>,
    span: Arc<Span>,
    folio_start: u64,
    folio_id: u64,
    /// The bytes of the file, in whole blocks.
    range: Range<u64>,
    /// At least as long as the range. `None` once installed.
    memory: Option<Pages>,
    /// The folio was created for this fill and has no other memory.
    is_new: bool,
}

/// A missing range.
enum Missing {
    /// No folio covers it.
    Gap(Range<u64>),
    /// Blocks of an existing folio that are not up to date.
    Blocks(Range<u64>),
}

impl AddressSpace {
    /// Claims the missing blocks of `range`, up to the end of the file, that no other thread is filling;
    /// fewer if memory is short. Makes no mapping calls and never waits. With `mark`, the first new folio
    /// gets the mark that triggers the next readahead. Also returns the offset reached; past it there was no
    /// memory.
    pub(crate) fn begin_fill(&self, range: Range<u64>, mut mark: bool) -> (Vec<Filling>, u64) {
        let range = self.whole_blocks(&(range.start..range.end.min(self.size())));
        let long = self.fills.begin_near(range.start) > self.cache.long_run_bytes(LONG_RUN_SHARE);
        let mut fillings = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let span = range_of(number_of(at));
            let end = range.end.min(span.end);
            let missing = self.with_present(number_of(at), |_, state| {
                first_missing(state, at, end, &span, self.least_folio_bytes())
            });
            let missing = missing.unwrap_or_else(|| Some(Missing::Gap(self.whole_folios(at..end))));
            at = match missing {
                None => end,
                Some(missing) => match self.take_on(missing, mark, long) {
                    None => break,
                    Some((filling, until)) => {
                        mark &= !filling.as_ref().is_some_and(|filling| filling.is_new);
                        fillings.extend(filling);
                        until
                    }
                },
            };
        }
        self.fills.came_near(at);
        (fillings, at)
    }

    fn whole_folios(&self, range: Range<u64>) -> Range<u64> {
        let least = self.least_folio_bytes();
        range.start - range.start % least..range.end.next_multiple_of(least)
    }

    /// Claims the first part of what is missing. Returns the claim and the offset reached, or no claim and
    /// the start offset if the state changed meanwhile. `None`: no memory.
    fn take_on(&self, missing: Missing, mark: bool, long: bool) -> Option<(Option<Filling>, u64)> {
        match missing {
            Missing::Gap(gap) => {
                let bytes = self.folio_bytes(gap.start, gap.end - gap.start);
                if long {
                    self.cache.recycle(bytes);
                }
                let memory = self.cache.take_memory(bytes, self.least_folio_bytes())?;
                Some(self.take_on_gap(gap, memory, mark, long))
            }
            Missing::Blocks(blocks) => {
                let bytes = (blocks.end - blocks.start).next_power_of_two();
                let least = self.least_folio_bytes();
                let memory = self.cache.take_memory(bytes.max(least), least)?;
                Some(self.take_on_blocks(blocks, memory))
            }
        }
    }

    /// The length of a new folio at `start`, in a gap that extends `gap_bytes` from there.
    pub(crate) fn folio_bytes(&self, start: u64, gap_bytes: u64) -> u64 {
        let least = self.least_folio_bytes();
        let aligned = 1_u64 << start.trailing_zeros().min(63);
        let fitting = 1_u64 << gap_bytes.max(1).ilog2();
        let most = self.cache.most_folio_bytes();
        aligned.min(fitting).min(most).max(least)
    }

    fn take_on_gap(
        &self,
        gap: Range<u64>,
        memory: Pages,
        mark: bool,
        long: bool,
    ) -> (Option<Filling>, u64) {
        let range = gap.start..gap.start + memory.len() as u64;
        let filling = self.with_span(number_of(gap.start), |span, state| {
            let free = state
                .find(gap.start)
                .is_none()
                .then(|| state.gap(gap.start, &span.range()));
            if free.is_none_or(|free| range.end > free.end || range.start < free.start) {
                return None;
            }
            let len = range.end - range.start;
            let mut folio = Folio::new(
                self.cache.next_id(),
                range.start,
                len,
                self.core.block_shift,
                None,
            );
            folio.streamed = long;
            folio.mark.store(mark, Ordering::Relaxed);
            let id = state.insert(Box::new(folio)).id;
            self.core.cached(span.number, len);
            Some(Filling {
                cache: Arc::clone(&self.cache),
                span: Arc::clone(span),
                folio_start: range.start,
                folio_id: id,
                range: range.clone(),
                memory: Some(memory),
                is_new: true,
            })
        });
        let until = if filling.is_some() {
            range.end
        } else {
            gap.start
        };
        (filling, until)
    }

    fn take_on_blocks(&self, blocks: Range<u64>, memory: Pages) -> (Option<Filling>, u64) {
        let most = memory.len() as u64;
        let range = blocks.start..blocks.end.min(blocks.start + most);
        let take_on = |span: &Arc<Span>, state: &mut SpanState| {
            let folio = state.find_mut(range.start)?;
            let blocks = folio.blocks(&range);
            if folio.memory.is_none()
                || range.end > folio.end()
                || folio.up_to_date.has_any(blocks.clone())
                || folio.filling.has_any(blocks.clone())
            {
                return None;
            }
            folio.filling.insert(blocks);
            Some(Filling {
                cache: Arc::clone(&self.cache),
                span: Arc::clone(span),
                folio_start: folio.start,
                folio_id: folio.id,
                range: range.clone(),
                memory: Some(memory),
                is_new: false,
            })
        };
        let filling = self.with_present(number_of(range.start), take_on).flatten();
        let until = if filling.is_some() {
            range.end
        } else {
            range.start
        };
        (filling, until)
    }
}

/// The first part of `at..end`, in one span, that is neither up to date nor being filled.
fn first_missing(
    state: &SpanState,
    mut at: u64,
    end: u64,
    span: &Range<u64>,
    least: u64,
) -> Option<Missing> {
    while at < end {
        let Some(folio) = state.find(at) else {
            let gap = state.gap(at, span);
            let end = end.next_multiple_of(least).min(gap.end);
            return Some(Missing::Gap(at - at % least..end));
        };
        let wanted = folio.blocks(&(at..end));
        let mut from = wanted.start;
        while let Some(start) = folio.up_to_date.first(from..wanted.end, false) {
            let known = folio
                .up_to_date
                .first(start..wanted.end, true)
                .unwrap_or(wanted.end);
            if let Some(start) = folio.filling.first(start..known, false) {
                let end = folio.filling.first(start..known, true).unwrap_or(known);
                return Some(Missing::Blocks(folio.bytes(&(start..end))));
            }
            from = known;
        }
        at = folio.end();
    }
    None
}

impl Filling {
    /// The bytes of the file, in whole blocks.
    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Publishes the memory, which now holds the file's bytes, to readers.
    fn install(mut self) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        let mut state = self.span.state.write();
        let mut entry = None;
        let mut spare = None;
        if let Some(folio) = state.with_id(self.folio_start, self.folio_id) {
            let blocks = folio.blocks(&self.range);
            folio.filling.remove(blocks.clone());
            if self.is_new {
                folio.memory = Some(Arc::new(memory));
                folio.up_to_date.insert(blocks);
            } else {
                let place = folio.place(&self.range);
                // If the memory is shared with the device and there is none for a copy, the data is given up;
                // the next reader reads it again.
                if let Some(pages) = folio.own_memory(|bytes| self.cache.pool.take(bytes)) {
                    pages[place.clone()].copy_from_slice(&memory[..place.len()]);
                    folio.up_to_date.insert(blocks);
                }
                spare = Some(memory);
            }
            if folio.is_idle() && !folio.queued {
                folio.queued = true;
                entry = Some(folio.entry(self.span.space.id));
            }
        }
        drop(state);
        drop(spare);
        self.cache.queue(entry);
    }

    /// Gives the claim up, unless it was installed.
    fn give_up(&mut self) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        let mut state = self.span.state.write();
        let mut entry = None;
        if let Some(folio) = state.with_id(self.folio_start, self.folio_id) {
            let blocks = folio.blocks(&self.range);
            folio.filling.remove(blocks);
            if self.is_new {
                let folio = state.remove(self.folio_start);
                self.cache.removed(&self.span, &mut state, &folio);
            } else if folio.is_idle() && !folio.queued {
                folio.queued = true;
                entry = Some(folio.entry(self.span.space.id));
            }
        }
        drop(state);
        drop(memory);
        self.cache.queue(entry);
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.give_up();
        self.cache.waits.wake(self.span.wait_key());
        self.cache.memory_freed();
    }
}

/// Reads claimed pieces of one file, in ascending order, through one pipeline, and installs them. `map` is
/// the file's mapping.
///
/// # Errors
/// Those of the mapping and the device; nothing is installed then.
pub(crate) fn read_in(map: &dyn Map, mut fillings: Vec<Filling>) -> Result<()> {
    let Some(last) = fillings.last() else {
        return Ok(());
    };
    let cache = Arc::clone(&last.cache);
    let logical = u64::from(cache.disk.limits().logical_block_bytes.max(1));
    let size = map.size_bytes();
    let mut reader = Reader {
        map,
        logical,
        end: last.range.end,
        data_end: size.checked_next_multiple_of(logical).unwrap_or(size),
        extent: None,
    };
    let lent = &mut fillings;
    cache.disk.pipeline(Op::Read, move |pipeline| {
        for filling in lent {
            let len = (filling.range.end - filling.range.start) as usize;
            if let Some(memory) = &mut filling.memory {
                reader.piece(pipeline, filling.range.start, &mut memory[..len])?;
            }
        }
        Ok::<(), Error>(())
    })?;
    for mut filling in fillings {
        if let Some(memory) = filling.memory.as_mut().filter(|_| filling.range.end > size) {
            let len = (filling.range.end - filling.range.start) as usize;
            let data = size.saturating_sub(filling.range.start) as usize;
            memory[data..len].fill(0);
        }
        filling.install();
    }
    Ok(())
}

struct Reader<'a> {
    map: &'a dyn Map,
    /// The device's logical block size in bytes.
    logical: u64,
    /// End of the requested range of the file, exclusive.
    end: u64,
    /// Nothing on the device past this offset of the file.
    data_end: u64,
    /// The last extent from the mapping, and its device offset; `None` inside: zeros.
    extent: Option<(Range<u64>, Option<u64>)>,
}

impl Reader<'_> {
    fn piece<'env>(
        &mut self,
        pipeline: &mut Pipeline<'_, '_, 'env>,
        start: u64,
        mut memory: &'env mut [u8],
    ) -> Result<()> {
        let mut at = start;
        while !memory.is_empty() {
            if at >= self.data_end {
                memory.fill(0);
                return Ok(());
            }
            let (end, device) = self.placed(pipeline, at)?;
            let here = (end.min(self.data_end) - at).min(memory.len() as u64);
            let (now, rest) = memory.split_at_mut(here as usize);
            match device {
                Some(device) => {
                    if !(device | here).is_multiple_of(self.logical) {
                        return Err(invalid_mapping(at, "not aligned to device blocks"));
                    }
                    pipeline.add(device, Segment::Read(now))?;
                }
                None => now.fill(0),
            }
            memory = rest;
            at += here;
        }
        Ok(())
    }

    /// The end of the contiguous range around file byte `at`, and the device offset of `at`; `None`: zeros.
    fn placed(
        &mut self,
        pipeline: &mut Pipeline<'_, '_, '_>,
        at: u64,
    ) -> Result<(u64, Option<u64>)> {
        if self
            .extent
            .as_ref()
            .is_none_or(|(range, _)| !range.contains(&at))
        {
            pipeline.submit_open();
            let extent = self.map.map(at, self.end - at)?;
            self.extent = Some(checked(&extent, at)?);
        }
        let (range, device) = self
            .extent
            .clone()
            .ok_or_else(|| invalid_mapping(at, "no extent"))?;
        Ok((range.end, device.map(|device| device + (at - range.start))))
    }
}

/// The extent from `at` on: its file range and device offset.
fn checked(extent: &MappedExtent, at: u64) -> Result<(Range<u64>, Option<u64>)> {
    let covers = extent.file_offset <= at && at - extent.file_offset < extent.len;
    let end = extent.file_offset.checked_add(extent.len);
    let device = match extent.target {
        Target::Hole | Target::Unwritten { .. } => None,
        Target::Data { device_offset } => Some(device_offset),
    };
    let device_end = device.map_or(Some(0), |device| device.checked_add(extent.len));
    match (covers, end, device_end) {
        (true, Some(end), Some(_)) => Ok((
            at..end,
            device.map(|device| device + (at - extent.file_offset)),
        )),
        (true, None, Some(_)) if device.is_none() => Ok((at..u64::MAX, None)),
        _ => Err(invalid_mapping(at, &format!("{extent:?}"))),
    }
}

fn invalid_mapping(at: u64, what: &str) -> Error {
    Error::Corrupt(format!("invalid mapping at file byte {at}: {what}"))
}
