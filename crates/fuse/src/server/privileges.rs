//! Set-user-ID and set-group-ID: who loses them by what, and that the kernel hears of it.
//!
//! Invariant: the kernel decides by the mode that it keeps what a program runs as. So where a request takes these bits away and
//! its answer has no attributes, the kernel is told that the mode is old before the request is answered, and before any byte
//! is changed.

use rustix::io::Errno;
use throughline::Node;

use super::{Refusal, Request, Server};
use crate::nodes::nodeid_of;
use crate::wire::{InHeader, SetattrIn, set_attr};

impl Server {
    /// Before a change of bytes by someone who has no right to keep setuid and setgid.
    pub(super) fn drop_privileges(
        &self,
        request: &Request<'_>,
        node: &Node,
    ) -> Result<(), Refusal> {
        if node.drop_privileges(|gid| self.is_outsider(&request.header, gid))? {
            let told = request.channel.attributes_are_old(nodeid_of(node.ino()));
            if let Err(error) = told {
                // The connection has gone, and with it what the kernel kept.
                tracing::warn!(%error, "telling the kernel that a mode is old");
            }
        }
        Ok(())
    }

    /// The same where the kernel does not say who has that right.
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

    /// Whether a change of attributes takes setgid from a file whose group may not execute it.
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

    /// Whether who asks is not of the group that the volume has for a file. FUSE tells one group of a process; for the others the
    /// system is asked, and where it does not say, there are none.
    fn is_outsider(&self, header: &InHeader, gid: u32) -> bool {
        let gid = self.identity.gid.unwrap_or(gid);
        if header.gid == gid {
            return false;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", header.pid));
        let status = status.unwrap_or_default();
        let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
        let mut groups = groups.unwrap_or_default().split_whitespace();
        !groups.any(|group| group.parse() == Ok(gid))
    }

    /// A request that sets nothing takes a file's privileges away: so does the kernel say that somebody writes, and that
    /// somebody calls `chown(-1, -1)`, which only the owner may; it has not asked, as nothing is set. Where nobody can be
    /// writing, it is the second.
    pub(super) fn check_drops_privileges(
        &self,
        request: &Request<'_>,
        node: &Node,
    ) -> Result<(), Refusal> {
        let (meta, header) = (node.metadata()?, &request.header);
        let owner = self.identity.uid.unwrap_or(meta.uid());
        let (set_user, set_group) = (meta.mode() & 0o4000 != 0, meta.mode() & 0o2000 != 0);
        // Setgid without execution is no privilege to those of the group.
        let locks = meta.mode() & 0o010 == 0 && !self.is_outsider(header, meta.gid());
        let drops = set_user || (set_group && !locks);
        let may = header.uid == 0 || header.uid == owner || !self.checks;
        match drops && !may && !self.files.has_writer(node.ino()) {
            true => Err(Errno::PERM.into()),
            false => Ok(()),
        }
    }
}
