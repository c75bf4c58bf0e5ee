//! Which cache serves an open file: the kernel's, or ours behind a direct open.
//!
//! A stream of writes through the kernel's cache is copied twice and arrives in pieces. Without the kernel's
//! cache, each small read of cached data costs a request. So:
//!
//! | opened | cache |
//! | --- | --- |
//! | write-only | ours: the data goes into it straight from the request |
//! | read-write, while the file is empty | ours too: a new file is usually written as a stream |
//! | read-only; read-write otherwise | the kernel's, with write-through |
//! | with `O_DIRECT` | none: straight to the disk; streams are read ahead ([`crate::streak`]) |
//!
//! A read-only open with `O_DIRECT` is not answered with `FOPEN_DIRECT_IO`: with that flag, the kernel sends
//! the pieces of a large call one after another; without it, all at once. But only with that flag do writes
//! to one file run in parallel.
//!
//! The same file may be open in the other ways at the same time, and mapped. The kernel does not keep these
//! coherent: it drops its pages of a range before it sends a write past its cache, and a read or a mapping of
//! the range may bring old pages back before the write is applied. So writes past that cache are applied by
//! the rules of [`crate::coherence`], which cost nothing until the file is read through the cache.

use rustix::fs::OFlags;

use crate::options::Choices;
use crate::wire::open_flags;

/// How a file that is opened with `flags` is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Flags of the reply to OPEN.
    pub(crate) answer: u32,
    /// Data that is read goes into the kernel's cache.
    pub(crate) kernel_caches: bool,
}

impl Policy {
    /// `empty`: the file is empty when it is opened, or the open truncates it.
    pub(crate) fn of(flags: u32, empty: bool, choices: &Choices) -> Policy {
        let flags = OFlags::from_bits_retain(flags);
        let access = flags & OFlags::RWMODE;
        let direct = flags.contains(OFlags::DIRECT);
        let past = (choices.direct_io && !direct)
            || access == OFlags::WRONLY
            || (access == OFlags::RDWR && (direct || empty));
        let mut answer = open_flags::KEEP_CACHE;
        if past {
            answer |= open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
        }
        Policy {
            answer,
            kernel_caches: !past && !direct,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_writes_bypass_the_kernels_cache() {
        let choices = Choices::default();
        let of = |flags: OFlags| Policy::of(flags.bits(), false, &choices);
        assert!(!of(OFlags::WRONLY).kernel_caches);
        assert!(of(OFlags::RDONLY).kernel_caches);
        assert!(of(OFlags::RDWR).kernel_caches);
        assert!(!Policy::of(OFlags::RDWR.bits(), true, &choices).kernel_caches);
        assert!(Policy::of(OFlags::RDONLY.bits(), true, &choices).kernel_caches);
        assert!(!of(OFlags::RDWR | OFlags::DIRECT).kernel_caches);
        let nothing = Choices {
            direct_io: true,
            ..choices
        };
        assert!(!Policy::of(OFlags::RDONLY.bits(), false, &nothing).kernel_caches);
        assert_eq!(of(OFlags::RDONLY).answer, open_flags::KEEP_CACHE);
        let direct = OFlags::RDONLY | OFlags::DIRECT;
        assert_eq!(of(direct).answer, open_flags::KEEP_CACHE);
        assert!(!of(direct).kernel_caches);
    }
}
