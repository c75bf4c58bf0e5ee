//! What a program file lends to whoever runs it, and when that goes: setuid, setgid, and capabilities (an attribute).
//!
//! A write, a truncation and a new owner take it away. For a new owner that is so always; for the others the caller says
//! whether, as it knows who writes.

use throughline_extfmt::InodeImage;
use throughline_extfmt::inode::{FileType, Time};

use crate::attrs::Attrs;
use crate::error::{Reason, Result};
use crate::inode::Inode;

/// The setuid bit, the setgid bit, and the group's right to execute.
const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// A mode without what it lends. Without the group's right to execute, the setgid bit lends nothing: it goes only where `setgid`
/// says so, as for somebody who is not of the group and could not set it.
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

/// Whether the setgid bit goes only if somebody who is not of the group takes it.
fn is_setgid_alone(mode: u16) -> bool {
    mode & (SETGID | GROUP_EXECUTE) == SETGID
}

/// Takes it from an image; whether there was any.
fn strip(raw: &mut InodeImage, setgid: bool) -> bool {
    let mode = raw.mode();
    let left = without(mode, setgid);
    raw.set_mode(left);
    left != mode
}

impl Attrs {
    /// Takes setuid and capabilities from a file that is about to be written or cut by someone who has no right to keep them,
    /// and setgid where it goes with a right to execute; where not, if `is_outsider` says of the file's group that who writes
    /// is not of it. Whether the mode is another now. No lock of the file is held.
    ///
    /// # Errors
    /// `NotFound` for an inode that was freed, `ReadOnly`; those of [`Attrs::remove_xattr`].
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
        let setgid = is_setgid_alone(mode) && is_outsider(gid);
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
    fn what_goes_and_what_stays() {
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
