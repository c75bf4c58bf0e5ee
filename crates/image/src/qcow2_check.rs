//! Whether the tables of a qcow2 image agree.
//!
//! A writer that is killed can leave clusters in use that are counted as free; a hostile image can say
//! anything. Writing would then give a cluster away twice, or change a snapshot. So before an image is
//! written, clusters that are counted too seldom are counted anew ([`mend`]), and it is refused if something
//! that may be changed in place is referred to several times. Clusters that are counted too often are only
//! lost.
//!
//! Before an image is read, all that it refers to must be in the file ([`check`]).
//!
//! Invariants:
//! - Only bytes of the file are read. Memory is bounded by [`MAX_CLUSTERS`] and [`MAX_TABLE_BYTES`].
//! - Each table is read once for each reference to it, and a table that is referred to more often than its
//!   image has snapshots is refused.
//!
//! By QEMU's specification, `docs/interop/qcow2.txt`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::qcow2_header::Header;
use crate::source::ReadAt;
use crate::virtual_disk::{damaged, unsupported};

/// The most clusters of a file. They are counted in two bytes each.
const MAX_CLUSTERS: u64 = 1 << 27;
/// The longest L1 table or table of reference counts: the limit of QEMU and `imago` for the first.
const MAX_TABLE_BYTES: u64 = 32 << 20;
/// QEMU's limit.
const MAX_SNAPSHOTS: u32 = 65_536;

/// Bits 9 to 55 of an entry: where something is.
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
/// It is referred to once, and may be changed in place.
const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;

/// Checks that everything that the disk refers to is in the file.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`], [`io::ErrorKind::Unsupported`]; of the device.
pub(crate) fn check(file: &File, header: &Header) -> io::Result<()> {
    Check::new(file, header)?.disk(header.l1_offset, header.l1_entries, true)
}

/// Checks everything, and counts the clusters anew that are counted too seldom. Each change is on the disk
/// before anything can refer to it.
///
/// # Errors
/// The same.
pub(crate) fn mend(file: &File, header: &Header) -> io::Result<()> {
    let mut check = Check::new(file, header)?;
    check.refer(0, header.cluster_bytes())?;
    check.disk(header.l1_offset, header.l1_entries, true)?;
    check.snapshots()?;
    check.shared()?;
    check.counts()
}

struct Check<'a> {
    file: &'a File,
    header: &'a Header,
    /// How often each cluster is referred to.
    uses: Vec<u16>,
    /// Clusters that may be changed in place.
    in_place: Vec<u32>,
}

impl<'a> Check<'a> {
    fn new(file: &'a File, header: &'a Header) -> io::Result<Check<'a>> {
        let cluster_bytes = header.cluster_bytes();
        if !(9..=21).contains(&header.cluster_bits) || header.refcount_order > 6 {
            return Err(damaged("its header has impossible sizes"));
        }
        let clusters = file.len_bytes()?.div_ceil(cluster_bytes);
        if clusters > MAX_CLUSTERS {
            return Err(unsupported(
                "a qcow2 image with so many clusters: 'qemu-img convert' to larger ones helps",
            ));
        }
        Ok(Check {
            file,
            header,
            uses: vec![0; usize::try_from(clusters).unwrap_or(usize::MAX)],
            in_place: Vec::new(),
        })
    }

    /// Something at `at` refers to these bytes.
    fn refer(&mut self, at: u64, len_bytes: u64) -> io::Result<()> {
        let bits = self.header.cluster_bits;
        let end = at.checked_add(len_bytes).filter(|end| *end > at);
        let last = end.map(|end| end.saturating_sub(1) >> bits);
        let range = last.and_then(|last| {
            let (first, last) = (
                usize::try_from(at >> bits).ok()?,
                usize::try_from(last).ok()?,
            );
            self.uses.get_mut(first..=last)
        });
        let uses = range.ok_or_else(|| outside(at))?;
        for uses in uses {
            *uses = uses.saturating_add(1);
        }
        Ok(())
    }

    /// The place of a cluster that must begin at the boundary of one.
    fn aligned(&self, at: u64) -> io::Result<u64> {
        match at.is_multiple_of(self.header.cluster_bytes()) {
            true => Ok(at),
            false => Err(broken(format!(
                "it refers to byte {at}, which begins no cluster"
            ))),
        }
    }

    fn numbers(&self, at: u64, len_bytes: u64) -> io::Result<Vec<u64>> {
        if len_bytes > MAX_TABLE_BYTES {
            return Err(broken(format!("a table of {len_bytes} bytes")));
        }
        let mut bytes = vec![0; usize::try_from(len_bytes).unwrap_or(0)];
        // The last cluster may be cut short by the end of the file.
        let there = self.file.len_bytes()?.saturating_sub(at).min(len_bytes);
        let there = usize::try_from(there).unwrap_or(0);
        if let Some(bytes) = bytes.get_mut(..there) {
            FileExt::read_exact_at(self.file, bytes, at)?;
        }
        let words = bytes.as_chunks::<8>().0.iter();
        Ok(words.map(|word| u64::from_be_bytes(*word)).collect())
    }

    /// The disk, or a snapshot of it, whose first table is at `at`.
    fn disk(&mut self, at: u64, entries: u32, is_active: bool) -> io::Result<()> {
        if entries == 0 {
            return Ok(());
        }
        let at = self.aligned(at)?;
        let len_bytes = u64::from(entries).saturating_mul(8);
        let table = self.numbers(at, len_bytes)?;
        self.refer(at, len_bytes)?;
        for entry in table {
            let place = entry & PLACE;
            if place == 0 {
                continue;
            }
            let place = self.aligned(place)?;
            self.refer(place, self.header.cluster_bytes())?;
            self.note_in_place(entry, place, is_active);
            let most = usize::try_from(self.header.snapshots).unwrap_or(usize::MAX);
            if self.uses_of(place) > most.saturating_add(1) {
                return Err(broken(format!(
                    "the table at byte {place} is used too often"
                )));
            }
            for entry in self.numbers(place, self.header.cluster_bytes())? {
                self.cluster(entry, is_active)?;
            }
        }
        Ok(())
    }

    fn uses_of(&self, place: u64) -> usize {
        let number = usize::try_from(place >> self.header.cluster_bits).unwrap_or(usize::MAX);
        self.uses.get(number).copied().unwrap_or_default().into()
    }

    fn cluster(&mut self, entry: u64, is_active: bool) -> io::Result<()> {
        if entry & COMPRESSED != 0 {
            // Bits of the place: 62 less those of the number of sectors.
            let bits = 70_u32.saturating_sub(self.header.cluster_bits);
            let place = entry & 1_u64.wrapping_shl(bits).wrapping_sub(1);
            let sectors = (entry & (COMPRESSED.wrapping_sub(1))).wrapping_shr(bits);
            let start = place & !511;
            return self.refer(start, sectors.saturating_add(1).saturating_mul(512));
        }
        let place = entry & PLACE;
        if place == 0 {
            return Ok(());
        }
        let place = self.aligned(place)?;
        // The last cluster may be cut short by the end of the file.
        self.refer(place, 1)?;
        self.note_in_place(entry, place, is_active);
        Ok(())
    }

    fn note_in_place(&mut self, entry: u64, place: u64, is_active: bool) {
        if is_active && entry & COPIED != 0 {
            // There are not more than `MAX_CLUSTERS`.
            let number = u32::try_from(place >> self.header.cluster_bits);
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
        let start = self.aligned(self.header.snapshots_offset)?;
        let mut at = start;
        for _ in 0..self.header.snapshots {
            let mut fixed = [0; 40];
            let read = FileExt::read_exact_at(self.file, &mut fixed, at);
            read.map_err(|_| outside(at))?;
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
        self.refer(start, at.saturating_sub(start))
    }

    /// What may be changed in place is used once.
    fn shared(&self) -> io::Result<()> {
        let shared = self.in_place.iter().find(|number| {
            let uses = usize::try_from(**number)
                .ok()
                .and_then(|at| self.uses.get(at));
            uses.is_some_and(|uses| *uses != 1)
        });
        match shared {
            None => Ok(()),
            Some(number) => Err(broken(format!(
                "cluster {number} would be changed in place, although it is used several times"
            ))),
        }
    }

    /// The reference counts.
    fn counts(&mut self) -> io::Result<()> {
        let cluster_bytes = self.header.cluster_bytes();
        let table_at = self.aligned(self.header.refcount_table_offset)?;
        let table_bytes =
            u64::from(self.header.refcount_table_clusters).saturating_mul(cluster_bytes);
        let mut table = self.numbers(table_at, table_bytes)?;
        self.refer(table_at, table_bytes)?;
        for entry in &table {
            let place = entry & !511;
            if place != 0 {
                let place = self.aligned(place)?;
                self.refer(place, cluster_bytes)?;
            }
        }
        let each = cluster_bytes
            .saturating_mul(8)
            .wrapping_shr(self.header.refcount_order);
        let each = usize::try_from(each).unwrap_or(1).max(1);
        let mut number = 0;
        // A block that is added lengthens the file, and so may need another one.
        while number < self.uses.len().div_ceil(each) {
            if table.get(number).is_some_and(|entry| entry & !511 == 0)
                && self.is_used(number, each)
            {
                let place = self.add_block(table_at, number)?;
                if let Some(entry) = table.get_mut(number) {
                    *entry = place;
                }
            }
            number = number.saturating_add(1);
        }
        for number in 0..self.uses.len().div_ceil(each) {
            self.count_block(
                table.get(number).map_or(0, |entry| entry & !511),
                number,
                each,
            )?;
        }
        Ok(())
    }

    /// Whether a cluster that a block counts is used.
    fn is_used(&self, number: usize, each: usize) -> bool {
        let mut uses = self.uses.chunks(each).skip(number);
        uses.next()
            .is_some_and(|uses| uses.iter().any(|uses| *uses > 0))
    }

    /// Adds an empty block of counts behind the end of the file.
    fn add_block(&mut self, table_at: u64, number: usize) -> io::Result<u64> {
        let cluster = self.uses.len();
        let bits = self.header.cluster_bits;
        let place = u64::try_from(cluster).unwrap_or(u64::MAX) << bits;
        let empty = vec![0; usize::try_from(self.header.cluster_bytes()).unwrap_or(0)];
        self.file.write_all_at(&empty, place)?;
        self.file.sync_data()?;
        self.uses.push(1);
        let number = u64::try_from(number).unwrap_or(u64::MAX);
        let at = table_at.saturating_add(number.saturating_mul(8));
        self.file.write_all_at(&place.to_be_bytes(), at)?;
        self.file.sync_data()?;
        Ok(place)
    }

    /// Raises the counts in the block at `place` that are too low.
    fn count_block(&self, place: u64, number: usize, each: usize) -> io::Result<()> {
        let bits = 1_u64 << self.header.refcount_order;
        let first = number.saturating_mul(each);
        let mut counts = match place {
            0 => Vec::new(),
            place => self.numbers(place, self.header.cluster_bytes())?,
        };
        let mut is_changed = false;
        for (index, uses) in self.uses.iter().skip(first).take(each).enumerate() {
            let wanted = u64::from(*uses);
            if count(&counts, index, bits) >= wanted {
                continue;
            }
            let fits = bits == 64 || wanted < 1 << bits;
            if !fits || !set_count(&mut counts, index, bits, wanted) {
                let cluster = first.saturating_add(index);
                return Err(broken(format!("cluster {cluster} cannot be counted")));
            }
            is_changed = true;
        }
        if is_changed {
            let bytes: Vec<u8> = counts.iter().flat_map(|word| word.to_be_bytes()).collect();
            self.file.write_all_at(&bytes, place)?;
            self.file.sync_data()?;
        }
        Ok(())
    }
}

/// Where a count is: its word, and its shift in it. Bytes are in order; within a byte, the lowest bits come
/// first.
fn place_of(index: usize, bits: u64) -> (usize, u32) {
    let at = u64::try_from(index)
        .unwrap_or(u64::MAX)
        .saturating_mul(bits);
    let within = at % 64;
    let shift = match bits < 8 {
        true => 56_u64
            .saturating_sub(within & !7)
            .saturating_add(within & 7),
        false => 64_u64.saturating_sub(within).saturating_sub(bits),
    };
    (
        usize::try_from(at / 64).unwrap_or(usize::MAX),
        u32::try_from(shift).unwrap_or(0),
    )
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

fn outside(at: u64) -> io::Error {
    broken(format!("it refers to byte {at}, outside of the file"))
}

fn broken(why: impl std::fmt::Display) -> io::Error {
    damaged(format!(
        "the tables of the qcow2 image are damaged: {why}; 'qemu-img check -r all' may mend it"
    ))
}
