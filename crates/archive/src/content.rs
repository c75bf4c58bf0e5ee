//! Where the bytes of a file are.

/// A source among the [`Sources`](crate::Sources) of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub(crate) u32);

impl SourceId {
    /// The position in the order in which sources were added.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A run of data in a file. Between runs there are holes, which read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How many bytes; not 0.
    pub length: u64,
    /// Where in the source's item, in bytes.
    pub at: u64,
}

/// The content of a file, as given to [`Tree::add_file`](crate::Tree::add_file).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    /// Where the bytes are.
    pub source: SourceId,
    /// Which part of the source, as the source counts them: a file of a directory; 0 of an archive.
    pub item: u32,
    /// The file's size in bytes.
    pub size: u64,
    /// The data, ascending, without overlap, and within the size.
    pub extents: Vec<Extent>,
}

impl FileContent {
    /// A file that is one hole of `size` bytes; 0 for an empty file.
    pub fn hole(size: u64) -> FileContent {
        FileContent {
            source: SourceId(u32::MAX),
            item: 0,
            size,
            extents: Vec::new(),
        }
    }

    /// A file without holes, whose bytes are all at `at` of the item.
    pub fn dense(source: SourceId, item: u32, size: u64, at: u64) -> FileContent {
        let extent = Extent {
            offset: 0,
            length: size,
            at,
        };
        FileContent {
            source,
            item,
            size,
            extents: if size == 0 { Vec::new() } else { vec![extent] },
        }
    }
}

/// The content of a file in a tree.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// Where the bytes are. Of no meaning where there are no extents.
    pub source: SourceId,
    /// Which part of the source.
    pub item: u32,
    /// The file's size in bytes.
    pub size: u64,
    pub(crate) extents: Extents<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Extents<'a> {
    /// The whole file, at this place.
    Dense(u64),
    Listed(&'a [Extent]),
}

impl<'a> Content<'a> {
    /// The data, ascending by offset.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + use<'a> {
        let (dense, listed) = match self.extents {
            Extents::Dense(at) => (
                Some(Extent {
                    offset: 0,
                    length: self.size,
                    at,
                }),
                &[][..],
            ),
            Extents::Listed(extents) => (None, extents),
        };
        dense.into_iter().chain(listed.iter().copied())
    }

    /// Bytes of data, holes not counted.
    pub fn data_bytes(&self) -> u64 {
        self.extents().map(|extent| extent.length).sum()
    }

    /// Whether the file has no hole.
    pub fn is_dense(&self) -> bool {
        self.data_bytes() == self.size
    }
}
