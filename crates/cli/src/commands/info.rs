//! `info`.

use std::path::Path;
use std::time::SystemTime;

use clap::Args;
use rustix::io::Errno;
use serde_json::{Value, json};
use throughline::internal::OpenImages;
use throughline::{CacheState, Format, FoundHashTree, LogInfo, PartitionTable, Volume, VolumeInfo};
use throughline_forms::time::rfc3339;

use super::df::image_of;
use super::pack::hex;
use crate::context::Context;
use crate::image_name::ImageName;
use crate::objects;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::text::quote;
use crate::texts::fill;

/// Arguments of `info`.
#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// Images, or paths in them
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<Place>,
}

/// Shows each image.
pub(crate) fn run(args: &InfoArgs, context: &mut Context) -> Result<(), Failure> {
    let mut found = Vec::new();
    let mut first = true;
    context.each(&args.images, |context, place| {
        let image = image_of(place)?;
        let table = table_of(&image, context)?;
        let opened = match context.open_image(&image) {
            Err(failure) if failure.errno() == Some(Errno::BUSY) => {
                Ok(in_use(context, &image, &failure)?)
            }
            opened => opened,
        };
        let name = objects::shown(&image);
        let mut shown = json!({ "image": name.to_string_lossy() });
        let is_volume = opened.is_ok();
        match opened {
            Ok(volume) => {
                let info = volume
                    .info()
                    .doing(|| format!("cannot read {}", quote(&image)))?;
                shown = value(&name.to_string_lossy(), &info);
                let tree = volume.hash_tree();
                let tree = tree.doing(|| format!("cannot read {}", quote(&image)))?;
                shown["hash_tree"] = json!(tree.as_ref().map(tree_value));
            }
            // A disk with several volumes, or with none: its partitions are what there is to show.
            Err(failure) if table.is_some() && !is_placed(&image, context)? => {
                let why = failure.reason().unwrap_or_default();
                shown["no_volume"] = json!(why.lines().next());
            }
            Err(failure) => return Err(failure),
        }
        add_format(&mut shown, &image, context)?;
        if let Some(table) = &table {
            add_table(&mut shown, table);
        }
        if context.json {
            found.push(shown);
            return Ok(());
        }
        if !first {
            context.out.line("")?;
        }
        first = false;
        if is_volume {
            context.out.line(fill("info", &shown)?)?;
        } else {
            let why = shown["no_volume"].as_str().unwrap_or_default();
            let image = name.display();
            let text = format!("Image:         {image}\nVolume:        none: {why}");
            context.out.line(text)?;
        }
        match table {
            Some(_) => context.out.line(fill("partitions", &shown)?),
            None => Ok(()),
        }
    })?;
    context.list(found)
}

/// Whether it is clear which volume an image means.
fn is_placed(image: &Path, context: &mut Context) -> Result<bool, Failure> {
    let ImageName { file, partition } = ImageName::of(image);
    let file = context.images.read_path(&file)?;
    let mut options = context.globals.open_options(false)?;
    Ok(options.partition(partition).start_bytes(&file).is_ok())
}

/// The partitions of a disk of which no partition is named.
fn table_of(image: &Path, context: &mut Context) -> Result<Option<PartitionTable>, Failure> {
    let ImageName { file, partition } = ImageName::of(image);
    if context.globals.offset != 0 || partition.is_some() {
        return Ok(None);
    }
    let file = context.images.read_path(&file)?;
    let options = context.globals.open_options(false)?;
    // What is wrong with it, opening says.
    Ok(options.partitions(&file).ok().flatten())
}

/// Adds the format of the image, if it is not the bytes of the disk as they are.
fn add_format(value: &mut Value, image: &Path, context: &mut Context) -> Result<(), Failure> {
    let options = context.globals.open_options(false)?;
    let image = ImageName::of(image).file;
    let file = context.images.read_path(&image)?;
    let mut words = Vec::new();
    if let Ok(format) = options.format_of(&file)
        && format != Format::Raw
    {
        words.push(format.to_string());
    }
    if file != image {
        words.push("compressed".to_owned());
    }
    if !words.is_empty() {
        value["image_format"] = json!(words.join(", "));
    }
    Ok(())
}

fn add_table(value: &mut Value, table: &PartitionTable) {
    value["partition_table"] = json!(table.kind);
    value["partition_table_is_copy"] = json!(table.is_copy);
    let partitions = table.partitions.iter().map(|one| {
        let volume = one.volume.as_ref();
        json!({
            "number": one.number,
            "start_bytes": one.start_bytes,
            "len_bytes": one.len_bytes,
            "name": one.name,
            "uuid": one.uuid,
            "type": one.kind,
            "volume": volume.map(|volume| json!({ "label": volume.label, "uuid": volume.uuid })),
        })
    });
    value["partitions"] = partitions.collect();
}

/// Opens an image that is in use elsewhere for reading, and prints a note that only the state on disk is
/// shown.
fn in_use(context: &mut Context, image: &Path, busy: &Failure) -> Result<Volume, Failure> {
    let volume = context.images.open_in_use(image)?;
    if !context.globals.quiet {
        let reason = busy.reason().unwrap_or("it is in use");
        context.complaints.note(&format!(
            "{reason}; showing the present content of the disk"
        ));
    }
    Ok(volume)
}

/// A page cache as JSON.
pub(crate) fn cache_value(cache: &CacheState) -> Value {
    let (throttle, writeback) = (&cache.throttle, &cache.writeback);
    json!({
        "budget_bytes": cache.budget_bytes,
        "cached_bytes": cache.cached_bytes,
        "readahead_max_bytes": cache.readahead_max_bytes,
        "dirty_bytes": throttle.dirty_bytes,
        "dirty_background_bytes": throttle.background_bytes,
        "dirty_limit_bytes": throttle.limit_bytes,
        "bandwidth_bytes_per_s": throttle.bandwidth_bytes_per_s,
        "pauses": throttle.pauses.count,
        "longest_pause_ms": throttle.pauses.longest.as_secs_f64() * 1e3,
        "written_back_bytes": writeback.bytes,
        "write_back_errors": writeback.errors,
    })
}

/// A journal as JSON.
fn log_value(log: &LogInfo) -> Value {
    json!({
        "bytes": log.bytes,
        "used_bytes": log.used_bytes,
        "features": log.features,
        "transaction": log.tid,
        "empty": log.empty,
        "errno": log.errno,
    })
}

/// A hash tree as JSON.
fn tree_value(tree: &FoundHashTree) -> Value {
    json!({
        "hash_offset": tree.hash_offset,
        "root_hash": tree.root_hash.map(|hash| hex(&hash)),
        "fits": tree.fits,
    })
}

fn value(image: &str, info: &VolumeInfo) -> Value {
    let date = |time: Option<SystemTime>| time.and_then(rfc3339);
    let (space, device, limits) = (&info.space, &info.device, &info.device.limits);
    let bytes = |blocks: u64| blocks.saturating_mul(info.block_bytes.into());
    let mut value = json!({
        "image": image,
        "format": info.format,
        "label": info.label,
        "uuid": info.uuid,
        "features": info.features,
        "clean": info.clean,
        "errors": info.errors,
        "error_count": info.error_count,
        "journal": info.journal.as_str(),
        "journal_log": info.log.as_ref().map(log_value),
        "journal_damage": info.log_damage.as_ref().map(ToString::to_string),
        "block_bytes": info.block_bytes,
        "blocks": info.blocks,
        "groups": info.groups,
        "inode_bytes": info.inode_bytes,
        "inodes": space.inodes,
        "inodes_free": space.free_inodes,
        "size_bytes": bytes(info.blocks),
        "free_bytes": bytes(space.free_blocks),
        "available_bytes": bytes(space.available_blocks),
        "made": date(info.made),
        "last_written": date(info.written),
        "last_checked": date(info.checked),
        "last_mounted": info.last_mounted,
        "device": {
            "name": device.name,
            "kind": device.kind,
            "engine": device.engine,
            "direct": device.direct,
            "len_bytes": device.len_bytes,
            "bio_target_bytes": device.bio_target_bytes,
            "logical_block_bytes": limits.logical_block_bytes,
            "physical_block_bytes": limits.physical_block_bytes,
            "max_transfer_bytes": limits.max_transfer_bytes,
            "max_segments": limits.max_segments,
            "queue_depth": limits.queue_depth,
            "io_opt_bytes": limits.io_opt_bytes,
            "discard": limits.discard,
            "write_zeroes": limits.write_zeroes,
            "fua": limits.fua,
            "volatile_cache": limits.volatile_cache,
        },
        "cache": cache_value(&info.cache),
    });
    value["settings"] = json!({
        "on_error": info.on_error.as_str(),
        "commit_interval_s": info.commit_interval.as_secs_f64(),
        "dirty_age_s": info.dirty_age.as_secs_f64(),
    });
    value
}
