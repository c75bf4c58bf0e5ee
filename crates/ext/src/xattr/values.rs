//! Attribute values in separate inodes.
//!
//! Such an inode counts the attributes that use it, and stores the value's hash in its access time field. A
//! new one is an unnamed orphan until the transaction that adds the attribute: if the operation stops before,
//! it is freed like any orphan. An operation that is about to use one holds it open, so that it is not freed.

use std::sync::Arc;

use throughline_extfmt::checksum::{CRC32C_INIT, crc32c};
use throughline_extfmt::features::Incompat;
use throughline_extfmt::inode::{FileType, InodeFlags, Time};
use throughline_extfmt::time::Timestamp;
use throughline_extfmt::xattr::{self as format, Attribute, Value};
use throughline_extfmt::{FileBlock, InodeNumber};

use crate::attrs::Attrs;
use crate::balloc::GROUP_CREDITS;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::{Inode, Inodes};
use crate::map::{self, INSERT_CREDITS};
use crate::orphan::{self, ORPHAN_CREDITS};

use super::Key;
use super::shared::Known;

/// Blocks that changing a value's count may touch: its inode and its orphan record.
pub(super) const COUNT_CREDITS: u32 = 1 + ORPHAN_CREDITS;

/// A value in an inode, held open until [`Pinned::end`].
#[must_use]
pub(super) struct Pinned {
    inode: Arc<Inode>,
    size: u32,
    hash: u32,
    /// Newly created; it has no other users yet.
    fresh: bool,
}

impl Pinned {
    /// The attribute that refers to the value.
    pub(super) fn attribute(&self, key: &Key<'_>) -> Attribute {
        Attribute {
            name_index: key.index,
            name: key.name.to_vec(),
            value: Value::Inode {
                inode: self.inode.ino,
                size: self.size,
                hash: format::entry_hash(key.name, &self.hash.to_le_bytes()),
            },
        }
    }

    /// Whether its last user dropped it meanwhile: it is no longer a value.
    pub(super) fn is_gone(&self) -> bool {
        !self.fresh && self.inode.raw.read().links_count() == 0
    }

    /// Adds a user.
    pub(super) fn adopt(&self, fs: &Attrs, h: &mut Handle<'_>, known: &mut Known) -> Result<()> {
        add_user(fs, h, &self.inode)?;
        known.add_value(self.hash, self.inode.ino);
        Ok(())
    }

    /// Releases the hold.
    pub(super) fn end(self, fs: &Attrs) -> Result<()> {
        fs.close_inode(&self.inode)
    }
}

/// An inode with this value: an existing one if it may be `shared`, or a new one near `near`.
///
/// # Errors
/// `NoSpace`, with nothing left behind; journal and device errors.
pub(super) fn obtain(
    fs: &Attrs,
    near: &Inode,
    owner: (u32, u32),
    value: &[u8],
    shared: bool,
) -> Result<Pinned> {
    let hash = crc32c(seed(fs), value);
    if shared && let Some(inode) = find_equal(fs, hash, value)? {
        return Ok(Pinned {
            inode,
            size: value.len() as u32,
            hash,
            fresh: false,
        });
    }
    let inode = make(fs, near, owner, hash)?;
    let made = Pinned {
        inode,
        size: value.len() as u32,
        hash,
        fresh: true,
    };
    match write(fs, &made.inode, value) {
        Ok(()) => Ok(made),
        Err(error) => {
            made.end(fs)?;
            Err(error)
        }
    }
}

/// As an operation that stops before it adds the attribute: an inode with this value, opened, without users.
#[cfg(test)]
pub(crate) fn begin_value(fs: &Attrs, near: &Inode, value: &[u8]) -> Result<Arc<Inode>> {
    Ok(obtain(fs, near, (0, 0), value, false)?.inode)
}

/// A known inode with this value, opened.
fn find_equal(fs: &Attrs, hash: u32, value: &[u8]) -> Result<Option<Arc<Inode>>> {
    let Some(ino) = fs.xattrs.known().value(hash) else {
        return Ok(None);
    };
    let Ok(inode) = inode(fs, ino) else {
        return Ok(None);
    };
    {
        // Under the lock, so that it is in use while it is opened.
        let known = fs.xattrs.known();
        let in_use = known.value(hash) == Some(ino) && inode.raw.read().links_count() > 0;
        if !in_use || !inode.add_open() {
            return Ok(None);
        }
    }
    if content(fs, &inode, value.len() as u32).is_ok_and(|content| content == value) {
        return Ok(Some(inode));
    }
    fs.close_inode(&inode)?;
    Ok(None)
}

/// Creates an inode for a value: an orphan, opened.
fn make(fs: &Inodes, near: &Inode, (uid, gid): (u32, u32), hash: u32) -> Result<Arc<Inode>> {
    fs.transact(3 + ORPHAN_CREDITS, |h| {
        let mode = FileType::Regular.mode_bits() | 0o600;
        let inode = fs.new_inode(h, near, mode, uid, gid)?;
        {
            let mut raw = inode.raw.write();
            let flags = raw.flags() & InodeFlags::EXTENTS;
            raw.set_flags(flags | InodeFlags::EA_INODE);
            raw.set_links_count(0);
            let none = Timestamp {
                seconds: 0,
                nanoseconds: 0,
            };
            raw.set_time(Time::Access, none);
            raw.set_time(Time::Change, none);
            raw.base_mut().i_atime.set(hash);
            format::set_value_refcount(&mut raw, 0);
        }
        // It is new and cannot be freed yet.
        let _ = inode.add_open();
        orphan::add(fs, h, &inode)?;
        Ok(inode)
    })
}

/// Writes the value, one block per transaction.
fn write(fs: &Inodes, inode: &Inode, value: &[u8]) -> Result<()> {
    let chunks = value.chunks(fs.geo.block_bytes as usize);
    for (at, chunk) in (0..).map(FileBlock).zip(chunks) {
        fs.transact(INSERT_CREDITS + GROUP_CREDITS + 1, |h| {
            let block = {
                let _map = inode.map_exclusive();
                map::add_block(fs, h, inode, at)?
            };
            h.create(block, |bytes| bytes[..chunk.len()].copy_from_slice(chunk))?;
            let size = u64::from(at.0) * u64::from(fs.geo.block_bytes) + chunk.len() as u64;
            map::set_size(inode, size);
            fs.store(h, inode)
        })?;
    }
    Ok(())
}

/// The inode of a value.
pub(super) fn inode(fs: &Inodes, ino: InodeNumber) -> Result<Arc<Inode>> {
    let inode = match fs.inode(ino) {
        Err(Error::Caller(Reason::NotFound)) => {
            return Err(Error::corrupt("an attribute's value is in a free inode").in_inode(ino));
        }
        other => other?,
    };
    if ino >= fs.geo.first_ino && inode.raw.read().flags().contains(InodeFlags::EA_INODE) {
        return Ok(inode);
    }
    Err(
        Error::corrupt("an attribute's value is in an inode that does not hold values")
            .in_inode(ino),
    )
}

/// Reads a value from its inode, and checks that it was written for this attribute.
pub(super) fn read(
    fs: &Attrs,
    owner: &Inode,
    holder: InodeNumber,
    size: u32,
    name: &[u8],
    hash: u32,
) -> Result<Vec<u8>> {
    let holder = inode(fs, holder)?;
    let value = content(fs, &holder, size)?;
    let raw = holder.image();
    let value_hash = crc32c(seed(fs), &value);
    let entry_hash = format::entry_hash(name, &value_hash.to_le_bytes());
    // Kernels hashed name bytes over 127 as signed or unsigned, depending on the machine.
    let right = raw.base().i_atime.get() == value_hash && (entry_hash == hash || !name.is_ascii());
    // The older form (Lustre) has no hash; the value's inode names its owner instead.
    let owned =
        raw.base().i_mtime.get() == owner.ino.0 && raw.generation() == owner.image().generation();
    if right || owned {
        return Ok(value);
    }
    Err(Error::corrupt(
        "an attribute's value does not match its hash",
    ))
}

/// The bytes of a value.
fn content(fs: &Inodes, holder: &Inode, size: u32) -> Result<Vec<u8>> {
    let stored = holder.raw.read().size_bytes(&fs.geo)?;
    if stored != u64::from(size) {
        return Err(Error::corrupt(format!(
            "an attribute's value has {stored} bytes, not {size}"
        )));
    }
    let block_bytes = fs.geo.block_bytes as usize;
    let mut value = Vec::new();
    for at in 0..size.div_ceil(fs.geo.block_bytes) {
        let (block, _) = map::lookup_block_run(fs, holder, FileBlock(at), 1)?
            .ok_or_else(|| Error::corrupt("an attribute's value has a hole"))?;
        let bytes = fs.read(block)?;
        let left = (size as usize).saturating_sub(value.len());
        value.extend_from_slice(bytes.get(..left.min(block_bytes)).unwrap_or_default());
    }
    Ok(value)
}

/// Seed for the hashes of values: the volume's checksum seed, defined even without checksums.
fn seed(fs: &Attrs) -> u32 {
    if let Some(seed) = fs.geo.csum_seed {
        return seed;
    }
    if fs.geo.incompat.contains(Incompat::CSUM_SEED) {
        return fs.superblock().s_checksum_seed.get();
    }
    crc32c(CRC32C_INIT, &fs.geo.uuid)
}

/// Adds a user to a value ([`COUNT_CREDITS`]).
pub(super) fn add_user(fs: &Inodes, h: &mut Handle<'_>, value: &Inode) -> Result<()> {
    {
        let mut raw = value.raw.write();
        let users = format::value_refcount(&raw).saturating_add(1);
        format::set_value_refcount(&mut raw, users);
        raw.set_links_count(1);
    }
    orphan::remove_named(fs, h, value)?;
    fs.store(h, value)
}

/// Removes a user from a value; returns the value's inode if that was the last one ([`COUNT_CREDITS`]).
pub(super) fn drop_user(
    fs: &Attrs,
    h: &mut Handle<'_>,
    known: &mut Known,
    value: Arc<Inode>,
) -> Result<Option<Arc<Inode>>> {
    let (left, hash) = {
        let mut raw = value.raw.write();
        let left = format::value_refcount(&raw).saturating_sub(1);
        format::set_value_refcount(&mut raw, left);
        if left == 0 {
            raw.set_links_count(0);
        }
        (left, raw.base().i_atime.get())
    };
    if left > 0 {
        fs.store(h, &value)?;
        return Ok(None);
    }
    known.forget_value(hash, value.ino);
    orphan::add(fs, h, &value)?;
    Ok(Some(value))
}
