//! The flusher's operations on an [`AddressSpace`]: taking dirty blocks, and ending their write-back.
//!
//! A block that is taken becomes clean and under write-back; its memory is shared with the device and not
//! changed. If it is written to meanwhile, it is both dirty and under write-back and counts twice, because
//! the contents differ. It is not taken again before the older contents are on the device, so newer data
//! never overtakes older data.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use throughline_device::Pages;

use crate::cache::AddressSpace;
use crate::cache::folio::Folio;
use crate::cache::span::{SPAN_BYTES, SpanState, number_of, range_of};

/// Adjacent bytes of a file in one folio, under write-back.
#[derive(Debug)]
pub(crate) struct DirtyPiece {
    /// Offset of the first byte in the file.
    pub(crate) file_offset: u64,
    /// The folio's memory. It must not change while this is held.
    pub(crate) pages: Arc<Pages>,
    /// The bytes of `pages` to write.
    pub(crate) range: Range<usize>,
}

/// Adjacent dirty pieces that were taken for write-back together, in whole allocation units.
#[derive(Debug)]
pub(crate) struct DirtyRun {
    /// The bytes of the file that all pieces cover.
    pub(crate) range: Range<u64>,
    /// Ascending, without gaps.
    pub(crate) pieces: Vec<DirtyPiece>,
    /// Number of allocation units in the run with a reservation.
    pub(crate) reserved_units: u64,
    /// The file's size when the run was taken. At most the smaller of this and the end of the range may be
    /// committed with it.
    pub(crate) file_size: u64,
    /// The units that have a reservation.
    reserved: Vec<Range<u64>>,
    id: u64,
}

impl AddressSpace {
    /// Whether any block of the range is dirty, whether or not it is also under write-back.
    pub(crate) fn has_dirty(&self, range: &Range<u64>) -> bool {
        let mut from = number_of(range.start);
        while let Some(number) = self.next_dirty_span(from) {
            if range_of(number).start >= range.end {
                break;
            }
            let found = self.cache.table.look(self.core.id, number, |span| {
                let state = span.state.read();
                state
                    .overlapping(range.clone())
                    .any(|folio| folio.dirty.has_any(folio.blocks(range)))
            });
            if found == Some(true) {
                return true;
            }
            from = number + 1;
        }
        false
    }

    /// Takes the first run of adjacent dirty blocks that begins in the range, at most `most_bytes` long but
    /// at least one block. The blocks become clean and under write-back. `None` if there are none to take. A
    /// run ends at the block that contains the end of the file.
    pub(crate) fn take_dirty(&self, range: Range<u64>, most_bytes: u64) -> Option<DirtyRun> {
        let mut taking = Taking {
            space: self,
            most_bytes: most_bytes.max(u64::from(self.block_bytes())),
            range: self.whole_blocks(&range),
            run: None,
        };
        let mut number = number_of(range.start);
        loop {
            number = match &taking.run {
                // Continue only with the next span if the run reaches its start.
                Some(run) if run.range.end.is_multiple_of(SPAN_BYTES) => number_of(run.range.end),
                Some(_) => break,
                None => self.next_dirty_span(number)?,
            };
            if range_of(number).start >= taking.range.end {
                break;
            }
            let before = taking.run.as_ref().map(|run| run.range.end);
            let more = self.with_present(number, |span, state| {
                let more = taking.take_from(state);
                if state.dirty_blocks == 0 {
                    self.core.list_dirty(span.number, false);
                }
                more
            });
            if taking.run.is_some()
                && (more != Some(true) || taking.run.as_ref().map(|run| run.range.end) == before)
            {
                break;
            }
            number = number.checked_add(1)?;
        }
        taking.run
    }

    /// Ends the write-back of a run: it is on the device and committed (`ok`), or its blocks become
    /// dirty again and their reservations are restored. The caller has released all other references to the
    /// run's memory.
    pub(crate) fn write_back_ended(&self, host: &dyn crate::Backing, run: DirtyRun, ok: bool) {
        let DirtyRun {
            range,
            pieces,
            reserved,
            id,
            ..
        } = run;
        drop(pieces);
        let mut ended = Ended::default();
        let mut entries = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let number = number_of(at);
            let here = at..range.end.min(range_of(number).end);
            self.with_present(number, |span, state| {
                let before = state.dirty_blocks;
                let again = ended.span(state, &here, &reserved, ok);
                state.dirty_blocks += again;
                if before == 0 && again > 0 {
                    self.core.list_dirty(span.number, true);
                }
                for folio in state
                    .overlapping_mut(here.clone())
                    .filter(|folio| folio.is_idle() && !folio.queued)
                {
                    folio.queued = true;
                    entries.push(folio.entry(self.core.id));
                }
            });
            at = here.end;
        }
        self.account(host, &ended, range.end - range.start, ok);
        self.runs.end(id, ok);
        self.cache.queue(entries);
        self.cache.memory_freed();
        self.cache.shrink_to_budget();
        self.cache.waits.wake(self.clean_key());
    }

    fn account(&self, host: &dyn crate::Backing, ended: &Ended, bytes: u64, ok: bool) {
        let twice_bytes = ended.twice_blocks as u64 * u64::from(self.block_bytes());
        if ok {
            self.core.undirtied(bytes);
            self.cache.throttle.cleaned(bytes);
        } else if twice_bytes > 0 {
            // Of these blocks only the newer contents remain; the count of the older contents is released.
            self.core.undirtied(twice_bytes);
            self.cache.throttle.release(twice_bytes);
        }
        if ended.surplus_units > 0 {
            host.unreserve(ended.surplus_units);
        }
    }

    /// Waits until nothing in the range is dirty or under write-back. Begins no wait after `until`.
    pub(crate) fn wait_until_clean(&self, range: &Range<u64>, until: Instant) {
        loop {
            // Taken before the check, so that no end of a run is missed.
            let ticket = self.cache.waits.ticket(self.clean_key());
            if !self.is_dirty(range.clone()) || Instant::now() >= until {
                return;
            }
            self.cache.waits.wait_timeout(ticket);
        }
    }

    /// The key of [`Waits`](crate::cache::waits::Waits) for the end of write-back. It belongs to no span.
    fn clean_key(&self) -> u64 {
        self.core.id.wrapping_mul(31).wrapping_sub(1)
    }

    /// The folios that sequential writers are still filling, ascending.
    pub(crate) fn append_tails(&self) -> Vec<Range<u64>> {
        self.streams.tails()
    }
}

/// A run being taken.
struct Taking<'a> {
    space: &'a AddressSpace,
    range: Range<u64>,
    most_bytes: u64,
    run: Option<DirtyRun>,
}

impl Taking<'_> {
    /// Takes the dirty blocks of one span. Returns true if the next span may continue the run.
    fn take_from(&mut self, state: &mut SpanState) -> bool {
        let mut taken_blocks = 0;
        let mut more = true;
        // With the span locked: all dirty bytes are within this size.
        let file_size = self.space.core.size();
        for folio in state.overlapping_mut(self.range.clone()) {
            let within = folio.blocks(&self.range);
            let Some(mut blocks) = self.space.refused.takeable(folio, within) else {
                match self.run {
                    None => continue,
                    Some(_) => break,
                }
            };
            let start = folio.bytes(&blocks).start;
            let so_far = self
                .run
                .as_ref()
                .map_or(0, |run| run.range.end - run.range.start);
            let room = ((self.most_bytes - so_far) >> self.space.core.block_shift) as usize;
            if room == 0 || self.run.as_ref().is_some_and(|run| run.range.end != start) {
                more = false;
                break;
            }
            blocks.end = blocks.end.min(blocks.start + room);
            taken_blocks += blocks.len();
            self.take(folio, blocks);
            let end = self.run.as_ref().map_or(0, |run| run.range.end);
            if end != folio.end() || end >= file_size {
                more = false;
                break;
            }
        }
        state.dirty_blocks -= taken_blocks;
        if let Some(run) = self.run.as_mut().filter(|_| taken_blocks > 0) {
            run.file_size = file_size;
        }
        more
    }

    fn take(&mut self, folio: &mut Folio, blocks: Range<usize>) {
        let Some(memory) = &folio.memory else {
            return;
        };
        let range = folio.bytes(&blocks);
        let run = self.run.get_or_insert_with(|| DirtyRun {
            range: range.start..range.start,
            pieces: Vec::new(),
            reserved_units: 0,
            file_size: 0,
            reserved: Vec::new(),
            id: self.space.runs.begin(range.clone()),
        });
        self.space.runs.extend(run.id, range.end);
        run.range.end = range.end;
        run.pieces.push(DirtyPiece {
            file_offset: range.start,
            pages: Arc::clone(memory),
            range: folio.place(&range),
        });
        run.reserved_units += folio.reserved.count(blocks.clone()) as u64;
        let mut left = blocks.clone();
        while let Some(reserved) = folio.reserved.first_run(left.clone()) {
            run.reserved.push(folio.bytes(&reserved));
            left.start = reserved.end;
        }
        folio.reserved.remove(blocks.clone());
        folio.dirty.remove(blocks.clone());
        folio.writing.insert(blocks);
    }
}

/// The totals of an ended run.
#[derive(Default)]
struct Ended {
    /// Blocks of a failed run that were dirtied again before it ended.
    twice_blocks: usize,
    /// Units that now have two reservations.
    surplus_units: u64,
}

impl Ended {
    /// Ends write-back of the blocks of `range` in one span. Returns the number of blocks that became dirty
    /// again.
    fn span(
        &mut self,
        state: &mut SpanState,
        range: &Range<u64>,
        reserved: &[Range<u64>],
        ok: bool,
    ) -> usize {
        let mut again = 0;
        for folio in state.overlapping_mut(range.clone()) {
            let blocks = folio.blocks(range);
            folio.writing.remove(blocks.clone());
            if ok {
                continue;
            }
            let twice = folio.dirty.count(blocks.clone());
            self.twice_blocks += twice;
            again += blocks.len() - twice;
            folio.dirty.insert(blocks);
            let here = folio.start..folio.end();
            for run in reserved
                .iter()
                .filter(|run| run.start < here.end && here.start < run.end)
            {
                let units = folio.blocks(run);
                self.surplus_units += folio.reserved.count(units.clone()) as u64;
                folio.reserved.insert(units);
            }
        }
        again
    }
}
