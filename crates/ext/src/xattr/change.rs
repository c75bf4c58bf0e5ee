//! Changes of attributes: planned on lists, prepared outside the transaction, applied in it.
//!
//! A block shared with other inodes is never modified: the inode gets its own block instead, or a reference
//! to another block with the same contents, and drops its reference to the old one. This crate never shares a
//! block that names value inodes, since those count each block that refers to them. (The kernel does create
//! such shared blocks.)
//!
//! All checks that can fail a request come before the first change.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use throughline_extfmt::features::Compat;
use throughline_extfmt::inode::Time;
use throughline_extfmt::xattr::{self as format, Attribute, Value};
use throughline_extfmt::{FsBlock, InodeImage, InodeNumber};

use crate::attrs::Attrs;
use crate::balloc::GROUP_CREDITS;
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::{INODE_CREDITS, Inode};
use crate::map;
use crate::quota::limit::Hold;

use super::layout::{Layout, Shape, Spot};
use super::place::{NewBlock, Place, put_block};
use super::release::must_fit;
use super::values::{self, COUNT_CREDITS, Pinned};
use super::{Key, XattrMode, attributes_of_body, block};

/// Blocks that changing the attribute block may touch: the old and the new block, with their bits.
const BLOCK_CREDITS: u32 = 2 * (1 + GROUP_CREDITS);

/// How a change treats an existing or missing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// Sets it, or removes it if it exists.
    IfThere,
    /// `Exists` if it exists.
    Create,
    /// `NoAttribute` if it does not exist.
    Replace,
}

impl From<XattrMode> for Rule {
    fn from(mode: XattrMode) -> Self {
        match mode {
            XattrMode::Either => Self::IfThere,
            XattrMode::Create => Self::Create,
            XattrMode::Replace => Self::Replace,
        }
    }
}

/// A further change of the inode in the same transaction. Called with the inode's image; it may fail only at
/// `Check`, when nothing has changed.
pub(crate) type Also<'a> = &'a dyn Fn(Step, &mut InodeImage) -> Result<()>;

/// See [`Also`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Check the request.
    Check,
    /// Apply it.
    Apply,
}

/// Sets or removes an attribute; returns whether anything changed.
pub(super) fn set(
    fs: &Attrs,
    inode: &Inode,
    key: &Key<'_>,
    value: Option<&[u8]>,
    rule: Rule,
) -> Result<bool> {
    let locks = ChangeLocks::lock(inode);
    let is_capability = *key == Key::CAPABILITY;
    if is_capability {
        inode.lacks_capability.store(false, Ordering::Release);
    }
    let done = set_locked(fs, inode, (key, value, rule), None);
    if is_capability && value.is_none() && done.is_ok() {
        inode.lacks_capability.store(true, Ordering::Release);
    }
    drop(locks);
    let (changed, unused) = done?;
    free(fs, unused)?;
    fs.attributes_changed(inode)?;
    Ok(changed)
}

/// Frees value inodes without users. No inode lock is held.
pub(crate) fn free(fs: &Attrs, unused: Vec<Arc<Inode>>) -> Result<()> {
    unused.iter().try_for_each(|value| fs.free_if_unused(value))
}

/// The locks required to change an inode's attributes.
pub(crate) struct ChangeLocks<'a> {
    _names: Option<throughline_locks::RwLockWriteGuard<'a, ()>>,
    _io: throughline_fileio::FileExclusive<'a>,
}

impl<'a> ChangeLocks<'a> {
    pub(crate) fn lock(inode: &'a Inode) -> Self {
        Self {
            _names: inode.is_dir().then(|| inode.dir_exclusive()),
            _io: inode.io_exclusive(),
        }
    }
}

/// As [`set`], with the locks held. The caller frees value inodes that lost their last user.
pub(super) fn set_locked(
    fs: &Attrs,
    inode: &Inode,
    (key, value, rule): (&Key<'_>, Option<&[u8]>, Rule),
    also: Option<Also<'_>>,
) -> Result<(bool, Vec<Arc<Inode>>)> {
    let there = There::read(fs, inode)?;
    let found = there.layout.find(key);
    match (rule, found) {
        (Rule::Create, Some(_)) => return Err(Reason::Exists.into()),
        (Rule::Replace, None) => return Err(Reason::NoAttribute.into()),
        _ => {}
    }
    let same = match (found, value) {
        (None, None) => true,
        (Some((attribute, _)), Some(value)) => {
            matches!(&attribute.value, Value::Bytes(bytes) if bytes == value)
        }
        _ => false,
    };
    if same && also.is_none() {
        return Ok((false, Vec::new()));
    }
    let edits = if same { None } else { Some((*key, value)) };
    let owner = {
        let raw = inode.raw.read();
        (raw.uid(), raw.gid())
    };
    let unused = fs.with_room(|| {
        // If a value to be shared has been freed meanwhile, retry with a new one.
        for shared in [true, false] {
            let prepared = Prepared::new(fs, inode, owner, &there, edits.as_slice(), shared)?;
            let done = prepared
                .may_wait(fs, inode)
                .and_then(|()| enter_in_transaction(fs, inode, &prepared, also));
            prepared.end(fs)?;
            if let Some(unused) = done? {
                return Ok(unused);
            }
        }
        Err(Error::corrupt("a new value of an attribute is gone").in_inode(inode.ino))
    })?;
    Ok((true, unused))
}

/// Applies a change in its own transaction; `None`, with nothing done, if a value was freed meanwhile.
fn enter_in_transaction(
    fs: &Attrs,
    inode: &Inode,
    prepared: &Prepared,
    also: Option<Also<'_>>,
) -> Result<Option<Vec<Arc<Inode>>>> {
    fs.transact(prepared.credits() + INODE_CREDITS, |h| {
        if inode.is_closed_permanently() {
            return Err(Reason::NotFound.into());
        }
        let notify = |step| match (also, step) {
            // A check changes nothing.
            (Some(also), Step::Check) => also(step, &mut inode.image()),
            (Some(also), Step::Apply) => also(step, &mut inode.raw.write()),
            (None, _) => Ok(()),
        };
        notify(Step::Check)?;
        let Some(unused) = prepared.enter(h, fs, inode)? else {
            return Ok(None);
        };
        notify(Step::Apply)?;
        inode.raw.write().set_time(Time::Change, fs.now());
        fs.store(h, inode)?;
        Ok(Some(unused))
    })
}

/// The current attributes of an inode.
pub(super) struct There {
    pub(super) layout: Layout,
    block: Option<FsBlock>,
}

impl There {
    /// Reads them; the locks of [`ChangeLocks`] are held.
    pub(super) fn read(fs: &Attrs, inode: &Inode) -> Result<Self> {
        let body = attributes_of_body(inode)?;
        let (at, in_block) = match block(fs, inode)? {
            None => (None, Vec::new()),
            Some((at, bytes)) => {
                let list = format::read_block(&bytes);
                (
                    Some(at),
                    list.map_err(|e| Error::from(e).in_inode(inode.ino).in_block(at))?,
                )
            }
        };
        let body_bytes = inode.raw.read().xattr_area().len();
        Ok(Self {
            layout: Layout::new(Shape::of(fs, body_bytes), body, in_block),
            block: at,
        })
    }

    /// The empty attributes of a new inode.
    pub(super) fn none(fs: &Attrs) -> Self {
        let want = fs.superblock.lock().s_want_extra_isize.get();
        let body_bytes = InodeImage::new(fs.geo.inode_bytes, want).xattr_area().len();
        Self {
            layout: Layout::new(Shape::of(fs, body_bytes), Vec::new(), Vec::new()),
            block: None,
        }
    }
}

/// A change ready to be applied: the resulting layout, with all new values created.
#[must_use]
pub(crate) struct Prepared {
    pub(super) layout: Layout,
    pub(super) old_block: Option<FsBlock>,
    value_clusters_before: i64,
    values_before: u64,
    /// Index and name of the attributes that it sets or removes.
    pub(super) edited: Vec<(u8, Vec<u8>)>,
    gained: Vec<Pinned>,
    lost: Vec<(InodeNumber, Spot)>,
    /// The quota for what it adds, until it is over.
    held: RefCell<Option<Hold>>,
}

impl Prepared {
    /// Decides where each edit goes, and creates the values that it needs. `near` is the preferred location
    /// of value inodes, `owner` their owner; with `shared`, existing values may be used.
    ///
    /// # Errors
    /// `NoSpace` if an attribute fits nowhere, or no value can be created: nothing is left behind.
    pub(super) fn new(
        fs: &Attrs,
        near: &Inode,
        owner: (u32, u32),
        there: &There,
        edits: &[(Key<'_>, Option<&[u8]>)],
        shared: bool,
    ) -> Result<Self> {
        let mut prepared = Self {
            layout: there.layout.clone(),
            old_block: there.block,
            value_clusters_before: there.layout.value_clusters(),
            values_before: there.layout.values(),
            edited: Vec::new(),
            gained: Vec::new(),
            lost: Vec::new(),
            held: RefCell::default(),
        };
        for (key, value) in edits {
            if let Err(error) = prepared.edit(fs, (near, owner), key, *value, shared) {
                prepared.end(fs)?;
                return Err(error);
            }
        }
        Ok(prepared)
    }

    fn edit(
        &mut self,
        fs: &Attrs,
        (near, owner): (&Inode, (u32, u32)),
        key: &Key<'_>,
        value: Option<&[u8]>,
        shared: bool,
    ) -> Result<()> {
        self.edited.push((key.index, key.name.to_vec()));
        if let Some((old, spot)) = self.layout.find(key)
            && let Value::Inode { inode, .. } = old.value
        {
            self.lost.push((inode, spot));
        }
        let Some(value) = value else {
            self.layout.take(key);
            return Ok(());
        };
        let named = |value| Attribute {
            name_index: key.index,
            name: key.name.to_vec(),
            value,
        };
        let shape = self.layout.shape();
        if !shape.is_large(value.len()) && self.layout.put(&named(Value::Bytes(value.to_vec()))) {
            return Ok(());
        }
        let some_inode = Value::Inode {
            inode: InodeNumber::NONE,
            size: 0,
            hash: 0,
        };
        if !shape.inodes || value.is_empty() || !self.layout.clone().put(&named(some_inode)) {
            return Err(Reason::NoSpace.into());
        }
        let pinned = values::obtain(fs, near, owner, value, shared)?;
        // It has the same length as the placeholder that fitted.
        let fitted = self.layout.put(&pinned.attribute(key));
        self.gained.push(pinned);
        if fitted {
            return Ok(());
        }
        Err(Reason::NoSpace.into())
    }

    /// Blocks that [`Prepared::enter`] may change in addition to the inode's own.
    pub(crate) fn credits(&self) -> u32 {
        let named = self.layout.block.iter().filter(|a| is_in_inode(a)).count();
        let values = self.gained.len() + self.lost.len() + named;
        BLOCK_CREDITS + 1 + values as u32 * COUNT_CREDITS
    }

    /// Applies the change; `None`, with nothing changed, if a value to be shared was freed meanwhile. The
    /// caller stores the inode, and frees the returned values.
    ///
    /// # Errors
    /// `NoSpace`, `TooLarge`: nothing has changed then. `Corrupt`; journal errors.
    pub(crate) fn enter(
        &self,
        h: &mut Handle<'_>,
        fs: &Attrs,
        inode: &Inode,
    ) -> Result<Option<Vec<Arc<Inode>>>> {
        let mut known = fs.xattrs.known();
        if self.gained.iter().any(Pinned::is_gone) {
            return Ok(None);
        }
        if inode.emptied.is_some() {
            let _map = inode.map_exclusive();
            if inode.emptied.is_some() {
                self.hold(h, fs, inode, &mut known)?;
                return Ok(Some(Vec::new()));
            }
        }
        let block = if self.layout.block_changed {
            Some(self.new_block(fs, inode, &known)?)
        } else {
            None
        };
        let lost = self.lost_values(fs, block.as_ref()).and_then(|lost| {
            *self.held.borrow_mut() = self.count_blocks(fs, inode, block.as_ref())?;
            Ok(lost)
        });
        if lost.is_err()
            && let Some(Place::New(run, _)) = block.as_ref().map(|block| &block.place)
        {
            fs.release(*run);
        }
        let lost = lost?;
        // Nothing can be refused from here on.
        inode.raw.count_edit();
        if self.layout.body_changed {
            let mut raw = inode.raw.write();
            let written = format::write_ibody(raw.xattr_area_mut(), &self.layout.body);
            must_fit(written, inode)?;
        }
        if let Some(block) = block {
            put_block(fs, h, inode, block, &mut known)?;
        }
        for value in &self.gained {
            value.adopt(fs, h, &mut known)?;
        }
        let mut unused = Vec::new();
        for value in lost {
            unused.extend(values::drop_user(fs, h, &mut known, value)?);
        }
        if self.layout.body_changed || self.layout.block_changed {
            note_feature(fs, h)?;
        }
        Ok(Some(unused))
    }

    /// Updates the inode's block count: the attribute block, shared or not, and the values in inodes,
    /// including shared ones. Returns the quota that is held for them until the inode is stored.
    fn count_blocks(
        &self,
        fs: &Attrs,
        inode: &Inode,
        block: Option<&NewBlock>,
    ) -> Result<Option<Hold>> {
        let first = block.is_some_and(|block| block.old.is_none());
        let values = self.layout.value_clusters() - self.value_clusters_before;
        let clusters = values + i64::from(first);
        let after = self.layout.values();
        let gained = after.saturating_sub(self.values_before);
        let held = fs.hold_clusters(inode, clusters.max(0).cast_unsigned(), gained)?;
        map::add_blocks(fs, inode, clusters)?;
        inode.usage.set_values(self.values_before, after);
        Ok(held)
    }

    /// Releases the hold on its values, whether it was applied or not.
    pub(crate) fn end(self, fs: &Attrs) -> Result<()> {
        self.gained.into_iter().try_for_each(|value| value.end(fs))
    }

    /// Whether counts of values in inodes may change.
    pub(super) fn uses_values(&self) -> bool {
        let in_block = self.layout.block_changed && self.layout.block.iter().any(is_in_inode);
        in_block || !self.gained.is_empty() || !self.lost.is_empty()
    }

    /// The values that lose a user, without those still named by a block that others keep.
    fn lost_values(&self, fs: &Attrs, block: Option<&NewBlock>) -> Result<Vec<Arc<Inode>>> {
        let shared = block.is_some_and(|block| matches!(block.old, Some((_, 2.., _))));
        let lost = self
            .lost
            .iter()
            .filter(|(_, spot)| *spot == Spot::Body || !shared);
        lost.map(|(ino, _)| values::inode(fs, *ino)).collect()
    }
}

/// Sets the attribute feature with the first attribute.
pub(super) fn note_feature(fs: &Attrs, h: &mut Handle<'_>) -> Result<()> {
    if fs.has_attribute_feature() {
        return Ok(());
    }
    fs.update_super(h, |sb| {
        sb.make_dynamic();
        let flags = sb.s_feature_compat.get() | Compat::EXT_ATTR.bits();
        sb.s_feature_compat.set(flags);
    })
}

pub(super) fn is_in_inode(attribute: &Attribute) -> bool {
    matches!(attribute.value, Value::Inode { .. })
}
