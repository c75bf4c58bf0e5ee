//! Clearing the set-user-ID and set-group-ID bits, and notifying the kernel of it.
//!
//! Invariant: the kernel decides from its cached mode which user and group a program runs as. So if a request
//! clears these bits and its reply has no attributes, the kernel is notified that the mode is stale before
//! any byte is changed, and so before the reply.

use rustix::io::Errno;
use throughline::{Node, ops};

use super::identity::{Identity, is_in_group};
use super::stale::logged;
use super::{Refusal, Request};
use crate::files::Files;
use crate::nodes::nodeid_of;
use crate::wire::{InHeader, SetattrIn, set_attr};

impl Identity {
    /// Clears setuid and setgid before a change of data by a caller without the right to keep them.
    pub(super) fn drop_privileges(
        &self,
        request: &Request<'_>,
        node: &Node,
    ) -> Result<(), Refusal> {
        let is_outsider = |gid| self.is_outsider(&request.header, gid);
        if request.did(ops::drop_privileges(node, is_outsider))? {
            logged(request.channel.attributes_are_old(nodeid_of(node.ino())));
        }
        Ok(())
    }

    /// The same, for requests in which the kernel does not say whether the caller has that right.
    pub(super) fn drop_privileges_of_others(
        &self,
        request: &Request<'_>,
        node: &Node,
    ) -> Result<(), Refusal> {
        match request.header.uid {
            0 => Ok(()),
            _ => self.drop_privileges(request, node),
        }
    }

    /// Whether a change of attributes clears setgid on a file that its group may not execute.
    pub(super) fn takes_setgid(
        &self,
        request: &Request<'_>,
        set: &SetattrIn,
        node: &Node,
    ) -> Result<bool, Refusal> {
        let kept = set_attr::MODE | set_attr::SIZE;
        if set.valid & kept != 0 || request.header.uid == 0 {
            return Ok(false);
        }
        let meta = node.metadata()?;
        let alone = meta.mode() & 0o2010 == 0o2000;
        Ok(alone && self.is_outsider(&request.header, meta.gid()))
    }

    /// Whether the caller is not in the file's group.
    fn is_outsider(&self, header: &InHeader, gid: u32) -> bool {
        let gid = self.gid(gid);
        header.gid != gid && !is_in_group(header.pid, gid)
    }

    /// Checks a SETATTR that sets nothing, which clears the file's privileges. The kernel sends it for a
    /// write, and for `chown(-1, -1)`, which only the owner may call; the kernel has not checked that,
    /// because nothing is set. If no handle is open for writing, it is the second case. Where files are
    /// opened without a request, it is if only the owner may write to the file: who may write can clear the
    /// bits by a write as well.
    pub(super) fn check_drops_privileges(
        &self,
        request: &Request<'_>,
        node: &Node,
        files: &Files,
    ) -> Result<(), Refusal> {
        let (meta, header) = (node.metadata()?, &request.header);
        let owner = self.uid(meta.uid());
        let (set_user, set_group) = (meta.mode() & 0o4000 != 0, meta.mode() & 0o2000 != 0);
        // Setgid without group execution is not a privilege for members of the group.
        let locks = meta.mode() & 0o010 == 0 && !self.is_outsider(header, meta.gid());
        let drops = set_user || (set_group && !locks);
        let may = header.uid == 0 || header.uid == owner || !self.checks();
        let writes = match files.knows_writers() {
            true => files.has_writer(node.ino()),
            false => meta.mode() & 0o022 != 0,
        };
        match drops && !may && !writes {
            true => Err(Errno::PERM.into()),
            false => Ok(()),
        }
    }
}
