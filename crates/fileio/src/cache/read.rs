//! Buffered reading.
//!
//! A hit costs a lookup, the shared span lock and a copy. Missing blocks are claimed and read from the device
//! (see [`crate::cache::fill`]). If there is no memory for them, they are read past the cache into the
//! reader's buffer: a missing block is neither dirty nor under write-back, so the device is current.

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
    /// Fills `buf` from byte `offset` of the file if all of it, up to the file's size, is cached. Takes no
    /// lock of the file, makes no mapping calls and never waits for the device. Returns the number of bytes;
    /// `None` if something is missing (`buf` is then undefined) or a readahead mark was met.
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

/// Copies the bytes from `at` on that lie in this span and in `to`: all of them, or `None`.
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

/// Reads through the cache: fills what is missing, with the readahead that `stream` asks for. The caller
/// holds the file's lock shared. Returns the number of bytes, less than requested only at the end of the
/// file.
///
/// # Errors
/// Those of the mapping and the device, if nothing was read before the error.
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

/// The state of the cache at an offset of the file.
enum Found {
    /// This many bytes were copied.
    Copied(u64),
    /// A readahead mark, now cleared.
    Mark,
    /// Another thread is filling the block.
    Coming(Ticket),
    /// Nothing is cached up to this offset.
    Missing(u64),
}

struct Reader<'a, 'm, 'b> {
    host: &'a Arc<dyn Backing>,
    stream: &'a ReadStream,
    range: Range<u64>,
    memory: ReadMemory<'m, 'b>,
    /// Next offset in the file.
    at: u64,
    /// Bytes that were not cached.
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
        // Limits how much memory a long call takes from others at a time.
        let until = until.min(self.at.saturating_add(space.cache.most_fill_bytes()));
        let (fillings, _) = space.begin_fill(self.at..until, false);
        // The error may concern readahead only. If the requested bytes fail, reading them below fails too.
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

    /// Copies the bytes from `at` on that one folio holds, or returns why it cannot.
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
                // Up to the next block that is up to date or being filled.
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

    /// Reads the missing bytes up to `until` into the reader's buffer only.
    fn read_past(&mut self, until: u64) -> Result<()> {
        while self.at < until {
            let most = usize::try_from(until - self.at).unwrap_or(usize::MAX);
            let (_, piece) = self.memory.current();
            // On error the piece is left as it is: the reader's position is not advanced.
            let to = self.memory.take(most.min(piece));
            let disk = &self.host.space().cache.disk;
            let read = direct::read(disk, &**self.host, self.at, &mut [IoSliceMut::new(to)])?;
            to[read..].fill(0);
            self.at += to.len() as u64;
        }
        Ok(())
    }
}

/// Copies `from` into the caller's memory, which is large enough.
fn copy_out(memory: &mut ReadMemory<'_, '_>, mut from: &[u8]) {
    while !from.is_empty() {
        let to = memory.take(from.len());
        let (now, rest) = from.split_at(to.len());
        to.copy_from_slice(now);
        from = rest;
    }
}
