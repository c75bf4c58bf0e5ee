//! Placement of attributes: in the body of the inode while they fit, else in the block. A value for which the
//! block has no room goes into an inode if the volume supports that.
//!
//! Pure functions on lists; no I/O.

use throughline_extfmt::features::Incompat;
use throughline_extfmt::xattr::{self as format, Attribute, Value};

use super::Key;
use crate::attrs::Attrs;

/// Attribute space of a volume and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Size of the inode's attribute area; 0 if it has none.
    pub(super) body_bytes: usize,
    /// Block size in bytes.
    pub(super) block_bytes: usize,
    /// Bytes of a cluster; of a block without `bigalloc`.
    pub(super) cluster_bytes: usize,
    /// Whether values may be in inodes.
    pub(super) inodes: bool,
}

/// Where an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    Body,
    Block,
}

/// An inode's attributes, and which of both places differs from disk.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    shape: Shape,
    pub(super) body: Vec<Attribute>,
    pub(super) block: Vec<Attribute>,
    pub(super) body_changed: bool,
    pub(super) block_changed: bool,
}

impl Shape {
    /// The shape for inodes with `body_bytes` of attribute area.
    pub(super) fn of(fs: &Attrs, body_bytes: usize) -> Self {
        Self {
            body_bytes,
            block_bytes: fs.geo.block_bytes as usize,
            cluster_bytes: (fs.geo.block_bytes as usize) << fs.geo.cluster_ratio_log,
            inodes: fs.geo.incompat.contains(Incompat::EA_INODE),
        }
    }

    /// Whether a value is too long for a block: more than what remains beside one entry with a short name.
    pub(super) fn is_large(&self, len: usize) -> bool {
        const SMALLEST_LIST: usize = 32 + 20 + 4;
        self.inodes && len.next_multiple_of(4) > self.block_bytes - SMALLEST_LIST
    }

    /// Bytes of a block kept free of values, for entries whose values are in inodes.
    fn kept(&self) -> usize {
        if self.inodes {
            (self.block_bytes / 8).min(1024)
        } else {
            0
        }
    }
}

impl Layout {
    pub(super) fn new(shape: Shape, body: Vec<Attribute>, block: Vec<Attribute>) -> Self {
        Self {
            shape,
            body,
            block,
            body_changed: false,
            block_changed: false,
        }
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Total clusters of values in inodes.
    pub(super) fn value_clusters(&self) -> i64 {
        let blocks = |attribute: &Attribute| match attribute.value {
            Value::Inode { size, .. } => (size as usize).div_ceil(self.shape.cluster_bytes) as i64,
            Value::Bytes(_) => 0,
        };
        self.body.iter().chain(&self.block).map(blocks).sum()
    }

    /// The number of values in inodes.
    pub(super) fn values(&self) -> u64 {
        let all = self.body.iter().chain(&self.block);
        all.filter(|a| matches!(a.value, Value::Inode { .. }))
            .count() as u64
    }

    /// An attribute, and its place.
    pub(super) fn find(&self, key: &Key<'_>) -> Option<(&Attribute, Spot)> {
        let find = |list: &'_ [Attribute]| list.iter().position(|a| key.is_of(a));
        find(&self.body)
            .map(|at| (&self.body[at], Spot::Body))
            .or_else(|| find(&self.block).map(|at| (&self.block[at], Spot::Block)))
    }

    /// Stores an attribute where it fits, replacing one with the same name; returns `false`, with nothing
    /// changed, if it fits nowhere.
    #[must_use]
    pub(super) fn put(&mut self, attribute: &Attribute) -> bool {
        let body = with(&self.body, attribute);
        if format::ibody_fits(&body, self.shape.body_bytes) {
            self.body = body;
            self.body_changed = true;
            self.block_changed |= without(&mut self.block, attribute);
            return true;
        }
        let block = with(&self.block, attribute);
        let kept = match attribute.value_bytes() {
            0 => 0,
            _ => self.shape.kept(),
        };
        if format::block_fits(&block, self.shape.block_bytes, kept) {
            self.block = block;
            self.block_changed = true;
            self.body_changed |= without(&mut self.body, attribute);
            return true;
        }
        false
    }

    /// Removes an attribute.
    pub(super) fn take(&mut self, key: &Key<'_>) {
        let before = (self.body.len(), self.block.len());
        self.body.retain(|a| !key.is_of(a));
        self.block.retain(|a| !key.is_of(a));
        self.body_changed |= self.body.len() != before.0;
        self.block_changed |= self.block.len() != before.1;
    }
}

/// A copy of a list with an attribute replaced or appended.
fn with(list: &[Attribute], attribute: &Attribute) -> Vec<Attribute> {
    let mut list = list.to_vec();
    let same = |a: &&mut Attribute| a.is_named(attribute.name_index, &attribute.name);
    match list.iter_mut().find(same) {
        Some(old) => *old = attribute.clone(),
        None => list.push(attribute.clone()),
    }
    list
}

/// Removes the attribute with that name from a list; returns whether it existed.
fn without(list: &mut Vec<Attribute>, attribute: &Attribute) -> bool {
    let before = list.len();
    list.retain(|a| !a.is_named(attribute.name_index, &attribute.name));
    list.len() != before
}
