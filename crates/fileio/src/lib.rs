//! File I/O over a mapping: the [`Mapper`] interface, direct I/O, the page cache with write-back, and raw
//! files.
#![forbid(unsafe_code)]

pub mod buffered;
mod cache;
pub mod coherence;
pub mod direct;
mod error;
mod file_lock;
mod gate;
mod mapper;
pub mod memory;
mod raw;
pub mod readahead;
mod sync;
pub mod throttle;
pub mod writeback;
mod zeros;

pub use cache::{
    Accepted, AddressSpace, Backing, CacheOptions, Frozen, Holes, PageCache, ReadCounts, Refused,
    Stored, cached_pieces, lend_cached,
};
pub use error::{Error, Reason, Result};
pub use file_lock::{FileExclusive, FileLock, FileShared};
pub use mapper::{Claim, ClaimKind, Map, MappedExtent, Mapper, Target};
pub use raw::RawFile;
pub use readahead::{Advice, ReadStream};
pub use throttle::DirtyLimits;
