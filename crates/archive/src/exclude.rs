//! Leaves members out of archives before they get into a tree that has other things already: what they would
//! replace there stays.

use std::collections::HashMap;

use crate::content::SourceId;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::tar::{Entry, EntryKind, name_start};

/// What became of a member that was left out.
enum Aside {
    /// It is here, in case that a link to it is not left out.
    Kept(Entry, SourceId),
    /// It is in the tree, under this path.
    Moved(Vec<u8>),
}

/// The members of a source that were left out.
#[derive(Default)]
pub(crate) struct LeftOut {
    aside: HashMap<Vec<u8>, Aside>,
    bytes: usize,
}

impl LeftOut {
    /// What is to be added for a member: nothing if it is `unwanted`. A link to a member that was left out
    /// becomes that member.
    pub(crate) fn pass(
        &mut self,
        entry: Entry,
        source: SourceId,
        unwanted: &dyn Fn(&[u8]) -> bool,
        limits: &Limits,
    ) -> Result<Option<(Entry, SourceId)>> {
        let path = plain(&entry.path);
        let named = hidden(&path);
        if is_unwanted(named.as_deref().unwrap_or(&path), unwanted, limits.depth) {
            if matches!(entry.kind, EntryKind::Directory | EntryKind::Link(_)) {
                return Ok(None);
            }
            self.bytes += entry.memory_bytes();
            let is_over = self.aside.len() as u64 >= u64::from(limits.nodes)
                || self.bytes as u64 > u64::from(limits.name_bytes);
            if is_over {
                let problem = "the members that are left out need too much memory";
                return Err(Error::limit("archive", problem));
            }
            self.aside.insert(path, Aside::Kept(entry, source));
            return Ok(None);
        }
        let EntryKind::Link(target) = &entry.kind else {
            return Ok(Some((entry, source)));
        };
        let target = plain(target);
        Ok(Some(match self.aside.get(&target) {
            None => (entry, source),
            Some(Aside::Moved(now)) => {
                let kind = EntryKind::Link(now.clone());
                (Entry { kind, ..entry }, source)
            }
            Some(Aside::Kept(..)) => match self.aside.insert(target, Aside::Moved(path)) {
                Some(Aside::Kept(kept, source)) => {
                    let path = entry.path;
                    (Entry { path, ..kept }, source)
                }
                _ => (entry, source),
            },
        }))
    }
}

/// The path without slashes at its ends, double ones, and `.`.
fn plain(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|&byte| byte == b'/');
    let parts = parts.filter(|part| !matches!(**part, [] | [b'.']));
    parts.collect::<Vec<_>>().join(&b'/')
}

/// What a whiteout removes.
fn hidden(path: &[u8]) -> Option<Vec<u8>> {
    let (directory, name) = path.split_at(name_start(path));
    let hidden = name.strip_prefix(b".wh.")?;
    Some([directory, hidden].concat())
}

/// Whether a path or one above it is unwanted. A path that is deeper than `depth`, which the tree refuses, is
/// looked at so far only.
fn is_unwanted(path: &[u8], unwanted: &dyn Fn(&[u8]) -> bool, depth: u32) -> bool {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let ends = slashes.map(|(at, _)| at).chain([path.len()]);
    ends.take(depth as usize + 1)
        .any(|end| unwanted(&path[..end]))
}
