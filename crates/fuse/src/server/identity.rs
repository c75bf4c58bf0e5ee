//! [`Identity`]: who may use the mount, and the owners and permissions that it shows.

use throughline::Caller;
use zerocopy::FromBytes;

use super::privileges::Stripped;
use crate::files::OpenFile;
use crate::options::{Access, MountOptions};
use crate::wire::{GETATTR_FH, GetattrIn, InHeader, Opcode};

/// See the head of this file. Its rules about set-user-ID and set-group-ID are in `privileges.rs`.
pub(super) struct Identity {
    /// The owner shown for all files, in place of their own.
    uid: Option<u32>,
    /// The group shown for all files, in place of their own.
    gid: Option<u32>,
    /// The permissions shown for all files, in place of their own.
    permissions: Option<u32>,
    /// With `allow_root`: the only user ID besides root that may use the mount.
    only_root_and: Option<u32>,
    /// Permissions are checked (not with `fakeroot`).
    checks: bool,
    /// Every caller has root's rights.
    fakeroot: bool,
    pub(super) stripped: Stripped,
}

impl Identity {
    pub(super) fn new(options: &MountOptions) -> Identity {
        let me = rustix::process::getuid().as_raw();
        Identity {
            uid: options.uid,
            gid: options.gid,
            permissions: options.umask.map(|umask| 0o777 & !umask),
            only_root_and: (options.access == Access::OwnerAndRoot).then_some(me),
            checks: options.kernel_checks_permissions(),
            fakeroot: options.fakeroot,
            stripped: Stripped::default(),
        }
    }

    /// Whether the caller of a request may use the mount. `body`: the request after its header.
    pub(super) fn admits(&self, opcode: Opcode, header: &InHeader, body: &[u8]) -> bool {
        let Some(owner) = self.only_root_and else {
            return true;
        };
        header.uid == 0 || header.uid == owner || opcode.is_for_all() || asks_size(opcode, body)
    }

    /// For whom a request is served. It does not tell capabilities, so user 0 stands for CAP_SYS_RESOURCE.
    pub(super) fn caller(&self, header: &InHeader) -> Caller {
        match self.fakeroot {
            true => Caller::ROOT,
            false => Caller::new(header.uid, header.gid).in_groups_of(header.pid, is_in_group),
        }
    }

    /// For whom the kernel writes back what programs stored in mappings of a file; that request has no user.
    /// It is who opened the handle, and the file's owner where files are opened without a request.
    pub(super) fn stored_by(&self, file: &OpenFile) -> throughline::Result<Caller> {
        match file.opener() {
            _ if self.fakeroot => Ok(Caller::ROOT),
            Some(opener) => Ok(opener),
            None => {
                let meta = file.node().metadata()?;
                Ok(Caller::new(meta.uid(), meta.gid()))
            }
        }
    }

    /// Whether permissions are checked.
    pub(super) fn checks(&self) -> bool {
        self.checks
    }

    /// The owner that the mount shows for a file of owner `own`.
    pub(super) fn uid(&self, own: u32) -> u32 {
        self.uid.unwrap_or(own)
    }

    /// The group that the mount shows for a file of group `own`.
    pub(super) fn gid(&self, own: u32) -> u32 {
        self.gid.unwrap_or(own)
    }

    /// The permissions that the mount shows for a file with permissions `own`.
    pub(super) fn permissions(&self, own: u32) -> u32 {
        self.permissions.unwrap_or(own)
    }
}

/// Whether a group is a supplementary one of a process. They are not in the request but in `/proc`; if they
/// cannot be read, there are none.
pub(super) fn is_in_group(pid: u32, gid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    let mut groups = groups.unwrap_or_default().split_whitespace();
    groups.any(|group| group.parse() == Ok(gid))
}

/// Whether the kernel asks for the attributes of an open file itself, for example for the end of the file in
/// lseek(2). For stat(2) and fstat(2), the request has no handle.
fn asks_size(opcode: Opcode, body: &[u8]) -> bool {
    let has_handle = |(get, _): (GetattrIn, _)| get.flags & GETATTR_FH != 0;
    opcode == Opcode::Getattr && GetattrIn::read_from_prefix(body).is_ok_and(has_handle)
}
