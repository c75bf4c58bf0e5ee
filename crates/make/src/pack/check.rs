//! Packs again and lists where an image differs.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use throughline_extfmt::verity::BLOCK_BYTES;
use throughline_extfmt::{FsBlock, GroupNumber, InodeNumber};

use super::frame::Frame;
use super::inode::TreeBlock;
use super::place::Placed;
use super::tree::{Kind, NodeId};
use crate::error::{Error, Result};
use crate::plan::Plan;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 1 << 20;
/// The maximum number of differences listed.
const MOST: usize = 1000;

/// A part of an image that is not what it would be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Where, in bytes.
    pub offset: u64,
    /// How long, in bytes.
    pub len: u64,
    /// What is there: `superblock`, `inode table: inode 13, /etc/passwd`, and so on.
    pub what: String,
}

/// Where the UUID is, in bytes of the volume.
const UUID: Range<u64> = 1024 + 0x68..1024 + 0x78;

impl Difference {
    /// Whether `next` is in the same part of the volume, less than a block behind this.
    fn goes_on(&self, next: &Difference, block_bytes: u64) -> bool {
        self.what == next.what && next.offset - (self.offset + self.len) < block_bytes
    }

    /// The UUID of a volume that begins at `start`.
    pub(super) fn of_uuid(start: u64) -> Difference {
        Difference {
            offset: start + UUID.start,
            len: UUID.end - UUID.start,
            what: "superblock: the UUID, which follows from the sources".into(),
        }
    }
}

/// The parts in which two files differ: of one structure or file, without a block between that is equal.
pub(super) fn compare(
    ours: &Path,
    image: &Path,
    plan: &Plan<'_>,
    frame: &Frame,
) -> Result<Vec<Difference>> {
    let names = Names::new(plan, frame);
    let what = |offset| names.what(offset);
    compare_files(ours, image, names.block_bytes, "image", &what)
}

/// The same of hash trees in files of their own; offsets are those in such a file.
pub(super) fn compare_hashes(ours: &Path, hashes: &Path) -> Result<Vec<Difference>> {
    let block_bytes = BLOCK_BYTES as usize;
    let what = |_| format!("hash tree in {}", hashes.display());
    compare_files(ours, hashes, block_bytes, "file of the hash tree", &what)
}

fn compare_files(
    ours: &Path,
    image: &Path,
    block_bytes: usize,
    called: &str,
    what: &dyn Fn(u64) -> String,
) -> Result<Vec<Difference>> {
    let open = |path: &Path| File::open(path).map_err(Error::open(path));
    let (one, other) = (open(ours)?, open(image)?);
    let len = |file: &File, path: &Path| {
        let found = file.metadata().map(|found| found.len());
        found.map_err(Error::open(path))
    };
    let (expected, found) = (len(&one, ours)?, len(&other, image)?);
    let mut differences = Vec::<Difference>::new();
    let (mut a, mut b) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut at = 0;
    let end = expected.min(found);
    while at < end && differences.len() < MOST {
        let want = CHUNK_BYTES.min((end - at) as usize);
        one.read_exact_at(&mut a[..want], at)
            .map_err(Error::open(ours))?;
        other
            .read_exact_at(&mut b[..want], at)
            .map_err(Error::open(image))?;
        if a[..want] != b[..want] {
            runs(&a[..want], &b[..want], block_bytes, |run| {
                let offset = at + run.start as u64;
                let found = Difference {
                    offset,
                    len: run.len() as u64,
                    what: what(offset),
                };
                let is_room = differences.len() < MOST;
                match differences.last_mut() {
                    Some(last) if last.goes_on(&found, block_bytes as u64) => {
                        last.len = found.offset + found.len - last.offset;
                    }
                    _ if is_room => differences.push(found),
                    _ => {}
                }
            });
        }
        at += want as u64;
    }
    if expected != found {
        differences.push(Difference {
            offset: end,
            len: expected.max(found) - end,
            what: format!("the {called} has {found} bytes instead of {expected}"),
        });
    }
    Ok(differences)
}

/// Calls `each` with the first to the last difference of each block.
fn runs(a: &[u8], b: &[u8], block_bytes: usize, mut each: impl FnMut(Range<usize>)) {
    for (at, (a, b)) in a.chunks(block_bytes).zip(b.chunks(block_bytes)).enumerate() {
        let differs = |i: &usize| a[*i] != b[*i];
        let first = (0..a.len()).find(differs);
        let last = (0..a.len()).rev().find(differs);
        if let (Some(first), Some(last)) = (first, last) {
            each(at * block_bytes + first..at * block_bytes + last + 1);
        }
    }
}

/// What a run of blocks is. Paths are made when they are told: most are not.
#[derive(Clone)]
enum What {
    Text(String),
    Made(TreeBlock),
    Data(NodeId),
}

/// What is where.
struct Names<'p> {
    plan: &'p Plan<'p>,
    frame: &'p Frame,
    block_bytes: usize,
    /// Runs of blocks and what they are, ascending.
    parts: Vec<(Range<u64>, What)>,
}

impl<'p> Names<'p> {
    fn new(plan: &'p Plan<'p>, frame: &'p Frame) -> Names<'p> {
        let geo = &plan.geo;
        let mut parts = Vec::new();
        let mut add = |at: FsBlock, text: String| parts.push((at.0..at.0 + 1, What::Text(text)));
        for group in geo.superblock_groups() {
            let at = geo.superblock_block(group).unwrap_or(FsBlock(0));
            add(at, format!("superblock of group {}", group.0));
        }
        for index in 0..geo.desc_blocks {
            add(geo.desc_block(index), "group descriptors".to_owned());
            for backup in geo.desc_block_backups(index) {
                add(backup, "backup of group descriptors".to_owned());
            }
        }
        for (group, desc) in plan.descs.iter().enumerate() {
            add(
                desc.block_bitmap(),
                format!("block bitmap of group {group}"),
            );
            add(
                desc.inode_bitmap(),
                format!("inode bitmap of group {group}"),
            );
        }
        if let Some(tree) = &plan.tree {
            of_tree(tree, &mut parts);
        }
        parts.sort_by_key(|(blocks, _)| blocks.start);
        Names {
            plan,
            frame,
            block_bytes: geo.block_bytes as usize,
            parts,
        }
    }

    /// What a byte of the image belongs to.
    fn what(&self, offset: u64) -> String {
        if let Some(what) = self.frame.what(offset) {
            return what.to_owned();
        }
        let offset = offset - self.frame.start;
        let block = offset / self.block_bytes as u64;
        if offset < 1024 {
            return "boot block".to_owned();
        }
        if let Some(text) = self.inode(block, (offset % self.block_bytes as u64) as usize) {
            return text;
        }
        let after = self
            .parts
            .partition_point(|(blocks, _)| blocks.start <= block);
        match after.checked_sub(1).and_then(|at| self.parts.get(at)) {
            Some((blocks, what)) if blocks.contains(&block) => self.text(what),
            _ => "journal, reserved or free block".to_owned(),
        }
    }

    fn text(&self, what: &What) -> String {
        let path = |node: NodeId| match &self.plan.tree {
            Some(tree) => tree.measured.walk.path(node),
            None => String::new(),
        };
        match what {
            What::Text(text) => text.clone(),
            What::Made(TreeBlock::Directory(node, _)) => format!("directory {}", path(*node)),
            What::Made(TreeBlock::Attributes(node)) => {
                format!("extended attributes of {}", path(*node))
            }
            What::Made(TreeBlock::Link(node)) => format!("symbolic link {}", path(*node)),
            What::Data(node) => format!("data of {}", path(*node)),
        }
    }

    fn inode(&self, block: u64, within: usize) -> Option<String> {
        let geo = &self.plan.geo;
        for (group, desc) in (0..).map(GroupNumber).zip(&self.plan.descs) {
            let table = desc.inode_table().0;
            let Some(index) = block
                .checked_sub(table)
                .filter(|at| *at < geo.inode_table_blocks.into())
            else {
                continue;
            };
            let per_block = geo.block_bytes / u32::from(geo.inode_bytes);
            let index = index as u32 * per_block + (within / usize::from(geo.inode_bytes)) as u32;
            let ino = geo.inode_at(group, index);
            return Some(format!("inode table: inode {}{}", ino.0, self.path(ino)));
        }
        None
    }

    fn path(&self, ino: InodeNumber) -> String {
        let tree = self.plan.tree.as_ref();
        let path = tree.and_then(|tree| Some(tree.measured.walk.path(tree.measured.node(ino)?)));
        path.map_or(String::new(), |path| format!(", {path}"))
    }
}

fn of_tree(tree: &Placed<'_>, parts: &mut Vec<(Range<u64>, What)>) {
    let walk = tree.measured.walk;
    let made = tree.blocks().into_iter();
    parts.extend(made.map(|(at, block)| (at..at + 1, What::Made(block))));
    for node in walk
        .nodes()
        .filter(|node| matches!(walk.tree.kind(*node), Kind::File { .. }))
    {
        for extent in tree.extents(node) {
            let blocks = extent.start.0..extent.start.0 + u64::from(extent.len);
            parts.push((blocks, What::Data(node)));
        }
    }
}
