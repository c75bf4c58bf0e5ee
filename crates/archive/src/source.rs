//! Where contents come from, and how they are read once the tree is known.
//!
//! Nothing is staged. A source that can be read at random (a directory, a plain archive in a file) is read
//! where its extents say. One that is compressed is decompressed a second time and read in its own order.

use std::fmt;
use std::io::Read;

use crate::content::{Content, Extent, SourceId};
use crate::error::{Error, Result};
use crate::meta::Kind;
use crate::tree::{NodeId, Tree};

/// How a source's bytes can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// In any order, by [`Source::open_item`].
    Random,
    /// In ascending order, from [`Source::open_stream`]. There is one item, 0.
    Sequential,
}

/// A part of a source that is open, to be read at random.
pub trait Item: Send {
    /// Fills the buffer with the bytes at a place.
    ///
    /// # Errors
    /// Those of the source; [`Error::Changed`] if it has become shorter.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()>;

    /// After the last read: whether what was read is what was scanned.
    ///
    /// # Errors
    /// [`Error::Changed`] if it is not.
    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// Where contents come from.
pub trait Source: Send + Sync {
    /// Its name in messages.
    fn describe(&self) -> String;

    /// How it can be read.
    fn access(&self) -> Access {
        Access::Random
    }

    /// Opens an item of a source with random access.
    ///
    /// # Errors
    /// Those of the source; [`Error::Changed`] if the item is not what was scanned; [`Error::Invalid`] if the
    /// source is sequential.
    fn open_item(&self, item: u32) -> Result<Box<dyn Item + '_>>;

    /// Opens a sequential source at its start. Called once a pass.
    ///
    /// # Errors
    /// Those of the source; [`Error::Invalid`] if it has random access.
    fn open_stream(&self) -> Result<Box<dyn Read + Send + '_>> {
        Err(Error::Invalid(format!(
            "{} is not a stream",
            self.describe()
        )))
    }

    /// After a pass over the stream: whether it is what was scanned.
    ///
    /// # Errors
    /// [`Error::Changed`] if it is not.
    fn finish_stream(&self) -> Result<()> {
        Ok(())
    }
}

/// What a visitor of contents returns.
pub type Visited = std::result::Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A run of data to be read: an extent of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// The source's item.
    pub item: u32,
    /// Where it is there, in bytes.
    pub at: u64,
    /// How long it is, in bytes.
    pub length: u64,
    /// Whose data it is.
    pub node: NodeId,
    /// Where in the node, in bytes.
    pub offset: u64,
}

/// All sources of a tree.
#[derive(Default)]
pub struct Sources {
    list: Vec<Box<dyn Source>>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.list.iter().map(|source| source.describe());
        f.debug_list().entries(names).finish()
    }
}

/// Bytes read at a time.
pub(crate) const CHUNK: usize = 256 << 10;

impl Sources {
    /// None.
    pub fn new() -> Sources {
        Sources::default()
    }

    /// Adds a source.
    pub fn add(&mut self, source: Box<dyn Source>) -> SourceId {
        self.list.push(source);
        SourceId((self.list.len() - 1) as u32)
    }

    /// The number that the source added next gets.
    pub(crate) fn next_id(&self) -> SourceId {
        SourceId(self.list.len() as u32)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// One of them.
    ///
    /// # Panics
    /// If the number is of other sources, or of a hole.
    pub fn get(&self, id: SourceId) -> &dyn Source {
        &*self.list[id.index()]
    }

    /// The data of every file of a tree, by source, in the order in which [`Sources::for_each_data`] reads
    /// each source: 40 bytes for each extent.
    pub fn pieces(&self, tree: &Tree) -> Vec<Vec<Piece>> {
        self.pieces_of(tree, |_| true)
    }

    /// As [`Sources::pieces`], in the order in which [`Sources::for_each_data`] visits them on one thread:
    /// sources that can be read at random come first.
    pub fn pieces_in_order(&self, tree: &Tree) -> Vec<Vec<Piece>> {
        let mut lists: Vec<_> = self.list.iter().zip(self.pieces(tree)).collect();
        // The sort is stable: sources of one kind keep their order.
        lists.sort_by_key(|(source, _)| source.access() == Access::Sequential);
        lists.into_iter().map(|(_, pieces)| pieces).collect()
    }

    /// As [`Sources::pieces`]; empty for sources that are not `wanted`.
    fn pieces_of(&self, tree: &Tree, wanted: impl Fn(&dyn Source) -> bool) -> Vec<Vec<Piece>> {
        let mut pieces = vec![Vec::new(); self.list.len()];
        let wanted: Vec<bool> = self.list.iter().map(|source| wanted(&**source)).collect();
        for id in tree.ids().filter(|&id| tree.node(id).kind() == Kind::File) {
            let content = tree.node(id).content().expect("a file has content");
            let is_wanted = |id: SourceId| wanted.get(id.index()).is_some_and(|wanted| *wanted);
            for extent in content.extents().filter(|_| is_wanted(content.source)) {
                pieces[content.source.index()].push(Piece {
                    item: content.item,
                    at: extent.at,
                    length: extent.length,
                    node: id,
                    offset: extent.offset,
                });
            }
        }
        for list in &mut pieces {
            list.sort_unstable();
        }
        pieces
    }

    /// Reads all data of a tree's files in one pass, and gives it to `visit`: the node, the offset in it in
    /// bytes, and the bytes. Holes are not visited. Sequential sources are decompressed by up to `threads`
    /// threads, each with at most 2 MiB ahead of `visit`; of one source the order is that of
    /// [`Sources::pieces`], between sources there is none, unless `threads` is 1. `visit` is called on this
    /// thread.
    ///
    /// # Errors
    /// Those of the sources; [`Error::Changed`] if one is not what was scanned; [`Error::Caller`] with what
    /// `visit` returned.
    pub fn for_each_data(
        &self,
        tree: &Tree,
        threads: usize,
        visit: &mut dyn FnMut(NodeId, u64, &[u8]) -> Visited,
    ) -> Result<()> {
        let pieces = self.pieces(tree);
        crate::pass::run(&self.list, &pieces, threads.max(1), visit)
    }

    /// As [`Sources::for_each_data`], of the sequential sources alone: the others can be read at random, by
    /// [`Sources::open`].
    ///
    /// # Errors
    /// As there.
    pub fn for_each_streamed(
        &self,
        tree: &Tree,
        threads: usize,
        visit: &mut dyn FnMut(NodeId, u64, &[u8]) -> Visited,
    ) -> Result<()> {
        let pieces = self.pieces_of(tree, |source| source.access() == Access::Sequential);
        crate::pass::run(&self.list, &pieces, threads.max(1), visit)
    }

    /// Fills the buffer with the bytes at an offset of a file, zeros where there are holes or the file ends.
    /// The source must be one that is read at random. For many files, or large ones, [`Sources::open`].
    ///
    /// # Errors
    /// As [`Sources::open`] and [`OpenContent::read_at`].
    pub fn read_at(&self, content: Content<'_>, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.open(content)?.read_at(offset, buffer)
    }

    /// Opens a file to be read at random.
    ///
    /// # Errors
    /// Those of [`Source::open_item`].
    pub fn open<'a>(&'a self, content: Content<'a>) -> Result<OpenContent<'a>> {
        let item = match content.extents().next() {
            None => None,
            Some(_) => Some(self.get(content.source).open_item(content.item)?),
        };
        Ok(OpenContent { content, item })
    }
}

/// An open file of a tree; see [`Sources::open`].
pub struct OpenContent<'a> {
    content: Content<'a>,
    item: Option<Box<dyn Item + 'a>>,
}

impl fmt::Debug for OpenContent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("OpenContent");
        shown
            .field("content", &self.content)
            .finish_non_exhaustive()
    }
}

impl OpenContent<'_> {
    /// Fills the buffer with the bytes at an offset, zeros where there are holes or the file ends.
    ///
    /// # Errors
    /// Those of [`Item::read_at`].
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.saturating_add(buffer.len() as u64);
        let mut filled = 0;
        if let Some(item) = &self.item {
            for extent in self.content.extents() {
                if extent.offset >= end {
                    break;
                }
                let Some((from, part)) = overlap(extent, offset, end) else {
                    continue;
                };
                buffer[filled..part.start].fill(0);
                filled = part.end;
                item.read_at(extent.at + (from - extent.offset), &mut buffer[part])?;
            }
        }
        buffer[filled..].fill(0);
        Ok(())
    }

    /// After the last read: whether the file is still what was scanned.
    ///
    /// # Errors
    /// Those of [`Item::finish`].
    pub fn finish(self) -> Result<()> {
        self.item.map_or(Ok(()), |item| item.finish())
    }
}

/// The part of an extent between two offsets: its start in the file, and its place in a buffer for that
/// range.
fn overlap(extent: Extent, offset: u64, end: u64) -> Option<(u64, std::ops::Range<usize>)> {
    let from = extent.offset.max(offset);
    let to = (extent.offset + extent.length).min(end);
    (from < to).then(|| (from, (from - offset) as usize..(to - offset) as usize))
}
