//! Creates inodes with a first name: files, directories, symbolic links, devices, fifos, sockets.

use std::sync::Arc;

use throughline_extfmt::features::Incompat;
use throughline_extfmt::inode::{FAST_SYMLINK_MAX, FileType, InodeFlags};

use super::symlink::check_target;
use super::{is_there, may_add, need_dir};
use crate::balloc::GROUP_CREDITS;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::{Inode, Inodes};
use crate::names::Names;
use crate::orphan::ORPHAN_CREDITS;
use crate::xattr::Prepared;
use crate::xattr::acl::{self, Inherited};
use crate::{dir, namei, orphan, quota};

/// Blocks that one creation may change: the inode, its bitmap and descriptor; its first block and its bits;
/// the name; and the orphan record if the name fails for lack of space.
const CREDITS: u32 = 3 + (1 + GROUP_CREDITS) + dir::INSERT_CREDITS + ORPHAN_CREDITS;

/// The setgid bit of a mode.
const SETGID: u16 = 0o2000;

/// The type of inode to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewKind<'a> {
    /// A regular file, empty.
    File,
    /// A directory, empty.
    Dir,
    /// A symbolic link to this target: at least one byte, no NUL, less than a block.
    Symlink(&'a [u8]),
    /// A character device.
    CharDevice {
        /// Major number, up to 4095.
        major: u32,
        /// Minor number, up to 1048575.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number, up to 4095.
        major: u32,
        /// Minor number, up to 1048575.
        minor: u32,
    },
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
}

/// Owner and permissions of a new inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewInode {
    /// Permission bits, setuid, setgid and sticky: 0 to 0o7777.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group; overridden by a directory with the setgid bit.
    pub gid: u32,
    /// Umask of the creating process: 0 to 0o777. Not applied to symbolic links, nor if the directory has a
    /// default ACL, which replaces it.
    pub umask: u16,
}

impl NewKind<'_> {
    fn file_type(&self) -> FileType {
        match self {
            Self::File => FileType::Regular,
            Self::Dir => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::CharDevice { .. } => FileType::CharDevice,
            Self::BlockDevice { .. } => FileType::BlockDevice,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
        }
    }

    /// Whether a new inode of this kind has a block.
    fn has_block(&self, fs: &Names) -> bool {
        match self {
            Self::Dir => !fs.geo.incompat.contains(Incompat::INLINE_DATA),
            Self::Symlink(target) => target.len() > FAST_SYMLINK_MAX,
            _ => false,
        }
    }

    fn check(&self, fs: &Names) -> Result<()> {
        match *self {
            Self::Symlink(target) => check_target(target, fs.block_bytes()),
            Self::CharDevice { major, minor } | Self::BlockDevice { major, minor }
                if major > 0xfff || minor > 0xf_ffff =>
            {
                Err(Reason::Invalid("device number").into())
            }
            _ => Ok(()),
        }
    }
}

impl Names {
    /// Creates an inode and its first name in `parent`.
    ///
    /// # Errors
    /// `Exists`, `NotDir`, `NotFound` (the directory was removed; an empty link target), `NameTooLong`,
    /// `Invalid`, `NoKey` (an encrypted directory), `TooManyLinks`, `NoSpace`, `Permission` (an immutable
    /// directory), `ReadOnly`.
    pub fn create(
        &self,
        parent: &Arc<Inode>,
        name: &[u8],
        kind: NewKind<'_>,
        new: NewInode,
    ) -> Result<Arc<Inode>> {
        namei::check_new_name(name)?;
        need_dir(parent)?;
        kind.check(self)?;
        let inode = self.with_room(|| self.try_create(parent, Some(name), kind, new))?;
        self.names_changed(&[parent])?;
        Ok(inode)
    }

    /// Creates an inode and its name in `parent`. Without a name, the inode becomes an orphan.
    pub(super) fn try_create(
        &self,
        parent: &Arc<Inode>,
        name: Option<&[u8]>,
        kind: NewKind<'_>,
        new: NewInode,
    ) -> Result<Arc<Inode>> {
        let _lock = parent.dir_exclusive();
        is_there(parent)?;
        match name {
            Some(name) => dir::nokey::refuse_new(self, parent, name)?,
            None if self.is_encrypted(parent) => return Err(Reason::NoKey.into()),
            None => {}
        }
        let room = name
            .map(|name| dir::room(self, parent, name).map(|room| (name, room)))
            .transpose()?;
        may_add(parent)?;
        if kind == NewKind::Dir {
            self.may_add_subdirectory(parent)?;
        }
        self.make(parent, kind, new, CREDITS, |h, inode| match room {
            Some((name, room)) => {
                dir::insert(self, h, parent, room, name, inode.ino, inode.file_type())?;
                self.dir_changed(h, parent, i32::from(kind == NewKind::Dir))
            }
            None => make_orphan(self, h, inode),
        })
    }

    /// Makes an inode in `parent` with the ACLs that it inherits, and runs `name` on it, in one transaction
    /// with `credits` plus those of the ACLs. `name` may refuse only before its first change. The directory's
    /// lock is held, no handle is open.
    pub(super) fn make(
        &self,
        parent: &Inode,
        kind: NewKind<'_>,
        new: NewInode,
        credits: u32,
        name: impl FnOnce(&mut Handle<'_>, &Arc<Inode>) -> Result<()>,
    ) -> Result<Arc<Inode>> {
        let Inherited { mode, lists } = inherit(self, parent, kind, new)?;
        let owners = owners_of_new(self, parent, new);
        quota::tree::ensure(self, owners)?;
        let blocks = u64::from(kind.has_block(self));
        let _held = quota::charge::hold(self, owners.map(Some), self.cluster_bytes(blocks), 1)?;
        let credits = credits + lists.as_ref().map_or(0, Prepared::credits);
        let made = self.transact(credits, |h| {
            let inode = make_inode(self, h, parent, kind, mode, new)?;
            let listed = match &lists {
                Some(lists) => lists.enter(h, self, &inode).map(drop),
                None => Ok(()),
            };
            let named = listed
                .and_then(|()| fill(self, h, &inode, parent, kind))
                .and_then(|()| name(h, &inode));
            unless_refused(self, h, inode, named)
        });
        if let Some(lists) = lists {
            lists.end(self)?;
        }
        let (inode, named) = made?;
        if named.is_err() {
            self.free_if_unused(&inode)?;
        }
        named.map(|()| inode)
    }
}

/// Returns a new inode after its naming step; if that was refused, makes it an orphan to be freed.
fn unless_refused(
    fs: &Inodes,
    h: &mut Handle<'_>,
    inode: Arc<Inode>,
    named: Result<()>,
) -> Result<(Arc<Inode>, Result<()>)> {
    if matches!(named, Err(Error::Caller(_))) {
        make_orphan(fs, h, &inode)?;
        return Ok((inode, named));
    }
    named.map(|()| (inode, Ok(())))
}

fn make_orphan(fs: &Inodes, h: &mut Handle<'_>, inode: &Arc<Inode>) -> Result<()> {
    inode.raw.write().set_links_count(0);
    orphan::add(fs, h, inode)
}

/// User, group and project of a new inode.
fn owners_of_new(fs: &Inodes, parent: &Inode, new: NewInode) -> [u32; 3] {
    let raw = parent.raw.read();
    let gid = match raw.mode() & SETGID != 0 {
        true => raw.gid(),
        false => new.gid,
    };
    let inherits = raw.flags().contains(InodeFlags::PROJINHERIT);
    drop(raw);
    let project = if inherits { fs.project(parent) } else { 0 };
    [new.uid, gid, project]
}

/// The mode of a new inode, and the ACLs that it inherits.
fn inherit(fs: &Names, parent: &Inode, kind: NewKind<'_>, new: NewInode) -> Result<Inherited> {
    if matches!(kind, NewKind::Symlink(_)) {
        return Ok(Inherited {
            mode: 0o777,
            lists: None,
        });
    }
    let mode = (new.permissions & 0o7777, new.umask);
    let is_dir = kind == NewKind::Dir;
    acl::inherit(fs, parent, is_dir, mode, (new.uid, new.gid))
}

fn make_inode(
    fs: &Inodes,
    h: &mut Handle<'_>,
    parent: &Inode,
    kind: NewKind<'_>,
    mut permissions: u16,
    new: NewInode,
) -> Result<Arc<Inode>> {
    let (parent_mode, parent_gid) = {
        let raw = parent.raw.read();
        (raw.mode(), raw.gid())
    };
    let mut gid = new.gid;
    if parent_mode & SETGID != 0 {
        gid = parent_gid;
        if kind == NewKind::Dir {
            permissions |= SETGID;
        }
    }
    let mode = kind.file_type().mode_bits() | permissions;
    fs.new_inode(h, parent, mode, new.uid, gid)
}

/// Initializes the contents of a new inode.
fn fill(
    fs: &Names,
    h: &mut Handle<'_>,
    inode: &Inode,
    parent: &Inode,
    kind: NewKind<'_>,
) -> Result<()> {
    match kind {
        NewKind::File => inode.raw.write().set_links_count(1),
        NewKind::Fifo | NewKind::Socket => {
            let mut raw = inode.raw.write();
            raw.set_links_count(1);
            let flags = raw.flags() - InodeFlags::EXTENTS;
            raw.set_flags(flags);
            raw.i_block_mut().fill(0);
        }
        NewKind::Dir => {
            inode.raw.write().set_links_count(2);
            dir::init(fs, h, inode, parent.ino)?;
        }
        NewKind::Symlink(target) => {
            inode.raw.write().set_links_count(1);
            fs.fill_symlink(h, inode, target)?;
        }
        NewKind::CharDevice { major, minor } | NewKind::BlockDevice { major, minor } => {
            let mut raw = inode.raw.write();
            let flags = raw.flags() - InodeFlags::EXTENTS;
            raw.set_flags(flags);
            raw.i_block_mut().fill(0);
            raw.set_links_count(1);
            if !raw.set_device_number(major, minor) {
                return Err(Reason::Invalid("device number").into());
            }
        }
    }
    fs.store(h, inode)
}
