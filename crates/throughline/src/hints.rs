//! [`SyncRange`].

/// What [`Handle::sync_range`](crate::Handle::sync_range) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncRange {
    /// Begins to write back what is dirty in the range and returns at once.
    Start,
    /// Writes back what is dirty in the range and returns when it is with the device: out of this program's memory, but not
    /// yet safe from a power loss.
    Wait,
}
