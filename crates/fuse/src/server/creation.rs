//! New inodes: CREATE, TMPFILE, MKNOD, MKDIR, SYMLINK.

use std::sync::Arc;

use rustix::fs::FileType as Kind;
use rustix::fs::OFlags;
use rustix::io::Errno;
use smallvec::SmallVec;
use throughline::{Attributes, DeviceNumber, Error, NewNode, Node, Reason, ops};
use zerocopy::IntoBytes;

use super::shown::Shown;
use super::{Answer, Answered, Refusal, Request};
use crate::files::Files;
use crate::nodes::Nodes;
use crate::wire::{CreateIn, InHeader, MkdirIn, MknodIn, device_from_wire};

/// See the head of this file.
pub(super) struct CreationRequests {
    pub(super) nodes: Arc<Nodes>,
    pub(super) files: Arc<Files>,
    pub(super) shown: Arc<Shown>,
    /// The kernel opens files without a request. Requests on an open file then have no handle.
    pub(super) no_open: bool,
    /// The mount has ACLs: the kernel leaves the umask to the server.
    pub(super) acl: bool,
    /// New files inherit the group of their directory.
    pub(super) group_of_directory: bool,
}

impl CreationRequests {
    /// Owner and mode of a new inode.
    fn new_attributes(&self, header: &InHeader, mode: u32, umask: u32) -> Attributes {
        // Without ACLs the kernel has already applied the umask.
        let umask = if self.acl { umask } else { 0 };
        Attributes::new()
            .mode(mode & 0o7777)
            .umask(umask)
            .uid(header.uid)
            .gid(self.new_group(header))
    }

    /// The group of a new inode, before its directory's setgid bit is taken into account.
    fn new_group(&self, header: &InHeader) -> u32 {
        if !self.group_of_directory {
            return header.gid;
        }
        let dir = self.nodes.get(header.nodeid);
        // If the directory cannot be read, the creation fails next.
        dir.and_then(|dir| dir.metadata())
            .map_or(header.gid, |meta| meta.gid())
    }

    /// Makes an inode; returns its directory and it.
    fn make(
        &self,
        request: &Request<'_>,
        name: &[u8],
        kind: NewNode<'_>,
        attributes: &Attributes,
    ) -> Result<(Node, Node), Refusal> {
        let dir = self.nodes.get(request.header.nodeid)?;
        let node = request.did(ops::create(&dir, name, kind, 0, attributes))?;
        Ok((dir, node))
    }

    pub(super) fn create(&self, request: &Request<'_>) -> Answered {
        let (create, rest) = request.argument::<CreateIn>()?;
        let (name, _) = Request::name(rest)?;
        let attributes = self.new_attributes(&request.header, create.mode, create.umask);
        let (dir, node) = self.make(request, name, NewNode::File, &attributes)?;
        self.made_open(&dir, node, create.flags)
    }

    /// The reply for a new file that is created and opened by one request.
    pub(super) fn made_open(&self, dir: &Node, node: Node, flags: u32) -> Answered {
        let entry = self.shown.entry_in(dir, &self.nodes, &node)?;
        // If the open fails, the kernel gets no entry: take the look-up back.
        let open = match self.no_open {
            true => self.files.created(entry.nodeid, node, flags),
            false => self.files.open(node, flags),
        };
        let open = open.inspect_err(|_| self.nodes.forget(entry.nodeid, 1))?;
        let mut bytes = SmallVec::from_slice(entry.as_bytes());
        bytes.extend_from_slice(open.as_bytes());
        Ok(Answer::Bytes(bytes))
    }

    pub(super) fn tmpfile(&self, request: &Request<'_>) -> Answered {
        let (create, _) = request.argument::<CreateIn>()?;
        let attributes = self.new_attributes(&request.header, create.mode, create.umask);
        let linkable = !OFlags::from_bits_retain(create.flags).contains(OFlags::EXCL);
        let dir = self.nodes.get(request.header.nodeid)?;
        let made = request.did(ops::tmpfile(&dir, &attributes, linkable));
        let node = made.map_err(|error| match error {
            // What ext4 answers in a directory that was removed.
            Error::Caller(Reason::NotFound) => Refusal::from(Errno::PERM),
            error => error.into(),
        })?;
        let answer = self.made_open(&dir, node.clone(), create.flags)?;
        self.nodes.lost_a_name(node);
        Ok(answer)
    }

    pub(super) fn mknod(&self, request: &Request<'_>) -> Answered {
        let (make, rest) = request.argument::<MknodIn>()?;
        let (name, _) = Request::name(rest)?;
        let (major, minor) = device_from_wire(make.rdev);
        let device = DeviceNumber { major, minor };
        let kind = match Kind::from_raw_mode(make.mode) {
            Kind::RegularFile => NewNode::File,
            Kind::Fifo => NewNode::Fifo,
            Kind::Socket => NewNode::Socket,
            Kind::CharacterDevice => NewNode::CharDevice(device),
            Kind::BlockDevice => NewNode::BlockDevice(device),
            _ => return Err(Errno::INVAL.into()),
        };
        let attributes = self.new_attributes(&request.header, make.mode, make.umask);
        let (dir, node) = self.make(request, name, kind, &attributes)?;
        Answer::of(&self.shown.entry_in(&dir, &self.nodes, &node)?)
    }

    pub(super) fn mkdir(&self, request: &Request<'_>) -> Answered {
        let (make, rest) = request.argument::<MkdirIn>()?;
        let (name, _) = Request::name(rest)?;
        let attributes = self.new_attributes(&request.header, make.mode, make.umask);
        let (dir, node) = self.make(request, name, NewNode::Directory, &attributes)?;
        Answer::of(&self.shown.entry_in(&dir, &self.nodes, &node)?)
    }

    pub(super) fn symlink(&self, request: &Request<'_>) -> Answered {
        let (name, rest) = Request::name(request.body)?;
        let (target, _) = Request::name(rest)?;
        let attributes = self.new_attributes(&request.header, 0o777, 0);
        let (dir, node) = self.make(request, name, NewNode::Symlink(target), &attributes)?;
        Answer::of(&self.shown.entry_in(&dir, &self.nodes, &node)?)
    }
}
