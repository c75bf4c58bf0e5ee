//! Writing the attributes of an inode's area or of a block, always the whole list.

use std::mem::size_of;

use zerocopy::IntoBytes;

use super::sums::{block_hash, entry_hash};
use super::{
    Attribute, BLOCK, IBODY, Shape, Value, XATTR_MAGIC, XattrEntry, XattrHeader, header, padded,
};

/// Whether the list fits an area of `len` bytes.
pub(super) fn fits(list: &[Attribute], len: usize, shape: Shape) -> bool {
    let used = list
        .iter()
        .fold(shape.entries.saturating_add(4), |sum, attribute| {
            sum.saturating_add(attribute.entry_bytes())
                .saturating_add(attribute.value_bytes())
        });
    used <= len
}

/// Writes entries and values after the header, which the caller writes.
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

/// Writes the whole list into an inode's area; an empty list removes the header. `false`, with
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

/// Writes the whole list into a block, in the order that the format requires. Keeps the
/// reference count if the block already has a header, otherwise sets it to 1. `false`, with
/// nothing changed, if it does not fit. Update the checksum with
/// [`update_checksum`](super::update_checksum).
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

/// Whether the list fits an inode's area of `len` bytes.
pub fn ibody_fits(list: &[Attribute], len: usize) -> bool {
    fits(list, len, IBODY)
}

/// Whether the list fits a block of `len` bytes whose first `kept` bytes have no values.
pub fn block_fits(list: &[Attribute], len: usize, kept: usize) -> bool {
    let values = list.iter().fold(0usize, |sum, attribute| {
        sum.saturating_add(attribute.value_bytes())
    });
    fits(list, len, BLOCK) && values.saturating_add(kept) <= len
}

/// Largest value (bytes, a multiple of 4) that an attribute with this name can have in an inode's
/// area together with the others; `None` if not even its entry fits.
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
