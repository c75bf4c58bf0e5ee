//! [`Tables`]: where the clusters of the disk are: the L1 table, and the L2 tables that are in memory.
//!
//! Invariants:
//! - A table that was changed stays in memory until it is in the file.
//! - [`Tables::take`] is followed by [`Tables::written`] or [`Tables::take_back`] before it is called again.
//! - A table is changed only if nothing else uses it; a shared one is copied to a new place first.
//! - There are at most [`MAX_CACHED_BYTES`] of tables that were not changed.

use std::collections::{HashMap, HashSet};
use std::io;
use std::ops::Range;

use super::broken;
use super::cluster::{Clusters, Entry, copied, long, size};
use super::counts::Counts;
use super::survey::numbers;
use crate::source::ReadAt;

/// The most bytes of unchanged L2 tables in memory.
const MAX_CACHED_BYTES: usize = 16 << 20;
/// The most bytes of changed ones, after which they are to be written.
const MAX_CHANGED_BYTES: usize = 8 << 20;

/// See the head of this file.
pub(super) struct Tables {
    clusters: Clusters,
    l1: Vec<u64>,
    /// The entries of the L1 table that the file does not have.
    l1_changed: Vec<usize>,
    cached: HashMap<usize, Table>,
    /// The number of tables that were changed.
    changed: usize,
    /// Tables that are being written.
    taken: HashSet<usize>,
    /// Increases with each use of a table.
    clock: u64,
}

struct Table {
    entries: Vec<u64>,
    place: u64,
    /// The entries that the file does not have.
    changed: Range<usize>,
    used: u64,
}

/// What the file lacks.
pub(super) struct Changes {
    /// Places and bytes of parts of L2 tables.
    pub(super) l2: Vec<(u64, Vec<u8>)>,
    /// Entries of the L1 table.
    pub(super) l1: Vec<(usize, u64)>,
    /// The tables, and which of their entries.
    tables: Vec<(usize, Range<usize>)>,
}

impl Tables {
    pub(super) fn new(clusters: Clusters, l1: Vec<u64>) -> Tables {
        Tables {
            clusters,
            l1,
            l1_changed: Vec::new(),
            cached: HashMap::new(),
            changed: 0,
            taken: HashSet::new(),
            clock: 0,
        }
    }

    /// The table and the entry in it of cluster `number` of the disk.
    fn split(&self, number: u64) -> (usize, usize) {
        let entries = long(self.clusters.in_table());
        (
            size(number.checked_div(entries).unwrap_or(0)),
            size(number.checked_rem(entries).unwrap_or(0)),
        )
    }

    /// Where cluster `number` of the disk is.
    ///
    /// # Errors
    /// If the table is damaged; of the device.
    pub(super) fn entry(&mut self, file: &dyn ReadAt, number: u64) -> io::Result<Entry> {
        let (index, within) = self.split(number);
        match self.load(file, index)? {
            None => Ok(Entry::Absent),
            Some(table) => {
                let entry = table.entries.get(within).copied().unwrap_or_default();
                self.clusters.entry(entry)
            }
        }
    }

    /// The same of the part of a cluster that byte `at` of the disk is in.
    ///
    /// # Errors
    /// The same.
    pub(super) fn part(&mut self, file: &dyn ReadAt, at: u64) -> io::Result<Entry> {
        let clusters = self.clusters;
        let (index, within) = self.split(clusters.number(at));
        let Some(table) = self.load(file, index)? else {
            return Ok(Entry::Absent);
        };
        let first = within.saturating_mul(clusters.words());
        let words = table.entries.get(first..).unwrap_or_default();
        match words {
            [entry, parts, ..] => clusters.part(*entry, *parts, at),
            _ => Ok(Entry::Absent),
        }
    }

    /// The number of clusters from `number` on that are in no table: at least 1 if the first one is not.
    pub(super) fn absent(&self, number: u64) -> u64 {
        let (index, within) = self.split(number);
        let after = self.l1.iter().enumerate().skip(index);
        let missing = after.take_while(|(at, entry)| **entry == 0 && !self.cached.contains_key(at));
        let entries = long(missing.count()).saturating_mul(long(self.clusters.in_table()));
        entries.saturating_sub(long(within))
    }

    /// The table with this index; `None` if there is none.
    fn load(&mut self, file: &dyn ReadAt, index: usize) -> io::Result<Option<&mut Table>> {
        self.clock = self.clock.wrapping_add(1);
        if !self.cached.contains_key(&index) {
            let entry = self.l1.get(index).copied().unwrap_or_default();
            let Some(place) = self.clusters.table(entry)? else {
                return Ok(None);
            };
            let entries = numbers(file, place, self.clusters.bytes())?;
            self.make_room();
            let table = Table {
                entries,
                place,
                changed: 0..0,
                used: 0,
            };
            self.cached.insert(index, table);
        }
        let table = self.cached.get_mut(&index);
        let Some(table) = table else {
            return Ok(None);
        };
        table.used = self.clock;
        Ok(Some(table))
    }

    /// Drops the half of the unchanged tables that was used last long ago, if there are too many.
    fn make_room(&mut self) {
        let most = MAX_CACHED_BYTES
            .checked_div(self.clusters.len())
            .unwrap_or(1);
        if self.cached.len().saturating_sub(self.changed) < most {
            return;
        }
        let mut used: Vec<u64> = self.cached.values().map(|table| table.used).collect();
        let middle = used.len() / 2;
        let (_, middle, _) = used.select_nth_unstable(middle);
        let middle = *middle;
        self.cached.retain(|index, table| {
            !table.changed.is_empty() || self.taken.contains(index) || table.used > middle
        });
    }

    /// The table of cluster `number` can be changed from now on. Appends the place of a table that is no
    /// longer used to `unused`.
    ///
    /// # Errors
    /// As of [`Tables::entry`] and [`Counts::claim`].
    pub(super) fn prepare(
        &mut self,
        file: &dyn ReadAt,
        counts: &mut Counts,
        number: u64,
        unused: &mut Vec<(u64, u64)>,
    ) -> io::Result<()> {
        let (index, _) = self.split(number);
        if index >= self.l1.len() {
            return Err(broken("its first table is too short"));
        }
        let cluster_bytes = self.clusters.bytes();
        let every = 0..self.clusters.entries();
        let old = match self.load(file, index)? {
            Some(table) if counts.uses(table.place) == 1 => return Ok(()),
            Some(table) => Some(table.place),
            None => None,
        };
        let (place, _) = counts.claim(1)?;
        let entries = match old.and_then(|_| self.cached.remove(&index)) {
            Some(table) => {
                self.changed = self
                    .changed
                    .saturating_sub(usize::from(!table.changed.is_empty()));
                table.entries
            }
            None => vec![0; self.clusters.entries()],
        };
        unused.extend(old.map(|old| (old, old.saturating_add(cluster_bytes))));
        let table = Table {
            entries,
            place,
            changed: every,
            used: self.clock,
        };
        self.cached.insert(index, table);
        self.changed = self.changed.saturating_add(1);
        if let Some(entry) = self.l1.get_mut(index) {
            *entry = copied(place);
        }
        self.l1_changed.push(index);
        Ok(())
    }

    /// Sets the entry of a cluster whose table was prepared.
    pub(super) fn set(&mut self, number: u64, entry: u64) {
        let (index, within) = self.split(number);
        let Some(table) = self.cached.get_mut(&index) else {
            return;
        };
        if let Some(old) = table.entries.get_mut(within) {
            *old = entry;
        }
        let end = within.saturating_add(1);
        table.changed = match table.changed.is_empty() {
            true => {
                self.changed = self.changed.saturating_add(1);
                within..end
            }
            false => table.changed.start.min(within)..table.changed.end.max(end),
        };
    }

    /// Whether the file lacks something.
    pub(super) fn is_changed(&self) -> bool {
        self.changed > 0 || !self.l1_changed.is_empty()
    }

    /// Whether so much was changed that it is to be written.
    pub(super) fn is_full(&self) -> bool {
        let bytes = self.changed.saturating_mul(self.clusters.len());
        bytes >= MAX_CHANGED_BYTES.max(self.clusters.len())
    }

    /// Takes what the file lacks.
    pub(super) fn take(&mut self) -> Changes {
        let mut taken = Changes {
            l2: Vec::new(),
            l1: Vec::new(),
            tables: Vec::new(),
        };
        for (index, table) in &mut self.cached {
            if table.changed.is_empty() {
                continue;
            }
            // Whole sectors.
            let from = table.changed.start & !63;
            let to = table
                .changed
                .end
                .next_multiple_of(64)
                .min(table.entries.len());
            let entries = table.entries.get(from..to).unwrap_or_default();
            let bytes = entries.iter().flat_map(|entry| entry.to_be_bytes());
            let place = table.place.saturating_add(long(from).saturating_mul(8));
            taken.l2.push((place, bytes.collect()));
            taken.tables.push((*index, table.changed.clone()));
            table.changed = 0..0;
        }
        self.changed = 0;
        self.taken = taken.tables.iter().map(|(index, _)| *index).collect();
        for index in std::mem::take(&mut self.l1_changed) {
            let entry = self.l1.get(index).copied().unwrap_or_default();
            taken.l1.push((index, entry));
        }
        taken
    }

    /// What was taken is in the file.
    pub(super) fn written(&mut self) {
        self.taken.clear();
    }

    /// What was taken is not in the file.
    pub(super) fn take_back(&mut self, taken: &Changes) {
        self.taken.clear();
        self.l1_changed
            .extend(taken.l1.iter().map(|(index, _)| *index));
        for (index, changed) in &taken.tables {
            // A table that is moved meanwhile is all changed.
            for entry in [changed.start, changed.end.saturating_sub(1)] {
                self.touch(*index, entry);
            }
        }
    }

    fn touch(&mut self, index: usize, within: usize) {
        let number = long(index).saturating_mul(long(self.clusters.entries()));
        let number = number.saturating_add(long(within));
        let entry = self
            .cached
            .get(&index)
            .and_then(|it| it.entries.get(within));
        if let Some(entry) = entry.copied() {
            self.set(number, entry);
        }
    }
}
