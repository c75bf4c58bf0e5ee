//! The area of fast commits at the end of the journal: a stream of tags, little-endian.
//!
//! A fast commit starts with a head (or an "add range" after a full commit), ends with a tail
//! that holds a crc32c of everything since the last tail, and is padded to the block.

use std::mem::size_of;

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::ensure;
use crate::{Corrupt, Result};

/// Features of fast commits that are understood (`fc_features` of the head).
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
    /// A further name for an inode.
    Link,
    /// A name less.
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

    /// Least bytes of the value.
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

/// Before every value.
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

/// Value of [`Tag::AddRange`]: the inode and an extent as a leaf holds it.
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
    /// Byte of the tag's head in the block.
    pub offset: usize,
    /// What it is.
    pub tag: Tag,
    /// Its value, at least as long as the tag's structure.
    pub value: &'a [u8],
}

/// The tags of one block of the area. A tag never crosses blocks. After an error it ends.
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
        // What is too short for a tag at the end of the block is padding.
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
