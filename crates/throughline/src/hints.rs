//! [`SyncRange`].

/// What [`Handle::sync_range`](crate::Handle::sync_range) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncRange {
    /// Starts writing back the dirty part of the range and returns at once.
    Start,
    /// Writes back the dirty part of the range and returns when the device has it: it survives the end of the
    /// process, but not yet a power loss.
    Wait,
}
