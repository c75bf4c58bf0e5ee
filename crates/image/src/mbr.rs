//! Master boot records: four entries, one of which may lead to a chain of logical partitions.

use crate::source::{ReadAt, read, word};
use crate::table::{Partition, Result, Table};

/// Most logical partitions. It bounds a chain that leads back.
const MAX_LOGICAL: u32 = 124;
const SECTOR_BYTES: u64 = 512;
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
    fn is_extended(self) -> bool {
        EXTENDED.contains(&self.kind)
    }

    fn partition(self, number: u32, base: u64, signature: u32) -> Partition {
        Partition {
            number,
            start_bytes: base.saturating_add(self.start).saturating_mul(SECTOR_BYTES),
            len_bytes: self.sectors.saturating_mul(SECTOR_BYTES),
            name: String::new(),
            // As Linux makes it.
            uuid: format!("{signature:08x}-{number:02x}"),
            kind: format!("{:02x}", self.kind),
            volume: None,
        }
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
        entry.kind = if entry.sectors == 0 { 0 } else { bytes[4] };
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
    if first.iter().any(|entry| entry.kind == PROTECTIVE) {
        return Ok(Found::Protective);
    }
    let signature = word(&sector, 440);
    let mut partitions = Vec::new();
    for (entry, number) in first.into_iter().zip(1..) {
        match entry.kind {
            0 => {}
            _ if entry.is_extended() => {
                logical(disk, entry.start, signature, &mut partitions)?;
            }
            _ => partitions.push(entry.partition(number, 0, signature)),
        }
    }
    if partitions.is_empty() {
        return Ok(Found::Nothing);
    }
    partitions.sort_by_key(|partition| partition.number);
    Ok(Found::Table(Table {
        kind: "MBR",
        partitions,
        len_bytes: disk.len_bytes()?,
    }))
}

/// Logical partitions: each has its own table, with the offset of the next one from the start of the first.
fn logical(
    disk: &impl ReadAt,
    base: u64,
    signature: u32,
    partitions: &mut Vec<Partition>,
) -> Result<()> {
    let mut at = base;
    let last = MAX_LOGICAL.saturating_add(4);
    for number in 5..=last {
        let Some(sector) = read(disk, at.saturating_mul(SECTOR_BYTES))? else {
            return Ok(());
        };
        let Some([own, next, ..]) = entries(&sector) else {
            return Ok(());
        };
        if own.kind != 0 {
            partitions.push(own.partition(number, at, signature));
        }
        if !next.is_extended() {
            return Ok(());
        }
        at = base.saturating_add(next.start);
    }
    Ok(())
}
