//! Mode, owner and attributes of the files that programs save, and the ways in which they change them.

use std::collections::BTreeMap;

use throughline::{Attributes, File, Result};
use throughline_testing::attributes::{Found, NAMES, value};

use super::recipes::Recipe;
use super::tree::Entry;

/// Who may do what with a file, and its other attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    mode: u32,
    owner: (u32, u32),
    /// Lengths and checksums of the values, by name.
    attributes: BTreeMap<String, (usize, u32)>,
}

impl Rights {
    /// Those of a file found after a crash.
    pub fn found(entry: &Entry) -> Rights {
        Rights::new(entry.mode, (entry.id, entry.gid), &entry.attributes)
    }

    /// Those that an open file has now.
    ///
    /// # Errors
    /// Any error of the volume.
    pub fn of(file: &File) -> Result<Rights> {
        let about = file.metadata()?;
        let xattrs = file.xattrs();
        let mut attributes = Found::new();
        for name in xattrs.names()? {
            let value = xattrs.get(&name)?.unwrap_or_default();
            attributes.insert(String::from_utf8_lossy(&name).into_owned(), value);
        }
        let owner = (about.uid(), about.gid());
        Ok(Rights::new(about.mode(), owner, &attributes))
    }

    fn new(mode: u32, owner: (u32, u32), attributes: &Found) -> Rights {
        let short = |(name, value): (&String, &Vec<u8>)| {
            let sum = value.iter().fold(0u32, |sum, byte| {
                sum.rotate_left(5).wrapping_add((*byte).into())
            });
            (name.clone(), (value.len(), sum))
        };
        Rights {
            mode: mode & 0o7777,
            owner,
            attributes: attributes.iter().map(short).collect(),
        }
    }
}

/// Changes the rights of a file in one of the ways of editors, which do so by `fchmod`, `fchown` and
/// `fsetxattr`. Without a journal, attributes in a block of their own are not changed with the inode.
///
/// # Errors
/// Any error of the volume: none is expected.
pub fn change(file: &File, recipe: &Recipe, random: &mut fastrand::Rng) -> Result<()> {
    let most = if recipe.journaled { 8 } else { 4 };
    match random.u8(..most) {
        0 | 1 => {
            let mode = [0o600, 0o644, 0o640, 0o666, 0o755][random.usize(..5)];
            file.set_attributes(&Attributes::new().mode(mode))
        }
        2 | 3 => {
            let (uid, gid) = (random.u32(..3), [0, 7, 70_000][random.usize(..3)]);
            let set = Attributes::new().uid(uid).gid(gid);
            match random.bool() {
                true => file.set_attributes(&set.mode(0o604)),
                false => file.set_attributes(&set),
            }
        }
        // The access list, and others that fill the inode's body and its block. None needs an inode of its
        // own.
        4 | 5 => set(file, NAMES.len() - 1, 2, random),
        _ => {
            // In blocks of 1 KiB the larger ones do not all fit.
            let most = if recipe.block_bytes() < 4096 { 2 } else { 3 };
            set(file, random.usize(..NAMES.len() - 1), most, random)
        }
    }
}

fn set(file: &File, name: usize, most: u8, random: &mut fastrand::Rng) -> Result<()> {
    let xattrs = file.xattrs();
    let is_there = xattrs.get(NAMES[name])?.is_some();
    if is_there && random.u8(..3) == 0 {
        return xattrs.remove(NAMES[name]);
    }
    xattrs.set(NAMES[name], value(name as u8, random.u8(..most)))
}

/// For the tests of the judges.
#[cfg(test)]
pub mod tests {
    use super::super::tree::EntryKind;
    use super::*;

    /// A file with this content and mode, and its rights.
    pub fn any(content: Vec<u8>, mode: u32) -> (Entry, Rights) {
        let entry = Entry {
            ino: 12,
            kind: EntryKind::File,
            id: 0,
            gid: 0,
            mode,
            links: 1,
            size: content.len() as u64,
            content,
            attributes: Found::new(),
        };
        let rights = Rights::found(&entry);
        (entry, rights)
    }
}
