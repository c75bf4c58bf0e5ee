//! [`Identity`]: who may use the mount, and the owners and permissions that it shows.

use zerocopy::FromBytes;

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
        }
    }

    /// Whether the caller of a request may use the mount. `body`: the request after its header.
    pub(super) fn admits(&self, opcode: Opcode, header: &InHeader, body: &[u8]) -> bool {
        let Some(owner) = self.only_root_and else {
            return true;
        };
        header.uid == 0 || header.uid == owner || opcode.is_for_all() || asks_size(opcode, body)
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

/// Whether the kernel asks for the attributes of an open file itself, for example for the end of the file in
/// lseek(2). For stat(2) and fstat(2), the request has no handle.
fn asks_size(opcode: Opcode, body: &[u8]) -> bool {
    let has_handle = |(get, _): (GetattrIn, _)| get.flags & GETATTR_FH != 0;
    opcode == Opcode::Getattr && GetattrIn::read_from_prefix(body).is_ok_and(has_handle)
}
