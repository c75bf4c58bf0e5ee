//! The bytes of one inode: the part that every inode has, the fields after it, and the area of its extended
//! attributes.

use std::ops::{Deref, DerefMut};

use zerocopy::FromBytes;

use super::{BASE_BYTES, EXTRA_ISIZE, FULL_BYTES, InodeBase, InodeExtra};
use crate::Result;
use crate::error::ensure;

/// The bytes of one inode, owned. It dereferences to [`InodeBase`], the fields that every inode has.
///
/// Invariant: at least 128 bytes, and `i_extra_isize`, where it exists, lies within them; so
/// [`Self::extra`] and the fields it says are present can be read without further checks.
#[derive(Clone, PartialEq, Eq)]
pub struct InodeImage {
    bytes: Box<[u8]>,
}

impl InodeImage {
    /// Copies an inode's bytes, exactly `inode_bytes` of them, and checks
    /// `i_extra_isize`. [`Self::verify_checksum`] checks the checksum.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let len = bytes.len();
        ensure!(
            len == BASE_BYTES || len >= FULL_BYTES,
            "inode of {len} bytes"
        );
        let image = Self {
            bytes: bytes.into(),
        };
        let extra = usize::from(image.extra_isize());
        // It is 0 in a free inode, and in one written before the volume's inodes were enlarged.
        ensure!(
            extra % 4 == 0 && extra <= len.saturating_sub(BASE_BYTES),
            "i_extra_isize is {extra} in an inode of {len} bytes"
        );
        Ok(image)
    }

    /// A zeroed inode of this volume with the `i_extra_isize` of a new inode
    /// (`want` is `s_want_extra_isize`, clamped to its bounds).
    pub fn new(inode_bytes: u16, want: u16) -> Self {
        let len = usize::from(inode_bytes).max(BASE_BYTES);
        let mut image = Self {
            bytes: vec![0; len].into(),
        };
        let room = (len as u16).saturating_sub(BASE_BYTES as u16);
        if let Some(extra) = image.extra_mut() {
            extra
                .i_extra_isize
                .set(want.max(EXTRA_ISIZE).min(room) & !3);
        }
        image
    }

    /// The bytes to write.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The fields every inode has.
    pub fn base(&self) -> &InodeBase {
        InodeBase::ref_from_prefix(&self.bytes)
            .expect("an image has 128 bytes")
            .0
    }

    /// The fields every inode has.
    pub fn base_mut(&mut self) -> &mut InodeBase {
        InodeBase::mut_from_prefix(&mut self.bytes)
            .expect("an image has 128 bytes")
            .0
    }

    /// The bytes after the first 128 as fields; `None` in inodes of 128 bytes. Bytes past
    /// [`Self::extra_isize`] are not fields but part of the extended attributes.
    pub fn extra(&self) -> Option<&InodeExtra> {
        Some(
            InodeExtra::ref_from_prefix(self.bytes.get(BASE_BYTES..)?)
                .ok()?
                .0,
        )
    }

    /// As [`Self::extra`], mutable.
    pub(super) fn extra_mut(&mut self) -> Option<&mut InodeExtra> {
        Some(
            InodeExtra::mut_from_prefix(self.bytes.get_mut(BASE_BYTES..)?)
                .ok()?
                .0,
        )
    }

    /// `i_extra_isize`; 0 in inodes of 128 bytes.
    pub fn extra_isize(&self) -> u16 {
        self.extra().map_or(0, |extra| extra.i_extra_isize.get())
    }

    /// Whether the extra field that ends at `end` (offset in [`InodeExtra`]) is present.
    pub(super) fn reaches(&self, end: usize) -> bool {
        usize::from(self.extra_isize()) >= end
    }

    /// The area of extended attributes in the inode: the byte range of the image after the
    /// fields; `None` if there is no room.
    pub fn xattr_range(&self) -> Option<std::ops::Range<usize>> {
        let extra = self.extra_isize();
        if extra == 0 {
            return None;
        }
        let start = BASE_BYTES.checked_add(usize::from(extra))?;
        (start.checked_add(4)? <= self.bytes.len()).then_some(start..self.bytes.len())
    }

    /// The area of extended attributes, see [`Self::xattr_range`]; empty if there is none.
    pub fn xattr_area(&self) -> &[u8] {
        self.xattr_range()
            .and_then(|range| self.bytes.get(range))
            .unwrap_or_default()
    }

    /// As [`Self::xattr_area`], mutable.
    pub fn xattr_area_mut(&mut self) -> &mut [u8] {
        match self.xattr_range() {
            Some(range) => self.bytes.get_mut(range).unwrap_or_default(),
            None => &mut [],
        }
    }
}

impl Deref for InodeImage {
    type Target = InodeBase;

    fn deref(&self) -> &InodeBase {
        self.base()
    }
}

impl DerefMut for InodeImage {
    fn deref_mut(&mut self) -> &mut InodeBase {
        self.base_mut()
    }
}

impl std::fmt::Debug for InodeImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InodeImage")
            .field("mode", &format_args!("{:#o}", self.mode()))
            .field("links", &self.links_count())
            .field("size_lo", &self.i_size_lo.get())
            .field("flags", &self.flags())
            .finish_non_exhaustive()
    }
}
