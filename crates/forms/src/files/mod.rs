//! Recognizes a file by its bytes: an ext volume, a disk with partitions, or a kind that is often mistaken
//! for an image. Tables of partitions are read by the library.
//!
//! Every magic comes from the specification of its format. The bytes read are bounded and untrusted, so the
//! result is used only in messages.

mod known;

use std::fs::File;
use std::os::unix::fs::FileExt;

use throughline::{Format, PartitionError, PartitionTable};

/// Offset of the superblock in an ext volume.
const SUPERBLOCK_BYTES: u64 = 1024;

/// The kind of a file, and what to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its description, such as "a qcow2 disk image".
    pub what: String,
    /// What the user can do next.
    pub next: String,
}

/// Identifies a file that does not open as an ext volume at `offset` bytes.
pub fn identify(file: &File, offset: u64) -> Option<Found> {
    let known = known::find(file, offset);
    if known.is_some() {
        return known;
    }
    let Some(backup) = backup(file, offset) else {
        return known::empty(file, offset);
    };
    Some(Found {
        what: format!(
            "an ext volume whose superblock is lost; block {} has a copy of it",
            backup.block
        ),
        next: format!(
            "on a copy of the image: e2fsck -b {} -B {} IMAGE",
            backup.block, backup.block_bytes
        ),
    })
}

/// For a message: where a file holds an ext volume, at `offset`, at its beginning, or in a partition.
pub fn holds_ext(file: &File, offset: u64) -> Option<&'static str> {
    if is_ext(file, 0) {
        return Some("it holds an ext volume");
    }
    if offset != 0 && is_ext(file, offset) {
        return Some("it holds an ext volume at --offset");
    }
    match Format::of(file) {
        Ok(Format::Qcow2) => return Some("it is an image of a disk (qcow2)"),
        Ok(Format::Vmdk) => return Some("it is an image of a disk (vmdk)"),
        Ok(Format::Vhdx) => return Some("it is an image of a disk (vhdx)"),
        _ => {}
    }
    match PartitionTable::read(file) {
        Ok(Some(table)) => {
            let has_ext = table.partitions.iter().any(|one| one.volume.is_some());
            has_ext.then_some("it is a disk with an ext volume in a partition")
        }
        // Its partitions may hold any number of them.
        Err(PartitionError::Damaged(_)) => Some("it is a disk with a damaged table of partitions"),
        _ => None,
    }
}

/// For a message: what a file holds at `offset` that would be lost if something else was written there: a
/// volume, a table of partitions, or a known format.
pub fn occupied(file: &File, offset: u64) -> Option<String> {
    if let Some(ext) = holds_ext(file, offset) {
        return Some(ext.to_owned());
    }
    if let Some(known) = known_at(file, offset) {
        return Some(known);
    }
    if offset != 0 {
        return None;
    }
    let table = PartitionTable::read(file).ok().flatten()?;
    Some(format!(
        "it is a disk with a partition table ({})",
        table.kind
    ))
}

/// As [`occupied`], of a partition that begins at `start_bytes`.
pub fn partition_occupied(file: &File, start_bytes: u64) -> Option<String> {
    if is_ext(file, start_bytes) {
        return Some("it holds an ext volume".to_owned());
    }
    known_at(file, start_bytes)
}

fn known_at(file: &File, start_bytes: u64) -> Option<String> {
    let known = known::find(file, start_bytes)?;
    Some(format!("it holds something: {}", known.what))
}

/// Whether there is a superblock of an ext volume: its magic, and plausible fields.
fn is_ext(file: &File, start_bytes: u64) -> bool {
    start_bytes
        .checked_add(SUPERBLOCK_BYTES)
        .is_some_and(|at| superblock_at(file, at).is_some())
}

/// The block size, if a superblock is at `at`.
fn superblock_at(file: &File, at: u64) -> Option<u64> {
    let bytes: [u8; 0x60] = read(file, at)?;
    let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes);
    let magic = bytes[0x38..0x3a] == [0x53, 0xef];
    let (log_block, revision) = (word(0x18).ok()?, word(0x4c).ok()?);
    // Blocks of 1 KiB to 64 KiB, revisions 0 and 1.
    (magic && log_block <= 6 && revision <= 1).then(|| 1024 << log_block)
}

struct Backup {
    block: u64,
    block_bytes: u64,
}

/// The first backup superblock at the offsets of mke2fs for the usual block sizes.
fn backup(file: &File, offset: u64) -> Option<Backup> {
    [(8193, 1024), (16384, 2048), (32768, 4096)]
        .into_iter()
        .map(|(block, block_bytes)| Backup { block, block_bytes })
        .find(|backup| {
            let at = offset.checked_add(backup.block * backup.block_bytes);
            at.is_some_and(|at| {
                // It says that it is that of the second group. Others belong to volumes in partitions.
                let group = read::<2>(file, at.saturating_add(0x5a));
                superblock_at(file, at) == Some(backup.block_bytes) && group == Some([1, 0])
            })
        })
}

/// Reads `LEN` bytes at byte `at`; `None` if the file ends before.
fn read<const LEN: usize>(file: &File, at: u64) -> Option<[u8; LEN]> {
    let mut bytes = [0; LEN];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Vec<u8> {
        let mut bytes = vec![0; 2048];
        bytes[1024 + 0x18] = 2;
        bytes[1024 + 0x38..1024 + 0x3a].copy_from_slice(&[0x53, 0xef]);
        bytes
    }

    fn file(bytes: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn volumes_are_seen_where_they_are() {
        let ext = file(&volume());
        assert_eq!(holds_ext(&ext, 0), Some("it holds an ext volume"));
        let inside = file(&[vec![0; 4096], volume()].concat());
        assert_eq!(holds_ext(&inside, 0), None);
        assert!(holds_ext(&inside, 4096).is_some());
        // A random match of the two bytes of the magic is not a volume.
        let mut chance = volume();
        chance[1024 + 0x18..1024 + 0x1c].fill(0xff);
        assert_eq!(holds_ext(&file(&chance), 0), None);
        for short in [0, 1, 1024, 1100] {
            assert_eq!(holds_ext(&file(&volume()[..short]), 0), None);
        }
        assert_eq!(holds_ext(&ext, u64::MAX), Some("it holds an ext volume"));
        assert_eq!(holds_ext(&file(&[]), u64::MAX), None);
        assert_eq!(occupied(&ext, 0).as_deref(), Some("it holds an ext volume"));
        assert_eq!(occupied(&file(&[0; 4096]), 0), None);
        assert!(occupied(&file(b"QFI\xfb"), 0).is_some_and(|what| what.contains("qcow")));
    }

    #[test]
    fn a_lost_superblock_has_a_copy() {
        let mut bytes = vec![0; 8193 * 1024];
        let mut copy = volume().split_off(1024);
        copy[0x18] = 0;
        copy[0x5a] = 1;
        bytes.extend(copy);
        let found = identify(&file(&bytes), 0).unwrap();
        assert!(found.next.contains("-b 8193 -B 1024"), "{found:?}");
    }
}
