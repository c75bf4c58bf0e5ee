//! Names: LOOKUP, LINK, UNLINK, RMDIR, RENAME, READLINK.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::RenameFlags;
use rustix::io::Errno;
use smallvec::SmallVec;
use throughline::ops;
use throughline::{Error, Node, Reason, RenameMode};

use super::shown::Shown;
use super::{Answer, Answered, Request};
use crate::nodes::Nodes;
use crate::wire::{LinkIn, Rename2In, RenameIn};

/// See the head of this file.
pub(super) struct NameRequests {
    pub(super) nodes: Arc<Nodes>,
    pub(super) shown: Arc<Shown>,
    /// The kernel may cache missing names.
    pub(super) negative_cache: bool,
}

impl NameRequests {
    pub(super) fn lookup(&self, request: &Request<'_>) -> Answered {
        let (name, _) = Request::name(request.body)?;
        let nodeid = request.header.nodeid;
        if name == b"." {
            let node = self.nodes.get_by_handle(nodeid)?;
            return Answer::of(&self.shown.entry(&self.nodes, &node)?);
        }
        let dir = self.nodes.get(nodeid)?;
        match dir.lookup(name) {
            Ok(node) => self.entry(&dir, &node),
            Err(Error::Caller(Reason::NotFound)) if self.negative_cache => {
                Answer::of(&self.shown.no_entry())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn entry(&self, dir: &Node, node: &Node) -> Answered {
        Answer::of(&self.shown.entry_in(dir, &self.nodes, node)?)
    }

    pub(super) fn link(&self, request: &Request<'_>) -> Answered {
        let (link, rest) = request.argument::<LinkIn>()?;
        let (name, _) = Request::name(rest)?;
        let node = self.nodes.get(link.old_nodeid)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        request.did(ops::link(&dir, &node, name))?;
        self.entry(&dir, &node)
    }

    pub(super) fn unlink(&self, request: &Request<'_>) -> Answered {
        let (name, _) = Request::name(request.body)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let mut held = None;
        let taken = request.did(ops::unlink_held(&dir, name, &mut held));
        self.taken_away(held, taken)
    }

    pub(super) fn rmdir(&self, request: &Request<'_>) -> Answered {
        let (name, _) = Request::name(request.body)?;
        let dir = self.nodes.get(request.header.nodeid)?;
        let held = dir.lookup(name)?;
        let taken = request.did(ops::rmdir(&dir, name));
        self.taken_away(Some(held), taken)
    }

    /// Ends a request that removed a name of `held`. That is held, so that the inode is not freed before
    /// `lost_a_name` has checked whether the kernel still references it.
    fn taken_away(&self, held: Option<Node>, taken: Result<(), Error>) -> Answered {
        // Even after a failure the name may be gone.
        if let Some(node) = held {
            self.nodes.lost_a_name(node);
        }
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
        // The kernel may still reference the inode that is replaced.
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
        let target = self.nodes.get(request.header.nodeid)?.read_link()?;
        Ok(Answer::Bytes(SmallVec::from_slice(
            target.as_os_str().as_bytes(),
        )))
    }
}
