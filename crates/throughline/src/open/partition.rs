//! Where the volume is in a disk with partitions.

use std::io;
use std::path::Path;

use throughline_image::{Error as NoPartition, Partition, Table, volume_at};

use super::OpenOptions;
use super::image::Image;
use crate::error::{Error, Result};

/// The table of partitions of an image or block device, if it has one. It is read without a lock.
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
    table(&OpenOptions::new(), path.as_ref())
}

/// The same, of an image that is opened with these options.
pub(crate) fn table(options: &OpenOptions, path: &Path) -> Result<Option<Table>> {
    let failed = |source| Error::open(path, source);
    let disk = Image::peek(&options.image, path).map_err(failed)?;
    match disk.has_partitions() {
        true => Table::read(&disk).map_err(|error| failed(why(error))),
        false => Ok(None),
    }
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
    let found = Image::peek(&options.image, path).and_then(|disk| find(&disk, wanted.as_deref()));
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

/// The partition that holds the volume; `None`: it is the whole disk, which has the number 0.
fn find(disk: &Image, partition: Option<&str>) -> io::Result<Option<Partition>> {
    if !disk.has_partitions() || partition == Some("0") {
        return match partition {
            Some(name) if name != "0" => Err(why(none("neither a file nor a block device"))),
            _ => Ok(None),
        };
    }
    let is_volume = volume_at(disk, 0)?.is_some();
    let found = match (Table::read(disk), partition) {
        (Ok(None), None) => return Ok(None),
        // What is in the place of a table belongs to the volume.
        (Err(NoPartition::Damaged(_)), None) if is_volume => return Ok(None),
        (Ok(None), Some(_)) => Err(none("it has no table of partitions")),
        (Ok(Some(table)), None) if is_volume => {
            if table.partitions.iter().all(|one| one.volume.is_none()) {
                return Ok(None);
            }
            Err(none(
                "it holds an ext volume as a whole, and others in partitions: one of both is left over from \
                 earlier use. IMAGE@0 means the whole, IMAGE@1 the first partition",
            ))
        }
        (Ok(Some(table)), None) => table.volume().cloned(),
        (Ok(Some(table)), Some(name)) => table.named(name).cloned(),
        (Err(error), _) => Err(error),
    };
    found.map(Some).map_err(why)
}

fn none(text: &str) -> NoPartition {
    NoPartition::Choice(text.to_owned())
}

fn why(error: NoPartition) -> io::Error {
    match error {
        NoPartition::Io(error) => error,
        damaged @ NoPartition::Damaged(_) => io::Error::new(io::ErrorKind::InvalidData, damaged),
        other => io::Error::new(io::ErrorKind::NotFound, other),
    }
}
