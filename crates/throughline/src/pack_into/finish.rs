//! Metadata, when all names and data are there: what follows would change it again.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use throughline_archive::{self as archive, Kind, NodeId, Time};

use super::{Apply, join};
use crate::error::Result;
use crate::metadata::Attributes;
use crate::node::Node;
use crate::read_tree::at;
use crate::time::from_epoch;

/// Attributes that are access control lists.
const ACLS: &[u8] = b"system.posix_acl_";

impl Apply<'_> {
    /// Sets the metadata of new nodes, and of the directories that have another than the tree says.
    pub(super) fn finish(&mut self) -> archive::Result<()> {
        let new = std::mem::take(&mut self.new);
        for (id, path) in &new {
            let node = self.node(*id, path)?;
            self.set(&node, *id).map_err(|error| at(path, error))?;
        }
        let mut left = vec![(NodeId::ROOT, Vec::new())];
        while let Some((directory, path)) = left.pop() {
            if self.into.is_base(directory) {
                let node = self.node(directory, &path)?;
                self.set(&node, directory)
                    .map_err(|error| at(&path, error))?;
            }
            for child in self.tree.children(directory) {
                if self.tree.node(child.node).kind() == Kind::Directory {
                    left.push((child.node, join(&path, child.name)));
                }
            }
        }
        Ok(())
    }

    /// Makes the metadata of an inode what the tree says. A new owner would take away capabilities and
    /// set-user-ID, so it comes first; a list of access rights changes the mode, so that comes last.
    pub(super) fn set(&self, node: &Node, id: NodeId) -> Result<()> {
        let wanted = self.tree.node(id);
        let found = node.metadata()?;
        if (found.uid(), found.gid()) != (wanted.uid(), wanted.gid()) {
            let owner = Attributes::new().uid(wanted.uid()).gid(wanted.gid());
            node.set_attributes(&owner)?;
        }
        self.set_xattrs(node, id)?;
        let time = self.time(wanted.mtime());
        let found = node.metadata()?;
        let mode = u32::from(wanted.permissions());
        if found.mode() == mode && found.modified() == time {
            return Ok(());
        }
        let mut attributes = Attributes::new().modified(time).accessed(time);
        if wanted.kind() != Kind::Symlink {
            attributes = attributes.mode(mode);
        }
        node.set_attributes(&attributes)
    }

    fn set_xattrs(&self, node: &Node, id: NodeId) -> Result<()> {
        let wanted: BTreeMap<&[u8], &[u8]> = self.tree.node(id).xattrs().collect();
        let xattrs = node.xattrs();
        let names = xattrs.names()?;
        // Also what a new file inherits from its directory.
        for name in names.iter().filter(|name| !wanted.contains_key(&name[..])) {
            xattrs.remove(name)?;
        }
        let (lists, others): (Vec<_>, Vec<_>) = wanted
            .into_iter()
            .partition(|(name, _)| name.starts_with(ACLS));
        for (name, value) in others.into_iter().chain(lists) {
            let is_there = names.iter().any(|known| known == name);
            if !is_there || xattrs.get(name)?.as_deref() != Some(value) {
                xattrs.set(name, value)?;
            }
        }
        Ok(())
    }

    /// A time of the tree, at most the latest that is allowed.
    fn time(&self, time: Time) -> SystemTime {
        let time = from_epoch(time.seconds, time.nanoseconds);
        let time = time.unwrap_or(UNIX_EPOCH);
        self.into.latest.map_or(time, |latest| time.min(latest))
    }
}
