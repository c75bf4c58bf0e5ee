//! Attributes: GETATTR, STATX, SETATTR.

use std::sync::Arc;

use rustix::io::Errno;
use throughline::internal::from_epoch;
use throughline::{Attributes, Node, ops};

use super::identity::Identity;
use super::shown::Shown;
use super::{Answer, Answered, Refusal, Request};
use crate::files::Files;
use crate::nodes::Nodes;
use crate::wire::{GETATTR_FH, GetattrIn, SetattrIn, StatxIn, set_attr};

/// See the head of this file.
pub(super) struct AttributeRequests {
    pub(super) nodes: Arc<Nodes>,
    pub(super) files: Arc<Files>,
    pub(super) identity: Arc<Identity>,
    pub(super) shown: Arc<Shown>,
}

impl AttributeRequests {
    /// The inode of a request: that of its handle if it has one.
    fn node_of(&self, nodeid: u64, handle: Option<u64>) -> Result<Node, Refusal> {
        match handle.and_then(|fh| self.files.get(fh)) {
            Some(file) => Ok(file.node().clone()),
            None => Ok(self.nodes.get(nodeid)?),
        }
    }

    pub(super) fn getattr(&self, request: &Request<'_>) -> Answered {
        let (get, _) = request.argument::<GetattrIn>()?;
        let handle = (get.flags & GETATTR_FH != 0).then_some(get.fh);
        let node = self.node_of(request.header.nodeid, handle)?;
        Answer::of(&self.shown.attr_out(&node.metadata()?))
    }

    pub(super) fn statx(&self, request: &Request<'_>) -> Answered {
        let (get, _) = request.argument::<StatxIn>()?;
        let handle = (get.flags & GETATTR_FH != 0).then_some(get.fh);
        let node = self.node_of(request.header.nodeid, handle)?;
        Answer::of(&self.shown.statx_out(&node.metadata()?))
    }

    pub(super) fn setattr(&self, request: &Request<'_>) -> Answered {
        let (set, _) = request.argument::<SetattrIn>()?;
        let has = |bit| set.valid & bit != 0;
        let handle = has(set_attr::FH).then_some(set.fh);
        let node = self.node_of(request.header.nodeid, handle)?;
        if has(set_attr::SIZE) {
            let keeps = !has(set_attr::KILL_PRIVILEGES);
            self.identity.before_change(request, &node, keeps)?;
            request.did(ops::set_len(&node, set.size))?;
        }
        let mut attributes = attributes(&set)?;
        // Setting nothing, as chown(-1, -1) does, still counts as a change of owner.
        if !has(set_attr::SIZE)
            && attributes.is_empty()
            && !node.is_dir()
            && !self.identity.is_change_by_root(request, &node, &self.files)
        {
            self.identity
                .check_drops_privileges(request, &node, &self.files)?;
            attributes = attributes.drop_privileges();
        }
        if self.identity.takes_setgid(request, &set, &node)? {
            attributes = attributes.drop_setgid();
        }
        if !has(set_attr::SIZE) || !attributes.is_empty() {
            request.did(ops::set_attributes(&node, &attributes))?;
        }
        Answer::of(&self.shown.attr_out(&node.metadata()?))
    }
}

fn attributes(set: &SetattrIn) -> Result<Attributes, Errno> {
    let has = |bit| set.valid & bit != 0;
    let mut attributes = Attributes::new();
    if has(set_attr::MODE) {
        attributes = attributes.mode(set.mode & 0o7777);
    }
    if has(set_attr::UID) {
        attributes = attributes.uid(set.uid);
    }
    if has(set_attr::GID) {
        attributes = attributes.gid(set.gid);
    }
    if has(set_attr::ATIME) {
        let time = from_epoch(set.atime, set.atime_ns).ok_or(Errno::INVAL)?;
        attributes = if has(set_attr::ATIME_NOW) {
            attributes.accessed_now()
        } else {
            attributes.accessed(time)
        };
    }
    if has(set_attr::MTIME) {
        let time = from_epoch(set.mtime, set.mtime_ns).ok_or(Errno::INVAL)?;
        attributes = if has(set_attr::MTIME_NOW) {
            attributes.modified_now()
        } else {
            attributes.modified(time)
        };
    }
    if has(set_attr::KILL_PRIVILEGES) && !has(set_attr::SIZE) {
        attributes = attributes.drop_privileges();
    }
    Ok(attributes)
}
