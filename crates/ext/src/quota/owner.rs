//! [`Owner`]: what one user, group or project uses, in memory.

use throughline_extfmt::FsBlock;
use throughline_extfmt::quota::{self as format, DiskEntry, QuotaKind};
use throughline_locks::{Mutex, MutexGuard, Rank};

use crate::error::Result;
use crate::handle::Handle;

/// A user, group or project.
pub(crate) struct Owner {
    pub(crate) kind: QuotaKind,
    pub(crate) id: u32,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(super) entry: DiskEntry,
    /// Where the entry is on disk, if it is there.
    pub(super) place: Option<EntryPlace>,
    /// The quota file is damaged where the entry should be: it gets no place.
    pub(super) is_lost: bool,
    /// Space held for writes that are not on disk yet, in bytes.
    pub(super) held_bytes: u64,
    /// Inodes held for operations in progress.
    pub(super) held_inodes: u64,
}

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryPlace {
    pub(super) block: FsBlock,
    pub(super) offset: usize,
}

/// A change of usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    pub(super) bytes: i64,
    pub(super) inodes: i64,
}

impl Delta {
    pub(super) fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// When soft limits that are exceeded from now on become hard, in seconds since 1970; 0 for limits that are
/// not enforced.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grace {
    pub(super) space_ends: u64,
    pub(super) inodes_end: u64,
}

impl Owner {
    pub(super) fn new(kind: QuotaKind, id: u32, found: Option<(EntryPlace, DiskEntry)>) -> Self {
        let (place, mut entry) = match found {
            Some((place, entry)) => (Some(place), entry),
            None => (None, DiskEntry::default()),
        };
        entry.dqb_id.set(id);
        let number = (kind.index() as u64) << 32 | u64::from(id);
        let state = State {
            entry,
            place,
            is_lost: false,
            held_bytes: 0,
            held_inodes: 0,
        };
        Self {
            kind,
            id,
            state: Mutex::numbered(Rank::Usage, number, state),
        }
    }

    /// An owner whose entry cannot be found because the file is damaged.
    pub(super) fn lost(kind: QuotaKind, id: u32) -> Self {
        let owner = Self::new(kind, id, None);
        owner.state.lock().is_lost = true;
        owner
    }

    /// Under this lock, only the buffer of the entry's block is locked.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Whether it holds something that is not on disk.
    pub(super) fn must_stay(&self) -> bool {
        let state = self.state();
        state.place.is_none() || state.held_bytes + state.held_inodes > 0
    }

    /// Whether it lacks an entry and may get one.
    pub(crate) fn is_unplaced(&self) -> bool {
        let state = self.state();
        state.place.is_none() && !state.is_lost
    }

    /// Adds to the usage, on disk too if the entry is there. Returns whether it is, or cannot be.
    pub(super) fn add(&self, h: &mut Handle<'_>, delta: Delta, grace: Grace) -> Result<bool> {
        let mut state = self.state();
        state.add(delta, grace);
        let Some(place) = state.place else {
            return Ok(state.is_lost);
        };
        let entry = state.entry;
        h.modify_beside(place.block, |bytes| {
            format::set_entry(bytes, place.offset, Some(entry));
        })?;
        Ok(true)
    }
}

impl State {
    fn add(&mut self, delta: Delta, grace: Grace) {
        let entry = &mut self.entry;
        let space = entry.dqb_curspace.get().saturating_add_signed(delta.bytes);
        entry.dqb_curspace.set(space);
        let inodes = entry
            .dqb_curinodes
            .get()
            .saturating_add_signed(delta.inodes);
        entry.dqb_curinodes.set(inodes);
        let soft = entry.dqb_bsoftlimit.get().saturating_mul(1024);
        let time = entry.dqb_btime.get();
        let over = soft != 0 && space > soft;
        entry
            .dqb_btime
            .set(next_time(over, delta.bytes > 0, time, grace.space_ends));
        let soft = entry.dqb_isoftlimit.get();
        let time = entry.dqb_itime.get();
        let over = soft != 0 && inodes > soft;
        entry
            .dqb_itime
            .set(next_time(over, delta.inodes > 0, time, grace.inodes_end));
    }
}

/// The end of a grace time after a change: it starts when a limit is exceeded, and stops below it.
fn next_time(is_over: bool, is_growing: bool, time: u64, ends: u64) -> u64 {
    match is_over {
        false => 0,
        true if time == 0 && is_growing => ends,
        true => time,
    }
}
