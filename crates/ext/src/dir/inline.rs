//! Directories inside their inode (`inline_data`): the inode number of `..`, and two regions of entries, one
//! in `i_block`, one in the value of the attribute `system.data`.
//!
//! Everything is in the inode's image: changes are made there, and the caller stores the inode. A directory
//! that no longer fits moves to a block. Its records are copied unchanged one after the other, so their order
//! and offsets stay the same.

use throughline_extfmt::dir::{self as format, DirFormat};
use throughline_extfmt::extent::NodeMut;
use throughline_extfmt::features::Incompat;
use throughline_extfmt::inline_data::{self, INLINE_MAIN_BYTES, XATTR_NAME, XATTR_NAME_INDEX};
use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::xattr::{self, Attribute, Value};
use throughline_extfmt::{Corrupt as FormatCorrupt, InodeImage, InodeNumber};

use super::entry::{DOTDOT_OFFSET, DOTS_BYTES, Found, NewEntry, Region, Spot};
use super::grow;
use super::list::{self, DirEntry};
use super::wanted::Wanted;
use crate::error::{Corrupt, Error, Result};
use crate::handle::Handle;
use crate::inode::{Inode, Inodes};
use crate::names::Names;

type Format<T> = core::result::Result<T, FormatCorrupt>;

fn format(fs: &Names) -> DirFormat {
    DirFormat::new(&fs.geo).inline()
}

fn damage(dir: &Inode, what: FormatCorrupt) -> Error {
    Error::from(what).in_inode(dir.ino)
}

fn is_data(attribute: &Attribute) -> bool {
    attribute.name_index == XATTR_NAME_INDEX && attribute.name == XATTR_NAME
}

/// The second region; empty if the attribute does not exist.
fn value(raw: &InodeImage) -> Format<Vec<u8>> {
    let data = xattr::read_ibody(raw.xattr_area())?
        .into_iter()
        .find(is_data);
    match data.map(|data| data.value) {
        None => Ok(Vec::new()),
        Some(Value::Bytes(bytes)) => Ok(bytes),
        Some(Value::Inode { .. }) => Err(FormatCorrupt::new("inline data in another inode")),
    }
}

/// Writes the second region, which may have grown; `false` if there is no room.
fn set_value(raw: &mut InodeImage, value: Vec<u8>) -> Format<bool> {
    let mut list = xattr::read_ibody(raw.xattr_area())?;
    let len = value.len();
    match list.iter_mut().find(|attribute| is_data(attribute)) {
        Some(data) => data.value = Value::Bytes(value),
        None => list.push(Attribute {
            name_index: XATTR_NAME_INDEX,
            name: XATTR_NAME.to_vec(),
            value: Value::Bytes(value),
        }),
    }
    let fits = xattr::write_ibody(raw.xattr_area_mut(), &list);
    if fits {
        raw.set_size_bytes((INLINE_MAIN_BYTES + len) as u64);
    }
    Ok(fits)
}

/// Both regions.
fn regions(fs: &Inodes, dir: &Inode) -> Result<[(Region, Vec<u8>); 2]> {
    let raw = dir.raw.read();
    let value = value(&raw).map_err(|what| damage(dir, what))?;
    let size = raw.size_bytes(&fs.geo).map_err(|what| damage(dir, what))?;
    if size != (INLINE_MAIN_BYTES + value.len()) as u64 {
        let what = format!(
            "an inline directory of {size} bytes, not {INLINE_MAIN_BYTES} and {}",
            value.len()
        );
        return Err(Error::corrupt(what).in_inode(dir.ino));
    }
    Ok([
        (
            Region::Main,
            inline_data::dir_region(raw.i_block()).to_vec(),
        ),
        (Region::Value, value),
    ])
}

/// The readable parts of both regions, and the damage found.
fn readable_regions(fs: &Inodes, dir: &Inode) -> ([(Region, Vec<u8>); 2], Vec<Corrupt>) {
    let damage = match regions(fs, dir) {
        Ok(regions) => return (regions, Vec::new()),
        Err(error) => fs.note_damage(Err(error)),
    };
    let raw = dir.raw.read();
    let left = [
        (
            Region::Main,
            inline_data::dir_region(raw.i_block()).to_vec(),
        ),
        (Region::Value, value(&raw).unwrap_or_default()),
    ];
    (left, corrupt_places(damage))
}

fn corrupt_places(damage: Result<()>) -> Vec<Corrupt> {
    match damage {
        Err(Error::Corrupt(damage)) => vec![damage],
        _ => Vec::new(),
    }
}

/// The readable names, `.` and `..` first, each with the offset that it would have in a block, where those
/// two are records; and the damage found.
pub(super) fn readable_entries(fs: &Names, dir: &Inode) -> (Vec<DirEntry>, Vec<Corrupt>) {
    let format = format(fs);
    let (regions, mut damaged) = readable_regions(fs, dir);
    let mut all = dots(fs, dir);
    let mut start = DOTS_BYTES;
    for (_, bytes) in regions {
        for found in format::salvage(&bytes, &format) {
            match found {
                Ok(found) => all.push(list::entry(&found, (start + found.offset) as u64)),
                Err(what) => damaged = corrupt_places(fs.note_damage(Err(damage(dir, what)))),
            }
        }
        start += bytes.len();
    }
    (all, damaged)
}

/// As [`find`], reading around damage.
pub(super) fn find_readable(fs: &Names, dir: &Inode, name: &Wanted<'_>) -> Option<Found> {
    let format = format(fs);
    readable_regions(fs, dir)
        .0
        .iter()
        .find_map(|(region, bytes)| {
            let mut left = format::salvage(bytes, &format).flatten();
            let entry = left.find(|entry| name.is(entry.name))?;
            Some(Found {
                ino: entry.inode,
                at: Spot::Inline(*region, entry.offset),
            })
        })
}

/// Finds a name.
pub(super) fn find(fs: &Names, dir: &Inode, name: &Wanted<'_>) -> Result<Option<Found>> {
    let format = format(fs);
    for (region, bytes) in regions(fs, dir)? {
        let found = match name.is_exact() {
            true => format::find(&bytes, &format, name.name),
            false => format::check(&bytes, &format)
                .map(|()| format::find_where(&bytes, &format, |other| name.is(other))),
        };
        let found = found.map_err(|what| damage(dir, what))?;
        if let Some(entry) = found {
            return Ok(Some(Found {
                ino: entry.inode,
                at: Spot::Inline(region, entry.offset),
            }));
        }
    }
    Ok(None)
}

/// `.` and `..`.
fn dots(fs: &Names, dir: &Inode) -> Vec<DirEntry> {
    let format = format(fs);
    let dot = |name, inode, offset| {
        let file_type = if format.filetype {
            throughline_extfmt::inode::FileType::Directory.dir_code()
        } else {
            0
        };
        list::entry(
            &format::DirEntry {
                offset: 0,
                rec_len: 0,
                inode,
                name,
                file_type,
            },
            offset,
        )
    };
    vec![
        dot(b".".as_slice(), dir.ino, 0),
        dot(b"..", parent(dir), DOTDOT_OFFSET as u64),
    ]
}

/// Whether the directory has no names but `.` and `..`.
pub(super) fn is_empty(fs: &Names, dir: &Inode) -> Result<bool> {
    let format = format(fs);
    for (_, bytes) in regions(fs, dir)? {
        for found in format::entries(&bytes, &format) {
            if found.map_err(|what| damage(dir, what))?.is_used() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The inode of `..`.
pub(super) fn parent(dir: &Inode) -> InodeNumber {
    inline_data::parent(dir.raw.read().i_block())
}

/// Points `..` to another directory.
pub(super) fn set_parent(dir: &Inode, parent: InodeNumber) {
    inline_data::set_parent(dir.raw.write().i_block_mut(), parent);
}

/// Changes a region.
pub(super) fn change<R>(
    fs: &Names,
    dir: &Inode,
    region: Region,
    change: impl FnOnce(&mut [u8], &DirFormat) -> Format<R>,
) -> Result<R> {
    let format = format(fs);
    let mut raw = dir.raw.write();
    let changed = match region {
        Region::Main => change(inline_data::dir_region_mut(raw.i_block_mut()), &format),
        Region::Value => value(&raw).and_then(|mut bytes| {
            let result = change(&mut bytes, &format)?;
            if set_value(&mut raw, bytes)? {
                return Ok(result);
            }
            Err(FormatCorrupt::new(
                "inline data no longer fits where it was",
            ))
        }),
    };
    changed.map_err(|what| damage(dir, what))
}

/// Adds a name; `false` if the inode has no room for it.
pub(super) fn insert(fs: &Names, dir: &Inode, entry: &NewEntry<'_>) -> Result<bool> {
    let add = |bytes: &mut [u8], format: &DirFormat| {
        let new = (entry.name, entry.ino, entry.code);
        Ok(format::insert(bytes, format, 0, new)?.is_some())
    };
    if change(fs, dir, Region::Main, add)? {
        return Ok(true);
    }
    grow_value(fs, dir, entry.len_bytes())?;
    change(fs, dir, Region::Value, add)
}

/// Grows the second region to the maximum that the inode allows, if that adds at least `wanted` bytes.
fn grow_value(fs: &Names, dir: &Inode, wanted: usize) -> Result<()> {
    let mut raw = dir.raw.write();
    let grown = value(&raw).and_then(|mut bytes| {
        let mut others = xattr::read_ibody(raw.xattr_area())?;
        others.retain(|attribute| !is_data(attribute));
        let room = xattr::ibody_room(raw.xattr_area().len(), &others, XATTR_NAME).unwrap_or(0);
        let old = bytes.len();
        if room < old.saturating_add(wanted) {
            return Ok(());
        }
        bytes.resize(room, 0);
        format::init(bytes.get_mut(old..).unwrap_or_default(), &format(fs));
        set_value(&mut raw, bytes).map(drop)
    });
    grown.map_err(|what| damage(dir, what))
}

/// Makes a new inode an empty inline directory; `false` if the volume does not support it or it does not fit.
pub(super) fn init(fs: &Names, dir: &Inode, parent: InodeNumber) -> Result<bool> {
    let mut raw = dir.raw.write();
    if !fs.geo.incompat.contains(Incompat::INLINE_DATA) {
        return Ok(false);
    }
    if !set_value(&mut raw, Vec::new()).map_err(|what| damage(dir, what))? {
        return Ok(false);
    }
    let flags = (raw.flags() - InodeFlags::EXTENTS) | InodeFlags::INLINE_DATA;
    raw.set_flags(flags);
    let area = raw.i_block_mut();
    area.fill(0);
    inline_data::set_parent(area, parent);
    format::init(inline_data::dir_region_mut(area), &format(fs));
    Ok(true)
}

/// Moves the entries to a block.
///
/// # Errors
/// `NoSpace`, with nothing changed.
pub(super) fn to_block(fs: &Names, h: &mut Handle<'_>, dir: &Inode) -> Result<()> {
    let parent = parent(dir);
    let records = regions(fs, dir)?.map(|(_, bytes)| bytes).concat();
    format::check(&records, &format(fs)).map_err(|what| damage(dir, what))?;
    let before = dir.image();
    leave_inode(fs, dir)?;
    let moved = grow::first_block(fs, h, dir, parent, &records);
    if moved.is_err() {
        crate::inline::put_back(fs, dir, &before);
    }
    moved
}

/// Switches the inode from inline data to an empty block mapping.
fn leave_inode(fs: &Inodes, dir: &Inode) -> Result<()> {
    let mut raw = dir.raw.write();
    let mut list = xattr::read_ibody(raw.xattr_area()).map_err(|what| damage(dir, what))?;
    list.retain(|attribute| !is_data(attribute));
    // The list fitted before, so it fits with one entry less.
    let _ = xattr::write_ibody(raw.xattr_area_mut(), &list);
    let mut flags = raw.flags() - InodeFlags::INLINE_DATA;
    raw.i_block_mut().fill(0);
    if fs.geo.incompat.contains(Incompat::EXTENTS) {
        flags |= InodeFlags::EXTENTS;
        let _ = NodeMut::init(raw.i_block_mut(), 0);
    }
    raw.set_flags(flags);
    raw.set_size_bytes(0);
    Ok(())
}
