//! [`OfInode`]: what an inode is charged with, as its image on disk says.

use std::sync::Arc;

use throughline_locks::Mutex;

use super::owner::Owner;

/// What an inode counts for its owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// User, group and project.
    pub(crate) ids: [u32; 3],
    /// Space in bytes.
    pub(crate) bytes: u64,
    /// 1, and the attribute values that are inodes.
    pub(crate) inodes: u64,
}

/// See the head of this file. Empty on a volume without quotas.
#[derive(Default)]
pub(crate) struct OfInode(Mutex<Option<Box<State>>>);

/// Changed under the lock of the inode's image.
#[derive(Default)]
struct State {
    /// The charge of the image that was stored last; `None` if that was none, or if it is not charged.
    charged: Option<Charge>,
    /// Attribute values of the image that are inodes.
    values: u64,
    /// Whether `values` was counted; before, `charged` may lack them.
    is_counted: bool,
    /// It is being freed: its next image counts for nobody.
    is_ending: bool,
    /// The owners of `charged`, as far as they were needed.
    owners: [Option<Arc<Owner>>; 3],
}

impl State {
    fn count(&mut self, values: u64) {
        if !self.is_counted {
            self.is_counted = true;
            if let Some(charged) = &mut self.charged {
                charged.inodes = charged.inodes.saturating_add(values);
            }
        }
    }
}

/// The change of a charge.
pub(crate) struct Moved {
    pub(crate) from: Option<Charge>,
    pub(crate) to: Option<Charge>,
    pub(crate) owners: [Option<Arc<Owner>>; 3],
}

impl OfInode {
    /// For an inode on a volume with quotas, loaded with `charged`; `None` for a new one.
    pub(crate) fn new(charged: Option<Charge>) -> Self {
        Self(Mutex::new(Some(Box::new(State {
            is_counted: charged.is_none(),
            charged,
            ..State::default()
        }))))
    }

    /// Replaces the charge by that of an image that is being stored. Returns the change, if there is one.
    pub(crate) fn store(&self, image: Option<Charge>) -> Option<Moved> {
        let mut state = self.0.lock();
        let state = state.as_mut()?;
        let to = image.filter(|_| !state.is_ending).map(|charge| Charge {
            inodes: charge.inodes + state.values,
            ..charge
        });
        let from = state.charged;
        if from == to {
            return None;
        }
        state.charged = to;
        if from.map(|charge| charge.ids) != to.map(|charge| charge.ids) {
            state.owners = [const { None }; 3];
        }
        Some(Moved {
            from,
            to,
            owners: state.owners.clone(),
        })
    }

    /// Remembers owners of the current charge.
    pub(crate) fn remember(&self, to: Option<Charge>, owners: [Option<Arc<Owner>>; 3]) {
        if let Some(state) = self.0.lock().as_mut()
            && state.charged.map(|charge| charge.ids) == to.map(|charge| charge.ids)
        {
            state.owners = owners;
        }
    }

    /// Whether the number of its values must be counted.
    pub(crate) fn must_count(&self) -> bool {
        let state = self.0.lock();
        state.as_ref().is_some_and(|state| !state.is_counted)
    }

    /// Records how many attributes of its last stored image have their value in an inode, unless that is
    /// known.
    pub(crate) fn set_counted(&self, values: u64) {
        if let Some(state) = self.0.lock().as_mut()
            && !state.is_counted
        {
            state.count(values);
            state.values = values;
        }
    }

    /// What it counts.
    pub(crate) fn charged(&self) -> Option<Charge> {
        let state = self.0.lock();
        state.as_ref().and_then(|state| state.charged)
    }

    /// Records how many of its attributes have their value in an inode: `before`, as the last stored image
    /// has them, and `after`, as the next will.
    pub(crate) fn set_values(&self, before: u64, after: u64) {
        if let Some(state) = self.0.lock().as_mut() {
            state.count(before);
            state.values = after;
        }
    }

    /// The next image that is stored is that of a free inode.
    pub(crate) fn end(&self) {
        if let Some(state) = self.0.lock().as_mut() {
            state.is_ending = true;
        }
    }

    /// Takes over the charge of the inode that had the number before, and was not freed.
    pub(crate) fn take_over(&self, old: &Self) {
        let old = old.0.lock().take();
        let mut state = self.0.lock();
        if let (Some(old), Some(state)) = (old, state.as_mut()) {
            state.charged = old.charged;
            state.values = old.values;
            state.is_counted = old.is_counted;
        }
    }
}
