//! Directories with encrypted names: listed and looked up in the form that names have without the key
//! ([`throughline_extfmt::nokey`]).
//!
//! The form includes the name's hash if the directory is searched or listed by hash, else 0, so that names
//! look as they do in the kernel.

use throughline_extfmt::hash::{HashVersion, NameHash};
use throughline_extfmt::nokey::{self, Shown};

use super::block::DirBlocks;
use super::entry::{Found, Shape, shape};
use super::list::{self, DirEntry};
use super::{hash, htree, index_is_sound};
use crate::error::{Reason, Result};
use crate::inode::Inode;
use crate::names::Names;

/// The hash version of the directory's names, if they are hashed.
fn hashes(fs: &Names, dir: &Inode) -> Result<Option<HashVersion>> {
    if !fs.hash_rules.indexes(dir.raw.read().flags()) {
        return Ok(None);
    }
    let by_default = Some(fs.hash_rules.default_version());
    Ok(match shape(fs, dir) {
        Shape::Inline => by_default,
        Shape::Linear if DirBlocks::to_read(fs, dir)?.count == 1 => by_default,
        Shape::Linear => None,
        // It is listed in disk order.
        Shape::Hashed if !index_is_sound(fs, dir)? => None,
        Shape::Hashed => htree::Tree::open(&DirBlocks::new(fs, dir)?)?.map(|tree| tree.version()),
    })
}

fn hash(fs: &Names, version: Option<HashVersion>, name: &[u8]) -> NameHash {
    let hash = version.and_then(|version| fs.hash_rules.hash(version, name));
    hash.unwrap_or(NameHash { major: 0, minor: 0 })
}

/// Replaces listed names by the form shown without the key. The directory's lock is held.
pub(super) fn show(fs: &Names, dir: &Inode, entries: &mut [DirEntry]) -> Result<()> {
    let version = hashes(fs, dir)?;
    for entry in entries {
        if !matches!(entry.name.as_slice(), b"." | b"..") {
            entry.name = nokey::show(hash(fs, version, &entry.name), &entry.name).into();
        }
    }
    Ok(())
}

/// As [`super::lookup`], for a name as it is shown. The directory's lock is held.
pub(crate) fn lookup(fs: &Names, dir: &Inode, name: &[u8]) -> Result<Option<Found>> {
    if !fs.is_encrypted(dir) {
        return super::lookup(fs, dir, name);
    }
    match stored(fs, dir, name)? {
        Some(stored) => super::lookup(fs, dir, &stored),
        None => Ok(None),
    }
}

/// As [`super::lookup_to_change`], for a name as it is shown. The directory's lock is held.
pub(crate) fn lookup_to_change(fs: &Names, dir: &Inode, name: &[u8]) -> Result<Option<Found>> {
    if !fs.is_encrypted(dir) {
        return super::lookup_to_change(fs, dir, name);
    }
    match stored(fs, dir, name)? {
        Some(stored) => super::lookup_to_change(fs, dir, &stored),
        None => Ok(None),
    }
}

/// Fails if a new name would have to be encrypted. The directory's lock is held.
///
/// # Errors
/// `NoKey`; `Exists` if the name exists, which is reported first.
pub(crate) fn refuse_new(fs: &Names, dir: &Inode, name: &[u8]) -> Result<()> {
    if !fs.is_encrypted(dir) {
        return Ok(());
    }
    Err(match lookup_to_change(fs, dir, name)? {
        Some(_) => Reason::Exists.into(),
        None => Reason::NoKey.into(),
    })
}

/// The stored name that a no-key name stands for; it may not exist.
fn stored(fs: &Names, dir: &Inode, form: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(shown) = Shown::read(form) else {
        return Ok(None);
    };
    if let Some(stored) = shown.stored() {
        return Ok(Some(stored.to_vec()));
    }
    // The form holds only part of a long name. Search the names with its hash.
    let version = hashes(fs, dir)?;
    let of_hash = |name: &[u8]| hash(fs, version, name).major == shown.hash.major;
    let first = NameHash {
        minor: 0,
        ..shown.hash
    };
    let mut from = version.map_or(0, |_| hash::key_of(first, &[], false));
    loop {
        let names = list::list(fs, dir, from)?.names;
        let Some(last) = names.last() else {
            return Ok(None);
        };
        let found = names.iter().find(|entry| shown.is_of(&entry.name));
        if found.is_some() || version.is_some() && !of_hash(&last.name) {
            return Ok(found.map(|entry| entry.name.clone()));
        }
        from = last.next;
    }
}
