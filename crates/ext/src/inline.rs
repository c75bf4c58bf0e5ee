//! Files with inline data: the first 60 bytes in `i_block`, the rest in the value of the attribute
//! `system.data`, which always exists. A file that outgrows its inode moves to a block and never moves back.
//! A file may be larger than what its inode holds, and ends in zeroes then: mke2fs makes such of sparse
//! files.

use std::io::{IoSlice, IoSliceMut};

use throughline_extfmt::extent::Extent;
use throughline_extfmt::features::Incompat;
use throughline_extfmt::inline_data::{INLINE_MAIN_BYTES, XATTR_NAME, XATTR_NAME_INDEX};
use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::xattr::{self, Attribute, Value};
use throughline_extfmt::{FileBlock, InodeImage};

use crate::balloc::{GROUP_CREDITS, Run};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::handle::Handle;
use crate::inode::{INODE_CREDITS, Inode, Inodes};
use crate::map::{self, INSERT_CREDITS};
use crate::regular;

/// Reads a file's bytes from `offset` on. Returns the number of bytes read.
///
/// # Errors
/// `Corrupt` if the inode of anything but a regular file holds fewer bytes than its size.
pub(crate) fn read(fs: &Inodes, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let (content, size) = content(fs, inode, &inode.raw.read())?;
    let rest = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let len = buf.len().min(rest);
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let held = content.get(from..).unwrap_or_default();
    let (front, zeroes) = buf[..len].split_at_mut(len.min(held.len()));
    front.copy_from_slice(&held[..front.len()]);
    zeroes.fill(0);
    Ok(len)
}

/// As [`read`], into several buffers.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_vectored(
    fs: &Data,
    inode: &Inode,
    offset: u64,
    bufs: &mut [IoSliceMut<'_>],
) -> Result<usize> {
    let mut done = 0;
    for buf in bufs {
        let len = read(fs, inode, offset.saturating_add(done as u64), buf)?;
        done += len;
        if len < buf.len() {
            break;
        }
    }
    Ok(done)
}

/// Writes into the inode if the result fits; `None` if the file must move to a block first. The I/O lock is
/// held exclusively.
///
/// # Errors
/// As [`read`]; errors of the journal.
pub(crate) fn write(
    fs: &Inodes,
    inode: &Inode,
    offset: u64,
    bufs: &[IoSlice<'_>],
) -> Result<Option<usize>> {
    let (mut content, size) = content(fs, inode, &inode.raw.read())?;
    if size > content.len() as u64 {
        return Ok(None);
    }
    let len: usize = bufs.iter().map(|b| b.len()).sum();
    let Some((from, end)) = usize::try_from(offset)
        .ok()
        .and_then(|from| Some((from, from.checked_add(len)?)))
    else {
        return Ok(None);
    };
    if end > usize::from(fs.geo.inode_bytes) {
        return Ok(None);
    }
    content.resize(content.len().max(end), 0);
    let mut at = from;
    for buf in bufs {
        content[at..at + buf.len()].copy_from_slice(buf);
        at += buf.len();
    }
    Ok(replace(fs, inode, &content)?.then_some(len))
}

/// Changes the file's size to `size` bytes if that fits. Returns whether it did. The I/O lock is held
/// exclusively.
///
/// # Errors
/// As [`write`].
pub(crate) fn resize(fs: &Inodes, inode: &Inode, size: u64) -> Result<bool> {
    let (mut content, _) = content(fs, inode, &inode.raw.read())?;
    if size > fs.geo.inode_bytes.into() {
        return Ok(false);
    }
    content.resize(size as usize, 0);
    replace(fs, inode, &content)
}

/// Moves the file's bytes into a block. The I/O lock is held exclusively.
///
/// # Errors
/// `NoSpace`, with nothing changed; `Corrupt`; errors of the journal; device errors.
pub(crate) fn spill(fs: &Data, inode: &Inode) -> Result<()> {
    fs.with_room(|| try_spill(fs, inode))
}

fn try_spill(fs: &Data, inode: &Inode) -> Result<()> {
    let (content, _) = content(fs, inode, &inode.raw.read())?;
    let _held = fs.hold_clusters(inode, u64::from(!content.is_empty()), 0)?;
    let run = if content.is_empty() {
        None
    } else {
        Some(write_block(fs, inode, &content)?)
    };
    let before = inode.image();
    let done = fs.transact(INSERT_CREDITS + GROUP_CREDITS + INODE_CREDITS, |h| {
        let _map = inode.map_exclusive();
        let done = enter_block(fs, h, inode, run);
        if done.is_err() {
            put_back(fs, inode, &before);
        }
        done
    });
    if let (Err(error), Some(run)) = (&done, run)
        && error.changed_nothing()
    {
        fs.release(run);
    }
    done
}

/// Restores the inline data from `before`; concurrent changes of other fields are kept.
pub(crate) fn put_back(fs: &Inodes, inode: &Inode, before: &InodeImage) {
    let mut raw = inode.raw.write();
    let body = InodeFlags::INLINE_DATA | InodeFlags::EXTENTS;
    let flags = (raw.flags() - body) | (before.flags() & body);
    raw.set_flags(flags);
    *raw.i_block_mut() = *before.i_block();
    raw.xattr_area_mut().copy_from_slice(before.xattr_area());
    drop(raw);
    map::set_size(inode, before.size_bytes(&fs.geo).unwrap_or(0));
}

/// Claims a block and writes the bytes to it.
fn write_block(fs: &Inodes, inode: &Inode, content: &[u8]) -> Result<Run> {
    let run = fs.claim(fs.goal_for(inode), 1)?;
    let mut block = vec![0; fs.geo.block_bytes as usize];
    block[..content.len()].copy_from_slice(content);
    if let Err(error) = fs
        .disk
        .write_at(run.start.0 << fs.geo.block_log, &block, false)
    {
        fs.release(run);
        return Err(error.into());
    }
    Ok(run)
}

/// Converts the inode to a mapping of that one block, or an empty mapping.
fn enter_block(fs: &Inodes, h: &mut Handle<'_>, inode: &Inode, run: Option<Run>) -> Result<()> {
    let size = map::size(fs, inode)?;
    {
        let mut raw = inode.raw.write();
        let (_, others) = attributes(&raw).map_err(|e| e.in_inode(inode.ino))?;
        if !xattr::write_ibody(raw.xattr_area_mut(), &others) {
            return Err(
                Error::corrupt("attributes do not fit where they came from").in_inode(inode.ino)
            );
        }
        let mut flags = raw.flags() - InodeFlags::INLINE_DATA;
        let extents = fs.geo.incompat.contains(Incompat::EXTENTS);
        flags.set(InodeFlags::EXTENTS, extents);
        raw.set_flags(flags);
        *raw.i_block_mut() = if extents {
            map::extents::empty_root()
        } else {
            [0; INLINE_MAIN_BYTES]
        };
    }
    if let Some(run) = run {
        let extent = Extent {
            block: FileBlock(0),
            len: 1,
            start: run.start,
            unwritten: false,
        };
        let gained = map::enter(fs, h, inode, extent, None)?;
        gained.map_or(Ok(()), |run| fs.confirm(h, run))?;
    }
    map::set_size(inode, size);
    regular::touch(fs, inode);
    fs.store(h, inode)
}

/// The file's bytes, as far as the inode holds them, and its size. What lies between reads as zeroes.
fn content(fs: &Inodes, inode: &Inode, raw: &InodeImage) -> Result<(Vec<u8>, u64)> {
    let size = raw
        .size_bytes(&fs.geo)
        .map_err(|e| Error::from(e).in_inode(inode.ino))?;
    let mut content = raw.i_block().to_vec();
    let (rest, _) = attributes(raw).map_err(|e| e.in_inode(inode.ino))?;
    content.extend_from_slice(&rest);
    match usize::try_from(size) {
        Ok(size) if size <= content.len() => content.truncate(size),
        _ if !inode.is_symlink() => {}
        _ => {
            let what = format!(
                "a target of {size} bytes with {} in its inode",
                content.len()
            );
            return Err(Error::corrupt(what).in_inode(inode.ino));
        }
    }
    Ok((content, size))
}

/// The value of `system.data`, and the other attributes in the inode.
fn attributes(raw: &InodeImage) -> Result<(Vec<u8>, Vec<Attribute>)> {
    let is_data = |a: &Attribute| a.name_index == XATTR_NAME_INDEX && a.name == XATTR_NAME;
    let (data, others): (Vec<_>, Vec<_>) = xattr::read_ibody(raw.xattr_area())?
        .into_iter()
        .partition(is_data);
    match data.into_iter().next().map(|a| a.value) {
        Some(Value::Bytes(bytes)) => Ok((bytes, others)),
        _ => Err(Error::corrupt("inline data without its attribute")),
    }
}

/// Replaces the inline data and stores the inode; `false`, with nothing changed, if it does not fit.
fn replace(fs: &Inodes, inode: &Inode, content: &[u8]) -> Result<bool> {
    let mut main = [0; INLINE_MAIN_BYTES];
    let (front, rest) = content.split_at(content.len().min(INLINE_MAIN_BYTES));
    main[..front.len()].copy_from_slice(front);
    let mut image = inode.image();
    let (_, mut list) = attributes(&image).map_err(|e| e.in_inode(inode.ino))?;
    let value = Value::Bytes(rest.to_vec());
    list.push(Attribute {
        name_index: XATTR_NAME_INDEX,
        name: XATTR_NAME.to_vec(),
        value,
    });
    if !xattr::write_ibody(image.xattr_area_mut(), &list) {
        return Ok(false);
    }
    let before = inode.image();
    let done = fs.transact(INODE_CREDITS, |h| {
        {
            let mut raw = inode.raw.write();
            raw.xattr_area_mut().copy_from_slice(image.xattr_area());
            *raw.i_block_mut() = main;
        }
        map::set_size(inode, content.len() as u64);
        regular::touch(fs, inode);
        fs.store(h, inode)
    });
    // A failed call must have changed nothing.
    done.inspect_err(|_| put_back(fs, inode, &before))?;
    Ok(true)
}
