//! Where the volume is in a disk with partitions.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use throughline_image::{Error as NoPartition, Partition, Table, volume_at};

use super::OpenOptions;
use crate::error::{Error, Result};

/// The table of partitions of a file or block device, if it has one and no ext volume at its beginning. The
/// table is read without a lock.
///
/// ```no_run
/// # fn main() -> throughline::Result<()> {
/// let table = throughline::partitions("disk.img")?;
/// for partition in table.iter().flat_map(|table| &table.partitions) {
///     println!("{}: {} bytes, {:?}", partition.number, partition.len_bytes, partition.name);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Open`].
pub fn partitions(path: impl AsRef<Path>) -> Result<Option<Table>> {
    let path = path.as_ref();
    let failed = |source| Error::open(path, source);
    let disk = open(path).map_err(failed)?;
    table(&disk).map_err(failed)
}

/// The options with the place of the volume: the partition that was asked for, or, in a disk without a volume
/// at its beginning, the only partition with one. Nothing outside of it can be read or written.
pub(crate) fn located(options: &OpenOptions, path: &Path) -> Result<OpenOptions> {
    let mut located = options.clone();
    let wanted = located.partition.take();
    let failed = |source| Error::open(path, source);
    if options.offset_bytes != 0 {
        let why = "an offset and a partition exclude each other";
        return match wanted {
            Some(_) => Err(failed(io::Error::new(io::ErrorKind::InvalidInput, why))),
            None => Ok(located),
        };
    }
    let found = open(path).and_then(|disk| find(&disk, wanted.as_deref()));
    match (found, wanted) {
        (Ok(None), _) => {}
        (Ok(Some(partition)), _) => {
            located.offset_bytes = partition.start_bytes;
            located.len_bytes = Some(partition.len_bytes);
        }
        // Whether it can be opened is seen when it is.
        (Err(error), None) if error.raw_os_error().is_some() => {}
        (Err(error), _) => return Err(failed(error)),
    }
    Ok(located)
}

/// Opens without waiting for the other end of a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn table(disk: &File) -> io::Result<Option<Table>> {
    let has_partitions = disk.metadata()?.file_type();
    let has_partitions = has_partitions.is_file() || is_block(&has_partitions);
    if !has_partitions || volume_at(disk, 0)?.is_some() {
        return Ok(None);
    }
    Table::read(disk).map_err(why)
}

fn is_block(kind: &std::fs::FileType) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(kind)
}

/// The partition that holds the volume; `None`: it is the whole disk.
fn find(disk: &File, partition: Option<&str>) -> io::Result<Option<Partition>> {
    let found = match (table(disk)?, partition) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            let why = "it has no table of partitions";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        (Some(table), None) => table.volume().cloned(),
        (Some(table), Some(name)) => table.named(name).cloned(),
    };
    found.map(Some).map_err(why)
}

fn why(error: NoPartition) -> io::Error {
    match error {
        NoPartition::Io(error) => error,
        damaged @ NoPartition::Damaged(_) => io::Error::new(io::ErrorKind::InvalidData, damaged),
        other => io::Error::new(io::ErrorKind::NotFound, other),
    }
}
