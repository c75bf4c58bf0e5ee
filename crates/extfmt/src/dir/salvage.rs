//! Recovers the remaining entries of a damaged region.

use std::mem::size_of;

use zerocopy::FromBytes;

use super::{DirEntry, DirEntryHead, DirFormat, NAME_MAX, rec_len_from_disk};
use crate::error::ensure;
use crate::units::InodeNumber;
use crate::{Corrupt, Result};

/// The entries in use; see [`salvage`].
#[derive(Clone)]
pub struct Salvage<'a> {
    region: &'a [u8],
    format: DirFormat,
    offset: usize,
}

/// Walks the used entries of a possibly damaged region. An invalid entry is an error; the walk continues
/// after it if its record length is plausible. A tail at the end of the region is treated as a record: it
/// looks like a free one. The inode of an entry may not exist.
pub fn salvage<'a>(region: &'a [u8], format: &DirFormat) -> Salvage<'a> {
    Salvage {
        region,
        format: *format,
        offset: 0,
    }
}

impl<'a> Salvage<'a> {
    /// Reads the record at the offset and advances the offset past it.
    fn read(&mut self) -> Result<Option<DirEntry<'a>>> {
        let offset = std::mem::replace(&mut self.offset, self.region.len());
        let rest = self.region.get(offset..).unwrap_or_default();
        let (head, after) = DirEntryHead::ref_from_prefix(rest)
            .map_err(|_| Corrupt::new(format!("directory entry at byte {offset} is cut short")))?;
        let rec_len = rec_len_from_disk(head.rec_len.get(), self.format.block_bytes);
        ensure!(
            rec_len.is_multiple_of(4)
                && rec_len >= size_of::<DirEntryHead>()
                && rec_len <= rest.len(),
            "directory entry at byte {offset} has record length {rec_len} of {}",
            rest.len()
        );
        // It is at least 8, so the walk ends.
        self.offset = offset.saturating_add(rec_len);
        let inode = InodeNumber(head.inode.get());
        if inode == InodeNumber::NONE {
            return Ok(None);
        }
        let (mut name_len, mut file_type) = (usize::from(head.name_len), head.file_type);
        if !self.format.filetype {
            name_len |= usize::from(head.file_type) << 8;
            file_type = 0;
        }
        let most = rec_len
            .saturating_sub(size_of::<DirEntryHead>())
            .min(NAME_MAX);
        ensure!(
            (1..=most).contains(&name_len),
            "directory entry at byte {offset} has a name of {name_len} bytes, room is for {most}"
        );
        Ok(Some(DirEntry {
            offset,
            rec_len,
            inode,
            name: after.get(..name_len).unwrap_or_default(),
            file_type,
        }))
    }
}

impl<'a> Iterator for Salvage<'a> {
    type Item = Result<DirEntry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.offset < self.region.len() {
            if let Some(entry) = self.read().transpose() {
                return Some(entry);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir::{fill, record_bytes};

    const FORMAT: DirFormat = DirFormat {
        block_bytes: 1024,
        inodes: 100,
        tail: true,
        filetype: true,
    };

    fn block(names: &[&str]) -> Vec<u8> {
        let entries: Vec<_> = names
            .iter()
            .map(|name| DirEntry {
                offset: 0,
                rec_len: 0,
                inode: InodeNumber(12),
                name: name.as_bytes(),
                file_type: 1,
            })
            .collect();
        let mut block = vec![0; 1024];
        assert!(fill(&mut block, &FORMAT, &entries), "they fit");
        block
    }

    /// The names found, and the number of errors.
    fn left(block: &[u8]) -> (Vec<String>, usize) {
        let all: Vec<_> = salvage(block, &FORMAT).collect();
        let names = all
            .iter()
            .flatten()
            .map(|entry| String::from_utf8(entry.name.to_vec()).expect("the name of a test"));
        (
            names.collect(),
            all.iter().filter(|entry| entry.is_err()).count(),
        )
    }

    #[test]
    fn a_valid_block_has_all_its_names() {
        assert_eq!(
            left(&block(&["one", "two", "three"])),
            (vec!["one".into(), "two".into(), "three".into()], 0)
        );
    }

    #[test]
    fn entries_before_an_invalid_length_are_salvaged() {
        let mut block = block(&["one", "two", "three"]);
        let second = record_bytes(3);
        for length in [0u16, 5, 4, 1024] {
            block[second + 4..second + 6].copy_from_slice(&length.to_le_bytes());
            assert_eq!(left(&block), (vec!["one".into()], 1), "{length}");
        }
    }

    #[test]
    fn entries_around_an_invalid_name_are_salvaged() {
        let mut block = block(&["one", "two", "three"]);
        let second = record_bytes(3);
        for length in [0u8, 5, 255] {
            block[second + 6] = length;
            assert_eq!(
                left(&block),
                (vec!["one".into(), "three".into()], 1),
                "{length}"
            );
        }
    }

    #[test]
    fn an_inode_that_does_not_exist_has_its_name() {
        let mut block = block(&["one", "two"]);
        block[..4].copy_from_slice(&101u32.to_le_bytes());
        assert_eq!(left(&block).0, ["one", "two"]);
    }
}
