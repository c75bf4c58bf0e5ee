//! The walk along the records of a region.

use super::{DirEntry, DirFormat, ENTRY_HEAD_BYTES, NAME_MAX, rec_len_from_disk, record_bytes};
use crate::units::InodeNumber;
use crate::{Corrupt, Result};

/// The records of a region, in order, including free ones. Ends after an error.
#[derive(Clone)]
pub struct Entries<'a> {
    region: &'a [u8],
    format: DirFormat,
    offset: usize,
    /// The end of the records: the region's length less the tail.
    end: usize,
}

/// Walks the records of `region`.
#[inline]
pub fn entries<'a>(region: &'a [u8], format: &DirFormat) -> Entries<'a> {
    Entries {
        region,
        format: *format,
        offset: 0,
        end: format.usable(region.len()),
    }
}

/// The fields of a record, unchecked.
#[derive(Clone, Copy)]
struct Fields {
    inode: u32,
    rec_len: usize,
    name_len: usize,
    file_type: u8,
}

#[inline(always)]
fn fields_at(records: &[u8], format: &DirFormat, offset: usize) -> Option<Fields> {
    let head = u64::from_le_bytes(*records.get(offset..)?.first_chunk()?);
    let mut name_len = usize::from((head >> 48) as u8);
    let mut file_type = (head >> 56) as u8;
    if !format.filetype {
        name_len |= usize::from(file_type) << 8;
        file_type = 0;
    }
    Some(Fields {
        inode: head as u32,
        rec_len: rec_len_from_disk((head >> 32) as u16, format.block_bytes),
        name_len,
        file_type,
    })
}

/// A record.
#[derive(Clone, Copy)]
pub(super) struct Record {
    pub(super) inode: u32,
    pub(super) rec_len: usize,
    /// 0 if it is free.
    pub(super) name_len: usize,
    file_type: u8,
}

impl Record {
    /// The bytes at the end of the record that its entry does not need.
    #[inline]
    pub(super) fn spare(&self) -> usize {
        self.rec_len.saturating_sub(self.needs())
    }

    #[inline]
    pub(super) fn needs(&self) -> usize {
        if self.inode == 0 {
            0
        } else {
            record_bytes(self.name_len)
        }
    }
}

/// The name of the record at `offset`. `None` cannot happen: a sound record has room for its name.
#[inline]
pub(super) fn name_at(region: &[u8], offset: usize, name_len: usize) -> Option<&[u8]> {
    let start = offset.saturating_add(ENTRY_HEAD_BYTES);
    region.get(start..start.saturating_add(name_len))
}

impl<'a> Entries<'a> {
    /// The records from the one at `offset` on.
    pub(super) fn starting_at(self, offset: usize) -> Self {
        Self { offset, ..self }
    }

    /// The head at the offset; `None` if it does not fit.
    #[inline(always)]
    fn fields(&self) -> Option<Fields> {
        let records = self.region.get(..self.end)?;
        fields_at(records, &self.format, self.offset)
    }

    /// The record at the offset, if it is sound.
    #[inline(always)]
    pub(super) fn sound(&self) -> Option<Record> {
        let fields = self.fields()?;
        let is_used = fields.inode != 0;
        // Free records have room for a name too.
        let name_len = if is_used { fields.name_len } else { 1 };
        let is_sound = fields.rec_len & 3 == 0
            && fields.rec_len >= record_bytes(name_len)
            && fields.rec_len <= self.end.saturating_sub(self.offset)
            && fields.inode <= self.format.inodes
            && name_len.wrapping_sub(1) < NAME_MAX;
        is_sound.then_some(Record {
            inode: fields.inode,
            rec_len: fields.rec_len,
            name_len: if is_used { name_len } else { 0 },
            file_type: if is_used { fields.file_type } else { 0 },
        })
    }

    /// Visits the records from the offset on until `visit` returns a value.
    #[inline(always)]
    pub(super) fn scan<R>(
        mut self,
        mut visit: impl FnMut(usize, Record) -> Option<R>,
    ) -> Result<Option<R>> {
        while self.offset < self.end {
            let Some(record) = self.sound() else {
                return Err(self.damage());
            };
            if let Some(answer) = visit(self.offset, record) {
                return Ok(Some(answer));
            }
            // A record is at least 12 bytes, so the walk ends.
            self.offset = self.offset.saturating_add(record.rec_len);
        }
        Ok(None)
    }

    /// As [`Self::scan`], for a region whose records have been checked since it last changed. A search in a
    /// directory reads all records of a block, so this loop keeps to what it needs. In a region that is not
    /// sound, what is visited has no meaning, but the walk ends.
    #[inline(always)]
    pub(super) fn skim<R>(self, mut visit: impl FnMut(usize, Record) -> Option<R>) -> Option<R> {
        let records = self.region.get(..self.end)?;
        let mut offset = self.offset;
        while let Some(fields) = fields_at(records, &self.format, offset) {
            let record = Record {
                inode: fields.inode,
                rec_len: fields.rec_len,
                name_len: fields.name_len,
                file_type: fields.file_type,
            };
            if let Some(answer) = visit(offset, record) {
                return Some(answer);
            }
            if record.rec_len == 0 {
                return None;
            }
            // Both are below 2^18.
            offset = offset.wrapping_add(record.rec_len);
        }
        None
    }

    /// The entry of a record of this region.
    #[inline]
    pub(super) fn entry(&self, offset: usize, record: Record) -> DirEntry<'a> {
        DirEntry {
            offset,
            rec_len: record.rec_len,
            inode: InodeNumber(record.inode),
            name: name_at(self.region, offset, record.name_len).unwrap_or_default(),
            file_type: record.file_type,
        }
    }

    /// The record at `offset`, checked.
    pub(super) fn check_at(mut self, offset: usize) -> Result<Record> {
        self.offset = offset;
        self.sound().ok_or_else(|| self.damage())
    }

    /// Why the record at the offset is not sound.
    #[cold]
    #[inline(never)]
    fn damage(&self) -> Corrupt {
        let offset = self.offset;
        let Some(fields) = self.fields() else {
            return Corrupt::new(format!("directory entry at byte {offset} is cut short"));
        };
        let Fields {
            inode,
            rec_len,
            name_len,
            ..
        } = fields;
        let least = record_bytes(if inode == 0 { 1 } else { name_len.max(1) });
        let most = self.end.saturating_sub(offset);
        Corrupt::new(if rec_len & 3 != 0 || rec_len < least || rec_len > most {
            format!(
                "directory entry at byte {offset} has record length {rec_len}, allowed are \
                 {least} to {most}"
            )
        } else if inode > self.format.inodes {
            let inodes = self.format.inodes;
            format!("directory entry at byte {offset} names inode {inode} of {inodes}")
        } else {
            format!("directory entry at byte {offset} has a name of {name_len} bytes")
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<DirEntry<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.end {
            return None;
        }
        match self.sound() {
            Some(record) => {
                let entry = self.entry(self.offset, record);
                // A record is at least 12 bytes, so the walk ends.
                self.offset = self.offset.saturating_add(record.rec_len);
                Some(Ok(entry))
            }
            None => {
                let damage = self.damage();
                self.offset = self.end;
                Some(Err(damage))
            }
        }
    }
}
