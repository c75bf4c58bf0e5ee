//! Names: LOOKUP, CREATE, MKNOD, MKDIR, SYMLINK, LINK, UNLINK, RMDIR, RENAME.

use rustix::fs::FileType as Kind;
use rustix::fs::{OFlags, RenameFlags};
use rustix::io::Errno;
use smallvec::SmallVec;
use throughline::ops::{self, Outcome};
use throughline::{Attributes, DeviceNumber, Error, NewNode, Node, Reason, RenameMode};
use zerocopy::IntoBytes;

use super::{Answer, Answered, Refusal, Request, Server};
use crate::nodes::{ROOT_INO, ROOT_NODEID};
use crate::wire::{
    CreateIn, EntryOut, InHeader, LinkIn, MkdirIn, MknodIn, Rename2In, RenameIn, device_from_wire,
};

impl Server {
    pub(super) fn lookup(&self, request: &Request<'_>) -> Answered {
        let (name, _) = Request::name(request.body)?;
        if name == b"." {
            return self.lookup_kept(request.header.nodeid);
        }
        let dir = self.nodes.get(request.header.nodeid)?;
        match dir.lookup(name) {
            Ok(node) => Answer::of(&self.entry(&node)?),
            // The kernel caches missing names too.
            Err(Error::Caller(Reason::NotFound)) if self.choices.negative_cache => {
                Answer::of(&EntryOut {
                    entry_valid: self.keep_secs(),
                    ..EntryOut::default()
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The kernel looks up `.` for the inode number in a file handle, if it has forgotten the inode or never
    /// knew it. It compares the generation itself; if the inode does not exist, the holder of the handle gets
    /// `ESTALE`.
    fn lookup_kept(&self, nodeid: u64) -> Answered {
        let node = match nodeid {
            ROOT_NODEID => self.volume.root_node()?,
            // The root's inode number is not a node id.
            ROOT_INO => return Err(Errno::NOENT.into()),
            ino => self.volume.node_kept(ino)?,
        };
        Answer::of(&self.entry(&node)?)
    }

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

    fn make(
        &self,
        request: &Request<'_>,
        name: &[u8],
        kind: NewNode<'_>,
        attributes: &Attributes,
    ) -> Result<Node, Refusal> {
        let dir = self.nodes.get(request.header.nodeid)?;
        Ok(request.did(ops::create(&dir, name, kind, 0, attributes))?)
    }

    pub(super) fn create(&self, request: &Request<'_>) -> Answered {
        let (create, rest) = request.argument::<CreateIn>()?;
        let (name, _) = Request::name(rest)?;
        let attributes = self.new_attributes(&request.header, create.mode, create.umask);
        let node = self.make(request, name, NewNode::File, &attributes)?;
        self.made_open(node, create.flags)
    }

    /// The reply for a new file that is created and opened by one request.
    pub(super) fn made_open(&self, node: Node, flags: u32) -> Answered {
        let entry = self.entry(&node)?;
        // If the open fails, the kernel gets no entry: take the look-up back.
        let open = self.add_file(node, flags);
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
        let answer = self.made_open(node.clone(), create.flags)?;
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
        let node = self.make(request, name, kind, &attributes)?;
        Answer::of(&self.entry(&node)?)
    }

    pub(super) fn mkdir(&self, request: &Request<'_>) -> Answered {
        let (make, rest) = request.argument::<MkdirIn>()?;
        let (name, _) = Request::name(rest)?;
        let attributes = self.new_attributes(&request.header, make.mode, make.umask);
        let node = self.make(request, name, NewNode::Directory, &attributes)?;
        Answer::of(&self.entry(&node)?)
    }

    pub(super) fn symlink(&self, request: &Request<'_>) -> Answered {
        let (name, rest) = Request::name(request.body)?;
        let (target, _) = Request::name(rest)?;
        let attributes = self.new_attributes(&request.header, 0o777, 0);
        let node = self.make(request, name, NewNode::Symlink(target), &attributes)?;
        Answer::of(&self.entry(&node)?)
    }

    pub(super) fn link(&self, request: &Request<'_>) -> Answered {
        let (link, rest) = request.argument::<LinkIn>()?;
        let (name, _) = Request::name(rest)?;
        let node = self.nodes.get(link.old_nodeid)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        request.did(ops::link(&dir, &node, name))?;
        Answer::of(&self.entry(&node)?)
    }

    pub(super) fn unlink(&self, request: &Request<'_>) -> Answered {
        self.take_away(request, ops::unlink)
    }

    pub(super) fn rmdir(&self, request: &Request<'_>) -> Answered {
        self.take_away(request, ops::rmdir)
    }

    fn take_away(&self, request: &Request<'_>, take: fn(&Node, &[u8]) -> Outcome<()>) -> Answered {
        let (name, _) = Request::name(request.body)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        // Held, so that the inode is not freed before `lost_a_name` has checked whether the kernel still
        // knows it.
        let node = dir.lookup(name)?;
        let taken = request.did(take(&dir, name));
        // Even after a failure the name may be gone.
        self.nodes.lost_a_name(node);
        taken?;
        Answer::done()
    }

    pub(super) fn rename(&self, request: &Request<'_>) -> Answered {
        let (rename, rest) = request.argument::<RenameIn>()?;
        self.rename_to(request, rename.new_dir, rest, RenameFlags::empty())
    }

    pub(super) fn rename2(&self, request: &Request<'_>) -> Answered {
        let (rename, rest) = request.argument::<Rename2In>()?;
        let flags = RenameFlags::from_bits_retain(rename.flags);
        self.rename_to(request, rename.new_dir, rest, flags)
    }

    fn rename_to(
        &self,
        request: &Request<'_>,
        new_dir: u64,
        names: &[u8],
        flags: RenameFlags,
    ) -> Answered {
        let (name, rest) = Request::name(names)?;
        let (new_name, _) = Request::name(rest)?;
        let mode = match flags {
            RenameFlags::NOREPLACE => RenameMode::NoReplace,
            RenameFlags::EXCHANGE => RenameMode::Exchange,
            flags if flags.is_empty() => RenameMode::Replace,
            flags if flags - RenameFlags::NOREPLACE == RenameFlags::WHITEOUT => {
                RenameMode::Whiteout {
                    replace: !flags.contains(RenameFlags::NOREPLACE),
                    uid: request.header.uid,
                    gid: request.header.gid,
                }
            }
            _ => return Err(Errno::INVAL.into()),
        };
        let dir = self.nodes.get(request.header.nodeid)?;
        let new_dir = self.nodes.get(new_dir)?;
        // The kernel may still know the inode that is replaced.
        let replaced = match mode {
            RenameMode::Replace | RenameMode::Whiteout { replace: true, .. } => {
                new_dir.lookup(new_name).ok()
            }
            _ => None,
        };
        let renamed = request.did(ops::rename((&dir, name), (&new_dir, new_name), mode));
        // Even after a failure it may be replaced.
        if let Some(replaced) = replaced {
            self.nodes.lost_a_name(replaced);
        }
        renamed?;
        Answer::done()
    }

    pub(super) fn readlink(&self, request: &Request<'_>) -> Answered {
        use std::os::unix::ffi::OsStrExt;
        let target = self.nodes.get(request.header.nodeid)?.read_link()?;
        Ok(Answer::Bytes(SmallVec::from_slice(
            target.as_os_str().as_bytes(),
        )))
    }
}
