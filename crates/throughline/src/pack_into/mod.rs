//! Lays a tree of the crate `archive` over a directory of a volume that exists, by ordinary changes of names
//! and files.
//!
//! ```text
//! directory ─► tree (the base) ─► Merge: sources over it ─► tree
//!                                                            │ apply: compare with the directory
//!          names that stay, go, are new ◄────────────────────┘
//! ```
//! So the result is what packing the directory's own archive and then the sources would make, whiteouts and
//! opaque directories included.
//!
//! Invariants:
//! - Nodes of the base keep their numbers in the merged tree ([`Tree::keep_numbers`]): a number below the
//!   base's bound is the inode that was there, with what is in it.
//! - Every step is a change that the journal makes whole: a crash leaves a part of the steps, and no damage.
//! - What is not a directory is replaced by a rename, when what replaces it has its content.
//! - What cannot fit is refused before the first step.

mod data;
mod finish;
mod names;
mod room;
mod stash;

use std::collections::HashMap;

use throughline_archive::{self as archive, Limits, Merge, NodeId, Sources, Tree};

use crate::dir::Dir;
use crate::node::Node;
use crate::read_tree::{at, is_top, read_names};
use crate::volume::Volume;

/// The directory that keeps inodes which have no name of their own. It is there only meanwhile, and only if
/// something is replaced, or what was there gets another name.
const STASH: &[u8] = b".pack-into.tmp";

/// A directory of a volume, to lay trees over. See [`PackInto::begin`].
#[derive(Debug)]
pub struct PackInto {
    volume: Volume,
    directory: Node,
    /// Whether it is the root of the volume.
    is_top: bool,
    /// By number of a node of the base: its inode.
    inodes: Vec<u64>,
    latest: Option<std::time::SystemTime>,
}

/// What [`PackInto::apply`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackedInto {
    /// New directories.
    pub directories: u64,
    /// New regular files.
    pub files: u64,
    /// New symbolic links, devices, pipes, sockets.
    pub others: u64,
    /// New names beyond the first of a node.
    pub hard_links: u64,
    /// Names that were removed or replaced; of a directory, its own only.
    pub removed: u64,
    /// Bytes of data that were written.
    pub data_bytes: u64,
}

/// The state of one call of [`PackInto::apply`].
struct Apply<'a> {
    into: &'a PackInto,
    tree: &'a Tree,
    sources: &'a Sources,
    /// By number of a node: its inode, once it has one.
    inodes: Vec<Option<u64>>,
    /// New nodes, whose metadata is set at the end.
    new: Vec<(NodeId, Vec<u8>)>,
    /// New files that are to replace something when their data is there.
    waiting: HashMap<NodeId, stash::Waiting>,
    stash: Option<Node>,
    done: PackedInto,
}

impl PackInto {
    /// Reads the names and the metadata below a directory, and returns a merge that begins with them. Add the
    /// sources to it, and give its result to [`PackInto::apply`], which writes. Until then, nothing else may
    /// change what is below the directory. `limits` are those of the sources.
    ///
    /// ```no_run
    /// use throughline::archive::Limits;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let volume = throughline::OpenOptions::new().write(true).open("disk.img")?;
    /// let directory = volume.open_dir("/srv")?;
    /// let (into, mut merge) = throughline::PackInto::begin(&directory, Limits::default())?;
    /// merge.add("layer.tar.zst".as_ref())?;
    /// let (tree, sources) = merge.finish();
    /// into.apply(&tree, &sources, &mut |_written, _all| true)?;
    /// volume.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`read_tree`](crate::read_tree).
    pub fn begin(directory: &Dir, limits: Limits) -> archive::Result<(PackInto, Merge)> {
        let node = directory.node(".").map_err(|error| at(b".", error))?;
        let (mut tree, inodes) = read_names(directory, limits.clone())?;
        // Left by an interrupted run.
        tree.remove(STASH);
        let into = PackInto {
            volume: directory.volume(),
            is_top: is_top(&node),
            directory: node,
            inodes,
            latest: None,
        };
        Ok((into, Merge::onto(tree, limits)))
    }

    /// Later times of files are set to this one, as `SOURCE_DATE_EPOCH` asks for.
    pub fn epoch(&mut self, time: std::time::SystemTime) -> &mut PackInto {
        self.latest = Some(time);
        self
    }

    /// Makes the directory what the tree is. `progress` is called with the bytes of data written so far, and
    /// all bytes to write; if it returns `false`, the call ends with [`archive::Error::Stopped`].
    ///
    /// **After an error or a crash, a part of the tree is there**: new names may be there whose files are not
    /// yet complete. A file that is replaced is there, old or new. What [`PackInto::check`] refuses changes
    /// nothing. The volume is sound, and a second run with the same sources completes it. When the call
    /// returns, nothing is durable before a [`Volume::sync`] or [`Volume::close`].
    ///
    /// # Errors
    /// [`archive::Error::Io`] with the path and an [`Error`](crate::Error) inside: no space, damage, device
    /// errors; those of the sources.
    pub fn apply(
        &self,
        tree: &Tree,
        sources: &Sources,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> archive::Result<PackedInto> {
        self.check(tree, sources)?;
        let mut inodes: Vec<Option<u64>> = self.inodes.iter().copied().map(Some).collect();
        inodes.resize(tree.id_bound().max(inodes.len()), None);
        let mut apply = Apply {
            into: self,
            tree,
            sources,
            inodes,
            new: Vec::new(),
            waiting: HashMap::new(),
            stash: None,
            done: PackedInto::default(),
        };
        let applied = apply.names(progress);
        let applied = applied.and_then(|()| apply.data(progress));
        // Before the metadata of its directory is set.
        let dropped = apply.drop_stash();
        applied.and(dropped)?;
        apply.finish()?;
        Ok(apply.done)
    }

    /// Whether a node is of the base: what was there.
    fn is_base(&self, node: NodeId) -> bool {
        node.index() < self.inodes.len()
    }
}

impl Apply<'_> {
    /// The inode of a node.
    fn node(&self, node: NodeId, path: &[u8]) -> archive::Result<Node> {
        let ino = self.inodes[node.index()].expect("a node that is reached has its inode");
        if node == NodeId::ROOT {
            return Ok(self.into.directory.clone());
        }
        let found = self.into.volume.node_by_ino(ino);
        found.map_err(|error| at(path, error))
    }
}

/// A path, and a name in it.
fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    match path {
        [] => name.to_vec(),
        _ => [path, b"/", name].concat(),
    }
}
