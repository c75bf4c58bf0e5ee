//! Enters the names of a directory into a tree, in an order that depends on nothing but the names.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::FileType;

use super::ahead::{Ahead, Job, Listed};
use super::look::{self, Seen};
use super::{Files, HostDirectory, fingerprint, unreached};
use crate::content::{FileContent, SourceId};
use crate::error::{Error, Result};
use crate::host_tree::calls::fstat;
use crate::host_tree::{FolderId, Folders, Identity};
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
    left_out: &[Identity],
) -> Result<HostDirectory> {
    // The directory itself may be given as a symlink.
    let failed = |error| Error::io(root.display(), error);
    let folders = Folders::open_root(root).map_err(failed)?;
    let dir = folders.get(FolderId::ROOT);
    let dir = dir.map_err(|error| unreached(root.display(), error))?;
    let status = fstat(&dir).map_err(failed)?;
    tree.mkdir(b"/", &look::meta_of_root(root, &dir, &status)?)?;
    let is_unwanted = |path: &Path| unwanted(inside(root, path));
    let mut scan = Scan {
        root,
        folders: &folders,
        files: Files::default(),
        tree,
        id,
        left_out,
        linked: HashMap::new(),
    };
    std::thread::scope(|scope| -> Result<()> {
        let mut ahead = Ahead::start(scope, &folders, &is_unwanted)?;
        ahead.push(Job::list(root.to_owned(), FolderId::ROOT));
        while let Some(listed) = ahead.next() {
            scan.enter(listed?, &mut ahead)?;
        }
        Ok(())
    })?;
    Ok(HostDirectory {
        root: root.to_owned(),
        files: scan.files,
        folders,
    })
}

/// The path in the tree.
fn inside<'p>(root: &Path, path: &'p Path) -> &'p [u8] {
    let inside = path.strip_prefix(root);
    inside.expect("below the root").as_os_str().as_bytes()
}

struct Scan<'t> {
    root: &'t Path,
    folders: &'t Folders,
    files: Files,
    tree: &'t mut Tree,
    id: SourceId,
    left_out: &'t [Identity],
    /// Nodes with hard links.
    linked: HashMap<Identity, NodeId>,
}

impl Scan<'_> {
    fn enter(&mut self, listed: Listed, ahead: &mut Ahead) -> Result<()> {
        for seen in &listed.seen {
            if seen.status.kind() == FileType::Directory {
                let identity = seen.status.identity;
                let own = self.folders.add(listed.directory, seen.name(), identity);
                let own = own.ok_or_else(|| self.too_many())?;
                ahead.push(Job::list(seen.path.clone(), own));
            }
            self.entry(seen, listed.directory)?;
        }
        listed.rest.into_iter().for_each(|job| ahead.push(job));
        Ok(())
    }

    fn too_many(&self) -> Error {
        Error::limit(self.root.display(), "names need more than 4 GiB")
    }

    fn entry(&mut self, seen: &Seen, folder: FolderId) -> Result<()> {
        let (status, meta) = (&seen.status, &seen.meta);
        let identity = status.identity;
        if status.kind() == FileType::RegularFile && self.left_out.contains(&identity) {
            return Ok(());
        }
        let inside = inside(self.root, &seen.path);
        let shared = status.links > 1 && status.kind() != FileType::Directory;
        if let Some(&node) = self.linked.get(&identity).filter(|_| shared) {
            self.tree.link_node(inside, node)?;
            return Ok(());
        }
        let Some(kind) = Kind::of_mode(status.mode) else {
            let what = format!("{}: of unknown type", seen.path.display());
            return Err(Error::Unsupported(what));
        };
        let node = match kind {
            Kind::Directory => self.tree.mkdir(inside, meta)?,
            Kind::Symlink => self.tree.symlink(inside, &seen.target, meta)?,
            Kind::File => {
                let item = self.files.add(folder, seen.name(), fingerprint(status));
                let content = FileContent {
                    source: self.id,
                    item: item.ok_or_else(|| self.too_many())?,
                    size: status.size,
                    extents: seen.extents.clone(),
                };
                self.tree.add_file(inside, meta, &content)?
            }
            kind => {
                let number = status.device_number;
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
