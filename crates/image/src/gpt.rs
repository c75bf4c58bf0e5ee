//! GUID partition tables. The header is in the second sector, and its copy in the last.

use std::ops::Range;

use flate2::Crc;

use crate::source::{ReadAt, long, read, short, word};
use crate::table::{Error, Partition, Result, Table};
use crate::volume::guid;

/// Most entries that are read; tools make 128, and the largest tables of the kernel's tests have fewer.
const MAX_ENTRIES: u32 = 1024;
const SIGNATURE: &[u8] = b"EFI PART";
/// The smallest header, of all revisions.
const HEADER_BYTES: u32 = 92;

/// A header whose checksum is right.
struct Header {
    /// The sector of the other header.
    other: u64,
    entries_at: u64,
    entries: u32,
    entry_bytes: u32,
    entries_crc: u32,
}

/// Reads the table of a disk whose MBR says that it has one.
pub(crate) fn read_table(disk: &impl ReadAt) -> Result<Table> {
    let mut why = "there is no header";
    for sector_bytes in [512, 4096u64] {
        let len_bytes = disk.len_bytes()?;
        let last = len_bytes
            .checked_div(sector_bytes)
            .unwrap_or(0)
            .saturating_sub(1);
        for (sector, is_copy) in [(1, false), (last, true)] {
            let header = match header(disk, sector, sector_bytes)? {
                Ok(header) => header,
                Err(None) => continue,
                Err(Some(wrong)) => {
                    why = wrong;
                    continue;
                }
            };
            match partitions(disk, &header, sector_bytes)? {
                Some(partitions) => {
                    return Ok(Table {
                        kind: "GPT",
                        is_copy,
                        partitions,
                        len_bytes,
                        tables: tables(&header, sector, sector_bytes),
                    });
                }
                None => why = "the checksum of its entries is wrong, or the disk ends before them",
            }
        }
    }
    Err(Error::Damaged(format!(
        "the MBR says that this disk has a GPT, but it cannot be used: {why}"
    )))
}

/// Where the MBR, the headers and the entries are. The entries of the other header are beside it: behind that
/// at the beginning of the disk, before that at its end.
fn tables(header: &Header, sector: u64, sector_bytes: u64) -> Vec<Range<u64>> {
    let entries = u64::from(header.entries).saturating_mul(header.entry_bytes.into());
    let from = |start: u64, len: u64| start..start.saturating_add(len);
    let (own, other) = (
        sector.saturating_mul(sector_bytes),
        header.other.saturating_mul(sector_bytes),
    );
    let beside = match other < own {
        true => from(other.saturating_add(sector_bytes), entries),
        false => other.saturating_sub(entries)..other,
    };
    vec![
        0..sector_bytes,
        from(own, sector_bytes),
        from(header.entries_at, entries),
        from(other, sector_bytes),
        beside,
    ]
}

/// The header in a sector. `Err(None)`: there is none.
fn header(
    disk: &impl ReadAt,
    sector: u64,
    sector_bytes: u64,
) -> Result<std::result::Result<Header, Option<&'static str>>> {
    let at = sector.saturating_mul(sector_bytes);
    let Some(mut bytes) = read::<512>(disk, at)? else {
        return Ok(Err(None));
    };
    if !bytes.starts_with(SIGNATURE) {
        return Ok(Err(None));
    }
    let header = Header {
        other: long(&bytes, 32),
        entries_at: long(&bytes, 72).saturating_mul(sector_bytes),
        entries: word(&bytes, 80),
        entry_bytes: word(&bytes, 84),
        entries_crc: word(&bytes, 88),
    };
    let (len, crc, own) = (word(&bytes, 12), word(&bytes, 16), long(&bytes, 24));
    bytes[16..20].fill(0);
    let covered = bytes.get(..len as usize).filter(|_| len >= HEADER_BYTES);
    let wrong = if covered.is_none_or(|covered| checksum(covered) != crc) {
        "the checksum of its header is wrong"
    } else if own != sector {
        "its header is at another place than it says"
    } else if header.entry_bytes < 128 || !header.entry_bytes.is_power_of_two() {
        "its entries have an impossible size"
    } else if header.entries > MAX_ENTRIES || header.entry_bytes > 4096 {
        "it has too many entries"
    } else {
        return Ok(Ok(header));
    };
    Ok(Err(Some(wrong)))
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(bytes);
    sum.sum()
}

/// The partitions; `None` if the entries are not those of the header.
fn partitions(
    disk: &impl ReadAt,
    header: &Header,
    sector_bytes: u64,
) -> Result<Option<Vec<Partition>>> {
    // At most 4 MiB.
    let len = u64::from(header.entries).saturating_mul(header.entry_bytes.into());
    let end = header.entries_at.checked_add(len);
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Ok(None);
    }
    let mut entries = vec![0; len as usize];
    match disk.read_exact_at(&mut entries, header.entries_at) {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    if checksum(&entries) != header.entries_crc {
        return Ok(None);
    }
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries.chunks_exact(header.entry_bytes as usize)) {
        if entry[..16].iter().all(|byte| *byte == 0) {
            continue;
        }
        let (first, last) = (long(entry, 32), long(entry, 40));
        let sectors = last.saturating_add(1).saturating_sub(first);
        let name = (56..128).step_by(2).map(|at| short(entry, at));
        let name: Vec<u16> = name.take_while(|unit| *unit != 0).collect();
        partitions.push(Partition {
            number,
            start_bytes: first.saturating_mul(sector_bytes),
            len_bytes: sectors.saturating_mul(sector_bytes),
            name: String::from_utf16_lossy(&name),
            uuid: guid(entry, 16),
            kind: guid(entry, 0),
            volume: None,
        });
    }
    Ok(Some(partitions))
}
