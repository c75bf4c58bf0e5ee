//! `mkfs -d`: a volume with files in it, packed.

use std::path::Path;

use throughline::pack::{PackOptions, PackSize, Packed};
use throughline::{MkfsConfig, MkfsError, MkfsOptions, VolumeSize};

use super::{MkfsArgs, epoch};
use crate::commands::pack::problem;
use crate::context::Context;
use crate::precious;
use crate::problem::{Failure, Problem};
use crate::progress::Progress;
use crate::sources::{self, Wanted};
use crate::text::quote;

/// Makes the volume of `options`, and fills it; or only says what it would be.
pub(super) fn make(
    args: &MkfsArgs,
    options: MkfsOptions,
    source: &Path,
    is_forced: bool,
    context: &Context,
) -> Result<Packed, Failure> {
    let image = &args.image;
    let doing = || format!("cannot make a file system in {}", quote(image));
    if let Some(why) = precious::in_use(image).filter(|_| !args.dry_run) {
        return Err(Problem::new(why).met(doing()));
    }
    let size = size(args, &options)?;
    let mut options = options;
    // As without -d; 'pack' alone does not read it.
    options.config(MkfsConfig::of_system().map_err(|error| problem(error).met(doing()))?);
    let mut pack = PackOptions::new();
    pack.mkfs(options)
        .size(PackSize::Exact(size))
        .partition(args.disk.table())
        .overwrite(is_forced);
    if let Some(time) = epoch()? {
        pack.epoch(time);
    }
    pack.check_options()
        .map_err(|error| super::failure(error, args, doing))?;
    let wanted = Wanted {
        size_bytes: Some(size),
        without: vec![image],
        ..Wanted::default()
    };
    let (tree, sources) = sources::merged(&[source.to_owned()], &wanted)?;
    if args.dry_run {
        let packed = pack.plan(&tree, &sources);
        return packed.map_err(|error| problem(error).met(doing()));
    }
    let progress = Progress::bytes(Some(0), context.globals.quiet || context.json);
    let show = |done, of| progress.at(done, of);
    // A disk image is a new file: the old one is replaced when the new one is complete.
    let packed = match image.exists() && args.disk.table().is_none() {
        true => pack.pack_onto(&tree, &sources, image, &show),
        false => pack.pack_showing(&tree, &sources, image, &show),
    };
    progress.clear();
    packed.map_err(|error| match error {
        MkfsError::Occupied(_) => super::problem(error, args).met(doing()),
        other => problem(other).met(doing()),
    })
}

/// Bytes of the volume: as given, or all of the target.
fn size(args: &MkfsArgs, options: &MkfsOptions) -> Result<u64, Failure> {
    let image = &args.image;
    match args.size()? {
        Some(VolumeSize::Bytes(bytes)) => Ok(bytes),
        None if args.disk.table().is_some() => match image.metadata() {
            Ok(found) if found.len() > 0 => Ok(found.len()),
            _ => Err(Failure::Usage(
                "--partition: the size of the disk image is needed".to_owned(),
            )),
        },
        given => {
            // Blocks, whose size the options decide, or none.
            let planned = match given {
                Some(_) => options.plan(None),
                None => options.plan_for(image),
            };
            let doing = || format!("cannot make a file system in {}", quote(image));
            let planned = planned.map_err(|error| super::failure(error, args, doing))?;
            Ok(planned.blocks * u64::from(planned.block_bytes))
        }
    }
}
