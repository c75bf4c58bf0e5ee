//! What a program file lends to whoever runs it, and when that goes: setuid, setgid, and capabilities (an attribute).
//!
//! A write, a truncation and a new owner take it away. For a new owner that is so always; for the others the caller says
//! whether, as it knows who writes.

use throughline_extfmt::InodeImage;
use throughline_extfmt::inode::{FileType, Time};

use crate::error::{Reason, Result};
use crate::fs::Fs;
use crate::inode::Inode;

/// The setuid bit, the setgid bit, and the group's right to execute.
const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o0010;

/// A mode without what it lends. Without the group's right to execute, the setgid bit means something else and stays.
pub(crate) fn without(mode: u16) -> u16 {
    if FileType::from_mode(mode) == Some(FileType::Directory) {
        return mode;
    }
    let setgid = if mode & GROUP_EXECUTE == 0 { 0 } else { SETGID };
    mode & !(SETUID | setgid)
}

/// Takes it from an image; whether there was any.
fn strip(raw: &mut InodeImage) -> bool {
    let mode = raw.mode();
    let left = without(mode);
    raw.set_mode(left);
    left != mode
}

impl Fs {
    /// Takes setuid and capabilities from a file that is about to be written or cut by someone who has no right to keep them,
    /// and setgid where it goes with a right to execute. No lock of the file is held.
    ///
    /// # Errors
    /// `NotFound` for an inode that was freed, `ReadOnly`; those of [`Fs::remove_xattr`].
    pub fn drop_privileges(&self, inode: &Inode) -> Result<()> {
        self.check_writable()?;
        self.drop_capability(inode)?;
        let mode = inode.raw.read().mode();
        if without(mode) == mode {
            return Ok(());
        }
        self.transact(1, |h| {
            {
                let mut raw = inode.raw.write();
                if inode.is_freed() {
                    return Err(Reason::NotFound.into());
                }
                if !strip(&mut raw) {
                    return Ok(());
                }
                raw.set_time(Time::Change, self.now());
            }
            self.store_attributes(h, inode)
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
            assert_eq!(without(file | mode), file | left, "{mode:o}");
        }
        let dir = FileType::Directory.mode_bits() | 0o6777;
        assert_eq!(without(dir), dir);
    }
}
