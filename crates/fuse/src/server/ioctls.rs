//! IOCTL: inode flags, projects and generations.
//!
//! The kernel checks permissions for the ioctls that it implements itself (flags and projects: the owner, and
//! capabilities). The rest is checked here.

use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use smallvec::SmallVec;
use throughline::{Error, InodeFlags, Node, Volume, ops};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::{Answer, Answered, Refusal, Request};
use crate::nodes::Nodes;
use crate::outside::Outside;
use crate::wire::{FsXattr, IoctlIn, IoctlOut, ioctl};

/// Flags in both forms: of an inode, and of `FS_IOC_FSGETXATTR`.
const COMMON: [(InodeFlags, u32); 7] = [
    (InodeFlags::IMMUTABLE, 0x8),
    (InodeFlags::APPEND, 0x10),
    (InodeFlags::SYNC, 0x20),
    (InodeFlags::NOATIME, 0x40),
    (InodeFlags::NODUMP, 0x80),
    (InodeFlags::PROJINHERIT, 0x200),
    (InodeFlags::DAX, 0x8000),
];

/// See the head of this file, and `volume_ioctls.rs`.
pub(super) struct IoctlRequests {
    pub(super) volume: Volume,
    pub(super) nodes: Arc<Nodes>,
    /// The process outside, if the server is in a sandbox.
    pub(super) outside: OnceLock<Arc<dyn Outside>>,
}

impl IoctlRequests {
    pub(super) fn ioctl(&self, request: &Request<'_>) -> Answered {
        let (ask, argument) = request.argument::<IoctlIn>()?;
        let node = self.nodes.get(request.header.nodeid)?;
        match ask.cmd {
            ioctl::GET_FLAGS => answer(&node.flags().bits()),
            ioctl::SET_FLAGS => {
                let flags = InodeFlags::from_bits_retain(word(argument)?);
                request.did(ops::set_flags(&node, flags))?;
                answer(&())
            }
            ioctl::GET_XATTR => answer(&fs_xattr(&node)),
            ioctl::SET_XATTR => {
                let (set, _) = FsXattr::read_from_prefix(argument).map_err(|_| Errno::INVAL)?;
                let flags = inode_flags(&node, set.xflags);
                request.did(ops::set_flags(&node, flags))?;
                request.did(ops::set_project(&node, set.project))?;
                answer(&())
            }
            ioctl::GET_VERSION | ioctl::GET_VERSION_OF_EXT => answer(&node.version()),
            ioctl::SET_VERSION | ioctl::SET_VERSION_OF_EXT => {
                set_version(request, &node, word(argument)?)
            }
            _ => self.volume_ioctl(request, &ask, argument),
        }
    }
}

/// A reply with `value` after the header of IOCTL replies.
pub(super) fn answer(value: &(impl IntoBytes + Immutable)) -> Answered {
    let mut bytes = SmallVec::from_slice(IoctlOut::default().as_bytes());
    bytes.extend_from_slice(value.as_bytes());
    Ok(Answer::Bytes(bytes))
}

/// The argument as a 32-bit number.
fn word(argument: &[u8]) -> Result<u32, Refusal> {
    let bytes = argument.first_chunk().ok_or(Errno::INVAL)?;
    Ok(u32::from_ne_bytes(*bytes))
}

fn fs_xattr(node: &Node) -> FsXattr {
    let flags = node.flags();
    let shown = COMMON.iter().filter(|(flag, _)| flags.contains(*flag));
    FsXattr {
        xflags: shown.fold(0, |all, (_, xflag)| all | xflag),
        project: node.project(),
        ..FsXattr::default()
    }
}

/// The flags of a node, with those in [`COMMON`] replaced from `xflags`.
fn inode_flags(node: &Node, xflags: u32) -> InodeFlags {
    let mut flags = node.flags();
    for (flag, xflag) in COMMON {
        flags.set(flag, xflags & xflag != 0);
    }
    flags
}

fn set_version(request: &Request<'_>, node: &Node, version: u32) -> Answered {
    let header = &request.header;
    if header.uid != 0 && header.uid != node.metadata()?.uid() {
        return Err(Errno::PERM.into());
    }
    match request.did(ops::set_version(node, version)) {
        // As the kernel's ext4, if checksums depend on the generation.
        Err(Error::Unsupported(_)) => Err(Errno::NOTTY.into()),
        done => {
            done?;
            answer(&())
        }
    }
}
