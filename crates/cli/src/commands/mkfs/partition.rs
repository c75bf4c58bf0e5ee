//! `mkfs IMAGE@2`: a file system in a partition of a disk. What is around the partition stays as it is.

use std::path::PathBuf;

use throughline::internal::OpenImages;
use throughline::{MkfsOptions, OpenOptions, VolumeSize};

use super::MkfsArgs;
use crate::image_name::ImageName;
use crate::problem::{Failure, Problem};

/// The partition that the target names.
pub(super) struct Found {
    /// The file or block device that has it.
    pub(super) disk: PathBuf,
    /// Where it begins.
    pub(super) start_bytes: u64,
    len_bytes: u64,
}

/// Finds the partition that the target names, if it names one.
pub(super) fn find(
    args: &MkfsArgs,
    offset: u64,
    open: &OpenOptions,
) -> Result<Option<Found>, Problem> {
    let ImageName { file, partition } = ImageName::of(&args.image);
    let Some(name) = partition else {
        return Ok(None);
    };
    // Without a table, it is the name of a new file.
    let Some(table) = open.partitions(&file)? else {
        return Ok(None);
    };
    if args.offset(offset) != 0 || args.source.is_some() || args.disk.table().is_some() {
        let why = "a partition of the image excludes an offset, -d and --partition";
        let next = match args.source {
            Some(_) => "without -d; then fill it: throughline cp -a",
            None => "name the partition alone",
        };
        return Err(Problem::new(why).with_next(next));
    }
    let one = table.place(&name).map_err(|error| {
        Problem::new(error.to_string()).with_next(format!(
            "'throughline info {}' shows the partitions",
            file.display()
        ))
    })?;
    Ok(Some(Found {
        disk: file,
        start_bytes: one.start_bytes,
        len_bytes: one.len_bytes,
    }))
}

impl Found {
    /// Makes the volume as long as the partition, or checks that it is not longer.
    pub(super) fn limit(&self, args: &MkfsArgs, options: &mut MkfsOptions) -> Result<(), Failure> {
        if args.size()?.is_none() {
            options.size(VolumeSize::Bytes(self.len_bytes));
            return Ok(());
        }
        let doing = || "cannot plan the file system".to_owned();
        let made = options.plan_for(&self.disk);
        let made = made.map_err(|error| super::failure(error, args, doing))?;
        let bytes = made.blocks.saturating_mul(made.block_bytes.into());
        match bytes > self.len_bytes {
            true => Err(Failure::Usage(format!(
                "{bytes} bytes do not fit the partition, which has {}",
                self.len_bytes
            ))),
            false => Ok(()),
        }
    }
}
