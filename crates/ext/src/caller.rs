//! [`Caller`]: for whom a thread acts. Root's reserve of blocks and the limits of quotas ask for it.
//!
//! A thread acts for its process, unless a guard of [`Caller::act`] says otherwise: a server's thread acts
//! for the program whose request it serves. Threads of the volume itself (write-back, the journal's) use only
//! what was reserved before, so nothing is asked there.

use std::cell::Cell;

use rustix::process::{getegid, geteuid, getgroups};

thread_local! {
    static ACTS_FOR: Cell<Option<Caller>> = const { Cell::new(None) };
}

/// The user and groups for whom a thread acts. User 0 is root: it may use the blocks reserved for root, and
/// no limits apply to it.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    uid: u32,
    gid: u32,
    groups: Groups,
}

/// The groups besides the first.
#[derive(Clone, Copy, Debug)]
enum Groups {
    None,
    /// Those of this process.
    Own,
    /// Those of a process with this number, as the function says.
    Of(u32, fn(u32, u32) -> bool),
}

impl Caller {
    /// Root.
    pub const ROOT: Self = Self::new(0, 0);

    /// A user with one group.
    pub const fn new(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: Groups::None,
        }
    }

    /// The same user, who is also in the supplementary groups of a process: `is_in(pid, gid)`, which is
    /// called only if the answer depends on it.
    #[must_use]
    pub const fn in_groups_of(self, pid: u32, is_in: fn(u32, u32) -> bool) -> Self {
        let groups = Groups::Of(pid, is_in);
        Self { groups, ..self }
    }

    /// The effective user and the groups of this process.
    pub fn process() -> Self {
        Self {
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            groups: Groups::Own,
        }
    }

    /// For whom this thread acts.
    pub fn current() -> Self {
        ACTS_FOR.get().unwrap_or_else(Self::process)
    }

    /// Until the guard is dropped, this thread acts for this caller.
    #[must_use]
    pub fn act(self) -> impl Drop {
        struct Before(Option<Caller>);
        impl Drop for Before {
            fn drop(&mut self) {
                ACTS_FOR.set(self.0);
            }
        }
        Before(ACTS_FOR.replace(Some(self)))
    }

    /// The same user without the groups of a process that may end, but with this group.
    pub(crate) fn without_process(self, gid: Option<u32>) -> Self {
        Self::new(self.uid, gid.unwrap_or(self.gid))
    }

    pub(crate) fn is_root(self) -> bool {
        self.uid == 0
    }

    pub(crate) fn is_user(self, uid: u32) -> bool {
        self.uid == uid
    }

    pub(crate) fn is_in(self, gid: u32) -> bool {
        self.gid == gid
            || match self.groups {
                Groups::None => false,
                Groups::Own => {
                    getgroups().is_ok_and(|groups| groups.iter().any(|group| group.as_raw() == gid))
                }
                Groups::Of(pid, is_in) => is_in(pid, gid),
            }
    }
}
