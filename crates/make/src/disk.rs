//! Makes the image of a disk: a partition table, and a volume in the only partition.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use throughline_block::Disk;
use throughline_device::{LockMode, OpenOptions};

use crate::error::{Error, Result};
use crate::make::{LOOKED_AT_BYTES, Made, occupied};
use crate::options::{MkfsOptions, VolumeSize};
use crate::pack::{Around, Frame, PackSize, PackedPartition, PartitionTable, write_table};
use crate::write;

impl MkfsOptions {
    /// Makes the image of a disk in the file `path`: a partition table, and the volume in its only partition,
    /// from 1 MiB on. The [size](MkfsOptions::size) is that of the disk; without one, that of the file. The
    /// GUIDs of the disk and of the partition follow from the UUID of the volume.
    ///
    /// # Errors
    /// As [`MkfsOptions::make`]; [`Error::Invalid`] for a block device, on which tools such as sfdisk make
    /// partitions.
    pub fn make_disk(
        &self,
        path: impl AsRef<Path>,
        table: PartitionTable,
    ) -> Result<(Made, PackedPartition)> {
        let path = path.as_ref();
        let failed = Error::open(path);
        let (inner, frame) = self.inner(path, table)?;
        let exists = path.exists();
        if exists && !self.overwrite {
            let mut start = Vec::new();
            let file = File::open(path).map_err(failed)?;
            let read = file.take(LOOKED_AT_BYTES).read_to_end(&mut start);
            read.map_err(failed)?;
            if start.iter().any(|byte| *byte != 0) {
                return Err(occupied());
            }
        }
        if exists {
            // What the table replaces, before the volume is written over what it refers to.
            inner.plan(Some(frame.start + frame.volume))?;
            let open = OpenOptions::new().write(true).lock(LockMode::Exclusive);
            let disk = Disk::new(open.open(path).map_err(failed)?)?;
            write::erase(&disk, 0, disk.len_bytes())?;
        }
        let made = inner.make(path)?;
        let partition = PackedPartition::of(&frame, &made.uuid);
        let file = File::options().write(true).open(path);
        let framed = file.and_then(|file| file.set_len(frame.total));
        let framed = framed
            .map_err(failed)
            .and_then(|()| write_table(path, &frame, table, &made.label, &partition));
        if framed.is_err() && !exists {
            // The file is ours, and of no use.
            let _ = fs::remove_file(path);
        }
        framed.map(|()| (made, partition))
    }

    /// What [`MkfsOptions::make_disk`] would make.
    ///
    /// # Errors
    /// As there.
    pub fn plan_disk(&self, path: impl AsRef<Path>, table: PartitionTable) -> Result<Made> {
        let (inner, frame) = self.inner(path.as_ref(), table)?;
        inner.plan(Some(frame.start + frame.volume))
    }

    /// The options of the volume in the partition, and the places in the image.
    fn inner(&self, path: &Path, table: PartitionTable) -> Result<(MkfsOptions, Frame)> {
        if self.extended.offset.is_some() || self.only_supers {
            return Err(Error::invalid(
                "a partition table makes a whole disk image: neither -E offset= nor -S goes with it",
            ));
        }
        let found = fs::metadata(path).ok();
        if found.as_ref().is_some_and(|found| !found.is_file()) {
            return Err(Error::invalid(
                "a partition table is made in a file only: sfdisk makes one on a device",
            ));
        }
        let len = found.map(|found| found.len());
        let total = match (self.end_bytes()?, len) {
            (None, Some(len)) if len > 0 => len,
            (None, _) => return Err(Error::invalid("the size of the disk image is needed")),
            (Some(bytes), Some(len)) if bytes < len => {
                return Err(Error::invalid(format!(
                    "the file has {len} bytes already: the table is also at the end of a disk, so the size \
                     cannot be less"
                )));
            }
            (Some(bytes), _) => bytes,
        };
        let around = Around {
            table: Some(table),
            hashes: None,
        };
        let volume = match around.inner(PackSize::Exact(total))? {
            PackSize::Exact(volume) => volume,
            _ => total,
        };
        let frame = around.frame(PackSize::Exact(total), volume);
        let mut inner = self.clone();
        inner.extended.offset = Some(frame.start);
        inner.size = Some(VolumeSize::Bytes(volume));
        Ok((inner, frame))
    }
}
