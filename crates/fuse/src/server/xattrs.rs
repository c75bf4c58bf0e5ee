//! Extended attributes: SETXATTR, GETXATTR, LISTXATTR, REMOVEXATTR.
//!
//! The kernel checks permissions, except that it does not filter `trusted.` names from a list: that is done
//! here.

use std::sync::Arc;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use smallvec::SmallVec;
use throughline::{XattrMode, ops};

use super::identity::Identity;
use super::{Answer, Answered, Refusal, Request};
use crate::files::Files;
use crate::nodes::Nodes;
use crate::wire::{GetxattrIn, GetxattrOut, SETXATTR_ACL_KILL_SGID, SetxattrIn, SetxattrShortIn};

/// See the head of this file.
pub(super) struct XattrRequests {
    pub(super) nodes: Arc<Nodes>,
    pub(super) files: Arc<Files>,
    pub(super) identity: Arc<Identity>,
    /// `FUSE_SETXATTR_EXT` was negotiated.
    pub(super) long_setxattr: bool,
    /// The mount shows `user.` attributes.
    pub(super) user_xattr: bool,
    /// The mount hides `security.` and `trusted.` attributes.
    pub(super) untrusted: bool,
}

impl XattrRequests {
    pub(super) fn setxattr(&self, request: &Request<'_>) -> Answered {
        let (set, rest) = self.setxattr_argument(request)?;
        let (name, rest) = Request::name(rest)?;
        let value = rest.get(..set.size as usize).ok_or(Errno::INVAL)?;
        self.check_name(name)?;
        let node = self.nodes.get(request.header.nodeid)?;
        if set.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
            request.did(ops::set_acl_clearing_setgid(&node, name, value))?;
            return Answer::done();
        }
        let mode = match XattrFlags::from_bits(set.flags) {
            Some(XattrFlags::CREATE) => XattrMode::Create,
            Some(XattrFlags::REPLACE) => XattrMode::Replace,
            Some(flags) if flags.is_empty() => XattrMode::Either,
            _ => return Err(Errno::INVAL.into()),
        };
        request.did(ops::set_xattr(&node, name, value, mode))?;
        Answer::done()
    }

    /// The argument, in the form that was negotiated with the kernel.
    fn setxattr_argument<'a>(
        &self,
        request: &Request<'a>,
    ) -> Result<(SetxattrIn, &'a [u8]), Refusal> {
        if self.long_setxattr {
            return request.argument();
        }
        let (SetxattrShortIn { size, flags }, rest) = request.argument()?;
        let set = SetxattrIn {
            size,
            flags,
            setxattr_flags: 0,
            padding: 0,
        };
        Ok((set, rest))
    }

    pub(super) fn getxattr(&self, request: &Request<'_>) -> Answered {
        let (get, rest) = request.argument::<GetxattrIn>()?;
        let (name, _) = Request::name(rest)?;
        self.check_name(name)?;
        let node = self.nodes.get(request.header.nodeid)?;
        let value = node.xattrs().get(name)?.ok_or(Errno::NODATA)?;
        sized(get.size, &value)
    }

    pub(super) fn listxattr(&self, request: &Request<'_>) -> Answered {
        let (get, _) = request.argument::<GetxattrIn>()?;
        let names = self.nodes.get(request.header.nodeid)?.xattrs().names()?;
        let root = request.header.uid == 0;
        let mut all = Vec::new();
        for name in names {
            if self.check_name(&name).is_ok() && (root || !name.starts_with(b"trusted.")) {
                all.extend_from_slice(&name);
                all.push(0);
            }
        }
        sized(get.size, &all)
    }

    pub(super) fn removexattr(&self, request: &Request<'_>) -> Answered {
        let (name, _) = Request::name(request.body)?;
        self.check_name(name)?;
        let node = self.nodes.get(request.header.nodeid)?;
        let is_capability = name == b"security.capability";
        if is_capability {
            self.identity
                .check_drops_capability(request, &node, &self.files)?;
        }
        request.did(ops::remove_xattr(&node, name))?;
        if is_capability {
            self.identity.stripped.note(&request.header);
        }
        Answer::done()
    }

    /// Refuses names that the mount hides.
    fn check_name(&self, name: &[u8]) -> Result<(), Refusal> {
        let is_privileged = name.starts_with(b"security.") || name.starts_with(b"trusted.");
        let is_hidden =
            !self.user_xattr && name.starts_with(b"user.") || self.untrusted && is_privileged;
        match is_hidden {
            true => Err(Errno::OPNOTSUPP.into()),
            false => Ok(()),
        }
    }
}

/// The reply with `bytes`; with `room` 0, the reply with their length only.
fn sized(room: u32, bytes: &[u8]) -> Answered {
    if room == 0 {
        return Answer::of(&GetxattrOut {
            size: bytes.len() as u32,
            padding: 0,
        });
    }
    if bytes.len() > room as usize {
        return Err(Errno::RANGE.into());
    }
    Ok(Answer::Bytes(SmallVec::from_slice(bytes)))
}
