//! Attribute blocks move, and attributes name inodes with their values.
//!
//! All users of a block are pointed to the new one, in as many transactions as they need; in between, each of
//! the two counts its own users.

use std::collections::HashSet;

use throughline_extfmt::xattr::{self as format, Attribute, Value};
use throughline_extfmt::{FsBlock, InodeNumber};

use super::settle;
use crate::balloc::GROUP_CREDITS;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::xattr::{check_block, read_block};

/// Moves the block at `at` with these users.
///
/// # Errors
/// `NoSpace`; `Corrupt`; journal errors.
pub(super) fn move_out(fs: &Fs, at: FsBlock, users: &[InodeNumber]) -> Result<()> {
    let fixed = 2 + 2 * GROUP_CREDITS;
    let most = fs.step_credits().saturating_sub(fixed).max(1);
    let mut place: Option<FsBlock> = None;
    for some in users.chunks(most as usize) {
        let new = fs.with_room(|| {
            fs.transact(fixed + some.len() as u32, |h| {
                move_users(fs, h, (at, place), some)
            })
        })?;
        place = Some(new);
    }
    Ok(())
}

/// Points some users of `old` to `new`, which is made if there is none. Frees the old one with its last user.
fn move_users(
    fs: &Fs,
    h: &mut Handle<'_>,
    (old, new): (FsBlock, Option<FsBlock>),
    some: &[InodeNumber],
) -> Result<FsBlock> {
    let seed = fs.geo.csum_seed;
    let inodes: Result<Vec<_>> = some.iter().map(|ino| fs.inode(*ino)).collect();
    let content = read_block(fs, old)?;
    let left = format::header(&content)?.h_refcount.get();
    let left = left.saturating_sub(some.len() as u32);
    fs.check_freeable(old, 1)?;
    let place = match new {
        Some(place) => {
            change_block(fs, h, place, |bytes| {
                let users = format::header(bytes).map_or(0, |header| header.h_refcount.get());
                format::set_refcount(bytes, users.saturating_add(some.len() as u32));
            })?;
            place
        }
        None => {
            let place = fs.alloc_block(h, fs.geo.first_data_block)?;
            h.create(place, |bytes| {
                bytes.copy_from_slice(&content);
                format::set_refcount(bytes, some.len() as u32);
                format::update_checksum(bytes, place, seed);
            })?;
            place
        }
    };
    drop(content);
    settle(fs, &[place])?;
    if left == 0 {
        h.forget(old);
        fs.free(h, old, 1)?;
    } else {
        change_block(fs, h, old, |bytes| format::set_refcount(bytes, left))?;
    }
    for inode in inodes? {
        inode.raw.write().set_file_acl(&fs.geo, place);
        fs.store(h, &inode)?;
    }
    Ok(place)
}

fn change_block(
    fs: &Fs,
    h: &mut Handle<'_>,
    at: FsBlock,
    change: impl FnOnce(&mut [u8]),
) -> Result<()> {
    let check = |bytes: &[u8]| check_block(fs, at, bytes);
    h.modify_checked(at, check, |bytes| {
        change(bytes);
        format::update_checksum(bytes, at, fs.geo.csum_seed);
    })
}

/// Attributes with values in inodes: those in the body of an inode, or in a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueUser {
    Body(InodeNumber),
    Block(FsBlock),
}

/// The inodes with values of an inode's attributes. Those of a block are given once: `seen` has the blocks.
pub(super) fn values(
    fs: &Fs,
    inode: &Inode,
    seen: &mut HashSet<FsBlock>,
) -> Result<Vec<(InodeNumber, ValueUser)>> {
    let mut found = Vec::new();
    let body = format::read_ibody(inode.raw.read().xattr_area());
    let body = body.map_err(|e| Error::from(e).in_inode(inode.ino))?;
    let mut add = |list: &[Attribute], user: ValueUser| {
        for attribute in list {
            if let Value::Inode { inode, .. } = attribute.value
                && !found.contains(&(inode, user))
            {
                found.push((inode, user));
            }
        }
    };
    add(&body, ValueUser::Body(inode.ino));
    let at = inode.raw.read().file_acl(&fs.geo);
    if at != FsBlock(0) && seen.insert(at) {
        add(
            &format::read_block(&read_block(fs, at)?)?,
            ValueUser::Block(at),
        );
    }
    Ok(found)
}

/// Points attributes from the inode `old` to `new` (1 credit).
pub(super) fn set_value(
    fs: &Fs,
    h: &mut Handle<'_>,
    user: &ValueUser,
    (old, new): (InodeNumber, InodeNumber),
    current: impl Fn(InodeNumber) -> InodeNumber,
) -> Result<()> {
    let point = |list: &mut [Attribute]| {
        for attribute in list {
            if let Value::Inode { inode, .. } = &mut attribute.value
                && *inode == old
            {
                *inode = new;
            }
        }
    };
    let fits = match *user {
        ValueUser::Body(ino) => {
            let inode = fs.inode(current(ino))?;
            let mut list = format::read_ibody(inode.raw.read().xattr_area())?;
            point(&mut list);
            let fits = format::write_ibody(inode.raw.write().xattr_area_mut(), &list);
            fs.store(h, &inode)?;
            fits
        }
        ValueUser::Block(at) => {
            let mut list = format::read_block(&read_block(fs, at)?)?;
            point(&mut list);
            let mut fits = false;
            change_block(fs, h, at, |bytes| fits = format::write_block(bytes, &list))?;
            fits
        }
    };
    match fits {
        true => Ok(()),
        false => Err(Error::corrupt("attributes do not fit where they came from")),
    }
}
