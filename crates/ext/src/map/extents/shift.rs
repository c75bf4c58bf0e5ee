//! Shifts all mappings after a block, for collapse and insert. Keys change in place, so no space is needed.
//!
//! Both work leaf by leaf and may stop after any leaf: the tree is then valid, with part of the file shifted,
//! and the returned cursor says where to continue.

use super::super::store::NodesMut;
use super::change::{edit, join_at, set_keys};
use super::{END, descend_to_change, in_block, node};
use crate::error::{Error, Reason, Result};

/// Shifts extents that begin at or after `cursor` towards the start of the file by `by` blocks, the first
/// leaf first, at most `most` leaves. `cursor - by..cursor` must be a hole, and no extent may cross `cursor`.
/// Returns the cursor to continue with; `None` when done.
pub(crate) fn shift_left<S: NodesMut>(
    store: &mut S,
    cursor: u64,
    by: u32,
    most: usize,
) -> Result<Option<u64>> {
    let mut cursor = cursor;
    for _ in 0..most {
        if cursor >= END {
            return Ok(None);
        }
        let path = descend_to_change(store, cursor as u32)?;
        let leaf = path.leaf();
        let node = leaf.node()?;
        let begins = leaf.pos > 0 && u64::from(node.key(leaf.pos - 1)) == cursor;
        let first = leaf.pos - usize::from(begins);
        if first < node.len() {
            let floor = if first > 0 {
                node.extent(first - 1).end()
            } else {
                0
            };
            let key = node
                .key(first)
                .checked_sub(by)
                .filter(|k| u64::from(*k) >= floor);
            let key = key
                .ok_or_else(|| in_block(Error::corrupt("extents to move over others"), leaf.at))?;
            edit(store, leaf, |bytes| {
                node::move_keys(bytes, first, |k| k.wrapping_sub(by))
            })?;
            if first == 0 {
                set_keys(store, &path, path.steps.len() - 1, key)?;
            }
            if begins {
                join_at(store, key)?;
            }
        }
        cursor = path.upper;
    }
    Ok((cursor < END).then_some(cursor))
}

/// Shifts extents that begin in `from..cursor` towards the end of the file by `by` blocks, the last leaf
/// first, at most `most` leaves. No extent may cross `from`. Start with [`END`]; returns the cursor to
/// continue with, `None` when done.
///
/// # Errors
/// `TooLarge` if the last extent would end past the mappable range; nothing has changed then.
pub(crate) fn shift_right<S: NodesMut>(
    store: &mut S,
    from: u64,
    cursor: u64,
    by: u32,
    most: usize,
) -> Result<Option<u64>> {
    let mut cursor = cursor;
    for _ in 0..most {
        if cursor <= from {
            return Ok(None);
        }
        let path = descend_to_change(store, (cursor - 1) as u32)?;
        let leaf = path.leaf();
        let node = leaf.node()?;
        let first = (0..leaf.pos).find(|at| u64::from(node.key(*at)) >= from);
        let Some(first) = first else {
            return Ok(None);
        };
        if node.extent(node.len() - 1).end() + u64::from(by) > path.upper {
            return Err(Reason::TooLarge.into());
        }
        let key = node.key(first);
        edit(store, leaf, |bytes| {
            node::move_keys(bytes, first, |k| k.wrapping_add(by))
        })?;
        if first > 0 {
            return Ok(None);
        }
        set_keys(store, &path, path.steps.len() - 1, key.wrapping_add(by))?;
        cursor = key.into();
    }
    Ok(Some(cursor).filter(|c| *c > from))
}
