//! Sets of extended attributes, each stored once. Files of one kind have the same few sets.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashTable;

use crate::error::{Error, Result, shown};
use crate::limits::Limits;
use crate::meta::Xattr;

/// The longest name, as Linux has it.
const XATTR_NAME_MAX: usize = 255;

#[derive(Debug, Default)]
pub(super) struct XattrSets {
    /// Encoded sets one after the other: of each attribute the lengths (1 and 4 bytes), name and value.
    bytes: Vec<u8>,
    /// Start and end of set `n + 1`; set 0 is the empty one.
    sets: Vec<(u32, u32)>,
    table: HashTable<u32>,
    hasher: foldhash::quality::RandomState,
    /// The last attributes that several nodes share, and their set.
    shared: Option<(Arc<Vec<Xattr>>, u32)>,
}

impl XattrSets {
    pub(super) fn intern(&mut self, xattrs: &[Xattr], limits: &Limits) -> Result<u32> {
        if xattrs.is_empty() {
            return Ok(0);
        }
        let mut sorted: Vec<&Xattr> = xattrs.iter().collect();
        // Stable: of equal names, the last one given stays last.
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        let mut set = Vec::new();
        for (position, (name, value)) in sorted.iter().enumerate() {
            if sorted.get(position + 1).is_some_and(|next| next.0 == *name) {
                continue;
            }
            if name.is_empty() || name.len() > XATTR_NAME_MAX || name.contains(&0) {
                return Err(Error::damaged(
                    shown(name),
                    "is not a name of an extended attribute",
                ));
            }
            if set.len() + name.len() + value.len() > limits.xattr_bytes as usize {
                let limit = limits.xattr_bytes;
                let problem = format!("the attributes of one file need more than {limit} bytes");
                return Err(Error::limit(shown(name), problem));
            }
            set.push(name.len() as u8);
            set.extend_from_slice(&(value.len() as u32).to_le_bytes());
            set.extend_from_slice(name);
            set.extend_from_slice(value);
        }
        let hash = self.hasher.hash_one(&set[..]);
        if let Some(&found) = self.table.find(hash, |&other| self.encoded(other) == set) {
            return Ok(found);
        }
        let start = self.bytes.len();
        if start + set.len() > limits.all_xattr_bytes as usize {
            let limit = limits.all_xattr_bytes;
            return Err(Error::limit(
                "extended attributes",
                format_args!("all need more than {limit} bytes"),
            ));
        }
        self.bytes.extend_from_slice(&set);
        self.sets.push((start as u32, self.bytes.len() as u32));
        let id = self.sets.len() as u32;
        let (bytes, sets, hasher) = (&self.bytes, &self.sets, &self.hasher);
        self.table.insert_unique(hash, id, |&other| {
            let (start, end) = sets[other as usize - 1];
            hasher.hash_one(&bytes[start as usize..end as usize])
        });
        Ok(id)
    }

    /// As [`XattrSets::intern`], of attributes that several nodes share: only the first of them costs time.
    pub(super) fn intern_shared(
        &mut self,
        xattrs: &Arc<Vec<Xattr>>,
        limits: &Limits,
    ) -> Result<u32> {
        if let Some((last, set)) = &self.shared
            && Arc::ptr_eq(last, xattrs)
        {
            return Ok(*set);
        }
        let set = self.intern(xattrs, limits)?;
        self.shared = Some((Arc::clone(xattrs), set));
        Ok(set)
    }

    fn encoded(&self, set: u32) -> &[u8] {
        if set == 0 {
            return &[];
        }
        let (start, end) = self.sets[set as usize - 1];
        &self.bytes[start as usize..end as usize]
    }

    /// Names and values of a set, by name.
    pub(super) fn of(&self, set: u32) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.encoded(set);
        std::iter::from_fn(move || {
            let (&name_length, after) = rest.split_first()?;
            let (value_length, after) = after.split_first_chunk::<4>()?;
            let (name, after) = after.split_at(usize::from(name_length));
            let (value, after) = after.split_at(u32::from_le_bytes(*value_length) as usize);
            rest = after;
            Some((name, value))
        })
    }
}
