//! What was mended of a volume that was not closed.

use throughline_ext::{Recovery, State};

use crate::volume::Volume;

/// What [`OpenOptions::recover`](crate::OpenOptions::recover) did, and how it left the volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// What was done.
    pub done: Recovery,
    /// The volume has recorded errors: `e2fsck -f` has to look at it.
    pub errors: bool,
    /// The volume was closed cleanly, or is recovered. One without a journal that was not closed is for `e2fsck -f`.
    pub clean: bool,
}

impl RecoveryReport {
    pub(crate) fn of(volume: &Volume) -> RecoveryReport {
        let state = volume.fs().superblock().state();
        RecoveryReport {
            done: volume.fs().recovery().clone(),
            errors: state.contains(State::ERROR),
            clean: state.contains(State::VALID),
        }
    }
}
