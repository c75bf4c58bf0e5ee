//! Enters the names of a directory into a tree, in an order that depends on nothing but the names.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::ahead::{Ahead, Job, Listed};
use super::look::{self, Seen};
use super::{HostDirectory, HostFile, fingerprint};
use crate::content::{FileContent, SourceId};
use crate::error::{Error, Result};
use crate::merge::Unwanted;
use crate::meta::{Device, Kind};
use crate::tree::{NodeId, Tree};

/// Adds what is below a directory to a tree; the source is to be added under `id`. Paths that are `unwanted`
/// are not looked at, and regular files that are `left_out`, by device and inode, are not added.
pub(crate) fn scan(
    root: &Path,
    tree: &mut Tree,
    id: SourceId,
    unwanted: &Unwanted,
    left_out: &[(u64, u64)],
) -> Result<HostDirectory> {
    let mut scan = Scan {
        source: HostDirectory {
            root: root.to_owned(),
            directories: vec![(0, 0)],
            files: Vec::new(),
            names: Vec::new(),
        },
        tree,
        id,
        left_out,
        linked: HashMap::new(),
    };
    // The directory itself may be given as a symlink.
    let failed = |error| Error::io(root.display(), error);
    let metadata = std::fs::metadata(root).map_err(failed)?;
    let canonical = root.canonicalize().map_err(failed)?;
    let meta = look::meta(&canonical, &metadata)?;
    scan.tree.mkdir(b"/", &meta)?;
    let is_unwanted = |path: &Path| unwanted(inside(root, path));
    std::thread::scope(|scope| {
        let mut ahead = Ahead::start(scope, &is_unwanted)?;
        ahead.push(Job::list(root.to_owned(), 0));
        while let Some(listed) = ahead.next() {
            scan.enter(listed?, &mut ahead)?;
        }
        Ok(scan.source)
    })
}

/// The path in the tree.
fn inside<'p>(root: &Path, path: &'p Path) -> &'p [u8] {
    let inside = path.strip_prefix(root);
    inside.expect("below the root").as_os_str().as_bytes()
}

struct Scan<'t> {
    source: HostDirectory,
    tree: &'t mut Tree,
    id: SourceId,
    left_out: &'t [(u64, u64)],
    /// Nodes with hard links, by device and inode.
    linked: HashMap<(u64, u64), NodeId>,
}

impl Scan<'_> {
    fn enter(&mut self, listed: Listed, ahead: &mut Ahead) -> Result<()> {
        let number = listed.directory;
        for seen in &listed.seen {
            if seen.metadata.is_dir() {
                let name = self.source.name(seen.name())?;
                self.source.directories.push((number, name));
                let own = self.source.directories.len() as u32 - 1;
                ahead.push(Job::list(seen.path.clone(), own));
            }
            self.entry(seen, number)?;
        }
        listed.rest.into_iter().for_each(|job| ahead.push(job));
        Ok(())
    }

    fn entry(&mut self, seen: &Seen, number: u32) -> Result<()> {
        let (metadata, meta) = (&seen.metadata, &seen.meta);
        let identity = seen.identity();
        if metadata.is_file() && self.left_out.contains(&identity) {
            return Ok(());
        }
        let inside = inside(&self.source.root, &seen.path);
        let shared = metadata.nlink() > 1 && !metadata.is_dir();
        if let Some(&node) = self.linked.get(&identity).filter(|_| shared) {
            self.tree.link_node(inside, node)?;
            return Ok(());
        }
        let Some(kind) = Kind::of_mode(metadata.mode()) else {
            let what = format!("{}: of unknown type", seen.path.display());
            return Err(Error::Unsupported(what));
        };
        let node = match kind {
            Kind::Directory => self.tree.mkdir(inside, meta)?,
            Kind::Symlink => self.tree.symlink(inside, &seen.target, meta)?,
            Kind::File => {
                let name = self.source.name(seen.name())?;
                self.source.files.push(HostFile {
                    directory: number,
                    name,
                    fingerprint: fingerprint(metadata),
                });
                let content = FileContent {
                    source: self.id,
                    item: self.source.files.len() as u32 - 1,
                    size: metadata.size(),
                    extents: seen.extents.clone(),
                };
                self.tree.add_file(inside, meta, &content)?
            }
            kind => {
                let number = metadata.rdev();
                let device = Device {
                    major: rustix::fs::major(number),
                    minor: rustix::fs::minor(number),
                };
                self.tree.mknod(inside, kind, device, meta)?
            }
        };
        if shared {
            self.linked.insert(identity, node);
        }
        Ok(())
    }
}
