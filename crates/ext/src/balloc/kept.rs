//! Blocks that are kept from data: for root, and for mappings.
//!
//! As in the kernel, root's blocks are for user 0, for one more user, and for a group if that is not 0. A
//! request does not tell of capabilities, so user 0 stands for CAP_SYS_RESOURCE.

use throughline_extfmt::features::Incompat;
use throughline_extfmt::{Geometry, Superblock};

use super::{Balloc, Blocks, Purpose};
use crate::caller::Caller;
use crate::error::{Error, Reason, Result};
use crate::options::OpenOptions;

/// Kept clusters, and who may use root's.
pub(super) struct Kept {
    /// For root. 0 if every caller may use them.
    for_root: u64,
    /// For mappings, as in the kernel: without them, data on the disk could no longer be mapped.
    for_maps: u64,
    /// [`OpenOptions::use_reserved`].
    decided: Option<bool>,
    user: u32,
    group: u32,
}

impl Kept {
    pub(super) fn new(sb: &Superblock, geo: &Geometry, options: &OpenOptions) -> Self {
        Self {
            for_root: match options.use_reserved {
                Some(true) => 0,
                _ => sb.r_blocks_count() >> geo.cluster_ratio_log,
            },
            for_maps: for_maps(geo),
            decided: options.use_reserved,
            user: options
                .reserved_user
                .unwrap_or(sb.s_def_resuid.get().into()),
            group: options
                .reserved_group
                .unwrap_or(sb.s_def_resgid.get().into()),
        }
    }

    /// Clusters that a claim for `purpose` leaves alone.
    pub(super) fn from(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Data => self.for_root.saturating_add(self.for_maps),
            Purpose::DataOfRoot => self.for_maps,
            Purpose::Metadata | Purpose::Reserved => 0,
        }
    }

    pub(super) fn for_maps(&self) -> u64 {
        self.for_maps
    }

    fn has_root_group(&self) -> bool {
        self.group != 0
    }

    fn admits(&self, caller: Caller) -> bool {
        self.for_root > 0
            && self.decided.unwrap_or_else(|| {
                caller.is_root()
                    || caller.is_user(self.user)
                    || self.has_root_group() && caller.is_in(self.group)
            })
    }
}

impl Caller {
    /// The same caller, for use when its process may have ended: a program that opened a file, and whose
    /// stores to a mapping of it are written back later.
    pub fn lasting(self, on: &Blocks) -> Self {
        let kept = &on.balloc.kept;
        let is_in = kept.has_root_group() && self.is_in(kept.group);
        self.without_process(is_in.then_some(kept.group))
    }

    /// Whether the caller may use the blocks reserved for root, or no limits apply to it.
    pub(crate) fn is_privileged(self, on: &Blocks) -> bool {
        self.is_root() || on.balloc.kept.admits(self)
    }
}

/// Clusters that data leaves to mappings: 1/50 of the volume, at most 4096. 0 without extents: the reserve is
/// for converting and splitting extents.
fn for_maps(geo: &Geometry) -> u64 {
    if geo.incompat.contains(Incompat::EXTENTS) {
        ((geo.blocks >> geo.cluster_ratio_log) / 50).min(4096)
    } else {
        0
    }
}

impl Balloc {
    /// Takes clusters for `purpose`. Data takes root's if nothing else is left and the caller may; only then
    /// is the caller asked for.
    pub(super) fn with_reserve<R>(
        &self,
        purpose: Purpose,
        take: impl Fn(Purpose) -> Result<R>,
    ) -> Result<R> {
        let taken = take(purpose);
        let is_full = matches!(taken, Err(Error::Caller(Reason::NoSpace)));
        if is_full && purpose == Purpose::Data && self.kept.admits(Caller::current()) {
            return take(Purpose::DataOfRoot);
        }
        taken
    }
}
