//! Writing and discarding clusters: in place where one is used once, and at a new place otherwise.
//!
//! Invariants:
//! - A new cluster is written whole before a table refers to it.
//! - Two threads that write to one cluster do not both give it a new place ([`Placing`](super::placing)).

use std::io;

use super::cluster::{Clusters, Entry, copied, long, size, zeros};
use super::{MAX_CLAIM, Qcow2, Run, State, read_only};
use crate::source::ReadAt;

impl Qcow2 {
    /// Writes `bytes` at byte `at`, all of them in the disk.
    ///
    /// # Errors
    /// Of the device.
    pub(crate) fn write(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            self.check_failed()?;
            let written = match self.write_in_place(bytes, at)? {
                0 => self.write_new(bytes, at)?,
                written => written,
            };
            bytes = bytes.get(written..).unwrap_or_default();
            at = at.saturating_add(long(written));
        }
        self.write_tables_if_many()
    }

    /// Writes what is at a place of its own already. Returns how many bytes.
    fn write_in_place(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let _in_flight = self.in_flight.read();
        let run = self.run(at, long(bytes.len()))?;
        let Entry::Plain(_) = run.entry else {
            return Ok(0);
        };
        let len_bytes = self.own(&run);
        let part = bytes.get(..size(len_bytes)).unwrap_or(bytes);
        if !part.is_empty() {
            self.file.write_all_at(part, run.place)?;
        }
        Ok(part.len())
    }

    /// The number of bytes of a run up to the first cluster that something else refers to as well.
    fn own(&self, run: &Run) -> u64 {
        let state = self.state.lock();
        let Some(counts) = &state.counts else {
            return 0;
        };
        let mut len_bytes = 0;
        while len_bytes < run.len_bytes {
            let place = run.place.saturating_add(len_bytes);
            if counts.uses(place) != 1 {
                break;
            }
            len_bytes = len_bytes.saturating_add(self.clusters.rest(place));
        }
        len_bytes.min(run.len_bytes)
    }

    /// Writes to new clusters. Returns how many bytes; 0 if another thread has claimed clusters meanwhile.
    fn write_new(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let _in_flight = self.in_flight.read();
        let end = at.saturating_add(long(bytes.len()));
        let first = self.clusters.number(at);
        let last = self.clusters.number(end.saturating_sub(1));
        let _placing = self.placing.take(first..last.saturating_add(1));
        let wanted = self.without_own_place(first, last)?;
        if wanted == 0 {
            return Ok(0);
        }
        let (place, claimed) = self.claim(first, wanted)?;
        let end = end.min(self.clusters.start(first.saturating_add(long(claimed))));
        let part = size(end.saturating_sub(at));
        let part = bytes.get(..part).unwrap_or(bytes);
        let (entered, written) = match self.fill(part, at, place) {
            Ok(()) => self.enter(first, place, claimed),
            failed => (0, failed),
        };
        // What no table refers to is free again.
        self.give_back(place, entered, claimed);
        written.map(|()| part.len())
    }

    /// The number of clusters from `first` on, at most to `last`, that need a new place.
    fn without_own_place(&self, first: u64, last: u64) -> io::Result<usize> {
        let mut state = self.state.lock();
        let State { tables, counts, .. } = &mut *state;
        let counts = counts.as_ref().ok_or_else(read_only)?;
        let mut wanted = 0;
        for number in first..=last {
            let entry = tables.entry(&*self.file, number)?;
            let is_own = matches!(entry, Entry::Plain(place) if counts.uses(place) == 1);
            if is_own || wanted == MAX_CLAIM {
                break;
            }
            wanted = wanted.saturating_add(1);
        }
        Ok(wanted)
    }

    /// Claims up to `wanted` clusters for those of the disk from `first` on. Then their tables can change.
    fn claim(&self, first: u64, wanted: usize) -> io::Result<(u64, usize)> {
        let mut state = self.state.lock();
        // The first cluster of each table.
        let entries = long(self.clusters.entries());
        let end = first.saturating_add(long(wanted));
        let mut number = first;
        while number < end {
            state.prepare(&*self.file, number)?;
            number = number.saturating_add(1).next_multiple_of(entries);
        }
        state.counts.as_mut().ok_or_else(read_only)?.claim(wanted)
    }

    /// Writes whole new clusters at `place`: `bytes`, and around them what the disk has there now.
    fn fill(&self, bytes: &[u8], at: u64, place: u64) -> io::Result<()> {
        let head = self.clusters.within(at);
        let end = at.saturating_add(long(bytes.len()));
        let tail = match self.clusters.within(end) {
            0 => 0,
            _ => self.clusters.rest(end),
        };
        // The disk may end within a cluster.
        let there = tail.min(self.header.len_bytes.saturating_sub(end));
        if head == 0 && tail == 0 {
            self.file.write_all_at(bytes, place)?;
            self.streams.written(&*self.file, place, bytes.len());
            return Ok(());
        }
        let mut whole = vec![0; size(head)];
        self.read_now(&mut whole, at.saturating_sub(head))?;
        whole.extend(bytes);
        let from = whole.len();
        whole.resize(from.saturating_add(size(tail)), 0);
        let after = whole.get_mut(from..from.saturating_add(size(there)));
        self.read_now(after.unwrap_or_default(), end)?;
        self.file.write_all_at(&whole, place)?;
        self.streams.written(&*self.file, place, whole.len());
        Ok(())
    }

    /// As [`Qcow2::read`], while clusters are in flight.
    fn read_now(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        // Within one cluster.
        let run = self.run(at, long(buffer.len()))?;
        self.read_run(&run, buffer, at)
    }

    /// The tables say that the clusters of the disk from `first` on are at `place`. Returns for how many they
    /// do, also if one fails.
    fn enter(&self, first: u64, place: u64, claimed: usize) -> (usize, io::Result<()>) {
        let mut state = self.state.lock();
        for done in 0..claimed {
            let number = first.saturating_add(long(done));
            let place = place.saturating_add(self.clusters.start(long(done)));
            let entered = state.replace(&*self.file, self.clusters, number, copied(place));
            if entered.is_err() {
                return (done, entered);
            }
        }
        (claimed, Ok(()))
    }

    /// The clusters claimed at `place` are free, without the first ones, that were entered.
    fn give_back(&self, place: u64, entered: usize, claimed: usize) {
        let at = |clusters| place.saturating_add(self.clusters.start(long(clusters)));
        if entered < claimed
            && let Some(counts) = &mut self.state.lock().counts
        {
            counts.release(at(entered), at(claimed), &mut Vec::new());
        }
    }

    /// The bytes are no longer needed. Whole clusters in them become zeros, and their places free.
    ///
    /// # Errors
    /// Of the device.
    pub(crate) fn discard(&self, at: u64, len_bytes: u64) -> io::Result<()> {
        if self.base.is_some() && !self.clusters.has_zeros() {
            return Ok(());
        }
        let up = |byte: u64| {
            self.clusters
                .number(byte.saturating_add(self.clusters.bytes().wrapping_sub(1)))
        };
        let end = at.saturating_add(len_bytes);
        let last = match end == self.header.len_bytes {
            true => up(end),
            false => self.clusters.number(end),
        };
        let mut number = up(at);
        while number < last {
            self.check_failed()?;
            number = self.discard_in_table(number, last)?;
        }
        self.write_tables_if_many()
    }

    /// Discards the clusters from `number` on, up to `last` and the end of the table. Returns where to go on.
    fn discard_in_table(&self, number: u64, last: u64) -> io::Result<u64> {
        let entry = if self.base.is_some() { zeros() } else { 0 };
        let after = number.saturating_add(1);
        let to = after
            .next_multiple_of(long(self.clusters.entries()))
            .min(last);
        let _in_flight = self.in_flight.read();
        let _placing = self.placing.take(number..to);
        let mut state = self.state.lock();
        let absent = state.tables.absent(number);
        if absent > 0 {
            return Ok(number.saturating_add(absent));
        }
        for number in number..to {
            match state.tables.entry(&*self.file, number)? {
                Entry::Absent | Entry::Zeros(None) => {}
                _ => {
                    state.prepare(&*self.file, number)?;
                    state.replace(&*self.file, self.clusters, number, entry)?;
                }
            }
        }
        Ok(to)
    }
}

impl State {
    /// The table of a cluster can be changed from now on.
    fn prepare(&mut self, file: &dyn ReadAt, number: u64) -> io::Result<()> {
        let counts = self.counts.as_mut().ok_or_else(read_only)?;
        self.tables.prepare(file, counts, number, &mut self.unused)
    }

    /// Sets an entry in a table that was prepared; what it referred to is no longer used.
    fn replace(
        &mut self,
        file: &dyn ReadAt,
        clusters: Clusters,
        number: u64,
        entry: u64,
    ) -> io::Result<()> {
        let old = self.tables.entry(file, number)?.refers_to(clusters);
        self.unused.extend(old);
        self.tables.set(number, entry);
        Ok(())
    }
}
