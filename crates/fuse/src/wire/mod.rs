//! The kernel's FUSE protocol: bytes ↔ plain structures. No I/O and no semantics.
//!
//! Source: `include/uapi/linux/fuse.h` of Linux, protocol 7.40, and 7.42 for the entries of rings. Numbers
//! are in native byte order, the size of every FUSE structure is a multiple of eight bytes, and padding is
//! zero.

mod opcode;
mod replies;
mod requests;

pub(crate) use opcode::Opcode;
pub(crate) use replies::*;
pub(crate) use requests::*;

/// The offset of a write's data in its request.
pub(crate) const WRITE_DATA_AT: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Flags of the reply to OPEN.
pub(crate) mod open_flags {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// The valid fields of SETATTR.
pub(crate) mod set_attr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_PRIVILEGES: u32 = 1 << 11;
}

/// The valid fields of a reply to STATX.
pub(crate) mod statx_mask {
    pub(crate) const BASIC: u32 = 0x7ff;
    pub(crate) const BTIME: u32 = 0x800;
}

/// In OPEN and CREATE (`open_flags`), and in WRITE (`write_flags`): clear setuid and setgid.
pub(crate) const OPEN_KILL_PRIVILEGES: u32 = 1 << 0;
pub(crate) const WRITE_KILL_PRIVILEGES: u32 = 1 << 2;

/// In WRITE: the kernel writes back its cache, on behalf of no program.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;

/// In READ and WRITE (`read_flags`, `write_flags`): the request has a lock owner. Direct I/O between a
/// program's memory and us has the program's; I/O for the kernel's cache has none.
pub(crate) const READ_LOCK_OWNER: u32 = 1 << 1;
pub(crate) const WRITE_LOCK_OWNER: u32 = 1 << 1;

/// Commands of IOCTL.
pub(crate) mod ioctl {
    pub(crate) const GET_FLAGS: u32 = 0x8008_6601;
    pub(crate) const SET_FLAGS: u32 = 0x4008_6602;
    pub(crate) const GET_XATTR: u32 = 0x801c_581f;
    pub(crate) const SET_XATTR: u32 = 0x401c_5820;
    pub(crate) const GET_VERSION: u32 = 0x8008_7601;
    pub(crate) const SET_VERSION: u32 = 0x4008_7602;
    pub(crate) const GET_VERSION_OF_EXT: u32 = 0x8008_6603;
    pub(crate) const SET_VERSION_OF_EXT: u32 = 0x4008_6604;
    pub(crate) const GET_LABEL: u32 = 0x8100_9431;
    pub(crate) const SET_LABEL: u32 = 0x4100_9432;
    pub(crate) const TRIM: u32 = 0xc018_5879;
    pub(crate) const SHUTDOWN: u32 = 0x8004_587d;
}

/// In FSYNC and FSYNCDIR: data only.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// In SETXATTR: setting this ACL clears the setgid bit.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// In GETATTR and STATX: the handle is valid.
pub(crate) const GETATTR_FH: u32 = 1 << 0;

/// Major and minor number from the protocol's device number.
pub(crate) fn device_from_wire(rdev: u32) -> (u32, u32) {
    (
        (rdev >> 8) & 0xfff,
        (rdev & 0xff) | ((rdev >> 12) & 0xfff00),
    )
}

/// The reverse of [`device_from_wire`].
pub(crate) fn device_to_wire(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_protocol() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<RingInOut>(), 32);
        assert_eq!(size_of::<Attr>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<WriteIn>(), 40);
        assert_eq!(size_of::<ReadIn>(), 40);
        assert_eq!(size_of::<StatfsOut>(), 80);
        assert_eq!(size_of::<Statx>(), 256);
        assert_eq!(size_of::<StatxOut>(), 288);
        assert_eq!(size_of::<CopyFileRangeIn>(), 56);
        assert_eq!(size_of::<FallocateIn>(), 32);
        assert_eq!(size_of::<IoctlIn>(), 32);
        assert_eq!(size_of::<IoctlOut>(), 16);
        assert_eq!(size_of::<FsXattr>(), 28);
        assert_eq!(WRITE_DATA_AT, 80);
    }

    #[test]
    fn device_numbers_survive() {
        for (major, minor) in [(0, 0), (8, 1), (4095, 0xf_ffff), (1, 256)] {
            assert_eq!(
                device_from_wire(device_to_wire(major, minor)),
                (major, minor)
            );
        }
    }
}
