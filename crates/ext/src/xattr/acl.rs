//! POSIX ACLs of inodes: set together with the permissions, updated with them, and inherited.
//!
//! Invariant: the permissions of an inode with an access ACL equal [`Acl::permissions`] of that ACL.

use std::sync::Arc;

use throughline_extfmt::acl::{Acl, Refused};
use throughline_extfmt::xattr as format;
use throughline_extfmt::{FsBlock, InodeImage};

use crate::attrs::Attrs;
use crate::error::{Error, Reason, Result};
use crate::inode::Inode;

use super::change::{self, Also, ChangeLocks, Prepared, Rule, Step, There};
use super::{Key, value};

/// The nine permission bits.
const RIGHTS: u16 = 0o777;
/// The setgid bit.
const SETGID: u16 = 0o2000;

/// Which ACL of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The inode's own.
    Access,
    /// Inherited by inodes created in the directory.
    Default,
}

impl Kind {
    fn key(self) -> Key<'static> {
        let index = match self {
            Self::Access => format::INDEX_ACL_ACCESS,
            Self::Default => format::INDEX_ACL_DEFAULT,
        };
        Key { index, name: b"" }
    }
}

/// Converts a stored ACL to its user-space form.
pub(super) fn to_user(inode: &Inode, stored: &[u8]) -> Result<Vec<u8>> {
    Ok(parse(inode, stored)?.to_user())
}

fn parse(inode: &Inode, stored: &[u8]) -> Result<Acl> {
    Acl::from_disk(stored).map_err(|e| Error::from(e).in_inode(inode.ino))
}

/// Sets an ACL given in its user-space form, or removes it if that is empty. An access ACL sets the
/// permissions; with `clear_setgid`, setgid is then cleared. An ACL equivalent to permission bits is not
/// stored.
pub(super) fn set(
    fs: &Attrs,
    inode: &Inode,
    kind: Kind,
    list: &[u8],
    clear_setgid: bool,
) -> Result<()> {
    let list = Acl::from_user(list);
    if kind == Kind::Default && !inode.is_dir() && list != Err(Refused::Version) {
        return match list {
            Ok(None) => Ok(()),
            _ => Err(Reason::Denied.into()),
        };
    }
    let list = list.map_err(|refused| match refused {
        Refused::Version => Error::Unsupported("an ACL of an unknown version".into()),
        Refused::Malformed => Reason::Invalid("the ACL is malformed").into(),
    })?;
    let (mut stored, mut bits) = (list.as_ref().map(Acl::to_disk), None);
    if let (Kind::Access, Some(list)) = (kind, &list) {
        let (permissions, all) = list.permissions();
        bits = Some(permissions);
        if all {
            stored = None;
        }
    }
    let also = |step: Step, raw: &mut InodeImage| {
        if let (Step::Apply, Some(bits)) = (step, bits) {
            let kept = !RIGHTS & if clear_setgid { !SETGID } else { !0 };
            let mode = raw.mode() & kept | bits;
            raw.set_mode(mode);
        }
        Ok(())
    };
    if kind == Kind::Access && inode.is_dir() {
        fs.truncations_before_directory()?;
    }
    let edit = (&kind.key(), stored.as_deref(), Rule::IfThere);
    let locks = ChangeLocks::lock(inode);
    let done = change::set_locked(fs, inode, edit, Some(&also));
    drop(locks);
    change::free(fs, done?.1)?;
    fs.attributes_changed(inode)
}

/// Sets an inode's permissions to `mode`, updates its access ACL, and runs `also`, in one transaction, with
/// the locks of [`ChangeLocks`] held. Returns the value inodes that lost their last user. Returns `None`,
/// with nothing done, for an inode without an access ACL.
pub(crate) fn set_permissions(
    fs: &Attrs,
    inode: &Inode,
    mode: u16,
    also: Also<'_>,
) -> Result<Option<Vec<Arc<Inode>>>> {
    if !fs.xattrs.acl || inode.is_symlink() || has_no_attributes(fs, inode) {
        return Ok(None);
    }
    let key = Kind::Access.key();
    let Some(stored) = value(fs, inode, &key)? else {
        return Ok(None);
    };
    let mut list = parse(inode, &stored)?;
    list.set_permissions(mode);
    let list = list.to_disk();
    let edit = (&key, Some(list.as_slice()), Rule::IfThere);
    let (_, unused) = change::set_locked(fs, inode, edit, Some(also))?;
    Ok(Some(unused))
}

/// Whether an inode has no attributes; needs only its image.
fn has_no_attributes(fs: &Attrs, inode: &Inode) -> bool {
    let raw = inode.raw.read();
    raw.file_acl(&fs.geo) == FsBlock(0) && !format::has_list(raw.xattr_area())
}

/// What a new inode inherits from its directory.
pub(crate) struct Inherited {
    /// Its mode bits.
    pub(crate) mode: u16,
    /// Its ACLs, to be stored with the inode.
    pub(crate) lists: Option<Prepared>,
}

/// What an inode created in `parent` with the requested `mode` inherits; `umask` applies unless the directory
/// has a default ACL. Not for symbolic links. The directory's lock is held, no handle is open.
///
/// # Errors
/// `Corrupt`; `NoSpace`, with nothing left behind; device errors.
pub(crate) fn inherit(
    fs: &Attrs,
    parent: &Inode,
    is_dir: bool,
    (mode, umask): (u16, u16),
    owner: (u32, u32),
) -> Result<Inherited> {
    let default = default_list(fs, parent)?;
    let Some(stored) = default else {
        return Ok(Inherited {
            mode: mode & !(umask & RIGHTS),
            lists: None,
        });
    };
    let (list, bits) = parse(parent, &stored)?.inherited(mode);
    let access = list.map(|list| list.to_disk());
    let default = is_dir.then_some(stored.as_slice());
    let edits: Vec<_> = [(Kind::Default, default), (Kind::Access, access.as_deref())]
        .into_iter()
        .filter(|(_, list)| list.is_some())
        .map(|(kind, list)| (kind.key(), list))
        .collect();
    let lists = if edits.is_empty() {
        None
    } else {
        // Exclusively owned values cannot disappear meanwhile.
        let none = There::none(fs);
        Some(Prepared::new(fs, parent, owner, &none, &edits, false)?)
    };
    Ok(Inherited {
        mode: mode & !RIGHTS | bits,
        lists,
    })
}

fn default_list(fs: &Attrs, dir: &Inode) -> Result<Option<Vec<u8>>> {
    if !fs.xattrs.acl || has_no_attributes(fs, dir) {
        return Ok(None);
    }
    let key = Kind::Default.key();
    if fs.surely_lacks(dir, &key)? {
        return Ok(None);
    }
    let _io = dir.io_shared();
    value(fs, dir, &key)
}
