//! What was made, or would be.

use std::fmt::Write;

use serde_json::{Value, json};
use throughline::Made;
use throughline::pack::{Packed, PackedPartition};
use uuid::Uuid;

use super::MkfsArgs;
use crate::commands::pack::{partition_text, partition_value};
use crate::context::Context;
use crate::problem::Failure;

/// The width of the list of backups.
const LINE: usize = 72;

/// Shows it, unless quiet.
pub(super) fn show(
    made: &Made,
    packed: Option<&Packed>,
    partition: Option<PackedPartition>,
    args: &MkfsArgs,
    context: &mut Context,
) -> Result<(), Failure> {
    // The data, from which it follows, is not read for a plan.
    let is_known = packed.is_none() || !args.dry_run || args.has_uuid();
    let uuid = is_known.then(|| Uuid::from_bytes(made.uuid).to_string());
    if context.json {
        let mut value = value(made, packed);
        value["uuid"] = json!(uuid);
        if let Some(partition) = partition {
            value["partition"] = partition_value(partition);
        }
        return context.out.json(&value);
    }
    if context.globals.quiet {
        return Ok(());
    }
    let uuid = uuid.as_deref().unwrap_or("follows from the content");
    let mut text = text(made, uuid, args.dry_run, args.verbose);
    if let Some(packed) = packed {
        let _ = write!(
            text,
            "\nDirectories: {}, files: {}, others: {}, bytes of data: {}",
            packed.directories, packed.files, packed.others, packed.data_bytes
        );
    }
    if let Some(partition) = partition {
        let _ = write!(text, "\n{}", partition_text(partition));
    }
    context.out.line(text)
}

/// What was made, and what it was filled with.
pub(crate) fn value(made: &Made, packed: Option<&Packed>) -> Value {
    let mut value = json!({
        "uuid": Uuid::from_bytes(made.uuid).to_string(),
        "label": String::from_utf8_lossy(&made.label),
        "block_bytes": made.block_bytes,
        "blocks": made.blocks,
        "free_blocks": made.free_blocks,
        "reserved_blocks": made.reserved_blocks,
        "inodes": made.inodes,
        "inode_bytes": made.inode_bytes,
        "groups": made.groups,
        "blocks_per_group": made.blocks_per_group,
        "inodes_per_group": made.inodes_per_group,
        "journal_blocks": made.journal_blocks,
        "features": made.features,
        "backups": made.backups,
    });
    if let Some(packed) = packed {
        value["directories"] = json!(packed.directories);
        value["files"] = json!(packed.files);
        value["others"] = json!(packed.others);
        value["hard_links"] = json!(packed.hard_links);
        value["data_bytes"] = json!(packed.data_bytes);
        value["times_clamped"] = json!(packed.clamped_times);
    }
    value
}

fn text(made: &Made, uuid: &str, is_dry: bool, is_verbose: bool) -> String {
    let mut text = String::new();
    let size = match made.block_bytes {
        bytes if bytes >= 1024 => format!("{}k", bytes >> 10),
        bytes => bytes.to_string(),
    };
    let verb = if is_dry { "Would create" } else { "Created" };
    if made.features == ["journal_dev"] {
        return format!(
            "{verb} a journal device with {} {size} blocks\nUUID: {uuid}",
            made.blocks
        );
    }
    let _ = writeln!(
        text,
        "{verb} a file system with {} {size} blocks and {} inodes",
        made.blocks, made.inodes
    );
    let _ = write!(text, "UUID: {uuid}");
    if is_verbose {
        more(&mut text, made);
    }
    if !made.backups.is_empty() {
        text.push_str("\nSuperblock backups stored on blocks:");
        let mut width = LINE;
        for (at, block) in made.backups.iter().enumerate() {
            let comma = if at + 1 < made.backups.len() { "," } else { "" };
            let word = format!("{block}{comma}");
            if width + word.len() + 1 > LINE {
                text.push_str("\n  ");
                width = 2;
            }
            let _ = write!(text, " {word}");
            width += word.len() + 1;
        }
    }
    text
}

fn more(text: &mut String, made: &Made) {
    let _ = write!(
        text,
        "\nLabel: {}\nFeatures: {}\n{} block groups of {} blocks and {} inodes of {} bytes\n{} free blocks, \
         {} reserved for root, {} in the journal\nFirst data block: {}\nOn damage: {}",
        String::from_utf8_lossy(&made.label),
        made.features.join(" "),
        made.groups,
        made.blocks_per_group,
        made.inodes_per_group,
        made.inode_bytes,
        made.free_blocks,
        made.reserved_blocks,
        made.journal_blocks,
        made.first_data_block,
        made.on_error.as_str(),
    );
}
