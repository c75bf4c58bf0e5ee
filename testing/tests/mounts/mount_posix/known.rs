//! Answers in which our mount may differ from the kernel's ext4, each with its reason. A listed difference
//! that does not occur fails the test, like one that occurs and is not listed.

/// A step with different answers.
#[derive(Debug)]
pub(crate) struct Known {
    /// Name of the case.
    pub(crate) case: &'static str,
    /// The step, as written in the script.
    pub(crate) step: &'static str,
    /// The answer of the kernel's ext4.
    pub(crate) kernel: &'static str,
    /// Our answer.
    pub(crate) ours: &'static str,
    /// The reason.
    pub(crate) why: &'static str,
}

impl Known {
    pub(crate) fn is(&self, step: &str, kernel: &str, ours: &str) -> bool {
        self.step == step && self.kernel == kernel && self.ours == ours
    }
}

const NOT_ALIGNED: &str =
    "FUSE does not pass on the alignment of the caller's memory: unaligned direct I/O succeeds";
const FAR_SEEKS: &str =
    "the kernel handles seeks itself, and FUSE does not pass it our maximum file size";
const DIRECTORY_END: &str =
    "the kernel's FUSE takes the size as a directory's end; our positions come from reading";
const FIFO_TIMES: &str = "data in a fifo stays in the kernel: the server gets no request";
const SHIFTED: &str = "the kernel's FUSE refuses these modes itself: the server gets no request";
const ACCESS_FLAGS: &str = "the kernel's FUSE ignores these flags: the server refuses opens, writes and \
    changes, but not access checks and F_SETFL";
const STORES: &str = "FUSE has no request to ask for space at a store to a mapping: it succeeds, and each \
    fsync and msync fails until there is space or, for what was too much to keep, until it is stored again or \
    removed";
const STATX: &str = "the kernel's FUSE does not pass on attributes of statx";

const CAPABILITIES: &str = "the kernel's FUSE removes capabilities before it asks for the change of owner, which is refused";

const OWNER: &str = "without OPEN, who stored is not known: the owner counts, whose supplementary groups \
    are not known";

/// With `small_files`, also in these.
pub(crate) const WITH_SMALL_FILES: &[Known] = &[
    Known {
        case: "reserve by options",
        step: "bob: run xfs_io -c mmap%20-rw%200%208k -c mwrite%200%208k -c msync%20-s bob-m",
        kernel: "ok 0 ",
        ours: "ok 1 msync: No space left on device",
        why: OWNER,
    },
    Known {
        case: "reserve by options",
        step: "bob: blocks bob-m",
        kernel: "ok 16",
        ours: "ok 0",
        why: OWNER,
    },
];

pub(crate) const KNOWN: &[Known] = &[
    Known {
        case: "changes by bob",
        step: "listxattr ./f",
        kernel: "ok 20 security.capability",
        ours: "ok 0 ",
        why: CAPABILITIES,
    },
    Known {
        case: "reserve by options",
        step: "dave: run xfs_io -c mmap%20-rw%200%208k -c mwrite%200%208k -c msync%20-s dave-m",
        kernel: "ok -1 ",
        ours: "ok 1 msync: No space left on device",
        why: STORES,
    },
    Known {
        case: "reserve by default",
        step: "dave: run xfs_io -c mmap%20-rw%200%208k -c mwrite%200%208k -c msync%20-s dave-m",
        kernel: "ok -1 ",
        ours: "ok 1 msync: No space left on device",
        why: STORES,
    },
    Known {
        case: "reserve by default",
        step: "bob: run xfs_io -c mmap%20-rw%200%208k -c mwrite%200%208k -c msync%20-s bob-m",
        kernel: "ok -1 ",
        ours: "ok 1 msync: No space left on device",
        why: STORES,
    },
    Known {
        case: "mapped without space",
        step: "run xfs_io -c mmap%20-rw%200%201M -c mwrite%20-S%200x61%200%201M -c msync%20-s m",
        kernel: "ok -1 ",
        ours: "ok 1 msync: No space left on device",
        why: STORES,
    },
    Known {
        case: "mapped without space",
        step: "fsync b",
        kernel: "ok",
        ours: "ENOSPC",
        why: STORES,
    },
    Known {
        case: "mapped without space",
        step: "fdatasync b",
        kernel: "ok",
        ours: "ENOSPC",
        why: STORES,
    },
    Known {
        case: "direct and unaligned",
        step: "pwrite a 512 c*100",
        kernel: "EINVAL",
        ours: "ok 100",
        why: NOT_ALIGNED,
    },
    Known {
        case: "direct and unaligned",
        step: "pwrite a 100 d*512",
        kernel: "EINVAL",
        ours: "ok 512",
        why: NOT_ALIGNED,
    },
    Known {
        case: "direct and unaligned",
        step: "pread a 100 600",
        kernel: "EINVAL",
        ours: "ok 600 (d*512)(a*88)",
        why: NOT_ALIGNED,
    },
    Known {
        case: "direct and unaligned",
        step: "pread a 0 100",
        kernel: "EINVAL",
        ours: "ok 100 (a*100)",
        why: NOT_ALIGNED,
    },
    Known {
        case: "maximum file sizes",
        step: "seek a set 17592186040321",
        kernel: "EINVAL",
        ours: "ok 17592186040321",
        why: FAR_SEEKS,
    },
    Known {
        case: "maximum file sizes",
        step: "seek a set 17592186044416",
        kernel: "EINVAL",
        ours: "ok 17592186044416",
        why: FAR_SEEKS,
    },
    Known {
        case: "maximum file sizes",
        step: "seek a set 9223372036854775807",
        kernel: "EINVAL",
        ours: "ok 9223372036854775807",
        why: FAR_SEEKS,
    },
    Known {
        case: "maximum file sizes",
        step: "pread d 17592186036224 8192",
        kernel: "EINVAL",
        ours: "ok 4096 (y*4096)",
        why: "the kernel's direct read fails when it maps the block after the last possible one",
    },
    Known {
        case: "positions",
        step: "seek raw end 0",
        kernel: "ok 9223372036854775807",
        ours: "ok 4096",
        why: DIRECTORY_END,
    },
    Known {
        case: "positions",
        step: "seek raw cur 0",
        kernel: "ok 9223372036854775807",
        ours: "ok 4096",
        why: DIRECTORY_END,
    },
    Known {
        case: "times of access",
        step: "times p",
        kernel: "ok now now now",
        ours: "ok 1.000000000 2.000000000 now",
        why: FIFO_TIMES,
    },
    Known {
        case: "allocation",
        step: "blocks f",
        kernel: "ok 328",
        ours: "ok 320",
        why: "we keep merged extents in the inode; the kernel has allocated a block for them",
    },
    Known {
        case: "holes punched",
        step: "blocks f",
        kernel: "ok 136",
        ours: "ok 8",
        why: "the kernel's hole punching frees nothing past the end of a file",
    },
    Known {
        case: "holes of mapped files",
        step: "holes a",
        kernel: "ok",
        ours: "ok [65536..69632)",
        why: "in a file without extents, the kernel reports data as a hole until it is written back",
    },
    Known {
        case: "holes of mapped files",
        step: "holes a",
        kernel: "ok [65536..69632)",
        ours: "ok [65536..69632)[524288..534528)",
        why: "in a file without extents, the kernel reports data as a hole until it is written back",
    },
    Known {
        case: "statx",
        step: "statx f",
        kernel: "ok all true attributes StatxAttributes(IMMUTABLE | NODUMP) mode 100600 links 1 owner 0:0 \
            size 5 blksize 4096",
        ours: "ok all true attributes StatxAttributes(0x0) mode 100600 links 1 owner 0:0 size 5 blksize 4096",
        why: STATX,
    },
    Known {
        case: "statx",
        step: "statx f",
        kernel: "ok all true attributes StatxAttributes(APPEND | NODUMP) mode 100600 links 1 owner 0:0 \
            size 5 blksize 4096",
        ours: "ok all true attributes StatxAttributes(0x0) mode 100600 links 1 owner 0:0 size 5 blksize 4096",
        why: STATX,
    },
    Known {
        case: "collapsed and inserted ranges",
        step: "fallocate a COLLAPSE_RANGE 4k 4k",
        kernel: "ok",
        ours: "EOPNOTSUPP",
        why: SHIFTED,
    },
    Known {
        case: "collapsed and inserted ranges",
        step: "fallocate a INSERT_RANGE 4k 8k",
        kernel: "ok",
        ours: "EOPNOTSUPP",
        why: SHIFTED,
    },
    Known {
        case: "immutable",
        step: "access f w",
        kernel: "EPERM",
        ours: "ok",
        why: ACCESS_FLAGS,
    },
    Known {
        case: "immutable",
        step: "alice: access f w",
        kernel: "EPERM",
        ours: "EACCES",
        why: ACCESS_FLAGS,
    },
    Known {
        case: "immutable",
        step: "access d w",
        kernel: "EPERM",
        ours: "ok",
        why: ACCESS_FLAGS,
    },
    Known {
        case: "append only",
        step: "setfl a 0x0",
        kernel: "EPERM",
        ours: "ok",
        why: ACCESS_FLAGS,
    },
    Known {
        case: "append only",
        step: "getfl a",
        kernel: "ok 2001",
        ours: "ok 1",
        why: ACCESS_FLAGS,
    },
    Known {
        case: "times of access",
        step: "times l",
        kernel: "ok now 2.000000000 now",
        ours: "ok 1.000000000 2.000000000 now",
        why: "the kernel caches symbolic links that it has read, and follows them without a request",
    },
    Known {
        case: "times of access",
        step: "times f",
        kernel: "ok now 2.000000000 now",
        ours: "ok 1.000000000 2.000000000 now",
        why: "the kernel has the file's size cached, and does not read past it",
    },
];
