//! What one reader saw of a volume, and what another reader saw in addition.
//!
//! Directories and files are identified by inode, so a directory that appears twice or contains itself is
//! visited once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};

/// Limits on the directories and names visited: a damaged volume may be endless.
pub(crate) const MAX_DIRS: usize = 500;
pub(crate) const MAX_NAMES: usize = 1_000_000;
pub(crate) const MAX_FILES: usize = 400;
/// The number of blocks read per file, and their size.
pub(crate) const MAX_BLOCKS: u64 = 1024;
pub(crate) const BLOCK: usize = 4096;

/// A tree, as far as it could be read.
#[derive(Default)]
pub(crate) struct Seen {
    /// Names in directories: the directory's inode, and the name.
    pub(crate) names: BTreeSet<(u64, Vec<u8>)>,
    /// Readable blocks of files: inode, block number, and a hash of the content.
    pub(crate) blocks: BTreeMap<(u64, u64), u64>,
    /// Directories whose names are encrypted.
    pub(crate) encrypted: BTreeSet<u64>,
    /// Names whose lookup failed, with the error.
    pub(crate) unknown: BTreeMap<(u64, Vec<u8>), String>,
}

impl Seen {
    /// Whether these bytes can never be looked up as a name, on any file system; `.` and `..` are not
    /// compared either.
    pub(crate) fn is_no_name(name: &[u8]) -> bool {
        matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0)
    }

    pub(crate) fn add_name(&mut self, dir: u64, name: &[u8]) {
        if !Self::is_no_name(name) {
            self.names.insert((dir, name.to_vec()));
        }
    }

    pub(crate) fn add_block(&mut self, ino: u64, at: u64, bytes: &[u8]) {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        self.blocks.insert((ino, at), hasher.finish());
    }

    /// Names that only `other` saw, one line each.
    pub(crate) fn lacks_names(&self, other: &Seen, what: &str) -> Vec<String> {
        let mut lacking = Vec::new();
        let count = |seen: &Seen, dir: u64| seen.names.iter().filter(|name| name.0 == dir).count();
        for (dir, name) in other.names.difference(&self.names) {
            // Without the key, each reader shows them differently.
            if self.encrypted.contains(dir) && count(self, *dir) >= count(other, *dir) {
                continue;
            }
            let name = String::from_utf8_lossy(name);
            lacking.push(format!("{what} has the name {name:?} in directory {dir}"));
        }
        lacking
    }

    /// Names whose lookup works only for `other`, one line each.
    pub(crate) fn lacks_lookups(&self, other: &Seen, what: &str) -> Vec<String> {
        let mut lacking = Vec::new();
        for (place, why) in &self.unknown {
            if other.names.contains(place) && !other.unknown.contains_key(place) {
                let name = String::from_utf8_lossy(&place.1);
                lacking.push(format!(
                    "{what} can look up {name:?} in {}; we cannot: {why}",
                    place.0
                ));
            }
        }
        lacking
    }

    /// Data that only `other` could read, one line each.
    pub(crate) fn lacks_data(&self, other: &Seen, what: &str) -> Vec<String> {
        let mut lacking = Vec::new();
        for (&(ino, at), bytes) in &other.blocks {
            match self.blocks.get(&(ino, at)) {
                Some(ours) if ours == bytes => {}
                Some(_) => lacking.push(format!("{what} reads other bytes in {ino}, block {at}")),
                None => lacking.push(format!("{what} reads block {at} of file {ino}")),
            }
        }
        lacking
    }
}
