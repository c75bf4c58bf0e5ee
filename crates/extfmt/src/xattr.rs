//! Extended attributes: a list of entries from the front and values from the back, in the
//! inode behind its fields, and in a block that inodes may share.
//!
//! ```text
//! inode | magic 4   | entry | entry | 0000 | free ... | value | value |   offsets count from the first entry
//! block | header 32 | entry | entry | 0000 | free ... | value | value |   offsets count from the block's start
//! ```
//! A value may instead be the content of an inode of its own (`ea_inode`). Reading checks every
//! entry and value against the area; changing rewrites the whole area from the list.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::error::ensure;
use crate::inode::InodeImage;
use crate::units::{FsBlock, InodeNumber};
use crate::{Corrupt, Result};

/// `h_magic` of both headers.
pub const XATTR_MAGIC: u32 = 0xEA02_0000;
/// Most inodes that share a block.
pub const REFCOUNT_MAX: u32 = 1024;
/// Largest value in an inode of its own, in bytes.
pub const VALUE_MAX: u32 = 1 << 24;
/// `e_name_index` of "user.".
pub const INDEX_USER: u8 = 1;
/// `e_name_index` of "trusted.".
pub const INDEX_TRUSTED: u8 = 4;
/// `e_name_index` of "security.".
pub const INDEX_SECURITY: u8 = 6;
/// `e_name_index` of "system.".
pub const INDEX_SYSTEM: u8 = 7;

/// Prefixes by `e_name_index`; a whole name if nothing follows.
const PREFIXES: [(u8, &str); 8] = [
    (INDEX_USER, "user."),
    (2, "system.posix_acl_access"),
    (3, "system.posix_acl_default"),
    (INDEX_TRUSTED, "trusted."),
    (INDEX_SECURITY, "security."),
    (8, "system.richacl"),
    (INDEX_SYSTEM, "system."),
    (10, "gnu."),
];

/// Head of a block of attributes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct XattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_blocks: U32,
    pub h_hash: U32,
    pub h_checksum: U32,
    pub h_reserved: [U32; 3],
}

/// Head of attributes in an inode.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct XattrIbodyHeader {
    pub h_magic: U32,
}

/// An entry; its name follows, padded to 4 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct XattrEntry {
    pub e_name_len: u8,
    pub e_name_index: u8,
    pub e_value_offs: U16,
    pub e_value_inum: U32,
    pub e_value_size: U32,
    pub e_hash: U32,
}

const _: () = {
    assert!(size_of::<XattrHeader>() == 32);
    assert!(size_of::<XattrIbodyHeader>() == 4);
    assert!(size_of::<XattrEntry>() == 16);
    assert!(offset_of!(XattrHeader, h_checksum) == 16);
};

/// Where a value is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// In the area.
    Bytes(Vec<u8>),
    /// In an inode of its own.
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// Bytes of the value.
        size: u32,
        /// `e_hash`, kept: it depends on the value.
        hash: u32,
    },
}

/// One attribute, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attribute {
    /// `e_name_index`.
    pub name_index: u8,
    /// The name behind the prefix: 0 to 255 bytes.
    pub name: Vec<u8>,
    /// The value.
    pub value: Value,
}

impl Attribute {
    /// The name with its prefix; `None` for an index that has none.
    pub fn full_name(&self) -> Option<Vec<u8>> {
        let (_, prefix) = PREFIXES
            .iter()
            .find(|(index, _)| *index == self.name_index)?;
        Some([prefix.as_bytes(), &self.name].concat())
    }

    /// Bytes of the entry.
    fn entry_bytes(&self) -> usize {
        size_of::<XattrEntry>().saturating_add(padded(self.name.len()))
    }

    /// Bytes of the value in the area.
    fn value_bytes(&self) -> usize {
        match &self.value {
            Value::Bytes(bytes) => padded(bytes.len()),
            Value::Inode { .. } => 0,
        }
    }

    /// The order of entries in a block.
    fn sort_key(&self) -> (u8, usize, &[u8]) {
        (self.name_index, self.name.len(), &self.name)
    }
}

/// Splits a full name into index and rest; `None` if no prefix fits.
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|&(index, prefix)| {
        let rest = full.strip_prefix(prefix.as_bytes())?;
        // A prefix without a dot at its end is a whole name.
        (rest.is_empty() != prefix.ends_with('.')).then_some((index, rest))
    })
}

/// A length rounded up to 4.
fn padded(len: usize) -> usize {
    len.saturating_add(3) & !3
}

/// Where entries start in an area, from where value offsets count, and whether it is a block.
#[derive(Clone, Copy)]
struct Shape {
    entries: usize,
    base: usize,
    is_block: bool,
}

const IBODY: Shape = Shape {
    entries: 4,
    base: 4,
    is_block: false,
};
const BLOCK: Shape = Shape {
    entries: 32,
    base: 0,
    is_block: true,
};

fn magic(area: &[u8]) -> Option<u32> {
    area.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The attributes in an inode's area ([`InodeImage::xattr_area`]). No header: no attributes.
pub fn read_ibody(area: &[u8]) -> Result<Vec<Attribute>> {
    if magic(area) == Some(XATTR_MAGIC) {
        read(area, IBODY)
    } else {
        Ok(Vec::new())
    }
}

/// The attributes in a block; its checksum is [`verify_checksum`]'s matter.
pub fn read_block(block: &[u8]) -> Result<Vec<Attribute>> {
    header(block)?;
    read(block, BLOCK)
}

/// The header of a block, its magic number and its single block checked.
pub fn header(block: &[u8]) -> Result<&XattrHeader> {
    let (header, _) = XattrHeader::ref_from_prefix(block)
        .map_err(|_| Corrupt::new("attribute block is cut short"))?;
    let magic = header.h_magic.get();
    ensure!(
        magic == XATTR_MAGIC,
        "attribute block magic is {magic:#010x}"
    );
    ensure!(
        header.h_blocks.get() == 1,
        "attribute block has {} blocks",
        header.h_blocks
    );
    Ok(header)
}

/// Reads an area whose header is known to be there. Entries are at least 16 bytes, so there are
/// at most 4096 of them, and the values together no more than the area: overlap is refused.
fn read(area: &[u8], shape: Shape) -> Result<Vec<Attribute>> {
    let mut list = Vec::new();
    let mut offset = shape.entries;
    let mut value_bytes = 0usize;
    let mut lowest = area.len();
    loop {
        let rest = area.get(offset..).unwrap_or_default();
        if magic(rest) == Some(0) {
            break;
        }
        let (entry, after) = XattrEntry::ref_from_prefix(rest)
            .map_err(|_| Corrupt::new("list of attributes has no end"))?;
        let name = after.get(..usize::from(entry.e_name_len));
        let name = name.ok_or_else(|| Corrupt::new("attribute name is cut short"))?;
        // Written without a value, such an entry would read as the end of the list.
        ensure!(
            entry.e_name_index != 0 || !name.is_empty(),
            "attribute has no name"
        );
        let (value, start) = read_value(area, shape, entry)?;
        let attribute = Attribute {
            name_index: entry.e_name_index,
            name: name.to_vec(),
            value,
        };
        offset = offset.saturating_add(attribute.entry_bytes());
        value_bytes = value_bytes.saturating_add(attribute.value_bytes());
        lowest = lowest.min(start.unwrap_or(lowest));
        ensure!(value_bytes <= area.len(), "attribute values overlap");
        list.push(attribute);
    }
    ensure!(
        offset.saturating_add(4) <= lowest && fits(&list, area.len(), shape),
        "attribute values overlap"
    );
    Ok(list)
}

/// The value of an entry, and where it starts in the area.
fn read_value(area: &[u8], shape: Shape, entry: &XattrEntry) -> Result<(Value, Option<usize>)> {
    let (size, inum) = (entry.e_value_size.get(), entry.e_value_inum.get());
    if inum != 0 {
        ensure!(
            size <= VALUE_MAX,
            "attribute value of {size} bytes in inode {inum}"
        );
        let hash = entry.e_hash.get();
        return Ok((
            Value::Inode {
                inode: InodeNumber(inum),
                size,
                hash,
            },
            None,
        ));
    }
    if size == 0 {
        return Ok((Value::Bytes(Vec::new()), None));
    }
    let start = shape
        .base
        .saturating_add(usize::from(entry.e_value_offs.get()));
    let bytes = area
        .get(start..start.saturating_add(size as usize))
        .ok_or_else(|| {
            Corrupt::new(format!(
                "attribute value of {size} bytes at byte {start} is out of bounds"
            ))
        })?;
    Ok((Value::Bytes(bytes.to_vec()), Some(start)))
}

/// Whether the list fits an area of `len` bytes.
fn fits(list: &[Attribute], len: usize, shape: Shape) -> bool {
    let used = list
        .iter()
        .fold(shape.entries.saturating_add(4), |sum, attribute| {
            sum.saturating_add(attribute.entry_bytes())
                .saturating_add(attribute.value_bytes())
        });
    used <= len
}

/// Writes entries and values behind a header that the caller writes.
fn write(area: &mut [u8], list: &[Attribute], shape: Shape) {
    area[shape.entries..].fill(0);
    let mut offset = shape.entries;
    // Offsets are multiples of 4 from the base.
    let mut end = area.len() & !3;
    for attribute in list {
        let mut entry = XattrEntry {
            e_name_len: attribute.name.len() as u8,
            e_name_index: attribute.name_index,
            e_value_offs: 0.into(),
            e_value_inum: 0.into(),
            e_value_size: 0.into(),
            e_hash: 0.into(),
        };
        match &attribute.value {
            Value::Inode { inode, size, hash } => {
                entry.e_value_inum.set(inode.0);
                entry.e_value_size.set(*size);
                entry.e_hash.set(*hash);
            }
            Value::Bytes(bytes) => {
                end = end.saturating_sub(padded(bytes.len()));
                if !bytes.is_empty() {
                    entry
                        .e_value_offs
                        .set(end.saturating_sub(shape.base) as u16);
                }
                entry.e_value_size.set(bytes.len() as u32);
                area[end..][..bytes.len()].copy_from_slice(bytes);
                if shape.is_block {
                    entry.e_hash.set(entry_hash(&attribute.name, bytes));
                }
            }
        }
        let head = size_of::<XattrEntry>();
        let place = &mut area[offset..];
        place[..head].copy_from_slice(entry.as_bytes());
        place[head..][..attribute.name.len()].copy_from_slice(&attribute.name);
        offset = offset.saturating_add(attribute.entry_bytes());
    }
}

/// Writes the whole list into an inode's area; an empty one removes the header. `false`, and
/// nothing changed, if it does not fit.
#[must_use]
pub fn write_ibody(area: &mut [u8], list: &[Attribute]) -> bool {
    if list.is_empty() {
        area.fill(0);
        return true;
    }
    if !fits(list, area.len(), IBODY) {
        return false;
    }
    write(area, list, IBODY);
    area[..4].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
    true
}

/// Writes the whole list into a block, sorted as the format wants it; the reference count of
/// the block is kept if it has a header already, else 1. `false`, and nothing changed, if it
/// does not fit. The checksum is left to [`update_checksum`].
#[must_use]
pub fn write_block(block: &mut [u8], list: &[Attribute]) -> bool {
    if !fits(list, block.len(), BLOCK) {
        return false;
    }
    let refcount = header(block).map_or(1, |header| header.h_refcount.get());
    let mut sorted = list.to_vec();
    sorted.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    write(block, &sorted, BLOCK);
    let head = XattrHeader {
        h_magic: XATTR_MAGIC.into(),
        h_refcount: refcount.into(),
        h_blocks: 1.into(),
        h_hash: block_hash(block).into(),
        h_checksum: 0.into(),
        h_reserved: [0.into(); 3],
    };
    block[..size_of::<XattrHeader>()].copy_from_slice(head.as_bytes());
    true
}

/// Largest value (bytes, a multiple of 4) that an attribute of this name can have in an inode's
/// area beside the others there; `None` if there is not even room for the entry.
pub fn ibody_room(area_len: usize, others: &[Attribute], name: &[u8]) -> Option<usize> {
    let used = others
        .iter()
        .fold(IBODY.entries.saturating_add(4), |sum, attribute| {
            sum.saturating_add(attribute.entry_bytes())
                .saturating_add(attribute.value_bytes())
        });
    let entry = size_of::<XattrEntry>().saturating_add(padded(name.len()));
    Some((area_len & !3).checked_sub(used)?.checked_sub(entry)? & !3)
}

/// `e_hash` of an entry in a block.
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    let hash = name
        .iter()
        .fold(0u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte));
    value.chunks(4).fold(hash, |hash, bytes| {
        let mut word = [0u8; 4];
        word.iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        hash.rotate_left(16) ^ u32::from_le_bytes(word)
    })
}

/// `h_hash` of a block: 0, never shared, if an entry has no hash.
fn block_hash(block: &[u8]) -> u32 {
    let mut hash = 0u32;
    let mut rest = block.get(BLOCK.entries..).unwrap_or_default();
    while magic(rest) != Some(0)
        && let Ok((entry, _)) = XattrEntry::ref_from_prefix(rest)
    {
        if entry.e_hash.get() == 0 {
            return 0;
        }
        hash = hash.rotate_left(16) ^ entry.e_hash.get();
        let bytes = size_of::<XattrEntry>().saturating_add(padded(entry.e_name_len.into()));
        rest = rest.get(bytes..).unwrap_or_default();
    }
    hash
}

/// The checksum that the block at `place` should carry.
fn checksum(block: &[u8], place: FsBlock, fs_seed: u32) -> u32 {
    const FIELD: usize = offset_of!(XattrHeader, h_checksum);
    let crc = crc32c(fs_seed, &place.0.to_le_bytes());
    let crc = crc32c(crc, block.get(..FIELD).unwrap_or_default());
    let crc = crc32c(crc, &[0; 4]);
    crc32c(
        crc,
        block.get(FIELD.saturating_add(4)..).unwrap_or_default(),
    )
}

/// Checks the checksum of the block at `place`; `fs_seed`: [`crate::Geometry::csum_seed`].
pub fn verify_checksum(block: &[u8], place: FsBlock, fs_seed: Option<u32>) -> Result<()> {
    let Some(seed) = fs_seed else {
        return Ok(());
    };
    let (found, right) = (
        header(block)?.h_checksum.get(),
        checksum(block, place, seed),
    );
    ensure!(
        found == right,
        "attribute block checksum is {found:#010x}, should be {right:#010x}"
    );
    Ok(())
}

/// Recomputes the checksum of the block at `place`, where the volume has one.
pub fn update_checksum(block: &mut [u8], place: FsBlock, fs_seed: Option<u32>) {
    let Some(seed) = fs_seed else {
        return;
    };
    let crc = checksum(block, place, seed);
    if let Ok((header, _)) = XattrHeader::mut_from_prefix(block) {
        header.h_checksum.set(crc);
    }
}

/// Sets `h_refcount` of a block; the checksum is left to [`update_checksum`].
pub fn set_refcount(block: &mut [u8], refcount: u32) {
    if let Ok((header, _)) = XattrHeader::mut_from_prefix(block) {
        header.h_refcount.set(refcount);
    }
}

/// Attributes that refer to an inode that holds a value.
pub fn value_refcount(inode: &InodeImage) -> u64 {
    let base = inode.base();
    u64::from(base.i_ctime.get()) << 32 | u64::from(base.l_i_version.get())
}

/// Sets the count of attributes that refer to an inode that holds a value.
pub fn set_value_refcount(inode: &mut InodeImage, count: u64) {
    inode.base_mut().i_ctime.set((count >> 32) as u32);
    inode.base_mut().l_i_version.set(count as u32);
}
