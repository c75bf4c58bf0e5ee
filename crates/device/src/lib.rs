//! Devices, and the queues that carry requests to them.
//!
//! ```text
//!  scope(queue, |s| s.submit(..))     lends borrowed memory until `scope` returns
//!  Lane::submit(..)                   takes owned memory; the caller continues
//!        │ Request                    (operation, device range, memory)
//!        ▼
//!  dyn Queue   used by one thread     submit ─ kick ─ reap
//!        │
//!        ▼
//!  dyn BlockDevice                    file or block device (io_uring or threads), memory, null, window
//! ```
//!
//! Invariants:
//! - **All `unsafe` code of the workspace is in this crate**, but for what reads the pointers of C callers
//!   (`capi`). The [`BlockDevice`] and [`Queue`] traits are safe to implement and to call. Whatever an
//!   implementation does, [`scope`] does not return while the memory lent through it can still be accessed.
//! - The memory of a request belongs to the queue from [`Queue::submit`] until its [`Completion`] is reaped,
//!   on every path, including panics.
//! - A request completes exactly once, fully done or with an error. Engines continue short transfers and
//!   retry interrupted calls themselves.
//! - A queue belongs to one thread at a time. As far as the engine allows, submitting and reaping take no
//!   lock and write no cache line that another queue uses.
//!
//! ```
//! use throughline_device::{BlockDevice, MemoryDevice, Op, Segment, scope};
//!
//! let device = MemoryDevice::new(1 << 20);
//! let mut queue = device.open_queue()?;
//! let (text, mut back) = ([b'x'; 512], [0; 512]);
//! let mut done = Vec::new();
//! scope(&mut *queue, |s| {
//!     s.submit(1, Op::Write, 4096, [Segment::Write(&text)], false);
//!     s.reap(1, &mut done);
//!     s.submit(2, Op::Read, 4096, [Segment::Read(&mut back)], false);
//!     s.reap(1, &mut done);
//! });
//! assert!(done.iter().all(|d| d.result.is_ok()));
//! assert_eq!(text, back);
//! # Ok::<(), std::io::Error>(())
//! ```

#[cfg(not(miri))]
mod allocator;
#[cfg(not(miri))]
mod background;
mod buffer;
mod device;
#[cfg(not(miri))]
mod every_thread;
#[cfg(not(miri))]
mod fuse;
#[cfg(not(miri))]
mod fuse_entry;
#[cfg(not(miri))]
mod fuse_reserve;
#[cfg(not(miri))]
mod fuse_ring;
#[cfg(not(miri))]
mod host;
mod joined;
mod lane;
mod limits;
mod memory;
#[cfg(not(miri))]
mod new_file;
mod no_room;
mod null;
mod offset;
#[cfg(not(miri))]
mod open;
mod pages;
#[cfg(not(miri))]
mod processors;
mod request;
#[cfg(not(miri))]
mod rings;
mod scope;
#[cfg(not(miri))]
mod slice;
#[cfg(not(miri))]
mod threads;
#[cfg(not(miri))]
mod wake_up;

#[cfg(not(miri))]
pub use allocator::{give_memory_back, limit_allocator};
#[cfg(not(miri))]
pub use background::{Background, free_workers, keep_scheduling, leave_background, prefer_thread};
pub use buffer::{AlignedBuf, AlignedPool, PooledBuf};
pub use device::{BlockDevice, Queue};
#[cfg(not(miri))]
pub use every_thread::{Kept, restrict_every_thread};
#[cfg(not(miri))]
pub use fuse::clone_fuse_connection;
#[cfg(not(miri))]
pub use fuse_entry::{FuseEntry, OP_IN_AT, PAYLOAD_AT, RING_AT};
#[cfg(not(miri))]
pub use fuse_reserve::{FuseEvent, FuseReserve, FuseWaker};
#[cfg(not(miri))]
pub use host::{
    HeldByKernel, KernelHolder, LockMode, LockedFile, RangeLocks, given_descriptor, given_file,
    kernel_holder, other_namespaces, unescaped,
};
pub use joined::JoinedDevice;
pub use lane::Lane;
pub use limits::{DeviceInfo, DeviceKind, Limits};
pub use memory::MemoryDevice;
#[cfg(not(miri))]
pub use new_file::{NewFile, directory_of};
pub use no_room::{NoRoom, is_no_room};
pub use null::NullDevice;
pub use offset::OffsetDevice;
#[cfg(not(miri))]
pub use open::{EngineChoice, OpenOptions};
pub use pages::{MAX_PAGES_BYTES, MIN_PAGES_BYTES, PagePool, Pages};
#[cfg(not(miri))]
pub use processors::{bind_thread, free_thread, possible_processors, spread_thread};
pub use request::{Completion, Op, Request};
#[cfg(not(miri))]
pub use rings::{allow_fuse_threads, keep_rings};
pub use scope::{Done, Scope, Segment, scope};
#[cfg(not(miri))]
pub use slice::{restore_slice, shorten_slice};
#[cfg(not(miri))]
pub use threads::{Execute, ThreadsQueue};
#[cfg(not(miri))]
pub use wake_up::wake_up_us;

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
