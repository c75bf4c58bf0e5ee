//! What a program file loses when its data changes: its capabilities (`security.capability`), and the
//! set-user-ID and set-group-ID bits unless the caller has the right to keep them. The kernel is notified
//! when the bits are cleared.
//!
//! Before a write through its cache, the kernel removes capabilities itself, and says by a SETATTR that sets
//! nothing that privileges go. It does not do so before a write that bypasses its cache.
//!
//! Invariant: the kernel decides from its cached mode which user and group a program runs as. So if a request
//! clears these bits and its reply has no attributes, the kernel is notified that the mode is stale before
//! any byte is changed, and so before the reply.

use std::collections::VecDeque;

use rustix::io::Errno;
use throughline::{Node, ops};
use throughline_locks::Mutex;

use super::identity::{Identity, is_in_group};
use super::stale::logged;
use super::{Refusal, Request};
use crate::files::Files;
use crate::nodes::nodeid_of;
use crate::wire::{InHeader, SetattrIn, set_attr};

/// The files whose capabilities were removed at last for root, and by which threads. Bounded: the SETATTR
/// that follows is the thread's next request, unless it called removexattr(2).
#[derive(Default)]
pub(super) struct Stripped(Mutex<VecDeque<(u64, u32)>>);

const STRIPPED_MAX: usize = 64;

impl Stripped {
    /// A request has removed them.
    pub(super) fn note(&self, header: &InHeader) {
        if header.uid != 0 {
            return;
        }
        let mut files = self.0.lock();
        if files.len() == STRIPPED_MAX {
            files.pop_front();
        }
        files.push_back((header.nodeid, header.pid));
    }

    /// Whether it is a file's and a thread's turn; only once.
    fn take(&self, nodeid: u64, pid: u32) -> bool {
        let mut files = self.0.lock();
        let found = files.iter().position(|file| *file == (nodeid, pid));
        found.and_then(|at| files.remove(at)).is_some()
    }
}

impl Identity {
    /// Removes capabilities, and clears setuid and setgid, before a change of data by a caller without the
    /// right to keep them.
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

    /// Before a change of data. `keeps`: the caller has the right to keep setuid and setgid. Capabilities are
    /// kept for nobody.
    pub(super) fn before_change(
        &self,
        request: &Request<'_>,
        node: &Node,
        keeps: bool,
    ) -> Result<(), Refusal> {
        match keeps {
            true => Ok(request.did(ops::drop_capability(node)).map(drop)?),
            false => self.drop_privileges(request, node),
        }
    }

    /// Whether a SETATTR that sets nothing is that before a change of data by root. It takes capabilities,
    /// which the same thread has just had removed; but root keeps setuid and setgid, which `chown(-1, -1)`
    /// takes.
    pub(super) fn is_change_by_root(
        &self,
        request: &Request<'_>,
        node: &Node,
        files: &Files,
    ) -> bool {
        let header = &request.header;
        header.uid == 0
            && self.stripped.take(header.nodeid, header.pid)
            && files.has_writer(node.ino())
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

    /// Checks a REMOVEXATTR of a file's capabilities. For another user than root, the kernel sends it before
    /// a write or a truncation, and before `chown(-1, -1)`, whose right it has not checked. A truncation
    /// needs no handle, so it is allowed if any other user than the owner may write to the file.
    pub(super) fn check_drops_capability(
        &self,
        request: &Request<'_>,
        node: &Node,
        files: &Files,
    ) -> Result<(), Refusal> {
        match request.header.uid != 0 && node.metadata()?.mode() & 0o022 == 0 {
            true => self.check_drops_privileges(request, node, files),
            false => Ok(()),
        }
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
