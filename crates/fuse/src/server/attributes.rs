//! Attributes: GETATTR, STATX, SETATTR, and the attributes in replies to other requests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use throughline::{Attributes, FileType, Metadata, Node, ops};

use super::{Answer, Answered, Refusal, Request, Server};
use crate::nodes::nodeid_of;
use crate::wire::{
    Attr, AttrOut, EntryOut, GETATTR_FH, GetattrIn, SetattrIn, Statx, StatxIn, StatxOut, SxTime,
    device_to_wire, set_attr,
};

/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_BASIC: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;

impl Server {
    /// The attributes of an inode in the form of the protocol.
    pub(super) fn attr(&self, meta: &Metadata) -> Attr {
        let (atime, atime_ns) = wire_time(meta.accessed());
        let (mtime, mtime_ns) = wire_time(meta.modified());
        let (ctime, ctime_ns) = wire_time(meta.changed());
        Attr {
            ino: meta.ino(),
            size: meta.len(),
            blocks: meta.blocks_512(),
            atime,
            mtime,
            ctime,
            atime_ns,
            mtime_ns,
            ctime_ns,
            mode: self.mode(meta),
            nlink: meta.nlink(),
            uid: self.identity.uid.unwrap_or(meta.uid()),
            gid: self.identity.gid.unwrap_or(meta.gid()),
            rdev: meta
                .device()
                .map_or(0, |device| device_to_wire(device.major, device.minor)),
            blksize: self.block_bytes(),
            flags: 0,
        }
    }

    /// Type and permissions, as the mount shows them.
    fn mode(&self, meta: &Metadata) -> u32 {
        let permissions = self.identity.permissions.unwrap_or(meta.mode());
        mode_bits(meta.file_type()) | permissions
    }

    /// The reply to a look-up of a node; counts the look-up.
    pub(super) fn entry(&self, node: &Node) -> Result<EntryOut, Refusal> {
        let meta = node.metadata()?;
        let nodeid = nodeid_of(node.ino());
        self.nodes.note(nodeid);
        Ok(EntryOut {
            nodeid,
            generation: meta.generation().into(),
            entry_valid: self.keep_secs(),
            attr_valid: self.attr_secs(&meta),
            entry_valid_ns: 0,
            attr_valid_ns: 0,
            attr: self.attr(&meta),
        })
    }

    /// How long the kernel may keep attributes. What write-back may change, which no request tells, it asks
    /// for each time.
    fn attr_secs(&self, meta: &Metadata) -> u64 {
        match meta.is_stable() {
            true => self.keep_secs(),
            false => 0,
        }
    }

    fn attr_out(&self, meta: &Metadata) -> AttrOut {
        AttrOut {
            attr_valid: self.attr_secs(meta),
            attr_valid_ns: 0,
            dummy: 0,
            attr: self.attr(meta),
        }
    }

    /// The inode of a request: that of its handle if it has one.
    fn node_of(&self, nodeid: u64, handle: Option<u64>) -> Result<Node, Refusal> {
        match handle.and_then(|fh| self.files.get(fh)) {
            Some(file) => Ok(file.node().clone()),
            None => Ok(self.nodes.get(nodeid)?),
        }
    }

    pub(super) fn getattr(&self, request: &Request<'_>) -> Answered {
        let (get, _) = request.argument::<GetattrIn>()?;
        let handle = (get.flags & GETATTR_FH != 0).then_some(get.fh);
        let node = self.node_of(request.header.nodeid, handle)?;
        Answer::of(&self.attr_out(&node.metadata()?))
    }

    pub(super) fn statx(&self, request: &Request<'_>) -> Answered {
        let (get, _) = request.argument::<StatxIn>()?;
        let handle = (get.flags & GETATTR_FH != 0).then_some(get.fh);
        let node = self.node_of(request.header.nodeid, handle)?;
        let meta = node.metadata()?;
        let device = meta.device();
        let born = meta.created();
        let stat = Statx {
            mask: STATX_BASIC | born.map_or(0, |_| STATX_BTIME),
            blksize: self.block_bytes(),
            nlink: meta.nlink(),
            uid: self.identity.uid.unwrap_or(meta.uid()),
            gid: self.identity.gid.unwrap_or(meta.gid()),
            mode: self.mode(&meta) as u16,
            ino: meta.ino(),
            size: meta.len(),
            blocks: meta.blocks_512(),
            atime: sx_time(meta.accessed()),
            btime: born.map(sx_time).unwrap_or_default(),
            ctime: sx_time(meta.changed()),
            mtime: sx_time(meta.modified()),
            rdev_major: device.map_or(0, |device| device.major),
            rdev_minor: device.map_or(0, |device| device.minor),
            ..Statx::default()
        };
        Answer::of(&StatxOut {
            attr_valid: self.attr_secs(&meta),
            stat,
            ..StatxOut::default()
        })
    }

    pub(super) fn setattr(&self, request: &Request<'_>) -> Answered {
        let (set, _) = request.argument::<SetattrIn>()?;
        let has = |bit| set.valid & bit != 0;
        let handle = has(set_attr::FH).then_some(set.fh);
        let node = self.node_of(request.header.nodeid, handle)?;
        if has(set_attr::SIZE) {
            if has(set_attr::KILL_PRIVILEGES) {
                self.drop_privileges(request, &node)?;
            }
            request.did(ops::set_len(&node, set.size))?;
        }
        let mut attributes = attributes(&set)?;
        // Setting nothing, as chown(-1, -1) does, still counts as a change of owner.
        if !has(set_attr::SIZE) && attributes.is_empty() && !node.is_dir() {
            self.check_drops_privileges(request, &node)?;
            attributes = attributes.drop_privileges();
        }
        if self.takes_setgid(request, &set, &node)? {
            attributes = attributes.drop_setgid();
        }
        if !has(set_attr::SIZE) || !attributes.is_empty() {
            request.did(ops::set_attributes(&node, &attributes))?;
        }
        Answer::of(&self.attr_out(&node.metadata()?))
    }

    /// The volume's block size in bytes.
    fn block_bytes(&self) -> u32 {
        self.volume.block_bytes()
    }
}

fn attributes(set: &SetattrIn) -> Result<Attributes, Errno> {
    let has = |bit| set.valid & bit != 0;
    let mut attributes = Attributes::new();
    if has(set_attr::MODE) {
        attributes = attributes.mode(set.mode & 0o7777);
    }
    if has(set_attr::UID) {
        attributes = attributes.uid(set.uid);
    }
    if has(set_attr::GID) {
        attributes = attributes.gid(set.gid);
    }
    if has(set_attr::ATIME) {
        let time = std_time(set.atime, set.atime_ns).ok_or(Errno::INVAL)?;
        attributes = if has(set_attr::ATIME_NOW) {
            attributes.accessed_now()
        } else {
            attributes.accessed(time)
        };
    }
    if has(set_attr::MTIME) {
        let time = std_time(set.mtime, set.mtime_ns).ok_or(Errno::INVAL)?;
        attributes = if has(set_attr::MTIME_NOW) {
            attributes.modified_now()
        } else {
            attributes.modified(time)
        };
    }
    if has(set_attr::KILL_PRIVILEGES) && !has(set_attr::SIZE) {
        attributes = attributes.drop_privileges();
    }
    Ok(attributes)
}

/// The type in the upper bits of a mode.
fn mode_bits(kind: FileType) -> u32 {
    use rustix::fs::FileType as Kind;
    let kind = match kind {
        FileType::File => Kind::RegularFile,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharDevice => Kind::CharacterDevice,
        FileType::BlockDevice => Kind::BlockDevice,
    };
    kind.as_raw_mode()
}

/// Seconds since 1970 and nanoseconds.
fn wire_time(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs().cast_signed(), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let seconds = before.as_secs().cast_signed().saturating_neg();
            match before.subsec_nanos() {
                0 => (seconds, 0),
                ns => (seconds.saturating_sub(1), 1_000_000_000 - ns),
            }
        }
    }
}

fn sx_time(time: SystemTime) -> SxTime {
    let (seconds, ns) = wire_time(time);
    SxTime {
        seconds,
        ns,
        reserved: 0,
    }
}

fn std_time(seconds: i64, ns: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    start?.checked_add(Duration::from_nanos(ns.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_wire() {
        for (seconds, ns) in [
            (0, 0),
            (1, 999_999_999),
            (-1, 1),
            (-2_147_483_648, 0),
            (-5, 999_999_999),
        ] {
            let time = std_time(seconds, ns).unwrap();
            assert_eq!(wire_time(time), (seconds, ns));
        }
    }
}
