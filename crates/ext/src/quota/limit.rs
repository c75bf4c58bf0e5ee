//! Limits: space and inodes are held for an operation before it begins, or for data until it is written back.
//!
//! What is held counts as used when limits are checked, so that write-back never exceeds a limit, and does
//! not check any. As in the kernel, the hard limit is never passed, and the soft limit only until its grace
//! time ends; blocks of mappings are not held, and root has no limits.

use std::sync::Arc;

use super::owner::{Owner, State};
use crate::caller::Caller;
use crate::error::{Reason, Result};

/// What is held, until it is dropped.
pub(crate) struct Hold {
    owners: Vec<Arc<Owner>>,
    bytes: u64,
    inodes: u64,
}

impl Hold {
    /// Holds nothing yet, of these owners.
    pub(crate) fn of(owners: Vec<Arc<Owner>>) -> Self {
        Self {
            owners,
            bytes: 0,
            inodes: 0,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds more. `now`: in seconds since 1970.
    ///
    /// # Errors
    /// `Quota`; nothing more is held then.
    pub(crate) fn add(&mut self, bytes: u64, inodes: u64, now: u64) -> Result<()> {
        for (at, owner) in self.owners.iter().enumerate() {
            let mut state = owner.state();
            if state.exceeds(bytes, inodes, now) && !Caller::current().is_root() {
                drop(state);
                for owner in &self.owners[..at] {
                    owner.state().let_go(bytes, inodes);
                }
                return Err(Reason::Quota.into());
            }
            state.held_bytes = state.held_bytes.saturating_add(bytes);
            state.held_inodes = state.held_inodes.saturating_add(inodes);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.inodes = self.inodes.saturating_add(inodes);
        Ok(())
    }

    /// Holds that much space, without a check.
    pub(crate) fn set_bytes(&mut self, bytes: u64) {
        for owner in &self.owners {
            let mut state = owner.state();
            let others = state.held_bytes.saturating_sub(self.bytes);
            state.held_bytes = others.saturating_add(bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for owner in &self.owners {
            owner.state().let_go(self.bytes, self.inodes);
        }
    }
}

impl State {
    fn let_go(&mut self, bytes: u64, inodes: u64) {
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        self.held_inodes = self.held_inodes.saturating_sub(inodes);
    }

    fn exceeds(&self, bytes: u64, inodes: u64, now: u64) -> bool {
        let entry = &self.entry;
        let space = entry
            .dqb_curspace
            .get()
            .saturating_add(self.held_bytes)
            .saturating_add(bytes);
        let of_space = Limit {
            hard: entry.dqb_bhardlimit.get().saturating_mul(1024),
            soft: entry.dqb_bsoftlimit.get().saturating_mul(1024),
            ends: entry.dqb_btime.get(),
        };
        let count = entry
            .dqb_curinodes
            .get()
            .saturating_add(self.held_inodes)
            .saturating_add(inodes);
        let of_inodes = Limit {
            hard: entry.dqb_ihardlimit.get(),
            soft: entry.dqb_isoftlimit.get(),
            ends: entry.dqb_itime.get(),
        };
        bytes > 0 && of_space.forbids(space, now) || inodes > 0 && of_inodes.forbids(count, now)
    }
}

struct Limit {
    hard: u64,
    soft: u64,
    ends: u64,
}

impl Limit {
    fn forbids(&self, usage: u64, now: u64) -> bool {
        let over_hard = self.hard != 0 && usage > self.hard;
        let over_soft = self.soft != 0 && usage > self.soft;
        over_hard || over_soft && self.ends != 0 && now >= self.ends
    }
}
