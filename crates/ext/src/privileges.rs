//! Privileges of a program file (setuid, setgid, and capabilities, which are an attribute), and when they are
//! dropped.
//!
//! A write, a truncation, an allocation and a change of owner drop them: capabilities always. A change of
//! owner always drops setuid and setgid as well; for the others the caller decides, since it has the
//! credentials of the writing process.

use throughline_extfmt::InodeImage;
use throughline_extfmt::inode::{FileType, Time};

use crate::attrs::Attrs;
use crate::error::{Reason, Result};
use crate::inode::Inode;

/// The setuid bit, the setgid bit, and group execute permission.
const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// The mode without its privileges. Without group execute permission the setgid bit grants none; it is then
/// cleared only if `setgid` is set, for a caller outside the group who could not set it.
pub(crate) fn without(mode: u16, setgid: bool) -> u16 {
    if FileType::from_mode(mode) == Some(FileType::Directory) {
        return mode;
    }
    let group = match mode & GROUP_EXECUTE == 0 && !setgid {
        true => 0,
        false => SETGID,
    };
    mode & !(SETUID | group)
}

/// Whether setgid is set without group execute permission, and so is dropped only for a caller outside the
/// group.
fn is_setgid_only(mode: u16) -> bool {
    mode & (SETGID | GROUP_EXECUTE) == SETGID
}

/// Drops the privileges from an image; returns whether there were any.
fn strip(raw: &mut InodeImage, setgid: bool) -> bool {
    let mode = raw.mode();
    let left = without(mode, setgid);
    raw.set_mode(left);
    left != mode
}

impl Attrs {
    /// Drops setuid and capabilities from a file before a write or truncation by a caller without the right
    /// to keep them. Drops setgid too if the file is group-executable, or if `is_outsider` says that the
    /// caller is not in the file's group. Returns whether the mode changed. No lock of the file may be held.
    ///
    /// # Errors
    /// `NotFound` for a freed inode, `ReadOnly`; those of [`Attrs::remove_xattr`].
    pub fn drop_privileges(
        &self,
        inode: &Inode,
        is_outsider: impl FnOnce(u32) -> bool,
    ) -> Result<bool> {
        self.check_writable()?;
        self.drop_capability(inode)?;
        let (mode, gid) = {
            let raw = inode.raw.read();
            (raw.mode(), raw.gid())
        };
        let setgid = is_setgid_only(mode) && is_outsider(gid);
        if without(mode, setgid) == mode {
            return Ok(false);
        }
        self.transact(1, |h| {
            {
                let mut raw = inode.raw.write();
                if inode.is_freed() {
                    return Err(Reason::NotFound.into());
                }
                if !strip(&mut raw, setgid) {
                    return Ok(false);
                }
                raw.set_time(Time::Change, self.now());
            }
            self.store_attributes(h, inode)?;
            Ok(true)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_are_dropped_by_mode() {
        let file = FileType::Regular.mode_bits();
        for (mode, left) in [
            (0o6755, 0o755),
            (0o4644, 0o644),
            (0o2755, 0o755),
            (0o2644, 0o2644),
            (0o1777, 0o1777),
        ] {
            assert_eq!(without(file | mode, false), file | left, "{mode:o}");
            assert_eq!(without(file | mode, true), file | mode & 0o1777, "{mode:o}");
        }
        let dir = FileType::Directory.mode_bits() | 0o6777;
        assert_eq!(without(dir, true), dir);
    }
}
