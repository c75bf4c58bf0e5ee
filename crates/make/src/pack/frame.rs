//! What is around a packed volume: a partition table before and after it, a hash tree behind it.
//!
//! ```text
//! protective MBR, GPT │ 1 MiB: volume │ zeros to 4 KiB │ hash tree │ backup of the GPT
//!                     └────────────── the partition ─────────────┘
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::partition::{Partition, PartitionAttributes};
use gpt::{GptConfig, GptError, partition_types};
use throughline_extfmt::verity::BLOCK_BYTES;
use uuid::Uuid;

use super::planned::PackedPartition;
use super::size::PackSize;
use super::verity;
use crate::error::{Error, Result};

/// Where the partition begins, as all tools align it.
const START_BYTES: u64 = 1 << 20;
const SECTOR_BYTES: u64 = 512;
/// The length of an image is a multiple of it, for disks with large sectors.
const ALIGN_BYTES: u64 = 4096;
/// Header and table at the end: 128 entries of 128 bytes.
const BACKUP_BYTES: u64 = 33 * SECTOR_BYTES;

/// A partition table around a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartitionTable {
    /// A GPT with one partition of the type "Linux filesystem data"; `bootable` marks it for legacy BIOS.
    Gpt {
        /// Whether it is marked.
        bootable: bool,
    },
}

/// Where a hash tree of dm-verity goes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HashTree {
    /// Behind the volume.
    Appended,
    /// Into a new file of its own.
    File(PathBuf),
}

/// What is asked for around a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Around {
    pub(crate) table: Option<PartitionTable>,
    pub(crate) hashes: Option<HashTree>,
}

/// The places in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Where the volume begins.
    pub(crate) start: u64,
    /// Bytes of the volume.
    pub(crate) volume: u64,
    /// Bytes that a hash tree covers; 0 if there is none.
    pub(crate) hashed: u64,
    /// Bytes of the volume and of a hash tree behind it: those of the partition.
    pub(crate) content: u64,
    /// Bytes of the image.
    pub(crate) total: u64,
}

impl Around {
    /// The size of the volume in an image of that size.
    pub(crate) fn inner(&self, size: PackSize) -> Result<PackSize> {
        let PackSize::Exact(total) = size else {
            return Ok(size);
        };
        let room = match self.table {
            Some(_) => total.saturating_sub(START_BYTES + BACKUP_BYTES) / ALIGN_BYTES * ALIGN_BYTES,
            None => total,
        };
        let volume = match self.hashes {
            Some(HashTree::Appended) => verity::data_within(room),
            Some(HashTree::File(_)) => room / BLOCK_BYTES * BLOCK_BYTES,
            None => room,
        };
        match volume {
            0 => Err(Error::invalid(format!(
                "{total} bytes (--size) are too few for what is around the file system"
            ))),
            _ => Ok(PackSize::Exact(volume)),
        }
    }

    /// Where the volume begins.
    pub(super) fn start(&self) -> u64 {
        match self.table {
            Some(_) => START_BYTES,
            None => 0,
        }
    }

    /// Whether there is nothing around the volume.
    pub(super) fn is_none(&self) -> bool {
        self.table.is_none() && self.hashes.is_none()
    }

    /// The places for a volume of `volume` bytes.
    pub(crate) fn frame(&self, size: PackSize, volume: u64) -> Frame {
        let hashed = match self.hashes {
            Some(_) => volume.next_multiple_of(BLOCK_BYTES),
            None => 0,
        };
        let content = match self.hashes {
            Some(HashTree::Appended) => hashed + verity::tree_bytes(hashed),
            Some(HashTree::File(_)) => hashed,
            None => volume,
        };
        let (start, end) = match self.table {
            Some(_) => (
                START_BYTES,
                (START_BYTES + content.next_multiple_of(SECTOR_BYTES) + BACKUP_BYTES)
                    .next_multiple_of(ALIGN_BYTES),
            ),
            None => (0, content),
        };
        let total = match size {
            PackSize::Exact(total) => total,
            _ => end,
        };
        Frame {
            start,
            volume,
            hashed,
            content,
            total,
        }
    }
}

impl Frame {
    /// The part of the image that the byte at `offset` is in; `None` for the volume.
    pub(super) fn what(&self, offset: u64) -> Option<&'static str> {
        match offset {
            at if at < self.start => Some("partition table"),
            at if at < self.start + self.volume => None,
            at if at < self.start + self.hashed => Some("zeros behind the file system"),
            at if at < self.start + self.content => Some("hash tree"),
            _ if self.start == 0 => Some("room behind the hash tree"),
            _ => Some("backup of the partition table"),
        }
    }
}

/// Writes the partition table into an image of its final length.
///
/// # Errors
/// Those of the file.
pub(crate) fn write_table(
    path: &Path,
    frame: &Frame,
    table: PartitionTable,
    name: &[u8],
    places: &PackedPartition,
) -> Result<()> {
    let PartitionTable::Gpt { bootable } = table;
    let failed = Error::open(path);
    let open = File::options().read(true).write(true).open(path);
    let mut file = open.map_err(failed)?;
    let last = frame.total / SECTOR_BYTES - 1;
    ProtectiveMBR::with_lb_size(u32::try_from(last).unwrap_or(u32::MAX))
        .overwrite_lba0(&mut file)
        .map_err(|error| failed(io::Error::other(error)))?;
    let disk = Uuid::from_bytes(places.disk_guid);
    let flags = match bootable {
        true => PartitionAttributes::BOOTABLE.bits(),
        false => 0,
    };
    let first_lba = START_BYTES / SECTOR_BYTES;
    let entry = Partition {
        part_type_guid: partition_types::LINUX_FS,
        part_guid: Uuid::from_bytes(places.guid),
        first_lba,
        last_lba: first_lba + frame.content.div_ceil(SECTOR_BYTES) - 1,
        flags,
        name: String::from_utf8_lossy(name).into_owned(),
    };
    let table = GptConfig::new()
        .writable(true)
        .logical_block_size(LogicalBlockSize::Lb512)
        .create_from_device(file, Some(disk));
    let mut table = table.map_err(|error| failed(of_gpt(error)))?;
    let placed = table.update_partitions(BTreeMap::from([(1, entry)]));
    placed.map_err(|error| failed(of_gpt(error)))?;
    let file = table.write().map_err(|error| failed(of_gpt(error)))?;
    file.sync_all().map_err(failed)
}

/// The system's error, if it is one.
fn of_gpt(error: GptError) -> io::Error {
    match error {
        GptError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
