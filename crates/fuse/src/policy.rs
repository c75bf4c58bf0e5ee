//! Which cache serves an open file: the kernel's, or ours behind a direct open.
//!
//! A stream of writes through the kernel's cache is copied twice and moves in pieces; small reads that are cached cost a
//! request without it (`throughline lab run mount/choices` measures both). So:
//!
//! | opened | cache |
//! | --- | --- |
//! | to write | ours: the write goes into it straight from the request |
//! | to read and write, while it is empty | ours too: what comes is a stream, as of a new file |
//! | to read, to read and write | the kernel's, written through |
//! | with `O_DIRECT` | none: between the request's memory and the disk; streams are read ahead ([`crate::streak`]) |
//!
//! What is opened with `O_DIRECT` to be read alone is no direct open of the protocol's: for those the kernel sends the pieces
//! of a large call one after the other, for all others at once. But only for those do writes of one file run side by side.
//!
//! Anybody may have a file open in the other ways at the same time, and map it. The kernel does not keep them in step: it drops
//! its pages of a range before it sends a write past its cache, and whoever reads or maps the range meanwhile brings old ones
//! back. So what is written past that cache is applied by the rules of [`crate::coherence`], which cost nothing until somebody
//! reads through it.

use rustix::fs::OFlags;

use crate::options::Choices;
use crate::wire::open_flags;

/// How a file that is opened with `flags` is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Flags of the answer to OPEN.
    pub(crate) answer: u32,
    /// The kernel's cache has what is read.
    pub(crate) kernel_caches: bool,
}

impl Policy {
    /// For a file that holds nothing at its open, or is emptied by it, `empty` is true.
    pub(crate) fn of(flags: u32, empty: bool, choices: &Choices) -> Policy {
        let flags = OFlags::from_bits_retain(flags);
        let access = flags & OFlags::RWMODE;
        let direct = flags.contains(OFlags::DIRECT);
        let mixed = direct || choices.direct_mixed || (empty && choices.direct_new);
        let past = (choices.direct_io && !direct)
            || (access == OFlags::WRONLY && choices.direct_writes)
            || (access == OFlags::RDWR && mixed);
        let mut answer = 0;
        if past {
            answer |= open_flags::DIRECT_IO;
            if choices.parallel_direct_writes {
                answer |= open_flags::PARALLEL_DIRECT_WRITES;
            }
        }
        if choices.keep_cache {
            answer |= open_flags::KEEP_CACHE;
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
    fn streams_of_writes_go_past_the_kernels_cache() {
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
