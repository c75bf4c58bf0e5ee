//! Filling the cache from the device: who finds something missing takes it on ([`AddressSpace::begin_fill`]), and reads it ([`read_in`]).
//!
//! Invariants:
//! - A block that is taken on is marked, and nobody else reads or writes it until it is installed, or given up: the [`Filling`]
//!   dropped. Whoever needs it waits. So what is installed is never older than what a writer put there.
//! - The memory is the filler's meanwhile: of a folio that was not there, all of it; of blocks missing in one that is, memory
//!   of their own, which is copied.
//! - What the file's committed size, or its mapping, does not cover becomes zero.

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

/// A run of fills longer than this part of the budget is not for keeping.
const LONG_RUN_SHARE: u64 = 2;

/// A piece of a file that its owner is to read into the cache: with [`read_in`], or not (dropped, it is given up).
#[must_use = "what is not read is given up"]
pub(crate) struct Filling {
    cache: Arc<PageCache>,
    span: Arc<Span>,
    folio_start: u64,
    folio_id: u64,
    /// File bytes, whole blocks.
    range: Range<u64>,
    /// As many bytes as the range has, or more. `None` when installed.
    memory: Option<Pages>,
    /// The folio has no memory but this.
    is_new: bool,
}

/// Something missing.
enum Missing {
    /// No folio has it.
    Gap(Range<u64>),
    /// Blocks of a folio.
    Blocks(Range<u64>),
}

impl AddressSpace {
    /// Takes on what is missing of `range` up to the file's end and is not taken on by another: less of it where there is no
    /// memory. It asks no mapping and never waits. With `mark`, the first folio that is new by it carries the mark that
    /// sends for more. And up to where it came: behind that there was no memory.
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

    /// Takes on the first of what is missing; and how far it came, which is nowhere where it has changed meanwhile. `None`:
    /// no memory.
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

    /// The length of a folio at `start`, in a gap of `gap_bytes` from there on.
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

/// The first of `at..end`, in one span, that nobody has and nobody reads.
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
    /// The file bytes, whole blocks.
    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Its memory holds the bytes of the file now: readers get them from here on.
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
                // Shared with the device, and no memory for a copy: it is given up, and read again by who needs it.
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

    /// Gives it up, if it was not installed.
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

/// Reads what was taken on, which is ascending in one file, from the device in one go, and installs it. `map` is the file's.
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
    /// The device's block, in bytes.
    logical: u64,
    /// The last file byte that is asked for.
    end: u64,
    /// Behind it is nothing on the device.
    data_end: u64,
    /// What the mapping said last, and up to where it holds; `None` in it: zeros.
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
                        return Err(nonsense(at, "not in whole blocks of the device"));
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

    /// Up to where file byte `at` and what follows it lie together, and where on the device; `None`: they are zero.
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
        let (range, device) = self.extent.clone().ok_or_else(|| nonsense(at, "none"))?;
        Ok((range.end, device.map(|device| device + (at - range.start))))
    }
}

/// The extent from `at` on: the file bytes, and where they begin on the device.
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
        _ => Err(nonsense(at, &format!("{extent:?}"))),
    }
}

fn nonsense(at: u64, what: &str) -> Error {
    Error::Corrupt(format!(
        "the mapping of file byte {at} makes no sense: {what}"
    ))
}
