//! Directories: finding, adding, changing and listing names.
//!
//! A directory has one of three formats, and grows from one to the next:
//!
//! ```text
//! inline   entries in the inode              (inline_data; until they no longer fit)
//! linear   entries in blocks, in any order   (one block; without dir_index any number)
//! hashed   leaves of entries, found through a tree of name hashes in the first block and below
//! ```
//!
//! A directory with the flag `casefold` compares and hashes names in their folded form, and keeps them as
//! they were created ([`throughline_extfmt::casefold`]).
//!
//! Invariants:
//! - The caller holds the directory's lock, exclusively for changes. The result of a lookup ([`Found`],
//!   [`Room`]) is valid until the lock is released or the directory is changed.
//! - The names and attributes of inline directories are in the inode's image, and so is the mapping: after
//!   any change, the caller stores the inode.
//! - Every growth step leaves a sound directory; one that fails with no space changes nothing.
//! - Entries never move while a directory is linear. If it is hashed, or will be when it grows, it is listed
//!   in hash order. So a listing resumed at a position misses nothing, whatever was added or removed.

mod block;
mod check;
mod entry;
mod grow;
pub(crate) mod hash;
mod htree;
pub(crate) mod index;
mod inline;
mod linear;
mod list;
pub(crate) mod nokey;
mod salvage;
mod split;
mod wanted;

use throughline_extfmt::inode::FileType;
use throughline_extfmt::{InodeNumber, dir as format};

use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::Inode;
use crate::map;
use crate::names::Names;

pub(crate) use entry::{Found, Room};
pub(crate) use grow::INSERT_CREDITS;
pub(crate) use list::list;
pub use list::{DirEntry, Listing, ReadDir};

use block::DirBlocks;
use entry::{NewEntry, Shape, Spot, index_damaged, is_removed, shape};
use wanted::Wanted;

/// Finds a name other than `.` and `..`; a removed directory has none. Damage is read around: the result is
/// for reading only, and [`lookup_to_change`] is for everything else.
pub(crate) fn lookup(fs: &Names, dir: &Inode, name: &[u8]) -> Result<Option<Found>> {
    if is_removed(fs, dir) {
        return Ok(None);
    }
    let wanted = Wanted::new(fs, dir, name);
    if shape(fs, dir) == Shape::Inline {
        return Ok(inline::find_readable(fs, dir, &wanted));
    }
    let is_hashed = shape(fs, dir) == Shape::Hashed;
    let known = fs.around_damage(lookup_to_change(fs, dir, name))?;
    match known {
        Some(Some(found)) => return Ok(Some(found)),
        // Another implementation may have left damage that hides a name. Checking for that at every new name
        // would cost too much.
        Some(None) if !fs.is_as_found() => return Ok(None),
        None if is_hashed => dir.index.set_damaged(),
        _ => {}
    }
    let blocks = DirBlocks::to_read(fs, dir)?;
    let may_be_left = known.is_none() || !blocks.whole || is_hashed && !index_is_sound(fs, dir)?;
    if !may_be_left {
        return Ok(None);
    }
    match (blocks.find_readable(&wanted)?, blocks.take_skipped().pop()) {
        // The name may have been in a part that cannot be read.
        (None, Some(damage)) => Err(damage.into()),
        (found, _) => Ok(found),
    }
}

/// Checks the whole index of a hashed directory once. Returns whether it leads to all names.
fn index_is_sound(fs: &Names, dir: &Inode) -> Result<bool> {
    if dir.index.is_unknown() {
        let check = || match htree::Tree::open(&DirBlocks::new(fs, dir)?)? {
            Some(tree) => tree.check(),
            None => Ok(()),
        };
        match fs.around_damage(check())? {
            Some(()) => dir.index.set_sound(),
            None => dir.index.set_damaged(),
        }
    }
    Ok(!dir.index.is_damaged())
}

/// As [`lookup`], but does not read around damage.
///
/// # Errors
/// `Corrupt` for any damage found.
pub(crate) fn lookup_to_change(fs: &Names, dir: &Inode, name: &[u8]) -> Result<Option<Found>> {
    if is_removed(fs, dir) {
        return Ok(None);
    }
    let name = &Wanted::new(fs, dir, name);
    match shape(fs, dir) {
        Shape::Inline => inline::find(fs, dir, name),
        Shape::Linear => linear::find(&DirBlocks::new(fs, dir)?, name),
        Shape::Hashed => {
            check_index(dir)?;
            let blocks = DirBlocks::new(fs, dir)?;
            match htree::Tree::open(&blocks)? {
                Some(tree) => tree.find(name),
                // An unsupported hash: the names are in the leaves all the same.
                None => linear::find(&blocks, name),
            }
        }
    }
}

/// Fails if the index is known to be damaged.
fn check_index(dir: &Inode) -> Result<()> {
    if dir.index.is_damaged() {
        return Err(index_damaged(dir).into());
    }
    Ok(())
}

/// Where `name` can be added. It must not exist.
///
/// # Errors
/// `Exists`; `Invalid` for a name that the directory does not take; `Quota` if the directory must grow and
/// may not; `Unsupported` for an unsupported hash version.
pub(crate) fn room(fs: &Names, dir: &Inode, name: &[u8]) -> Result<Room> {
    let room = find_room(fs, dir, name)?;
    if matches!(room, Room::None) {
        // Refused before anything changes.
        drop(map::hold::growth(fs, dir)?);
    }
    Ok(room)
}

fn find_room(fs: &Names, dir: &Inode, name: &[u8]) -> Result<Room> {
    let name = &Wanted::new(fs, dir, name);
    name.check_new()?;
    match shape(fs, dir) {
        Shape::Inline => match inline::find(fs, dir, name)? {
            Some(_) => Err(Reason::Exists.into()),
            None => Ok(Room::Inline),
        },
        Shape::Linear => linear::room(&DirBlocks::new(fs, dir)?, name),
        Shape::Hashed => {
            check_index(dir)?;
            htree::Tree::open_to_change(&DirBlocks::new(fs, dir)?)?.room(name)
        }
    }
}

/// Adds a name at `room`, growing the directory if necessary.
///
/// # Errors
/// `NoSpace`: the directory is unchanged, or has grown and is sound.
pub(crate) fn insert(
    fs: &Names,
    h: &mut Handle<'_>,
    dir: &Inode,
    room: Room,
    name: &[u8],
    ino: InodeNumber,
    file_type: Option<FileType>,
) -> Result<()> {
    let entry = NewEntry {
        name,
        ino,
        code: file_type.map_or(0, FileType::dir_code),
    };
    dir.raw.count_edit();
    match room {
        Room::Leaf(block, offset) => {
            let blocks = DirBlocks::new(fs, dir)?;
            grow::drop_stale_index(&blocks)?;
            if blocks.insert(h, (block, offset), &entry)? {
                return Ok(());
            }
            Err(Error::corrupt("the room for a name disappeared")
                .in_inode(dir.ino)
                .in_block(block))
        }
        Room::Inline => {
            if inline::insert(fs, dir, &entry)? {
                return Ok(());
            }
            inline::to_block(fs, h, dir)?;
            grow::insert(fs, h, dir, &entry)
        }
        Room::None => grow::insert(fs, h, dir, &entry),
    }
}

/// Removes a name.
pub(crate) fn remove(fs: &Names, h: &mut Handle<'_>, dir: &Inode, found: &Found) -> Result<()> {
    dir.raw.count_edit();
    match found.at {
        Spot::Inline(region, offset) => inline::change(fs, dir, region, |bytes, format| {
            format::remove(bytes, format, offset)
        }),
        Spot::Leaf(block, offset) => {
            DirBlocks::new(fs, dir)?.modify_leaf(h, block, |bytes, format| {
                format::remove(bytes, format, offset)
            })
        }
    }
}

/// Points a name to another inode.
pub(crate) fn replace(
    fs: &Names,
    h: &mut Handle<'_>,
    dir: &Inode,
    found: &Found,
    ino: InodeNumber,
    file_type: Option<FileType>,
) -> Result<()> {
    let code = file_type.map_or(0, FileType::dir_code);
    dir.raw.count_edit();
    match found.at {
        Spot::Inline(region, offset) => inline::change(fs, dir, region, |bytes, format| {
            format::set_inode(bytes, format, offset, ino, code)
        }),
        Spot::Leaf(block, offset) => {
            DirBlocks::new(fs, dir)?.modify_leaf(h, block, |bytes, format| {
                format::set_inode(bytes, format, offset, ino, code)
            })
        }
    }
}

/// The inode of `..`.
///
/// # Errors
/// `NotFound` for a directory that was removed; `Corrupt`; device errors.
pub(crate) fn parent(fs: &Names, dir: &Inode) -> Result<InodeNumber> {
    if is_removed(fs, dir) {
        return Err(Reason::NotFound.into());
    }
    match shape(fs, dir) {
        Shape::Inline => Ok(inline::parent(dir)),
        _ => Ok(DirBlocks::new(fs, dir)?.dotdot()?.0),
    }
}

/// Points `..` to another directory.
pub(crate) fn set_parent(
    fs: &Names,
    h: &mut Handle<'_>,
    dir: &Inode,
    parent: InodeNumber,
) -> Result<()> {
    if shape(fs, dir) == Shape::Inline {
        inline::set_parent(dir, parent);
        return Ok(());
    }
    let blocks = DirBlocks::new(fs, dir)?;
    blocks.set_dotdot(h, parent)
}

/// Points `.` to the directory's own number, which has changed.
pub(crate) fn set_own(fs: &Names, h: &mut Handle<'_>, dir: &Inode) -> Result<()> {
    match shape(fs, dir) {
        Shape::Inline => Ok(()),
        _ => DirBlocks::new(fs, dir)?.set_dot(h),
    }
}

/// Whether the directory has no names but `.` and `..`.
pub(crate) fn is_empty(fs: &Names, dir: &Inode) -> Result<bool> {
    match shape(fs, dir) {
        Shape::Inline => inline::is_empty(fs, dir),
        _ => linear::is_empty(&DirBlocks::new(fs, dir)?),
    }
}

/// Makes a new inode an empty directory in `parent`.
///
/// # Errors
/// `NoSpace`, with nothing changed.
pub(crate) fn init(fs: &Names, h: &mut Handle<'_>, dir: &Inode, parent: InodeNumber) -> Result<()> {
    if inline::init(fs, dir, parent)? {
        return Ok(());
    }
    grow::first_block(fs, h, dir, parent, &[])
}
