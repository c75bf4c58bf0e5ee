//! The blocks of a directory: one block of names, or a hash tree whose leaves are filled to the end. One sort
//! by hash, and every block is written once.

use throughline_extfmt::dir::{self, DirEntry, DirFormat};
use throughline_extfmt::features::Compat;
use throughline_extfmt::hash::HashVersion;
use throughline_extfmt::htree::{self, IndexNodeMut, TreeFormat};
use throughline_extfmt::inode::FileType;
use throughline_extfmt::{FileBlock, Geometry, InodeNumber, Superblock};

use crate::error::Result;

/// Names of a directory, the inodes that they lead to, and these inodes' types.
pub(crate) type Names<'t> = Vec<(&'t [u8], InodeNumber, FileType)>;

/// How a volume stores directories.
#[derive(Clone, Debug)]
pub(crate) struct Directories {
    format: DirFormat,
    tree: TreeFormat,
    /// The hash of names; `None`: directories are not hashed.
    hash: Option<(HashVersion, u8, [u32; 4])>,
    block_bytes: usize,
}

/// Names that fill a block, and the least hash of the block in its index.
struct Leaf {
    names: std::ops::Range<usize>,
    hash: u32,
}

impl Directories {
    pub(crate) fn new(geo: &Geometry, sb: &Superblock) -> Directories {
        let version = HashVersion::from_disk(sb.s_def_hash_version, false)
            .filter(|version| *version != HashVersion::SipHash)
            .unwrap_or(HashVersion::HalfMd4);
        let hash = (version, version.to_disk(), sb.hash_seed());
        Directories {
            format: DirFormat::new(geo),
            tree: TreeFormat::new(geo),
            hash: geo.compat.contains(Compat::DIR_INDEX).then_some(hash),
            block_bytes: geo.block_bytes as usize,
        }
    }

    fn usable(&self) -> usize {
        self.format.usable(self.block_bytes)
    }

    /// Whether the names, with `.` and `..`, fill one block at most.
    fn is_small(&self, names: &Names<'_>) -> bool {
        let bytes: usize = names
            .iter()
            .map(|(name, ..)| dir::record_bytes(name.len()))
            .sum();
        bytes + 2 * dir::record_bytes(2) <= self.usable()
    }

    /// Whether a directory with these names is hashed.
    pub(crate) fn is_hashed(&self, names: &Names<'_>) -> bool {
        self.hash.is_some() && !self.is_small(names)
    }

    /// The number of blocks; `None`: more names than the format has room for.
    pub(crate) fn blocks(&self, names: &mut Names<'_>) -> Option<u32> {
        if self.is_small(names) {
            return Some(1);
        }
        match self.hash {
            None => Some(self.chunks(names, 2 * dir::record_bytes(2)).len() as u32),
            Some(_) => {
                let leaves = self.leaves(names).len();
                Some((1 + self.nodes(leaves)?.iter().sum::<usize>() + leaves) as u32)
            }
        }
    }

    /// Divides names into blocks, in order; `first` bytes of the first block are taken.
    fn chunks(&self, names: &Names<'_>, first: usize) -> Vec<std::ops::Range<usize>> {
        let (mut chunks, mut start, mut used) = (Vec::new(), 0, first);
        for (at, (name, ..)) in names.iter().enumerate() {
            let bytes = dir::record_bytes(name.len());
            if used + bytes > self.usable() {
                chunks.push(start..at);
                (start, used) = (at, 0);
            }
            used += bytes;
        }
        chunks.push(start..names.len());
        chunks
    }

    /// Sorts the names by hash and divides them into leaves.
    fn leaves(&self, names: &mut Names<'_>) -> Vec<Leaf> {
        let Some((version, _, seed)) = self.hash else {
            return Vec::new();
        };
        let hash = |name: &[u8]| {
            version
                .hash(name, seed)
                .map_or((0, 0), |hash| (hash.major, hash.minor))
        };
        let mut keyed: Vec<_> = names
            .drain(..)
            .map(|entry| (hash(entry.0), entry))
            .collect();
        keyed.sort_unstable_by_key(|(hash, (name, ..))| (*hash, *name));
        names.extend(keyed.iter().map(|(_, entry)| *entry));
        let chunks = self.chunks(names, 0);
        let leaf = |names: std::ops::Range<usize>| {
            let hash = keyed[names.start].0.0;
            // A leaf that goes on with the last hash of the one before says so in the lowest bit.
            let goes_on = names.start > 0 && keyed[names.start - 1].0.0 == hash;
            Leaf {
                hash: hash | u32::from(goes_on),
                names,
            }
        };
        chunks.into_iter().map(leaf).collect()
    }

    /// The index blocks below the root for so many leaves, level by level from the leaves up.
    fn nodes(&self, leaves: usize) -> Option<Vec<usize>> {
        let (root, node) = (self.tree.root_limit(), self.tree.node_limit());
        let (mut levels, mut count) = (Vec::new(), leaves);
        while count > usize::from(root) {
            count = count.div_ceil(usize::from(node));
            levels.push(count);
        }
        (levels.len() < usize::from(self.tree.max_levels)).then_some(levels)
    }

    /// Writes a directory into `blocks` blocks, of which those that it does not need stay empty.
    pub(crate) fn render(
        &self,
        (own, parent): (InodeNumber, InodeNumber),
        names: &mut Names<'_>,
        blocks: u32,
        seed: Option<u32>,
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; blocks as usize * self.block_bytes];
        if self.is_hashed(names) {
            self.render_hashed((own, parent), names, &mut bytes, seed)?;
            return Ok(bytes);
        }
        let mut all: Names<'_> = vec![
            (b".", own, FileType::Directory),
            (b"..", parent, FileType::Directory),
        ];
        all.append(names);
        let mut chunks = self.chunks(&all, 0).into_iter();
        for block in bytes.chunks_exact_mut(self.block_bytes) {
            fill(
                block,
                &self.format,
                &all[chunks.next().unwrap_or(0..0)],
                seed,
            );
        }
        Ok(bytes)
    }

    /// The root, the index blocks from the top level down, the leaves.
    fn render_hashed(
        &self,
        ids: (InodeNumber, InodeNumber),
        names: &mut Names<'_>,
        bytes: &mut [u8],
        seed: Option<u32>,
    ) -> Result<()> {
        let leaves = self.leaves(names);
        let levels = self.nodes(leaves.len()).unwrap_or_default();
        let first_leaf = 1 + levels.iter().sum::<usize>();
        let mut below: Vec<(u32, u32)> = Vec::new();
        for (at, leaf) in leaves.iter().enumerate() {
            let block = &mut bytes[(first_leaf + at) * self.block_bytes..][..self.block_bytes];
            fill(block, &self.format, &names[leaf.names.clone()], seed);
            below.push((leaf.hash, (first_leaf + at) as u32));
        }
        // The lowest level is right before the leaves.
        let mut end = first_leaf;
        for count in &levels {
            let first = end - count;
            let mut level = Vec::new();
            for (at, children) in below
                .chunks(usize::from(self.tree.node_limit()))
                .enumerate()
            {
                let block = &mut bytes[(first + at) * self.block_bytes..][..self.block_bytes];
                let node = IndexNodeMut::init_node(block, &self.tree, FileBlock(children[0].1))?;
                index(node, children);
                htree::update_checksum(block, &self.tree, false, seed)?;
                level.push((children[0].0, (first + at) as u32));
            }
            (below, end) = (level, first);
        }
        let block = &mut bytes[..self.block_bytes];
        let code = self.hash.map_or(0, |(_, code, _)| code);
        let first = FileBlock(below[0].1);
        let root =
            IndexNodeMut::init_root(block, &self.tree, ids, code, self.format.filetype, first)?;
        index(root, &below);
        htree::set_indirect_levels(block, levels.len() as u8)?;
        htree::update_checksum(block, &self.tree, true, seed)?;
        Ok(())
    }
}

/// Fills a block with names.
pub(crate) fn fill(
    block: &mut [u8],
    format: &DirFormat,
    names: &[(&[u8], InodeNumber, FileType)],
    seed: Option<u32>,
) {
    let entry = |&(name, inode, kind): &(_, _, FileType)| DirEntry {
        offset: 0,
        rec_len: 0,
        inode,
        name,
        file_type: if format.filetype { kind.dir_code() } else { 0 },
    };
    let entries: Vec<_> = names.iter().map(entry).collect();
    let fits = dir::fill(block, format, &entries);
    debug_assert!(fits, "chunks are as long as a block");
    dir::update_checksum(block, seed);
}

/// Adds all children but the first, which is there.
fn index(mut node: IndexNodeMut<'_>, children: &[(u32, u32)]) {
    for (at, (hash, block)) in children.iter().enumerate().skip(1) {
        let fits = node.insert(at, *hash, FileBlock(*block));
        debug_assert!(fits, "chunks are as long as a node");
    }
}
