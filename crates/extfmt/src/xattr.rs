//! Extended attributes: a list of entries from the front and values from the back, in the
//! inode after its fields, and in a block that inodes may share.
//!
//! ```text
//! inode | magic 4   | entry | entry | 0000 | free ... | value | value |   offsets from the first entry
//! block | header 32 | entry | entry | 0000 | free ... | value | value |   offsets from the block's start
//! ```
//! A value may instead be the content of a separate inode (`ea_inode`). Reading checks that every
//! entry and value is inside the area; a change rewrites the whole area from the list.

mod sums;
mod write;

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::ensure;
use crate::inode::InodeImage;
use crate::units::InodeNumber;
use crate::{Corrupt, Result};

pub use sums::{entry_hash, update_checksum, verify_checksum};
pub use write::{block_fits, ibody_fits, ibody_room, write_block, write_ibody};

/// `h_magic` of both headers.
pub const XATTR_MAGIC: u32 = 0xEA02_0000;
/// The maximum number of inodes that share a block.
pub const REFCOUNT_MAX: u32 = 1024;
/// Largest value in a separate inode, in bytes.
pub const VALUE_MAX: u32 = 1 << 24;
/// `e_name_index` of "user.".
pub const INDEX_USER: u8 = 1;
/// `e_name_index` of "system.posix_acl_access".
pub const INDEX_ACL_ACCESS: u8 = 2;
/// `e_name_index` of "system.posix_acl_default".
pub const INDEX_ACL_DEFAULT: u8 = 3;
/// `e_name_index` of "trusted.".
pub const INDEX_TRUSTED: u8 = 4;
/// `e_name_index` of "security.".
pub const INDEX_SECURITY: u8 = 6;
/// `e_name_index` of "system.".
pub const INDEX_SYSTEM: u8 = 7;

/// Prefixes by `e_name_index`; some are whole names.
const PREFIXES: [(u8, &str); 8] = [
    (INDEX_USER, "user."),
    (INDEX_ACL_ACCESS, "system.posix_acl_access"),
    (INDEX_ACL_DEFAULT, "system.posix_acl_default"),
    (INDEX_TRUSTED, "trusted."),
    (INDEX_SECURITY, "security."),
    (8, "system.richacl"),
    (INDEX_SYSTEM, "system."),
    (10, "gnu."),
];

/// Header of a block of attributes.
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

/// Header of attributes in an inode.
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

/// A value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// In the area.
    Bytes(Vec<u8>),
    /// In a separate inode.
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
    /// The name after the prefix: 0 to 255 bytes.
    pub name: Vec<u8>,
    /// The value.
    pub value: Value,
}

impl Attribute {
    /// The name with its prefix; `None` for an unknown index.
    pub fn full_name(&self) -> Option<Vec<u8>> {
        let (_, prefix) = PREFIXES
            .iter()
            .find(|(index, _)| *index == self.name_index)?;
        Some([prefix.as_bytes(), &self.name].concat())
    }

    /// Whether its full name is `name`.
    pub fn is_named(&self, index: u8, name: &[u8]) -> bool {
        self.name_index == index && self.name == name
    }

    /// Bytes of the entry.
    fn entry_bytes(&self) -> usize {
        size_of::<XattrEntry>().saturating_add(padded(self.name.len()))
    }

    /// Bytes of the value in the area, a multiple of 4.
    pub fn value_bytes(&self) -> usize {
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

/// The start of the entries in an area, the base of value offsets, and whether it is a block.
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
    if has_list(area) {
        read(area, IBODY)
    } else {
        Ok(Vec::new())
    }
}

/// Whether an inode's area has a list of attributes.
pub fn has_list(area: &[u8]) -> bool {
    magic(area) == Some(XATTR_MAGIC)
}

/// Whether an inode's area has an attribute. Copies nothing.
pub fn has_ibody(area: &[u8], index: u8, name: &[u8]) -> Result<bool> {
    if !has_list(area) {
        return Ok(false);
    }
    let mut offset = IBODY.entries;
    while let Some(found) = entry_at(area, offset)? {
        if found.entry.e_name_index == index && found.name == name {
            return Ok(true);
        }
        offset = found.end;
    }
    Ok(false)
}

/// Whether two blocks hold the same list with the same layout, regardless of reference count and checksum.
pub fn is_same_list(one: &[u8], other: &[u8]) -> bool {
    one.len() > BLOCK.entries && one.get(BLOCK.entries..) == other.get(BLOCK.entries..)
}

/// The attributes in a block. Does not check its checksum: [`verify_checksum`] does.
pub fn read_block(block: &[u8]) -> Result<Vec<Attribute>> {
    header(block)?;
    read(block, BLOCK)
}

/// The header of a block, with checks of the magic number and of `h_blocks` = 1.
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

/// An entry of a list.
struct Entry<'a> {
    entry: &'a XattrEntry,
    name: &'a [u8],
    /// The offset of the next one.
    end: usize,
}

impl Entry<'_> {
    /// The attribute, and the offset of its value in the area.
    fn attribute(&self, area: &[u8], shape: Shape) -> Result<(Attribute, Option<usize>)> {
        let (value, start) = read_value(area, shape, self.entry)?;
        let attribute = Attribute {
            name_index: self.entry.e_name_index,
            name: self.name.to_vec(),
            value,
        };
        Ok((attribute, start))
    }
}

/// The entry at an offset of an area; `None` at the end of the list.
fn entry_at(area: &[u8], offset: usize) -> Result<Option<Entry<'_>>> {
    let rest = area.get(offset..).unwrap_or_default();
    if magic(rest) == Some(0) {
        return Ok(None);
    }
    let (entry, after) = XattrEntry::ref_from_prefix(rest)
        .map_err(|_| Corrupt::new("list of attributes has no end"))?;
    let name = after.get(..usize::from(entry.e_name_len));
    let name = name.ok_or_else(|| Corrupt::new("attribute name is cut short"))?;
    // Without a value, such an entry would read as the end of the list.
    ensure!(
        entry.e_name_index != 0 || !name.is_empty(),
        "attribute has no name"
    );
    let len = size_of::<XattrEntry>().saturating_add(padded(name.len()));
    Ok(Some(Entry {
        entry,
        name,
        end: offset.saturating_add(len),
    }))
}

/// Reads an area with a known header. Entries have at least 16 bytes, so there are
/// at most 4096 of them. Overlapping values are refused, so all values together fit the area.
fn read(area: &[u8], shape: Shape) -> Result<Vec<Attribute>> {
    let mut list = Vec::new();
    let mut offset = shape.entries;
    let mut value_bytes = 0usize;
    let mut lowest = area.len();
    while let Some(found) = entry_at(area, offset)? {
        let (attribute, start) = found.attribute(area, shape)?;
        offset = found.end;
        value_bytes = value_bytes.saturating_add(attribute.value_bytes());
        lowest = lowest.min(start.unwrap_or(lowest));
        ensure!(value_bytes <= area.len(), "attribute values overlap");
        list.push(attribute);
    }
    ensure!(
        offset.saturating_add(4) <= lowest && write::fits(&list, area.len(), shape),
        "attribute values overlap"
    );
    Ok(list)
}

/// The value of an entry, and its offset in the area.
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

/// Sets `h_refcount` of a block; update the checksum with [`update_checksum`].
pub fn set_refcount(block: &mut [u8], refcount: u32) {
    if let Ok((header, _)) = XattrHeader::mut_from_prefix(block) {
        header.h_refcount.set(refcount);
    }
}

/// The number of attributes that refer to a value inode.
pub fn value_refcount(inode: &InodeImage) -> u64 {
    let base = inode.base();
    u64::from(base.i_ctime.get()) << 32 | u64::from(base.l_i_version.get())
}

/// Sets the number of attributes that refer to a value inode.
pub fn set_value_refcount(inode: &mut InodeImage, count: u64) {
    inode.base_mut().i_ctime.set((count >> 32) as u32);
    inode.base_mut().l_i_version.set(count as u32);
}
