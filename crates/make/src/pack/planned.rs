//! What is known before anything is written: whether the options are sound, what would be made, and what is
//! in it.

use throughline_archive::{Sources, Tree};

use super::frame::Frame;
use super::inode;
use super::options::PackOptions;
use super::size;
use super::tree::Kind;
use super::verity::Verity;
use super::walk::Walk;
use super::whole::guids;
use crate::error::{Error, Result};
use crate::make::{Made, made};
use crate::plan::Plan;

/// An image that was made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Packed {
    /// The volume.
    pub made: Made,
    /// Bytes of the image.
    pub bytes: u64,
    /// Directories, the root among them.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links, devices, pipes, sockets.
    pub others: u64,
    /// Names beyond the first of a node.
    pub hard_links: u64,
    /// Bytes of all files, holes among them.
    pub data_bytes: u64,
    /// Where the volume is, if it is in a partition.
    pub partition: Option<PackedPartition>,
    /// The hash tree, if there is one; not known of what is only planned.
    pub verity: Option<Verity>,
    /// Nodes whose times the inodes cannot hold: they have the nearest time.
    pub clamped_times: u64,
}

/// A partition that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackedPartition {
    /// Where it begins in the image, in bytes.
    pub start: u64,
    /// Its length, in bytes.
    pub bytes: u64,
    /// The GUID of the disk.
    pub disk_guid: [u8; 16],
    /// The GUID of the partition.
    pub guid: [u8; 16],
}

impl PackedPartition {
    /// The partition of a volume with this UUID.
    pub(crate) fn of(frame: &Frame, uuid: &[u8; 16]) -> PackedPartition {
        let [disk_guid, guid] = guids(uuid);
        PackedPartition {
            start: frame.start,
            bytes: frame.content,
            disk_guid,
            guid,
        }
    }
}

impl PackOptions {
    /// Whether the options are sound, whatever is packed: to be called before sources are read.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Unsupported`].
    pub fn check_options(&self) -> Result<()> {
        size::check(&self.given()?, self.around.inner(self.size)?)
    }

    /// What [`PackOptions::pack`] would make of a tree. Data is not read, so the UUID is zero if it would
    /// follow from that.
    ///
    /// # Errors
    /// As there.
    pub fn plan(&self, tree: &Tree, sources: &Sources) -> Result<Packed> {
        let (walk, options) = self.walked(tree, sources)?;
        let (sized, frame) = self.sized(&options, &walk)?;
        let mut request = sized.request.clone();
        if options.uuid.is_none() {
            request.uuid = [0; 16];
        }
        let plan = Plan::with(&request, &sized.measured)?
            .map_err(|_| Error::invalid("no plan holds all of it"))?;
        Ok(self.packed(made(&plan, &request), &walk, &frame))
    }

    /// Counts what is in an image.
    pub(super) fn packed(&self, made: Made, walk: &Walk<'_>, frame: &Frame) -> Packed {
        let latest = self.latest();
        let inode_bytes = made.inode_bytes;
        let table = self.around.table;
        let partition = table.map(|_| PackedPartition::of(frame, &made.uuid));
        let mut packed = Packed {
            made,
            bytes: frame.total,
            directories: 0,
            files: 0,
            others: 0,
            hard_links: 0,
            data_bytes: walk.bytes,
            partition,
            verity: None,
            clamped_times: 0,
        };
        for node in walk.nodes() {
            let kind = walk.tree.kind(node);
            match kind {
                Kind::Directory => packed.directories += 1,
                Kind::File { .. } => packed.files += 1,
                _ => packed.others += 1,
            }
            if kind != Kind::Directory {
                packed.hard_links += u64::from(walk.links(node).saturating_sub(1));
            }
            let time = inode::time_of(walk.tree.attributes(node), latest);
            packed.clamped_times += u64::from(!inode::holds(inode_bytes, time));
        }
        packed
    }
}
