//! [`Shown`]: how the mount shows an inode, and how long the kernel may cache that.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use throughline::internal::since_epoch;
use throughline::{Metadata, Node, Volume};

use super::Refusal;
use super::identity::Identity;
use crate::nodes::{Nodes, nodeid_of};
use crate::options::Choices;
use crate::wire::{Attr, AttrOut, EntryOut, Statx, StatxOut, SxTime, device_to_wire, statx_mask};

/// How long the kernel may cache names and attributes: without limit, because nothing else changes the image.
const FOR_GOOD: Duration = Duration::from_secs(1 << 30);

/// See the head of this file.
pub(super) struct Shown {
    identity: Arc<Identity>,
    /// The volume's block size in bytes.
    block_bytes: u32,
    /// How long the kernel may cache names, and attributes that only requests change, in seconds.
    keep_secs: u64,
}

impl Shown {
    pub(super) fn new(volume: &Volume, identity: Arc<Identity>, choices: &Choices) -> Shown {
        Shown {
            identity,
            block_bytes: volume.block_bytes(),
            keep_secs: if choices.entry_cache {
                FOR_GOOD.as_secs()
            } else {
                0
            },
        }
    }

    /// As [`Shown::entry`], for a name in `dir`. The kernel compares names as bytes: in a directory that
    /// ignores case, it does not know that a change of one spelling changes others too. So it asks again each
    /// time.
    pub(super) fn entry_in(
        &self,
        dir: &Node,
        nodes: &Nodes,
        node: &Node,
    ) -> Result<EntryOut, Refusal> {
        let entry = self.entry(nodes, node)?;
        let entry_valid = match dir.ignores_case() {
            true => 0,
            false => entry.entry_valid,
        };
        Ok(EntryOut {
            entry_valid,
            ..entry
        })
    }

    /// The reply to a look-up of a node; counts the look-up in `nodes`.
    pub(super) fn entry(&self, nodes: &Nodes, node: &Node) -> Result<EntryOut, Refusal> {
        let meta = node.metadata()?;
        let nodeid = nodeid_of(node.ino());
        nodes.note(nodeid);
        Ok(EntryOut {
            nodeid,
            generation: meta.generation().into(),
            entry_valid: self.keep_secs,
            attr_valid: self.attr_secs(&meta),
            entry_valid_ns: 0,
            attr_valid_ns: 0,
            attr: self.attr(&meta),
        })
    }

    /// The reply to a look-up of a missing name that the kernel may cache.
    pub(super) fn no_entry(&self) -> EntryOut {
        EntryOut {
            entry_valid: self.keep_secs,
            ..EntryOut::default()
        }
    }

    pub(super) fn attr_out(&self, meta: &Metadata) -> AttrOut {
        AttrOut {
            attr_valid: self.attr_secs(meta),
            attr_valid_ns: 0,
            dummy: 0,
            attr: self.attr(meta),
        }
    }

    pub(super) fn statx_out(&self, meta: &Metadata) -> StatxOut {
        let device = meta.device();
        let born = meta.created();
        let stat = Statx {
            mask: statx_mask::BASIC | born.map_or(0, |_| statx_mask::BTIME),
            blksize: self.block_bytes,
            nlink: meta.nlink(),
            uid: self.identity.uid(meta.uid()),
            gid: self.identity.gid(meta.gid()),
            mode: self.mode(meta) as u16,
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
        StatxOut {
            attr_valid: self.attr_secs(meta),
            stat,
            ..StatxOut::default()
        }
    }

    fn attr(&self, meta: &Metadata) -> Attr {
        let (atime, atime_ns) = since_epoch(meta.accessed());
        let (mtime, mtime_ns) = since_epoch(meta.modified());
        let (ctime, ctime_ns) = since_epoch(meta.changed());
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
            uid: self.identity.uid(meta.uid()),
            gid: self.identity.gid(meta.gid()),
            rdev: meta
                .device()
                .map_or(0, |device| device_to_wire(device.major, device.minor)),
            blksize: self.block_bytes,
            flags: 0,
        }
    }

    /// Type and permissions.
    fn mode(&self, meta: &Metadata) -> u32 {
        meta.file_type().mode_bits() | self.identity.permissions(meta.mode())
    }

    /// How long the kernel may cache attributes. It fetches those that write-back may change, without a
    /// request, each time.
    fn attr_secs(&self, meta: &Metadata) -> u64 {
        match meta.is_stable() {
            true => self.keep_secs,
            false => 0,
        }
    }
}

fn sx_time(time: SystemTime) -> SxTime {
    let (seconds, ns) = since_epoch(time);
    SxTime {
        seconds,
        ns,
        reserved: 0,
    }
}
