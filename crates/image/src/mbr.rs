//! Master boot records: four entries, one of which may lead to a chain of logical partitions.

use std::ops::Range;

use crate::source::{ReadAt, read, word};
use crate::table::{Partition, Result, Table};

/// The largest number of a partition, and most tables of a chain that have no partition. They bound a chain
/// that leads back.
const MAX_NUMBER: u32 = 128;
const MAX_EMPTY: u32 = 100;
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The entry of a disk with a GPT. It protects the disk from tools that know only the MBR.
const PROTECTIVE: u8 = 0xee;

/// What the first sector says.
pub(crate) enum Found {
    /// No table.
    Nothing,
    /// The disk has a GPT.
    Protective,
    Table(Table),
}

/// An entry: its type, its first sector relative to the base of its table, and its length.
#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    start: u64,
    sectors: u64,
}

impl Entry {
    fn is_used(self) -> bool {
        self.sectors > 0
    }

    fn is_extended(self) -> bool {
        self.is_used() && EXTENDED.contains(&self.kind)
    }

    fn is_data(self) -> bool {
        self.is_used() && !self.is_extended()
    }

    fn partition(self, number: u32, base: u64, of: &Disk) -> Partition {
        Partition {
            number,
            start_bytes: of.bytes(base.saturating_add(self.start)),
            len_bytes: of.bytes(self.sectors),
            name: String::new(),
            // As Linux makes it.
            uuid: format!("{:08x}-{number:02x}", of.signature),
            kind: format!("{:02x}", self.kind),
            volume: None,
        }
    }
}

/// What holds for all tables of a disk.
struct Disk {
    signature: u32,
    /// Sectors of 4096 bytes are counted as such, as Linux does.
    sector_bytes: u64,
}

impl Disk {
    fn bytes(&self, sectors: u64) -> u64 {
        sectors.saturating_mul(self.sector_bytes)
    }
}

fn entries(sector: &[u8; 512]) -> Option<[Entry; 4]> {
    let (entries, signature) = sector[446..].split_at(64);
    if signature != [0x55, 0xaa] {
        return None;
    }
    let mut found = [Entry {
        kind: 0,
        start: 0,
        sectors: 0,
    }; 4];
    for (entry, bytes) in found.iter_mut().zip(entries.chunks_exact(16)) {
        // 0x80 marks a bootable partition. Other values than that and 0 are boot code, not a table.
        if bytes[0] & 0x7f != 0 {
            return None;
        }
        entry.sectors = word(bytes, 12).into();
        entry.start = word(bytes, 8).into();
        entry.kind = bytes[4];
    }
    Some(found)
}

pub(crate) fn read_table(disk: &impl ReadAt) -> Result<Found> {
    let Some(sector) = read(disk, 0)? else {
        return Ok(Found::Nothing);
    };
    let Some(first) = entries(&sector) else {
        return Ok(Found::Nothing);
    };
    let is_protective = |entry: &Entry| entry.is_used() && entry.kind == PROTECTIVE;
    if first.iter().any(is_protective) {
        return Ok(Found::Protective);
    }
    let of = Disk {
        signature: word(&sector, 440),
        sector_bytes: disk.sector_bytes()?,
    };
    let mut found = Chains {
        disk,
        tables: std::iter::once(0..of.sector_bytes).collect(),
        of,
        next: 5,
        partitions: Vec::new(),
    };
    for (entry, number) in first.into_iter().zip(1..) {
        if entry.is_extended() {
            found.follow(entry)?;
        } else if entry.is_data() {
            let one = entry.partition(number, 0, &found.of);
            found.partitions.push(one);
        }
    }
    if found.partitions.is_empty() {
        return Ok(Found::Nothing);
    }
    found.partitions.sort_by_key(|partition| partition.number);
    Ok(Found::Table(Table {
        kind: "MBR",
        is_copy: false,
        partitions: found.partitions,
        len_bytes: disk.len_bytes()?,
        tables: found.tables,
    }))
}

/// Extended partitions: chains of tables, which are followed as Linux does.
struct Chains<'d, D> {
    disk: &'d D,
    of: Disk,
    /// The number of the next logical partition: they are counted through all chains.
    next: u32,
    partitions: Vec<Partition>,
    /// Where tables are.
    tables: Vec<Range<u64>>,
}

impl<D: ReadAt> Chains<'_, D> {
    /// Each table has entries for partitions, relative to itself, and one that leads to the next table,
    /// relative to the start of the chain. Only the first two entries are usually used; another one counts
    /// only if it is inside the chain and the table's part of it.
    fn follow(&mut self, chain: Entry) -> Result<()> {
        let (mut at, mut room, mut empty) = (chain.start, chain.sectors, 0);
        let end = chain.start.saturating_add(chain.sectors);
        while empty < MAX_EMPTY {
            let place = self.of.bytes(at);
            let Some(found) = read(self.disk, place)?.as_ref().and_then(entries) else {
                return Ok(());
            };
            self.tables
                .push(place..place.saturating_add(self.of.sector_bytes));
            empty = empty.saturating_add(1);
            for (slot, entry) in found.into_iter().enumerate() {
                let (first, last) = (
                    at.saturating_add(entry.start),
                    at.saturating_add(entry.start).saturating_add(entry.sectors),
                );
                let inside = entry.start.saturating_add(entry.sectors) <= room
                    && first >= chain.start
                    && last <= end;
                if !entry.is_data() || (slot >= 2 && !inside) {
                    continue;
                }
                if self.next > MAX_NUMBER {
                    return Ok(());
                }
                let one = entry.partition(self.next, at, &self.of);
                self.partitions.push(one);
                self.next = self.next.saturating_add(1);
                empty = 0;
            }
            let Some(link) = found.into_iter().find(|entry| entry.is_extended()) else {
                return Ok(());
            };
            at = chain.start.saturating_add(link.start);
            room = link.sectors;
        }
        Ok(())
    }
}
