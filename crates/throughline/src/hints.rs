//! What a program says of its use of a file: [`Advice`], [`SyncRange`].

/// How a range of a file will be used. It changes no contents and may be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing is known: what a handle begins with.
    Normal,
    /// From front to back: read further ahead.
    Sequential,
    /// In no order: read nothing ahead.
    Random,
    /// Soon: bring it into the cache.
    WillNeed,
    /// Not soon: drop what is cached of it and clean.
    DontNeed,
}

/// What [`Handle::sync_range`](crate::Handle::sync_range) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyncRange {
    /// Begins to write back what is dirty in the range and returns at once.
    Start,
    /// Writes back what is dirty in the range and returns when it is with the device: out of this program's memory, but not
    /// yet safe from a power loss.
    Wait,
}
