//! Partition tables: where the partitions of a disk begin.

use std::fs::File;

use super::read;

/// The partition table of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The kind of table, `GPT` or `MBR`.
    pub kind: &'static str,
    /// The partitions, in the order of the table.
    pub partitions: Vec<Partition>,
}

/// A partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The system's number for it: 1 for `sda1`.
    pub number: u32,
    /// Where it begins on the disk.
    pub start_bytes: u64,
}

/// Maximum number of entries; partitioning tools create no more.
const MAX_ENTRIES: u32 = 1024;
/// Maximum length of the chain of logical partitions. It bounds a chain that forms a cycle.
const MAX_LOGICAL: u32 = 64;
const SECTOR_BYTES: u64 = 512;
const ENTRY_TYPES_EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The type of the MBR's entry on a disk with a GPT. It protects the disk from tools that support only the
/// MBR.
const ENTRY_TYPE_PROTECTIVE: u8 = 0xee;

impl Table {
    /// Reads the table, if there is one.
    pub fn read(file: &File) -> Option<Table> {
        [SECTOR_BYTES, 4096]
            .into_iter()
            .find_map(|sector_bytes| gpt(file, sector_bytes))
            .or_else(|| mbr(file))
    }
}

/// The header is in the second sector, the entries at the sector given there.
fn gpt(file: &File, sector_bytes: u64) -> Option<Table> {
    let header: [u8; 92] = read(file, sector_bytes)?;
    if !header.starts_with(b"EFI PART") {
        return None;
    }
    let entries_at = long(&header, 72)?.checked_mul(sector_bytes)?;
    let count = word(&header, 80)?.min(MAX_ENTRIES);
    let entry_bytes = word(&header, 84).filter(|bytes| (128..=4096).contains(bytes))?;
    let partition = |index: u32| {
        let at = entries_at.checked_add(u64::from(index) * u64::from(entry_bytes))?;
        let entry: [u8; 128] = read(file, at)?;
        let is_used = entry[..16].iter().any(|byte| *byte != 0);
        let start_bytes = long(&entry, 32)?.checked_mul(sector_bytes)?;
        is_used.then_some(Partition {
            number: index + 1,
            start_bytes,
        })
    };
    Some(Table {
        kind: "GPT",
        partitions: (0..count).filter_map(partition).collect(),
    })
}

/// An MBR entry: its type, and its first sector relative to its table's base.
struct Entry {
    kind: u8,
    start: u64,
}

fn entries(sector: &[u8; 512]) -> Option<Vec<Entry>> {
    if sector[510..] != [0x55, 0xaa] {
        return None;
    }
    let mut found = Vec::new();
    for bytes in sector[446..510].chunks_exact(16) {
        // 0x80 marks a bootable partition. Other values than that and 0 are boot code, not a table.
        if bytes[0] & 0x7f != 0 {
            return None;
        }
        found.push(Entry {
            kind: if word(bytes, 12)? == 0 { 0 } else { bytes[4] },
            start: word(bytes, 8)?.into(),
        });
    }
    Some(found)
}

fn mbr(file: &File) -> Option<Table> {
    let first = entries(&read(file, 0)?)?;
    let mut partitions = Vec::new();
    for (entry, number) in first.iter().zip(1..) {
        match entry.kind {
            0 | ENTRY_TYPE_PROTECTIVE => {}
            kind if ENTRY_TYPES_EXTENDED.contains(&kind) => {
                logical(file, entry.start, &mut partitions);
            }
            _ => partitions.push(Partition {
                number,
                start_bytes: entry.start * SECTOR_BYTES,
            }),
        }
    }
    (!partitions.is_empty()).then_some(Table {
        kind: "MBR",
        partitions,
    })
}

/// Logical partitions: each has its own table, with the offset of the next one from the start of the first.
fn logical(file: &File, base: u64, partitions: &mut Vec<Partition>) {
    let mut at = base;
    for number in 5..5 + MAX_LOGICAL {
        let Some(found) = read(file, at * SECTOR_BYTES).as_ref().and_then(entries) else {
            return;
        };
        if let Some(entry) = found.first().filter(|entry| entry.kind != 0) {
            partitions.push(Partition {
                number,
                start_bytes: (at + entry.start) * SECTOR_BYTES,
            });
        }
        match found.get(1) {
            Some(next) if ENTRY_TYPES_EXTENDED.contains(&next.kind) => at = base + next.start,
            _ => return,
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    bytes.try_into().map(u32::from_le_bytes).ok()
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    bytes.try_into().map(u64::from_le_bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(bytes: &[u8]) -> Option<Table> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        Table::read(file.as_file())
    }

    fn put(bytes: &mut [u8], slot: usize, kind: u8, start: u32, len: u32) {
        let entry = &mut bytes[446 + slot * 16..][..16];
        entry[4] = kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&len.to_le_bytes());
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    }

    #[test]
    fn old_tables_with_logical_partitions() {
        let mut disk = vec![0; 10 * 512];
        put(&mut disk, 0, 0x83, 1, 2);
        put(&mut disk, 1, 0x05, 4, 6);
        put(&mut disk[4 * 512..], 0, 0x83, 1, 1);
        put(&mut disk[4 * 512..], 1, 0x05, 3, 3);
        put(&mut disk[7 * 512..], 0, 0x83, 1, 1);
        let found = table(&disk).unwrap();
        let starts: Vec<_> = found
            .partitions
            .iter()
            .map(|partition| (partition.number, partition.start_bytes / 512))
            .collect();
        assert_eq!((found.kind, starts), ("MBR", vec![(1, 1), (5, 5), (6, 8)]));
    }

    #[test]
    fn a_chain_that_leads_back_ends() {
        let mut disk = vec![0; 4 * 512];
        put(&mut disk, 0, 0x05, 1, 3);
        put(&mut disk[512..], 0, 0x83, 1, 1);
        put(&mut disk[512..], 1, 0x05, 0, 3);
        let found = table(&disk).unwrap();
        assert_eq!(found.partitions.len() as u32, MAX_LOGICAL);
    }

    #[test]
    fn a_gpt_with_wrong_counts_is_bounded() {
        let mut disk = vec![0xff; 64 << 10];
        disk[512..520].copy_from_slice(b"EFI PART");
        disk[512 + 72..512 + 80].copy_from_slice(&2u64.to_le_bytes());
        disk[512 + 80..512 + 84].copy_from_slice(&u32::MAX.to_le_bytes());
        disk[512 + 84..512 + 88].copy_from_slice(&128u32.to_le_bytes());
        let found = table(&disk).unwrap();
        assert_eq!((found.kind, found.partitions.len()), ("GPT", 0));
        disk[1024..1024 + 16].fill(1);
        disk[1024 + 32..1024 + 40].copy_from_slice(&2048u64.to_le_bytes());
        let found = table(&disk).unwrap();
        assert_eq!(found.partitions[0].start_bytes, 1 << 20);
    }

    #[test]
    fn boot_code_and_noise_are_no_tables() {
        for bytes in [vec![], vec![0; 512], vec![0xff; 4096]] {
            assert_eq!(table(&bytes), None);
        }
        let mut boot = vec![0xfa; 512];
        boot[510..].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(table(&boot), None);
    }
}
