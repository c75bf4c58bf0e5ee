//! What the tables of an image refer to.
//!
//! A writer that is killed can leave clusters in use that are counted as free; a hostile image can say
//! anything. Writing would then give a cluster away twice, or change a snapshot. So before an image is
//! written, everything that refers to clusters is read, and counted ([`for_writing`]). The image is refused
//! if something that may be changed in place is used several times.
//!
//! Before an image is read, all that it refers to must be in the file ([`for_reading`]).
//!
//! Invariants:
//! - Only bytes of the file are read. Memory is bounded by [`MAX_CLUSTERS`] and [`MAX_TABLE_BYTES`].
//! - Each table is read once for each reference to it, and a table that is referred to more often than its
//!   image has snapshots is refused.

use std::io;

use super::broken;
use super::cluster::{COPIED, Clusters, Entry, long, size};
use super::counts::{Counts, MAX_TABLE_BYTES};
use super::header::Header;
use crate::source::ReadAt;
use crate::virtual_disk::unsupported;

/// The most clusters of a file. They are counted in two bytes each.
pub(super) const MAX_CLUSTERS: u64 = 1 << 27;
/// QEMU's limit.
const MAX_SNAPSHOTS: u32 = 65_536;

/// Checks that everything that the disk refers to is in the file.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`], [`io::ErrorKind::Unsupported`]; of the device.
pub(super) fn for_reading(file: &dyn ReadAt, header: &Header) -> io::Result<()> {
    Survey::new(file, header)?.disk(header.l1_offset, header.l1_entries, true)
}

/// Checks everything. Returns how often the clusters are used, and where the file says otherwise.
///
/// # Errors
/// The same.
pub(super) fn for_writing(file: &dyn ReadAt, header: &Header) -> io::Result<Counts> {
    let mut survey = Survey::new(file, header)?;
    survey.refer_in_place(0, header.cluster_bytes())?;
    survey.disk(header.l1_offset, header.l1_entries, true)?;
    survey.snapshots()?;
    let table = survey.blocks_of_counts()?;
    survey.shared()?;
    survey.counts(table)
}

/// Reads a table of `len_bytes`. Its last cluster may be cut short by the end of the file.
///
/// # Errors
/// If it is too long; of the device.
pub(super) fn numbers(file: &dyn ReadAt, place: u64, len_bytes: u64) -> io::Result<Vec<u64>> {
    if len_bytes > MAX_TABLE_BYTES {
        return Err(broken(format!("a table of {len_bytes} bytes")));
    }
    let mut bytes = vec![0; size(len_bytes)];
    super::read_cut_short(file, &mut bytes, place)?;
    let words = bytes.as_chunks::<8>().0.iter();
    Ok(words.map(|word| u64::from_be_bytes(*word)).collect())
}

struct Survey<'a> {
    file: &'a dyn ReadAt,
    header: &'a Header,
    clusters: Clusters,
    /// How often each cluster is referred to.
    uses: Vec<u16>,
    /// Clusters that may be changed in place.
    in_place: Vec<u32>,
}

impl<'a> Survey<'a> {
    fn new(file: &'a dyn ReadAt, header: &'a Header) -> io::Result<Survey<'a>> {
        let clusters = header.clusters()?;
        let number = file.len_bytes()?.div_ceil(clusters.bytes());
        if number > MAX_CLUSTERS {
            return Err(unsupported(
                "a qcow2 image with so many clusters: 'qemu-img convert' to larger ones helps",
            ));
        }
        Ok(Survey {
            file,
            header,
            clusters,
            uses: vec![0; size(number)],
            in_place: Vec::new(),
        })
    }

    /// Something refers to the bytes from `place` to `end`.
    fn refer(&mut self, place: u64, end: u64) -> io::Result<()> {
        let outside = || broken(format!("it refers to byte {place}, outside of the file"));
        if end <= place {
            return Err(outside());
        }
        let (first, last) = (
            self.clusters.index(place),
            self.clusters.index(end.saturating_sub(1)),
        );
        let uses = self
            .uses
            .get_mut(first..=last.min(usize::MAX.wrapping_sub(1)));
        for uses in uses.ok_or_else(outside)? {
            *uses = uses.saturating_add(1);
        }
        Ok(())
    }

    /// The same, of bytes that are changed where they are.
    fn refer_in_place(&mut self, place: u64, len_bytes: u64) -> io::Result<()> {
        let end = place.saturating_add(len_bytes);
        self.refer(place, end)?;
        let (first, last) = (
            self.clusters.number(place),
            self.clusters.number(end.saturating_sub(1)),
        );
        // There are not more than `MAX_CLUSTERS`.
        self.in_place
            .extend((first..=last).filter_map(|number| u32::try_from(number).ok()));
        Ok(())
    }

    /// The disk, or a snapshot of it, whose first table is at `place`.
    fn disk(&mut self, place: u64, entries: u32, is_active: bool) -> io::Result<()> {
        if entries == 0 {
            return Ok(());
        }
        let place = self.clusters.aligned(place)?;
        let len_bytes = u64::from(entries).saturating_mul(8);
        let table = numbers(self.file, place, len_bytes)?;
        match is_active {
            true => self.refer_in_place(place, len_bytes)?,
            false => self.refer(place, place.saturating_add(len_bytes))?,
        }
        for entry in table {
            let Some(place) = self.clusters.table(entry)? else {
                continue;
            };
            self.refer(place, place.saturating_add(self.clusters.bytes()))?;
            self.note_in_place(entry, place, is_active);
            let most = size(self.header.snapshots.into());
            if self.uses_of(place) > most.saturating_add(1) {
                return Err(broken(format!(
                    "the table at byte {place} is used too often"
                )));
            }
            let entries = numbers(self.file, place, self.clusters.bytes())?;
            for entry in entries.iter().step_by(self.clusters.words()) {
                self.cluster(*entry, is_active)?;
            }
        }
        Ok(())
    }

    fn uses_of(&self, place: u64) -> usize {
        let uses = self.uses.get(self.clusters.index(place));
        uses.copied().unwrap_or_default().into()
    }

    fn cluster(&mut self, entry: u64, is_active: bool) -> io::Result<()> {
        let parsed = self.clusters.entry(entry)?;
        let Some((place, end)) = parsed.refers_to(self.clusters) else {
            return Ok(());
        };
        match parsed {
            Entry::Compressed { .. } => self.refer(place, end),
            _ => {
                // The last cluster may be cut short by the end of the file.
                self.refer(place, place.saturating_add(1))?;
                self.note_in_place(entry, place, is_active);
                Ok(())
            }
        }
    }

    fn note_in_place(&mut self, entry: u64, place: u64, is_active: bool) {
        if is_active && entry & COPIED != 0 {
            // There are not more than `MAX_CLUSTERS`.
            let number = u32::try_from(self.clusters.number(place));
            self.in_place.extend(number);
        }
    }

    fn snapshots(&mut self) -> io::Result<()> {
        if self.header.snapshots == 0 {
            return Ok(());
        }
        if self.header.snapshots > MAX_SNAPSHOTS {
            return Err(broken("it has too many snapshots"));
        }
        let start = self.clusters.aligned(self.header.snapshots_offset)?;
        let mut at = start;
        for _ in 0..self.header.snapshots {
            let mut fixed = [0; 40];
            let read = self.file.read_exact_at(&mut fixed, at);
            read.map_err(|_| broken(format!("it refers to byte {at}, outside of the file")))?;
            let word = |at: usize| {
                let bytes: [u8; 4] = fixed.get(at..).and_then(|it| it.first_chunk().copied())?;
                Some(u32::from_be_bytes(bytes))
            };
            let word = |at| word(at).unwrap_or_default();
            let l1_offset = u64::from(word(0)) << 32 | u64::from(word(4));
            let names = word(12);
            let more = [names >> 16, names & 0xffff, word(36)];
            let len_bytes = more
                .into_iter()
                .map(u64::from)
                .sum::<u64>()
                .saturating_add(40);
            self.disk(l1_offset, word(8), false)?;
            at = at.saturating_add(len_bytes).next_multiple_of(8);
        }
        self.refer(start, at)
    }

    /// The table of reference counts. Reads where its blocks are.
    fn blocks_of_counts(&mut self) -> io::Result<Vec<u64>> {
        let cluster_bytes = self.clusters.bytes();
        let table_at = self.clusters.aligned(self.header.refcount_table_offset)?;
        let table_bytes =
            u64::from(self.header.refcount_table_clusters).saturating_mul(cluster_bytes);
        let mut table = numbers(self.file, table_at, table_bytes)?;
        self.refer_in_place(table_at, table_bytes)?;
        for entry in &mut table {
            *entry &= !511;
            if *entry != 0 {
                let place = self.clusters.aligned(*entry)?;
                self.refer_in_place(place, cluster_bytes)?;
            }
        }
        Ok(table)
    }

    /// What may be changed in place is used once.
    fn shared(&self) -> io::Result<()> {
        let shared = self.in_place.iter().find(|number| {
            let uses = usize::try_from(**number).map(|at| self.uses.get(at));
            uses.is_ok_and(|uses| uses.is_some_and(|uses| *uses != 1))
        });
        match shared {
            None => Ok(()),
            Some(number) => Err(broken(format!(
                "cluster {number} would be changed in place, although it is used several times"
            ))),
        }
    }

    /// Compares what is used with the counts of the file.
    fn counts(self, table: Vec<u64>) -> io::Result<Counts> {
        // Clusters may be used by something that this version does not know.
        let is_kept = self.header.has_unknown_parts();
        let mut counts = Counts::new(self.clusters, self.header, self.uses, table);
        for (number, place) in counts.places().into_iter().enumerate() {
            let block = match place {
                0 => vec![0; self.clusters.entries()],
                place => numbers(self.file, place, self.clusters.bytes())?,
            };
            counts.compare(number, &block, is_kept);
        }
        Ok(counts)
    }
}

/// The number of bytes of a table of `entries`.
pub(super) fn table_bytes(entries: usize) -> u64 {
    long(entries).saturating_mul(8)
}
