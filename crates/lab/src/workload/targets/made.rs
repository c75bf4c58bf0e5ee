//! File systems made for the run: an image, `mkfs`, a mount by the kernel on a loop device or by a FUSE server.
//!
//! Invariant: once one is mounted nothing of it has a name: its image's file is unlinked, its mount detached, its loop device
//! goes with its last user. So nothing is left behind, whatever ends the lab, SIGKILL included; a kill while it is being
//! made can leave a folder `throughline-lab-…` in the directory for files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use super::kernel::{flags, open_in};
use super::{Access, Needs, Target, file_name};
use crate::kernel::{LoopMount, may_mount, run_with};
use crate::mounts::place::Place;
use crate::mounts::server::{self, Server};
use crate::streams::targets::write_out;
use crate::streams::writers;
use crate::{Error, Result};

/// Beside what the workload needs, for the file system's own.
fn more_bytes(fs_type: &str) -> u64 {
    match fs_type {
        "ext2" | "ext3" | "ext4" => 96 << 20,
        // xfs has none below 300 MiB.
        _ => 320 << 20,
    }
}

/// An image with a new file system, and its folder, which goes with the value.
pub(super) struct NewImage {
    folder: TempDir,
    command: String,
}

impl NewImage {
    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// How its file system was made.
    pub(super) fn command(&self) -> &str {
        &self.command
    }
}

/// Makes one with room for the workload's files, its own file written out, so that the host allocates nothing while we measure.
pub(super) fn new_image(fs_type: &str, mkfs: &[String], needs: &Needs<'_>) -> Result<NewImage> {
    let w = needs.workload;
    let data = w.file_bytes().saturating_mul(u64::from(w.files()));
    let image_bytes = (data
        .saturating_add(data / 8)
        .saturating_add(more_bytes(fs_type)))
    .next_multiple_of(1 << 20);
    let folder = crate::scratch_in(needs.dir)?;
    let disk = rustix::fs::statvfs(folder.path()).map_err(std::io::Error::from)?;
    if image_bytes > disk.f_bavail.saturating_mul(disk.f_frsize) {
        return Err(Error::new(format!(
            "{} has no room for an image of {} MiB: make size smaller, or name another --dir",
            needs.dir.display(),
            image_bytes >> 20
        )));
    }
    let program = format!("mkfs.{fs_type}");
    if let Some(why) = server::missing(&program) {
        return Err(Error::new(format!("{why}: install what makes {fs_type}")));
    }
    let mut image = NewImage {
        folder,
        command: String::new(),
    };
    let path = image.path();
    write_out(&path, image_bytes, &writers::source(), &|| needs.check())?;
    let mut arguments: Vec<&str> = usual(fs_type).to_vec();
    arguments.extend(mkfs.iter().map(String::as_str));
    image.command = format!("{program} {}", arguments.join(" "));
    let path = path.to_string_lossy();
    arguments.push(&path);
    // Else mke2fs zeroes inode tables and journal by punching holes, and whoever writes there first has the host allocate.
    run_with(&program, &arguments, &[("UNIX_IO_NOZEROOUT", "1")])?;
    Ok(image)
}

/// What has `mkfs` ask nothing, say nothing, discard nothing and leave no work for later.
fn usual(fs_type: &str) -> &'static [&'static str] {
    match fs_type {
        "ext2" | "ext3" | "ext4" => &[
            "-q",
            "-F",
            "-E",
            "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
        ],
        "xfs" => &["-q", "-f", "-K"],
        "btrfs" => &["-q", "-f", "-K"],
        _ => &[],
    }
}

enum Mounted {
    Kernel(LoopMount),
    Server(Server),
}

/// A mounted file system that was made for the run.
pub(super) struct Made {
    mounted: Mounted,
    flags: rustix::fs::OFlags,
    facts: BTreeMap<String, Value>,
}

impl Made {
    /// By the kernel, on a loop device.
    pub(super) fn on_loop(
        fs_type: &str,
        mkfs: &[String],
        options: Option<&str>,
        needs: &Needs<'_>,
    ) -> Result<Made> {
        if !may_mount() {
            return Err(Error::new(
                "loop devices and mounting need root; without it measure a directory of a mounted file system (dir:PATH), \
                 our mount (mount:) or our engine on an image (image:)",
            ));
        }
        let image = new_image(fs_type, mkfs, needs)?;
        let mount = LoopMount::with_options(&image.path(), fs_type, options)?;
        let mut made = Made::new(Mounted::Kernel(mount), &image, options, needs);
        made.facts.insert("file system".into(), fs_type.into());
        made.facts
            .insert("source".into(), "loop device, direct-io=on".into());
        Ok(made)
    }

    /// By this program's own server.
    pub(super) fn ours(mkfs: &[String], options: Option<&str>, needs: &Needs<'_>) -> Result<Made> {
        let serve = |image: &Path, scratch: &Path| Server::ours(image, scratch, options);
        Made::served(mkfs, options, needs, "throughline mount", serve)
    }

    /// By e2fsprogs' server.
    pub(super) fn fuse2fs(mkfs: &[String], needs: &Needs<'_>) -> Result<Made> {
        if let Some(why) = server::missing("fuse2fs") {
            return Err(Error::new(format!(
                "{why}: install Debian's package fuse2fs"
            )));
        }
        Made::served(mkfs, None, needs, "fuse2fs", Server::fuse2fs)
    }

    fn served(
        mkfs: &[String],
        options: Option<&str>,
        needs: &Needs<'_>,
        by: &str,
        serve: impl Fn(&Path, &Path) -> Result<Server>,
    ) -> Result<Made> {
        if let Some(why) = server::unavailable() {
            return Err(Error::new(format!("no FUSE here: {why}")));
        }
        let image = new_image("ext4", mkfs, needs)?;
        let server = serve(&image.path(), image.folder.path())?;
        let mut made = Made::new(Mounted::Server(server), &image, options, needs);
        made.facts.insert("file system".into(), by.into());
        let note = "the server is a process of its own, and its cache stays warm: only the machine's processor time counts it";
        made.facts.insert("note".into(), note.into());
        Ok(made)
    }

    fn new(mounted: Mounted, image: &NewImage, options: Option<&str>, needs: &Needs<'_>) -> Made {
        let mut facts = BTreeMap::from([("mkfs".to_owned(), image.command().into())]);
        if let Some(options) = options {
            facts.insert("mount options".into(), options.into());
        }
        Made {
            mounted,
            flags: flags(needs.workload),
            facts,
        }
    }

    fn root(&self) -> Place<'_> {
        match &self.mounted {
            Mounted::Kernel(mount) => Place::new(mount.root()),
            Mounted::Server(server) => Place::new(server.root()),
        }
    }
}

impl Target for Made {
    fn open(&self, number: u32) -> Result<Arc<dyn Access>> {
        open_in(self.root(), &file_name(number), self.flags)
    }

    fn has_many(&self) -> bool {
        true
    }

    fn facts(&self) -> BTreeMap<String, Value> {
        self.facts.clone()
    }

    fn close(self: Box<Self>) -> Result<()> {
        match self.mounted {
            Mounted::Kernel(mount) => drop(mount),
            Mounted::Server(server) => server.unmount()?,
        }
        Ok(())
    }
}
