//! Directory blocks: a chain of entries that fills the block, and a checksum tail.
//!
//! ```text
//! | inode 4 | rec_len 2 | name_len 1 | file_type 1 | name ... pad to 4 | next entry ... | tail 12 |
//! ```
//! An entry with inode 0 is free space. All functions take the region that a chain fills: a whole
//! block, or a part of inline data (then [`DirFormat::tail`] is off).
//! Invariant of all changes here: the records fill the region exactly, each has a length that is a
//! multiple of 4 and room for its name.

mod salvage;
mod tail;
mod walk;

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::features::Incompat;
use crate::units::InodeNumber;
use crate::{Corrupt, Geometry, Result};

pub use salvage::{Salvage, salvage};
pub use tail::{DirTail, TAIL_BYTES, TAIL_FILE_TYPE, tail, update_checksum, verify_checksum};
pub use walk::{Entries, entries};
use walk::{Record, name_at};

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Size of an entry before its name, in bytes.
pub const ENTRY_HEAD_BYTES: usize = 8;

/// Header of an entry; without `filetype`, `name_len` is the low byte of a 16-bit length.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DirEntryHead {
    pub inode: U32,
    pub rec_len: U16,
    pub name_len: u8,
    pub file_type: u8,
}

const _: () = assert!(size_of::<DirEntryHead>() == ENTRY_HEAD_BYTES);

/// The parameters of a volume's directory entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirFormat {
    /// Block size in bytes; it determines the encoding of `rec_len`.
    pub block_bytes: u32,
    /// Highest inode number.
    pub inodes: u32,
    /// Whether the last 12 bytes of a region are a checksum tail.
    pub tail: bool,
    /// Whether entries hold file types; if not, the byte is part of the name's length.
    pub filetype: bool,
}

impl DirFormat {
    /// The format of directory blocks of a volume.
    pub fn new(geometry: &Geometry) -> Self {
        Self {
            block_bytes: geometry.block_bytes,
            inodes: geometry.inodes,
            tail: geometry.has_metadata_csum(),
            filetype: geometry.incompat.contains(Incompat::FILETYPE),
        }
    }

    /// The same for inline data, which has no tail.
    pub fn inline(self) -> Self {
        Self {
            tail: false,
            ..self
        }
    }

    /// The bytes that entries may use in a region of `len` bytes.
    #[inline]
    pub fn usable(&self, len: usize) -> usize {
        if self.tail {
            len.saturating_sub(TAIL_BYTES)
        } else {
            len
        }
    }
}

/// One entry; its bounds are checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// Byte offset of the record in the region.
    pub offset: usize,
    /// Length of the record in bytes, up to the next one.
    pub rec_len: usize,
    /// The inode; [`InodeNumber::NONE`] for free space.
    pub inode: InodeNumber,
    /// The name: 1 to 255 bytes if the entry is in use. Its bytes are not checked further.
    pub name: &'a [u8],
    /// The type's code, 0 if not stored. See [`crate::inode::FileType::from_dir_code`].
    pub file_type: u8,
}

impl DirEntry<'_> {
    /// Whether the record is an entry (not free space).
    #[inline]
    pub fn is_used(&self) -> bool {
        self.inode != InodeNumber::NONE
    }

    /// The bytes that the entry needs; the rest of its record is free.
    #[inline]
    pub fn needs(&self) -> usize {
        if self.is_used() {
            record_bytes(self.name.len())
        } else {
            0
        }
    }
}

/// The bytes that an entry with a name of `name_len` bytes needs: a multiple of 4.
#[inline]
pub fn record_bytes(name_len: usize) -> usize {
    name_len.saturating_add(ENTRY_HEAD_BYTES).saturating_add(3) & !3
}

/// Decodes `rec_len`. With blocks of 64 KiB, 65535 and 0 mean 65536,
/// and the two low bits carry bits 16 and 17.
#[inline]
pub fn rec_len_from_disk(rec_len: u16, block_bytes: u32) -> usize {
    let len = usize::from(rec_len);
    if block_bytes < 65536 {
        len
    } else if len == 65535 || len == 0 {
        block_bytes as usize
    } else {
        len & 65532 | (len & 3) << 16
    }
}

/// The reverse of [`rec_len_from_disk`]; `len` is a multiple of 4, `block_bytes` at most.
pub fn rec_len_to_disk(len: usize, block_bytes: u32) -> u16 {
    if len < 65536 {
        len as u16
    } else if len as u64 == u64::from(block_bytes) {
        65535
    } else {
        (len & 65532 | len >> 16 & 3) as u16
    }
}

/// Checks every record of a region.
pub fn check(region: &[u8], format: &DirFormat) -> Result<()> {
    let end = entries(region, format).scan(|_, _| None::<()>)?;
    debug_assert!(end.is_none());
    Ok(())
}

/// Whether the record at `offset` is the entry of `name`.
#[inline(always)]
fn is_named(region: &[u8], offset: usize, record: Record, name: &[u8]) -> bool {
    // Names in one directory often begin alike and have one length: the last byte is compared first.
    let last = offset
        .wrapping_add(ENTRY_HEAD_BYTES - 1)
        .wrapping_add(record.name_len);
    record.name_len == name.len()
        && region.get(last) == name.last()
        && record.inode != 0
        && name_at(region, offset, record.name_len) == Some(name)
}

/// Finds the entry of a name. Checks the records up to it.
pub fn find<'a>(region: &'a [u8], format: &DirFormat, name: &[u8]) -> Result<Option<DirEntry<'a>>> {
    let walk = entries(region, format);
    let found = walk.clone().scan(|offset, record| {
        is_named(region, offset, record, name).then_some((offset, record))
    })?;
    Ok(found.map(|(offset, record)| walk.entry(offset, record)))
}

/// As [`find`], in a region that has passed [`check`] since it last changed.
pub fn find_in_checked<'a>(
    region: &'a [u8],
    format: &DirFormat,
    name: &[u8],
) -> Option<DirEntry<'a>> {
    let walk = entries(region, format);
    let found = walk
        .clone()
        .skim(|offset, record| is_named(region, offset, record, name).then_some((offset, record)));
    found.map(|(offset, record)| walk.entry(offset, record))
}

/// The first entry in use whose name `is` accepts, in a region that has passed [`check`] since it last
/// changed.
pub fn find_where<'a>(
    region: &'a [u8],
    format: &DirFormat,
    is: impl Fn(&[u8]) -> bool,
) -> Option<DirEntry<'a>> {
    let mut used = entries(region, format).flatten();
    used.find(|entry| entry.is_used() && is(entry.name))
}

/// What a search for a place for a new name finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Vacancy {
    /// The name exists.
    Taken,
    /// The record at this offset has room for it.
    Room(usize),
    /// The region has no room for it.
    Full,
}

/// Where a new name of 1 to 255 bytes fits in the region, which has passed [`check`] since it last changed:
/// the first such place. Reads the region to the end, because the name may be there.
pub fn vacancy(region: &[u8], format: &DirFormat, name: &[u8]) -> Vacancy {
    let wanted = record_bytes(name.len());
    let mut vacancy = Vacancy::Full;
    let taken = entries(region, format).skim(|offset, record| {
        if vacancy == Vacancy::Full && record.spare() >= wanted {
            vacancy = Vacancy::Room(offset);
        }
        is_named(region, offset, record, name).then_some(Vacancy::Taken)
    });
    taken.unwrap_or(vacancy)
}

/// As [`vacancy`], for a name of `len_bytes` that exists if `is` accepts the name of an entry.
pub fn vacancy_where(
    region: &[u8],
    format: &DirFormat,
    len_bytes: usize,
    is: impl Fn(&[u8]) -> bool,
) -> Vacancy {
    if find_where(region, format, is).is_some() {
        return Vacancy::Taken;
    }
    let wanted = record_bytes(len_bytes);
    let room = entries(region, format)
        .skim(|offset, record| (record.spare() >= wanted).then_some(Vacancy::Room(offset)));
    room.unwrap_or(Vacancy::Full)
}

/// Makes a region one free record, followed by the tail if the format has one (set its checksum
/// with [`update_checksum`]).
pub fn init(region: &mut [u8], format: &DirFormat) {
    region.fill(0);
    let usable = format.usable(region.len());
    if usable >= ENTRY_HEAD_BYTES {
        write_head(region, format, 0, InodeNumber::NONE, usable, 0, 0);
    }
    if format.tail
        && let Ok((_, tail)) = DirTail::mut_from_suffix(region)
    {
        tail.det_rec_len.set(TAIL_BYTES as u16);
        tail.det_reserved_ft = TAIL_FILE_TYPE;
    }
}

fn write_head(
    region: &mut [u8],
    format: &DirFormat,
    offset: usize,
    inode: InodeNumber,
    rec_len: usize,
    name_len: usize,
    file_type: u8,
) {
    let head = DirEntryHead {
        inode: inode.0.into(),
        rec_len: rec_len_to_disk(rec_len, format.block_bytes).into(),
        name_len: name_len as u8,
        file_type: if format.filetype { file_type } else { 0 },
    };
    let end = offset.saturating_add(ENTRY_HEAD_BYTES);
    if let Some(place) = region.get_mut(offset..end) {
        place.copy_from_slice(head.as_bytes());
    }
}

/// Writes a whole entry where the space is known to be free and large enough.
fn write_entry(region: &mut [u8], format: &DirFormat, entry: &DirEntry<'_>) {
    let DirEntry {
        offset,
        rec_len,
        inode,
        name,
        file_type,
    } = *entry;
    write_head(
        region,
        format,
        offset,
        inode,
        rec_len,
        name.len(),
        file_type,
    );
    let start = offset.saturating_add(ENTRY_HEAD_BYTES);
    let padded = record_bytes(name.len()).saturating_sub(ENTRY_HEAD_BYTES);
    if let Some(place) = region.get_mut(start..start.saturating_add(padded)) {
        let (bytes, pad) = place.split_at_mut(name.len());
        bytes.copy_from_slice(name);
        pad.fill(0);
    }
}

/// Puts an entry into the first free space that fits, from the record at `from` on (0, or from [`vacancy`]),
/// and returns its offset; `None` if there is no room. `name` has 1 to 255 bytes; does not check whether it
/// already exists. The region has passed [`check`] since it last changed.
pub fn insert(
    region: &mut [u8],
    format: &DirFormat,
    from: usize,
    (name, inode, file_type): (&[u8], InodeNumber, u8),
) -> Result<Option<usize>> {
    assert!(
        (1..=NAME_MAX).contains(&name.len()),
        "name of {} bytes",
        name.len()
    );
    let wanted = record_bytes(name.len());
    let walk = entries(region, format).starting_at(from);
    let place = walk
        .clone()
        .skim(|offset, record| (record.spare() >= wanted).then_some(offset));
    let Some(offset) = place else {
        return Ok(None);
    };
    let record = walk.check_at(offset)?;
    let (rec_len, used) = (record.rec_len, record.needs());
    if used > 0 {
        set_rec_len(region, format, offset, used);
    }
    let offset = offset.saturating_add(used);
    let rec_len = rec_len.saturating_sub(used);
    write_entry(
        region,
        format,
        &DirEntry {
            offset,
            rec_len,
            inode,
            name,
            file_type,
        },
    );
    Ok(Some(offset))
}

fn set_rec_len(region: &mut [u8], format: &DirFormat, offset: usize, rec_len: usize) {
    let start = offset.saturating_add(4);
    if let Some(place) = region.get_mut(start..start.saturating_add(2)) {
        place.copy_from_slice(&rec_len_to_disk(rec_len, format.block_bytes).to_le_bytes());
    }
}

/// Removes the entry at `offset` (from the walk): its space is added to the record before it,
/// or it becomes free space if it is the first.
pub fn remove(region: &mut [u8], format: &DirFormat, offset: usize) -> Result<()> {
    let mut before: Option<(usize, usize)> = None;
    let found = entries(region, format).scan(|at, record| {
        if at == offset && record.inode != 0 {
            return Some(record.rec_len);
        }
        before = Some((at, record.rec_len));
        None
    })?;
    let rec_len = found
        .ok_or_else(|| Corrupt::new(format!("no directory entry at byte {offset} to remove")))?;
    match before {
        None => write_head(region, format, offset, InodeNumber::NONE, rec_len, 0, 0),
        Some((start, len)) => set_rec_len(region, format, start, len.saturating_add(rec_len)),
    }
    Ok(())
}

/// Points the entry at `offset` (from the walk) to another inode.
pub fn set_inode(
    region: &mut [u8],
    format: &DirFormat,
    offset: usize,
    inode: InodeNumber,
    file_type: u8,
) -> Result<()> {
    let found = entries(region, format).scan(|at, record| {
        (at == offset && record.inode != 0).then_some((record.rec_len, record.name_len))
    })?;
    let (rec_len, name_len) = found
        .ok_or_else(|| Corrupt::new(format!("no directory entry at byte {offset} to change")))?;
    write_head(region, format, offset, inode, rec_len, name_len, file_type);
    Ok(())
}

/// Writes `list` into `region` in order and without gaps; the last record takes the remaining space.
/// Writes the tail too; set its checksum with [`update_checksum`]. `false`, with nothing written, if
/// the list does not fit. (`offset` and `rec_len` of the list are ignored.)
#[must_use]
pub fn fill(region: &mut [u8], format: &DirFormat, list: &[DirEntry<'_>]) -> bool {
    let usable = format.usable(region.len());
    let needed = list
        .iter()
        .map(DirEntry::needs)
        .fold(0, usize::saturating_add);
    if needed > usable {
        return false;
    }
    init(region, format);
    let mut offset = 0usize;
    let mut used = list.iter().filter(|entry| entry.is_used()).peekable();
    while let Some(entry) = used.next() {
        let last = used.peek().is_none();
        let rec_len = if last {
            usable.saturating_sub(offset)
        } else {
            entry.needs()
        };
        write_entry(
            region,
            format,
            &DirEntry {
                offset,
                rec_len,
                ..*entry
            },
        );
        offset = offset.saturating_add(rec_len);
    }
    true
}
