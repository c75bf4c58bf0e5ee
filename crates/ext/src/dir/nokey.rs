//! Directories with encrypted names: listed and looked up in the form that names have without the key
//! ([`throughline_extfmt::nokey`]).
//!
//! The form includes the name's hash if the directory is searched or listed by hash, else 0, so that names
//! look as they do in the kernel.

use throughline_extfmt::InodeNumber;
use throughline_extfmt::features::Incompat;
use throughline_extfmt::hash::{HashVersion, NameHash};
use throughline_extfmt::inode::InodeFlags;
use throughline_extfmt::nokey::{self, Shown};

use super::block::DirBlocks;
use super::entry::{Shape, shape};
use super::list::{self, DirEntry};
use super::{hash, htree, index_is_sound};
use crate::error::Result;
use crate::inode::Inode;
use crate::names::Names;

impl Names {
    /// Whether an inode's contents (for a directory, its names) are encrypted.
    pub fn is_encrypted(&self, inode: &Inode) -> bool {
        self.geo.incompat.contains(Incompat::ENCRYPT)
            && inode.raw.read().flags().contains(InodeFlags::ENCRYPT)
    }
}

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

/// The inode that a no-key name stands for. The directory's lock is held.
pub(crate) fn lookup(fs: &Names, dir: &Inode, form: &[u8]) -> Result<Option<InodeNumber>> {
    let Some(shown) = Shown::read(form) else {
        return Ok(None);
    };
    if let Some(stored) = shown.stored() {
        return Ok(super::lookup(fs, dir, stored)?.map(|found| found.ino));
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
            return Ok(found.map(|entry| entry.ino));
        }
        from = last.next;
    }
}
