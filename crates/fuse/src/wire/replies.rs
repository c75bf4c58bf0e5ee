//! Structures that the kernel receives.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! replies {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )*};
}

replies! {
    /// The header of every reply. `error` is a negated errno, or 0.
    OutHeader { len: u32, error: i32, unique: u64 }
    Attr {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64, atime_ns: u32, mtime_ns: u32,
        ctime_ns: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_ns: u32,
        attr_valid_ns: u32, attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_ns: u32, dummy: u32, attr: Attr }
    SxTime { seconds: i64, ns: u32, reserved: i32 }
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime,
        mtime: SxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut { attr_valid: u64, attr_valid_ns: u32, flags: u32, spare: [u64; 2], stat: Statx }
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    WriteOut { size: u32, padding: u32 }
    GetxattrOut { size: u32, padding: u32 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    LseekOut { offset: u64 }
    BmapOut { block: u64 }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// `struct fsxattr`, in requests and replies.
    FsXattr {
        xflags: u32, extent_bytes: u32, extents: u32, project: u32, cow_extent_bytes: u32, padding: [u32; 2],
    }
    /// A notification, not a reply: a range of an inode's data, or only its attributes, are stale in the
    /// kernel's cache.
    NotifyInvalInode { nodeid: u64, offset: i64, len: i64 }
    /// A notification: a name in a directory has to be looked up again. The name follows, with a NUL.
    NotifyInvalEntry { parent: u64, namelen: u32, flags: u32 }
    /// A notification: the kernel is to send what it caches of an inode, as a request `NOTIFY_REPLY` with
    /// this number.
    NotifyRetrieve {
        unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32,
    }
    /// Before each name of READDIR; the name follows, padded to eight bytes.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
}

impl NotifyInvalInode {
    /// The code of the notification, in the header's `error` field.
    pub(crate) const CODE: i32 = 2;
}

impl NotifyRetrieve {
    /// The code of the notification, in the header's `error` field.
    pub(crate) const CODE: i32 = 5;
    /// The operation of the request that it causes.
    pub(crate) const REPLY: u32 = 41;
}

impl NotifyInvalEntry {
    /// The code of the notification, in the header's `error` field.
    pub(crate) const CODE: i32 = 3;
    /// The name expires: what is mounted on it stays. Kernels before 6.2 ignore the flag and drop the name.
    pub(crate) const EXPIRE_ONLY: u32 = 1 << 0;
}
