//! The area of fast commits at the end of the journal: a stream of tags, little-endian.
//!
//! The first fast commit after a full one starts with a head. Each ends with a tail that extends to the end
//! of its block and holds a crc32c with seed 0 over all tags since the last tail, including padding, and over
//! itself up to the checksum.

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum::crc32c;
use crate::error::ensure;
use crate::extent::Extent;
use crate::units::{FileBlock, InodeNumber};
use crate::{Corrupt, Result};

/// The supported features of fast commits (`fc_features` of the head).
pub const SUPPORTED_FEATURES: u32 = 0;

/// `fc_tag`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// Maps a range of an inode: [`AddRange`].
    AddRange,
    /// Unmaps a range of an inode: [`DelRange`].
    DelRange,
    /// A new name: [`DentryInfo`] and the name.
    Create,
    /// An additional name for an inode.
    Link,
    /// A name was removed.
    Unlink,
    /// The bytes of an inode: its number, then the inode.
    Inode,
    /// Padding to the end of the block.
    Pad,
    /// End of a fast commit: [`Tail`].
    Tail,
    /// Start of a fast commit: [`Head`].
    Head,
}

impl Tag {
    /// The tag of an on-disk code.
    pub fn from_disk(code: u16) -> Option<Self> {
        Some(match code {
            1 => Self::AddRange,
            2 => Self::DelRange,
            3 => Self::Create,
            4 => Self::Link,
            5 => Self::Unlink,
            6 => Self::Inode,
            7 => Self::Pad,
            8 => Self::Tail,
            9 => Self::Head,
            _ => return None,
        })
    }

    /// Minimum size of the value in bytes.
    fn min_bytes(self) -> usize {
        match self {
            Self::AddRange => size_of::<AddRange>(),
            Self::DelRange => size_of::<DelRange>(),
            Self::Create | Self::Link | Self::Unlink => size_of::<DentryInfo>(),
            Self::Inode => 4,
            Self::Pad => 0,
            Self::Tail | Self::Head => 8,
        }
    }
}

/// The header of every value.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct TagHead {
    pub fc_tag: U16,
    pub fc_len: U16,
}

/// Value of [`Tag::Head`].
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct Head {
    pub fc_features: U32,
    pub fc_tid: U32,
}

/// Value of [`Tag::AddRange`]: the inode and an extent in the form of a leaf entry.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct AddRange {
    pub fc_ino: U32,
    pub fc_ex: crate::extent::ExtentLeaf,
}

/// Value of [`Tag::DelRange`].
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DelRange {
    pub fc_ino: U32,
    pub fc_lblk: U32,
    pub fc_len: U32,
}

/// Value of [`Tag::Create`], [`Tag::Link`] and [`Tag::Unlink`]; the name follows.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct DentryInfo {
    pub fc_parent_ino: U32,
    pub fc_ino: U32,
}

/// Value of [`Tag::Tail`].
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
#[allow(missing_docs)] // the fields carry the format's names
pub struct Tail {
    pub fc_tid: U32,
    pub fc_crc: U32,
}

const _: () = {
    assert!(size_of::<TagHead>() == 4);
    assert!(size_of::<Head>() == 8);
    assert!(size_of::<AddRange>() == 16);
    assert!(size_of::<DelRange>() == 12);
    assert!(size_of::<DentryInfo>() == 8);
    assert!(size_of::<Tail>() == 8);
};

/// One tag of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Offset of the tag's header in the block.
    pub offset: usize,
    /// Its kind.
    pub tag: Tag,
    /// Its value, at least as long as the tag's structure.
    pub value: &'a [u8],
}

/// A change since the last full commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The extent is mapped.
    AddRange(InodeNumber, Extent),
    /// This many blocks from there are unmapped.
    DelRange(InodeNumber, FileBlock, u32),
    /// The first name of a new inode.
    Create(Name),
    /// An additional name.
    Link(Name),
    /// A name was removed.
    Unlink(Name),
    /// The inode has these bytes: its first ones, at least 128. Block mappings in them are to be ignored.
    Inode(InodeNumber, Vec<u8>),
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// The directory.
    pub parent: InodeNumber,
    /// The inode of the name.
    pub ino: InodeNumber,
    /// 1 to 255 bytes.
    pub name: Vec<u8>,
}

impl Record<'_> {
    /// The change of the tag; `None` for padding, head and tail.
    pub fn change(&self) -> Result<Option<Change>> {
        let short = || Corrupt::new(format!("fast commit tag {:?} is cut short", self.tag));
        let name = || {
            let (entry, name) = DentryInfo::ref_from_prefix(self.value).map_err(|_| short())?;
            ensure!(
                (1..=255).contains(&name.len()),
                "fast commit has a name of {} bytes",
                name.len()
            );
            Ok(Name {
                parent: InodeNumber(entry.fc_parent_ino.get()),
                ino: InodeNumber(entry.fc_ino.get()),
                name: name.to_vec(),
            })
        };
        Ok(Some(match self.tag {
            Tag::AddRange => {
                let (range, _) = AddRange::ref_from_prefix(self.value).map_err(|_| short())?;
                Change::AddRange(InodeNumber(range.fc_ino.get()), range.fc_ex.into())
            }
            Tag::DelRange => {
                let (range, _) = DelRange::ref_from_prefix(self.value).map_err(|_| short())?;
                let first = FileBlock(range.fc_lblk.get());
                Change::DelRange(InodeNumber(range.fc_ino.get()), first, range.fc_len.get())
            }
            Tag::Create => Change::Create(name()?),
            Tag::Link => Change::Link(name()?),
            Tag::Unlink => Change::Unlink(name()?),
            Tag::Inode => {
                let (ino, inode) = self.value.split_first_chunk().ok_or_else(short)?;
                ensure!(inode.len() >= 128, "fast commit has a part of an inode");
                Change::Inode(InodeNumber(u32::from_le_bytes(*ino)), inode.to_vec())
            }
            Tag::Pad | Tag::Tail | Tag::Head => return Ok(None),
        }))
    }

    /// Continues the checksum `sum` of a fast commit over this tag of `block`; of a tail, over the part
    /// before its checksum.
    pub fn sum(&self, sum: u32, block: &[u8]) -> u32 {
        let len = match self.tag {
            Tag::Tail => size_of::<U32>(),
            _ => self.value.len(),
        };
        let end = self
            .offset
            .saturating_add(size_of::<TagHead>())
            .saturating_add(len);
        crc32c(sum, block.get(self.offset..end).unwrap_or_default())
    }
}

/// The tags of one block of the area. A tag never crosses blocks. Ends after an error.
#[derive(Clone)]
pub struct Records<'a> {
    block: &'a [u8],
    offset: usize,
}

/// Walks the tags of a block.
pub fn records(block: &[u8]) -> Records<'_> {
    Records { block, offset: 0 }
}

impl<'a> Records<'a> {
    fn read(&self) -> Result<Record<'a>> {
        let offset = self.offset;
        let rest = self.block.get(offset..).unwrap_or_default();
        let (head, after) = TagHead::ref_from_prefix(rest)
            .map_err(|_| Corrupt::new("fast commit tag is cut short"))?;
        let (code, len) = (head.fc_tag.get(), usize::from(head.fc_len.get()));
        let tag = Tag::from_disk(code)
            .ok_or_else(|| Corrupt::new(format!("fast commit tag {code} at byte {offset}")))?;
        let value = after
            .get(..len)
            .filter(|value| value.len() >= tag.min_bytes());
        ensure!(
            value.is_some(),
            "fast commit tag {tag:?} at byte {offset} has {len} bytes"
        );
        Ok(Record {
            offset,
            tag,
            value: value.unwrap_or_default(),
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        // A rest that is too short for a tag is padding.
        if self.block.len().saturating_sub(self.offset) < size_of::<TagHead>() {
            return None;
        }
        let record = self.read();
        self.offset = match &record {
            Ok(record) => self
                .offset
                .saturating_add(size_of::<TagHead>())
                .saturating_add(record.value.len()),
            Err(_) => self.block.len(),
        };
        Some(record)
    }
}
