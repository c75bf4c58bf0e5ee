//! Buffered reading.
//!
//! A hit is a look-up, the span's lock shared, and a copy. What is missing is taken on and read from the device (see
//! [`crate::cache::fill`]); where there is no memory for it, it is read past the cache, into the reader's own: what is
//! missing then is neither dirty nor under write-back, so the device has it.

use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cache::fill::read_in;
use crate::cache::span::{SpanState, number_of, range_of};
use crate::cache::waits::Ticket;
use crate::cache::{AddressSpace, Backing};
use crate::direct;
use crate::direct::ReadMemory;
use crate::error::Result;
use crate::readahead::ReadStream;

impl AddressSpace {
    /// Fills `buf` from file byte `offset` on if all of it (up to the file's size) is cached. Takes no lock of the
    /// file, asks no mapping and never waits for the device. How many bytes there were; `None` where something is missing
    /// (`buf` is then undefined), or more should be sent for.
    pub fn read_cached(&self, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let end = self.size().min(offset.saturating_add(buf.len() as u64));
        let mut at = offset;
        while at < end {
            let to = &mut buf[(at - offset) as usize..(end - offset) as usize];
            let copied = self.cache.table.look(self.core.id, number_of(at), |span| {
                copy_hit(&span.state.read(), at, to)
            });
            at += copied.flatten()?;
        }
        self.cache.reads.hit(end.saturating_sub(offset));
        Some(end.saturating_sub(offset) as usize)
    }
}

/// Copies what the span has of the bytes from `at` on; all that is asked of its range, or nothing.
fn copy_hit(state: &SpanState, at: u64, to: &mut [u8]) -> Option<u64> {
    let end = range_of(number_of(at)).end.min(at + to.len() as u64);
    let mut next = at;
    while next < end {
        let folio = state.find(next)?;
        let len = folio.readable(next, end);
        if len == 0 || folio.mark.load(Ordering::Relaxed) {
            return None;
        }
        let memory = folio.memory.as_ref()?;
        let from = folio.place(&(next..next + len));
        let into = (next - at) as usize;
        to[into..into + from.len()].copy_from_slice(&memory[from]);
        folio.note_use(&(next..next + len));
        next += len;
    }
    Some(end - at)
}

/// Reads through the cache: fills what is missing, reading ahead as `stream` says. The file's lock is held shared. How many
/// bytes there were, fewer than asked only at the end of the file.
///
/// # Errors
/// Those of the mapping and the device, when nothing was read before it.
pub(crate) fn read(
    host: &Arc<dyn Backing>,
    offset: u64,
    bufs: &mut [IoSliceMut<'_>],
    stream: &ReadStream,
) -> Result<usize> {
    let asked = bufs
        .iter()
        .fold(0_u64, |sum, buf| sum.saturating_add(buf.len() as u64));
    let end = offset.saturating_add(asked).min(host.space().size());
    let mut reader = Reader {
        host,
        stream,
        range: offset..end,
        memory: ReadMemory::new(bufs),
        at: offset,
        missing: 0,
    };
    let count = |reader: &Reader<'_, '_, '_>| {
        let reads = &host.space().cache.reads;
        reads.read(reader.at.saturating_sub(offset), reader.missing);
    };
    while reader.at < end {
        if let Err(error) = reader.step() {
            count(&reader);
            return match reader.at - offset {
                0 => Err(error),
                read => Ok(read as usize),
            };
        }
    }
    count(&reader);
    Ok(end.saturating_sub(offset) as usize)
}

/// What there is at a place of a file.
enum Found {
    /// So many bytes, and they are copied.
    Copied(u64),
    /// The mark that sends for more, which is off now.
    Mark,
    /// Somebody brings it.
    Coming(Ticket),
    /// Nothing, up to there.
    Missing(u64),
}

struct Reader<'a, 'm, 'b> {
    host: &'a Arc<dyn Backing>,
    stream: &'a ReadStream,
    range: Range<u64>,
    memory: ReadMemory<'m, 'b>,
    /// The next file byte.
    at: u64,
    /// Bytes that were not there.
    missing: u64,
}

impl Reader<'_, '_, '_> {
    fn step(&mut self) -> Result<()> {
        let missing = match self.look() {
            Found::Missing(until) => until,
            other => return self.go_on(other),
        };
        self.missing += missing.saturating_sub(self.at);
        let space = self.host.space();
        let (offset, len) = (self.range.start, self.range.end - self.range.start);
        let most = space
            .cache
            .readahead
            .missed(self.host, self.stream, offset, len, self.at);
        let until = self.at.saturating_add(most).max(missing);
        // A long call goes on from what it has read, in memory that others need too.
        let until = until.min(self.at.saturating_add(space.cache.most_fill_bytes()));
        let (fillings, _) = space.begin_fill(self.at..until, false);
        // An error may be of what is read ahead: what is asked for has its own below.
        let _may_be_met_again = read_in(&**self.host, fillings);
        match self.look() {
            Found::Missing(until) => self.read_past(until),
            other => self.go_on(other),
        }
    }

    fn go_on(&mut self, found: Found) -> Result<()> {
        match found {
            Found::Copied(bytes) => self.at += bytes,
            Found::Mark => {
                let readahead = &self.host.space().cache.readahead;
                readahead.met_mark(self.host, self.stream, self.at);
            }
            Found::Coming(ticket) => self.host.space().cache.waits.wait(ticket),
            Found::Missing(_) => {}
        }
        Ok(())
    }

    /// Copies what there is from `at` on in one folio, or says what is in the way.
    fn look(&mut self) -> Found {
        let (at, space) = (self.at, self.host.space());
        let end = self.range.end.min(range_of(number_of(at)).end);
        let memory = &mut self.memory;
        let found = space
            .cache
            .table
            .look(space.core.id, number_of(at), |span| {
                let state = span.state.read();
                let Some(folio) = state.find(at) else {
                    return Found::Missing(state.gap(at, &span.range()).end.min(end));
                };
                if folio.mark.load(Ordering::Relaxed) && folio.mark.swap(false, Ordering::Relaxed) {
                    return Found::Mark;
                }
                let len = folio.readable(at, end);
                if let Some(pages) = folio.memory.as_ref().filter(|_| len > 0) {
                    copy_out(memory, &pages[folio.place(&(at..at + len))]);
                    folio.note_use(&(at..at + len));
                    return Found::Copied(len);
                }
                let blocks = folio.blocks(&(at..end));
                if folio.filling.contains(blocks.start) {
                    return Found::Coming(space.cache.waits.ticket(span.wait_key()));
                }
                // Up to what is there, or is coming.
                let known = folio
                    .up_to_date
                    .first(blocks.clone(), true)
                    .unwrap_or(blocks.end);
                let until = folio
                    .filling
                    .first(blocks.start..known, true)
                    .unwrap_or(known);
                Found::Missing(folio.bytes(&(blocks.start..until)).end.min(end))
            });
        found.unwrap_or(Found::Missing(end))
    }

    /// Reads what is missing, up to `until`, into the reader's memory and nowhere else.
    fn read_past(&mut self, until: u64) -> Result<()> {
        while self.at < until {
            let most = usize::try_from(until - self.at).unwrap_or(usize::MAX);
            let (_, piece) = self.memory.current();
            // An error leaves the piece with its owner, who has been told how far it got.
            let to = self.memory.take(most.min(piece));
            let disk = &self.host.space().cache.disk;
            let read = direct::read(disk, &**self.host, self.at, &mut [IoSliceMut::new(to)])?;
            to[read..].fill(0);
            self.at += to.len() as u64;
        }
        Ok(())
    }
}

/// Copies `from` into the caller's memory, which has room for it.
fn copy_out(memory: &mut ReadMemory<'_, '_>, mut from: &[u8]) {
    while !from.is_empty() {
        let to = memory.take(from.len());
        let (now, rest) = from.split_at(to.len());
        to.copy_from_slice(now);
        from = rest;
    }
}
