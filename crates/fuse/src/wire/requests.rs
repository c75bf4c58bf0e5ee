//! Structures that the kernel sends.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
    )*};
}

requests! {
    /// The header of every request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16,
        padding: u16,
    }
    /// What describes the payload of an entry of a ring, in requests and replies.
    RingInOut { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    ForgetIn { lookups: u64 }
    /// One entry of BATCH_FORGET, after [`BatchForgetIn`].
    ForgetOne { nodeid: u64, lookups: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    GetattrIn { flags: u32, dummy: u32, fh: u64 }
    StatxIn { flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: i64, mtime: i64, ctime: i64,
        atime_ns: u32, mtime_ns: u32, ctime_ns: u32, mode: u32, unused4: u32, uid: u32, gid: u32,
        unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { new_dir: u64 }
    Rename2In { new_dir: u64, flags: u32, padding: u32 }
    LinkIn { old_nodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// Also for LISTXATTR; in GETXATTR the name follows.
    GetxattrIn { size: u32, padding: u32 }
    FsyncIn { fh: u64, flags: u32, padding: u32 }
    /// The form without `FUSE_SETXATTR_EXT`: Linux before 5.13. The name follows, then the value.
    SetxattrShortIn { size: u32, flags: u32 }
    /// The name follows, then the value.
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    BmapIn { block: u64, block_bytes: u32, padding: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn {
        fh_in: u64, offset_in: u64, nodeid_out: u64, fh_out: u64, offset_out: u64, len: u64, flags: u64,
    }
}
