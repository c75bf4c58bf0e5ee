//! What recovery did to a volume that was not closed.

use throughline_ext::{Recovery, State};

use crate::volume::Volume;

/// What [`OpenOptions::recover`](crate::OpenOptions::recover) did, and the resulting state of the volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// The repairs.
    pub done: Recovery,
    /// The volume has recorded errors: run `e2fsck -f`.
    pub errors: bool,
    /// The volume was closed cleanly or was recovered. One without a journal that was not closed needs
    /// `e2fsck -f`.
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
