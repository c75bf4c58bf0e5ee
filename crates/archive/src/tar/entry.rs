//! A member of an archive, with all that its headers say.

use std::sync::Arc;

use crate::content::Extent;
use crate::error::{Result, shown};
use crate::meta::{Device, Kind, Meta, Xattr};
use crate::{FileContent, SourceId, Tree};

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) meta: Meta,
    /// Its attributes, where `meta` has none: those that it shares with other members.
    pub(crate) shared: Option<Arc<Vec<Xattr>>>,
    pub(crate) kind: EntryKind,
}

#[derive(Debug)]
pub(crate) enum EntryKind {
    Directory,
    File { size: u64, extents: Vec<Extent> },
    Symlink(Vec<u8>),
    Link(Vec<u8>),
    Special(Kind, Device),
}

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";

impl Entry {
    /// About how much memory it needs.
    pub(crate) fn memory_bytes(&self) -> usize {
        let more = match &self.kind {
            EntryKind::File { extents, .. } => size_of_val(&extents[..]),
            EntryKind::Symlink(target) | EntryKind::Link(target) => target.len(),
            EntryKind::Directory | EntryKind::Special(..) => 0,
        };
        // The reader has them as well. The first member to share them counts for all.
        let shared = self.shared.as_ref();
        let shared = shared.filter(|shared| Arc::strong_count(shared) <= 2);
        let xattrs = self
            .meta
            .xattrs
            .iter()
            .chain(shared.into_iter().flat_map(|list| &**list));
        let xattrs = xattrs.map(|(name, value)| name.len() + value.len() + 48);
        size_of::<Entry>() + self.path.len() + more + xattrs.sum::<usize>()
    }

    /// Adds it to a tree. `layer`: names that begin with `.wh.` are whiteouts.
    pub(crate) fn add_to(self, tree: &mut Tree, source: SourceId, layer: bool) -> Result<()> {
        let Entry {
            path,
            meta,
            shared,
            kind,
        } = self;
        if layer {
            let (directory, name) = path.split_at(name_start(&path));
            if name == OPAQUE {
                tree.opaque(directory);
                return Ok(());
            }
            if let Some(hidden) = name.strip_prefix(WHITEOUT) {
                // `.wh..wh.plnk` and the like are AUFS's own.
                if hidden.starts_with(WHITEOUT) || matches!(hidden, b"" | b"." | b"..") {
                    return Ok(());
                }
                tree.whiteout(&[directory, hidden].concat());
                return Ok(());
            }
        }
        let node = match kind {
            EntryKind::Directory => tree.mkdir(&path, &meta)?,
            EntryKind::File { size, extents } => {
                let content = FileContent {
                    source,
                    item: 0,
                    size,
                    extents,
                };
                tree.add_file(&path, &meta, &content)?
            }
            EntryKind::Symlink(target) => tree.symlink(&path, &target, &meta)?,
            // The file has its own.
            EntryKind::Link(target) => return tree.link(&path, &target).map(drop),
            EntryKind::Special(kind, device) => tree.mknod(&path, kind, device, &meta)?,
        };
        match shared {
            Some(xattrs) => tree
                .share_xattrs(node, &xattrs)
                .map_err(|error| error.within(&shown(&path))),
            None => Ok(()),
        }
    }
}

/// Where the last component of a path begins.
pub(crate) fn name_start(path: &[u8]) -> usize {
    let slash = path.iter().rposition(|&byte| byte == b'/');
    slash.map_or(0, |slash| slash + 1)
}
