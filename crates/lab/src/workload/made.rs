//! File systems made for the run: an image, `mkfs`, and a mount, by the kernel on a loop device or by a FUSE
//! server.
//!
//! Invariant: once it is mounted, nothing of it has a name. The image file is unlinked, the mount is
//! detached, and the loop device detaches after its last user. So nothing is left behind, however the lab
//! ends, even by SIGKILL. Only if it is killed during the setup, a directory `throughline-lab-…` may remain
//! where files are created.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::{MadeSpec, check};
use crate::kernel;
use crate::mounts::mounted::{self, At, Mounted};
use crate::streams::targets::write_out;
use crate::streams::writers;
use crate::{Error, Result};

/// Space for the file system's metadata, in addition to the jobs' files.
fn more_bytes(fs_type: &str) -> u64 {
    match fs_type {
        "ext2" | "ext3" | "ext4" => 96 << 20,
        // xfs needs at least 300 MiB.
        _ => 320 << 20,
    }
}

/// Where images are made, and how much data they need room for.
pub(super) struct Site<'a> {
    pub(super) dir: &'a Path,
    pub(super) data_bytes: u64,
    pub(super) interrupted: &'a (dyn Fn() -> bool + Sync),
}

/// Makes an image with room for the data. It is fully written, so that the host allocates nothing during the
/// measurement. Returns the command that made its file system.
fn new_image(image: &Path, fs_type: &str, mkfs: &[String], site: &Site<'_>) -> Result<String> {
    let image_bytes = (site.data_bytes)
        .saturating_add(site.data_bytes / 8)
        .saturating_add(more_bytes(fs_type));
    let image_bytes = image_bytes.next_multiple_of(1 << 20);
    let program = format!("mkfs.{fs_type}");
    if let Some(why) = mounted::missing(&program) {
        return Err(Error::new(format!(
            "{why}: install the package with mkfs.{fs_type}"
        )));
    }
    write_out(image, image_bytes, &writers::source(), &|| {
        check(site.interrupted)
    })?;
    let mkfs: Vec<&str> = mkfs.iter().map(String::as_str).collect();
    kernel::mkfs(fs_type, image, &mkfs)
}

/// A mounted file system that was made for the run.
pub(super) struct Made {
    pub(super) mounted: Mounted,
    pub(super) facts: BTreeMap<String, Value>,
}

impl Made {
    /// Mounts it, by the kernel on a loop device or by a server.
    pub(super) fn mount(spec: &MadeSpec, site: &Site<'_>) -> Result<Made> {
        let (by, options) = (&spec.by, spec.mount.as_deref());
        if let Some(why) = by.unavailable() {
            return Err(Error::new(format!("{}: {why}", by.name())));
        }
        let site = Site {
            data_bytes: spec.data_bytes.unwrap_or(site.data_bytes),
            ..*site
        };
        let folder: TempDir = crate::scratch_in(site.dir)?;
        let image = folder.path().join("image");
        let mkfs = new_image(&image, by.fs_type(), &spec.mkfs, &site)?;
        let mounted = by.mount(&image, options, At::hidden(folder.path()))?;
        let common = [("mkfs", mkfs.as_str()), ("file system", by.name())];
        let options = options.map(|options| ("mount options", options));
        let facts = common.iter().chain(&options);
        Ok(Made {
            mounted,
            facts: facts
                .map(|(name, value)| ((*name).to_owned(), (*value).into()))
                .collect(),
        })
    }
}
