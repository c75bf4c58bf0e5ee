//! [`Counts`]: how often each cluster of the file is used, and which are free.
//!
//! The counts in memory are what the tables of the image refer to, found by [`survey`](super::survey) when it
//! is opened; those in the file are written from them. So a count in the file is never trusted for anything.
//!
//! Invariants:
//! - A cluster is given away only if nothing in memory and nothing on the disk refers to it: what is no
//!   longer used is released by [`Counts::release`] when the table that referred to it is on the disk
//!   without it.
//! - [`Counts::changed_blocks`] lists all that the file does not have yet.

use std::collections::BTreeSet;
use std::io;

use super::broken;
use super::cluster::{Clusters, long, size};
use super::header::Header;
use super::survey::MAX_CLUSTERS;
use crate::virtual_disk::unsupported;

/// The longest table of reference counts, in bytes: QEMU's limit.
pub(super) const MAX_TABLE_BYTES: u64 = 32 << 20;

/// See the head of this file.
pub(super) struct Counts {
    clusters: Clusters,
    /// The logarithm of the bits of a count in the file.
    order: u32,
    uses: Vec<u16>,
    /// No cluster before this one is free.
    first_free: usize,
    /// The places of the blocks of counts; 0: there is none.
    table: Vec<u64>,
    /// Where the table is in the file.
    pub(super) place: u64,
    /// The blocks that the file does not have as they are here.
    changed: BTreeSet<usize>,
    pub(super) table_changed: bool,
    /// Where the table was before it was moved, and how long: to be released once the header says so.
    pub(super) moved_from: Option<(u64, u64)>,
}

/// The changed blocks of counts with their places, and the table if it has changed.
pub(super) struct Blocks {
    pub(super) blocks: Vec<(usize, u64, Vec<u8>)>,
    pub(super) table: Option<(u64, Vec<u8>)>,
}

impl Counts {
    /// `uses` is what the image refers to; `table` and the header are as in the file.
    pub(super) fn new(
        clusters: Clusters,
        header: &Header,
        uses: Vec<u16>,
        table: Vec<u64>,
    ) -> Counts {
        Counts {
            clusters,
            order: header.refcount_order,
            uses,
            first_free: 0,
            table,
            place: header.refcount_table_offset,
            changed: BTreeSet::new(),
            table_changed: false,
            moved_from: None,
        }
    }

    /// The number of clusters that a block counts.
    fn each(&self) -> usize {
        let bits = self.clusters.bytes().saturating_mul(8);
        size(bits.wrapping_shr(self.order)).max(1)
    }

    /// How often the cluster at `place` is used.
    pub(super) fn uses(&self, place: u64) -> u16 {
        let uses = self.uses.get(self.clusters.index(place));
        uses.copied().unwrap_or_default()
    }

    /// Claims up to `most` free clusters that follow one another. Returns the first one's place, and their
    /// number.
    ///
    /// # Errors
    /// If the file has as many clusters as are supported.
    pub(super) fn claim(&mut self, most: usize) -> io::Result<(u64, usize)> {
        let after = self.uses.get(self.first_free..).unwrap_or_default();
        let free = after.iter().position(|uses| *uses == 0);
        let first = match free {
            Some(ahead) => self.first_free.saturating_add(ahead),
            None => self.uses.len(),
        };
        let there = self.uses.get(first..).unwrap_or_default();
        let there = there.iter().take(most).take_while(|uses| **uses == 0);
        let mut found = there.count();
        if first.saturating_add(found) == self.uses.len() {
            found = most;
        }
        self.take(first, found)?;
        self.first_free = first.saturating_add(found);
        Ok((self.clusters.start(long(first)), found))
    }

    /// Claims clusters behind the end of the file.
    fn claim_at_end(&mut self, number: usize) -> io::Result<u64> {
        let first = self.uses.len();
        self.take(first, number)?;
        Ok(self.clusters.start(long(first)))
    }

    fn take(&mut self, first: usize, number: usize) -> io::Result<()> {
        let end = first.saturating_add(number);
        if long(end) > MAX_CLUSTERS {
            return Err(unsupported(
                "a qcow2 image with so many clusters: 'qemu-img convert' to larger ones helps",
            ));
        }
        if self.uses.len() < end {
            self.uses.resize(end, 0);
        }
        for uses in self.uses.get_mut(first..end).unwrap_or_default() {
            *uses = 1;
        }
        self.note(first, end);
        Ok(())
    }

    /// The counts of these clusters have changed.
    fn note(&mut self, first: usize, end: usize) {
        let each = self.each();
        let number = |cluster: usize| cluster.checked_div(each).unwrap_or(0);
        self.changed
            .extend(number(first)..=number(end.saturating_sub(1)));
    }

    /// The bytes from `place` to `end` are used once less. Appends the clusters that are free now.
    pub(super) fn release(&mut self, place: u64, end: u64, free: &mut Vec<u64>) {
        let (first, last) = (
            self.clusters.index(place),
            self.clusters.index(end.saturating_sub(1)),
        );
        for number in first..=last.min(self.uses.len()) {
            let Some(uses) = self.uses.get_mut(number) else {
                return;
            };
            // So many that they were not counted.
            if *uses == u16::MAX {
                continue;
            }
            *uses = uses.saturating_sub(1);
            if *uses == 0 {
                self.first_free = self.first_free.min(number);
                free.push(self.clusters.start(long(number)));
            }
            self.note(number, number.saturating_add(1));
        }
    }

    /// The file has other counts than these for the clusters of a block.
    pub(super) fn differ(&mut self, block: usize) {
        self.changed.insert(block);
    }

    /// Whether the file lacks something.
    pub(super) fn is_changed(&self) -> bool {
        !self.changed.is_empty() || self.table_changed
    }

    /// Takes what the file lacks. Blocks and the table are made as needed.
    ///
    /// # Errors
    /// As [`Counts::claim`]; if a count does not fit into its bits.
    pub(super) fn changed_blocks(&mut self) -> io::Result<Blocks> {
        self.complete()?;
        let mut blocks = Vec::with_capacity(self.changed.len());
        for number in &self.changed {
            let place = self.table.get(*number).copied().unwrap_or_default();
            blocks.push((*number, place, self.block(*number)?));
        }
        self.changed.clear();
        let table = self.table_changed.then(|| {
            let words = self.table.iter().flat_map(|place| place.to_be_bytes());
            (self.place, words.collect())
        });
        self.table_changed = false;
        Ok(Blocks { blocks, table })
    }

    /// What [`Counts::changed_blocks`] took is not in the file.
    pub(super) fn take_back(&mut self, taken: &Blocks) {
        self.changed
            .extend(taken.blocks.iter().map(|(number, ..)| *number));
        self.table_changed |= taken.table.is_some();
    }

    /// Every changed block has a place. A new one is counted itself, so it can need another one.
    fn complete(&mut self) -> io::Result<()> {
        loop {
            let needed = self.uses.len().div_ceil(self.each());
            if needed > self.table.len() {
                self.lengthen(needed)?;
                continue;
            }
            let mut changed = self.changed.iter().copied();
            let missing = changed.find(|number| self.table.get(*number) == Some(&0));
            let Some(number) = missing else { return Ok(()) };
            let (place, _) = self.claim(1)?;
            if let Some(entry) = self.table.get_mut(number) {
                *entry = place;
            }
            self.table_changed = true;
        }
    }

    /// Moves the table to a longer place.
    fn lengthen(&mut self, needed: usize) -> io::Result<()> {
        // It counts itself, too.
        let entries = needed.saturating_add(needed / 2).saturating_add(8);
        let wanted = entries.div_ceil(self.clusters.entries());
        let bytes = long(wanted).saturating_mul(self.clusters.bytes());
        if bytes > MAX_TABLE_BYTES {
            return Err(unsupported("a qcow2 image with so many reference counts"));
        }
        let place = self.claim_at_end(wanted)?;
        let was = (self.place, long(self.table.len()).saturating_mul(8));
        match self.moved_from {
            // The file has never had the one between.
            Some(_) => self.release(was.0, was.0.saturating_add(was.1), &mut Vec::new()),
            None => self.moved_from = Some(was),
        }
        self.place = place;
        self.table
            .resize(wanted.saturating_mul(self.clusters.entries()), 0);
        self.table_changed = true;
        Ok(())
    }

    /// The number of clusters of the table.
    pub(super) fn table_clusters(&self) -> u32 {
        let clusters = self.table.len().div_ceil(self.clusters.entries());
        u32::try_from(clusters).unwrap_or(u32::MAX)
    }

    /// The bytes of a block of counts.
    fn block(&self, number: usize) -> io::Result<Vec<u8>> {
        let each = self.each();
        let bits = 1_u64 << self.order;
        let mut words = vec![0; self.clusters.entries()];
        let uses = self.uses.chunks(each).nth(number).unwrap_or_default();
        for (index, uses) in uses.iter().enumerate() {
            let value = u64::from(*uses);
            let fits = bits == 64 || value < 1 << bits;
            if !fits || !set_count(&mut words, index, bits, value) {
                let cluster = number.saturating_mul(each).saturating_add(index);
                return Err(broken(format!("cluster {cluster} cannot be counted")));
            }
        }
        Ok(words.iter().flat_map(|word| word.to_be_bytes()).collect())
    }

    /// Compares a block of the file with what is used. Clusters for which `is_kept` says so are not counted
    /// less than in the file.
    pub(super) fn compare(&mut self, number: usize, in_file: &[u64], is_kept: bool) {
        let each = self.each();
        let bits = 1_u64 << self.order;
        let mut differs = false;
        let uses = self.uses.chunks_mut(each).nth(number).unwrap_or_default();
        for (index, uses) in uses.iter_mut().enumerate() {
            let counted = count(in_file, index, bits);
            if is_kept && counted > u64::from(*uses) {
                *uses = u16::try_from(counted).unwrap_or(u16::MAX);
            }
            differs |= counted != u64::from(*uses);
        }
        if differs {
            self.differ(number);
        }
    }

    /// The places of the blocks of counts, as many as there are clusters to count.
    pub(super) fn places(&self) -> Vec<u64> {
        let needed = self.uses.len().div_ceil(self.each());
        let mut places = self.table.clone();
        places.resize(needed, 0);
        places
    }
}

/// Where a count is: its word, and its shift in it. Bytes are in order; within a byte, the lowest bits come
/// first.
fn place_of(index: usize, bits: u64) -> (usize, u32) {
    let at = long(index).saturating_mul(bits);
    let within = at % 64;
    let shift = match bits < 8 {
        true => 56_u64
            .saturating_sub(within & !7)
            .saturating_add(within & 7),
        false => 64_u64.saturating_sub(within).saturating_sub(bits),
    };
    (size(at / 64), u32::try_from(shift).unwrap_or(0))
}

/// The largest count of `bits` bits.
fn largest(bits: u64) -> u64 {
    u64::MAX.wrapping_shr(64_u32.saturating_sub(u32::try_from(bits).unwrap_or(0)))
}

/// Sets a count. Returns whether the block has it.
fn set_count(block: &mut [u64], index: usize, bits: u64, value: u64) -> bool {
    let (at, shift) = place_of(index, bits);
    let Some(word) = block.get_mut(at) else {
        return false;
    };
    *word = *word & !largest(bits).wrapping_shl(shift) | value.wrapping_shl(shift);
    true
}

/// The count of a cluster in a block of counts of `bits` bits each.
fn count(block: &[u64], index: usize, bits: u64) -> u64 {
    let (at, shift) = place_of(index, bits);
    let word = block.get(at).copied().unwrap_or_default();
    word.wrapping_shr(shift) & largest(bits)
}
