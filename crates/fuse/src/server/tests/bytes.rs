//! Requests as bytes, as `linux/fuse.h` defines them.

/// `enum fuse_opcode`.
#[allow(dead_code, reason = "the list of the protocol, whole")]
pub(super) mod op {
    pub(in super::super) const LOOKUP: u32 = 1;
    pub(in super::super) const FORGET: u32 = 2;
    pub(in super::super) const GETATTR: u32 = 3;
    pub(in super::super) const SETATTR: u32 = 4;
    pub(in super::super) const READLINK: u32 = 5;
    pub(in super::super) const SYMLINK: u32 = 6;
    pub(in super::super) const MKNOD: u32 = 8;
    pub(in super::super) const MKDIR: u32 = 9;
    pub(in super::super) const UNLINK: u32 = 10;
    pub(in super::super) const RMDIR: u32 = 11;
    pub(in super::super) const RENAME: u32 = 12;
    pub(in super::super) const LINK: u32 = 13;
    pub(in super::super) const OPEN: u32 = 14;
    pub(in super::super) const READ: u32 = 15;
    pub(in super::super) const WRITE: u32 = 16;
    pub(in super::super) const STATFS: u32 = 17;
    pub(in super::super) const RELEASE: u32 = 18;
    pub(in super::super) const FSYNC: u32 = 20;
    pub(in super::super) const SETXATTR: u32 = 21;
    pub(in super::super) const GETXATTR: u32 = 22;
    pub(in super::super) const LISTXATTR: u32 = 23;
    pub(in super::super) const REMOVEXATTR: u32 = 24;
    pub(in super::super) const FLUSH: u32 = 25;
    pub(in super::super) const INIT: u32 = 26;
    pub(in super::super) const OPENDIR: u32 = 27;
    pub(in super::super) const READDIR: u32 = 28;
    pub(in super::super) const RELEASEDIR: u32 = 29;
    pub(in super::super) const FSYNCDIR: u32 = 30;
    pub(in super::super) const GETLK: u32 = 31;
    pub(in super::super) const ACCESS: u32 = 34;
    pub(in super::super) const CREATE: u32 = 35;
    pub(in super::super) const INTERRUPT: u32 = 36;
    pub(in super::super) const BMAP: u32 = 37;
    pub(in super::super) const DESTROY: u32 = 38;
    pub(in super::super) const IOCTL: u32 = 39;
    pub(in super::super) const POLL: u32 = 40;
    pub(in super::super) const BATCH_FORGET: u32 = 42;
    pub(in super::super) const FALLOCATE: u32 = 43;
    pub(in super::super) const READDIRPLUS: u32 = 44;
    pub(in super::super) const RENAME2: u32 = 45;
    pub(in super::super) const LSEEK: u32 = 46;
    pub(in super::super) const COPY_FILE_RANGE: u32 = 47;
    pub(in super::super) const SYNCFS: u32 = 50;
    pub(in super::super) const TMPFILE: u32 = 51;
    pub(in super::super) const STATX: u32 = 52;
}

/// The body of a request, field by field.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes(Vec<u8>);

impl Bytes {
    pub(super) fn new() -> Bytes {
        Bytes::default()
    }

    pub(super) fn u16(self, value: u16) -> Bytes {
        self.raw(&value.to_ne_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Bytes {
        self.raw(&value.to_ne_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Bytes {
        self.raw(&value.to_ne_bytes())
    }

    pub(super) fn raw(mut self, bytes: &[u8]) -> Bytes {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A name with its NUL.
    pub(super) fn name(self, name: &str) -> Bytes {
        self.raw(name.as_bytes()).raw(&[0])
    }

    /// Truncated to `len` bytes.
    pub(super) fn cut(mut self, len: usize) -> Bytes {
        self.0.truncate(len);
        self
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A name alone: LOOKUP, UNLINK, RMDIR, REMOVEXATTR.
pub(super) fn named(name: &str) -> Bytes {
    Bytes::new().name(name)
}

/// `struct fuse_mknod_in` and the name.
pub(super) fn mknod(mode: u32, rdev: u32, name: &str) -> Bytes {
    Bytes::new().u32(mode).u32(rdev).u32(0).u32(0).name(name)
}

/// `struct fuse_mkdir_in` and the name.
pub(super) fn mkdir(mode: u32, name: &str) -> Bytes {
    Bytes::new().u32(mode).u32(0).name(name)
}

/// `struct fuse_create_in` and the name. TMPFILE has the same with an unused name.
pub(super) fn create(flags: u32, mode: u32, name: &str) -> Bytes {
    Bytes::new().u32(flags).u32(mode).u32(0).u32(0).name(name)
}

/// The two names of SYMLINK.
pub(super) fn symlink(name: &str, target: &str) -> Bytes {
    Bytes::new().name(name).name(target)
}

/// `struct fuse_link_in` and the name.
pub(super) fn link(nodeid: u64, name: &str) -> Bytes {
    Bytes::new().u64(nodeid).name(name)
}

/// `struct fuse_rename_in` and the names.
pub(super) fn rename(name: &str, new_dir: u64, new_name: &str) -> Bytes {
    Bytes::new().u64(new_dir).name(name).name(new_name)
}

/// `struct fuse_rename2_in` and the names.
pub(super) fn rename2(flags: u32, name: &str, new_dir: u64, new_name: &str) -> Bytes {
    let ask = Bytes::new().u64(new_dir).u32(flags).u32(0);
    ask.name(name).name(new_name)
}

/// `struct fuse_open_in`, of OPEN and OPENDIR.
pub(super) fn open(flags: u32) -> Bytes {
    Bytes::new().u32(flags).u32(0)
}

/// `struct fuse_read_in`, of READ, READDIR and READDIRPLUS.
pub(super) fn read(fh: u64, offset: u64, size: u32) -> Bytes {
    Bytes::new().u64(fh).u64(offset).u32(size).raw(&[0; 20])
}

/// `struct fuse_write_in` and the data.
pub(super) fn write(fh: u64, offset: u64, data: &[u8]) -> Bytes {
    write_with(fh, offset, 0, 0, data)
}

/// The same, with `write_flags` and the open flags of the file.
pub(super) fn write_with(fh: u64, offset: u64, write_flags: u32, flags: u32, data: &[u8]) -> Bytes {
    let ask = Bytes::new().u64(fh).u64(offset).u32(data.len() as u32);
    ask.u32(write_flags).u64(0).u32(flags).u32(0).raw(data)
}

/// `struct fuse_release_in`.
pub(super) fn release(fh: u64) -> Bytes {
    Bytes::new().u64(fh).u32(0).u32(0).u64(0)
}

/// `struct fuse_fsync_in`, of FSYNC and FSYNCDIR.
pub(super) fn fsync(fh: u64, flags: u32) -> Bytes {
    Bytes::new().u64(fh).u32(flags).u32(0)
}

/// `struct fuse_fallocate_in`.
pub(super) fn fallocate(fh: u64, mode: u32, offset: u64, length: u64) -> Bytes {
    let ask = Bytes::new().u64(fh).u64(offset).u64(length);
    ask.u32(mode).u32(0)
}

/// `struct fuse_lseek_in`.
pub(super) fn lseek(fh: u64, offset: u64, whence: u32) -> Bytes {
    Bytes::new().u64(fh).u64(offset).u32(whence).u32(0)
}

/// `struct fuse_bmap_in`.
pub(super) fn bmap(block: u64, block_bytes: u32) -> Bytes {
    Bytes::new().u64(block).u32(block_bytes).u32(0)
}

/// `struct fuse_copy_file_range_in`.
pub(super) fn copy(from: (u64, u64), to: (u64, u64, u64), len: u64) -> Bytes {
    let (fh_in, offset_in) = from;
    let (nodeid_out, fh_out, offset_out) = to;
    let ask = Bytes::new().u64(fh_in).u64(offset_in).u64(nodeid_out);
    ask.u64(fh_out).u64(offset_out).u64(len).u64(0)
}

/// `struct fuse_getattr_in`, with a handle if there is one.
pub(super) fn getattr(fh: Option<u64>) -> Bytes {
    let flags = u32::from(fh.is_some());
    Bytes::new().u32(flags).u32(0).u64(fh.unwrap_or(0))
}

/// `struct fuse_statx_in`, with a handle if there is one.
pub(super) fn statx(fh: Option<u64>) -> Bytes {
    getattr(fh).u32(0).u32(0xfff)
}

/// `struct fuse_setattr_in`, built field by field.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Setattr {
    pub(super) valid: u32,
    pub(super) fh: u64,
    pub(super) size: u64,
    pub(super) atime: (i64, u32),
    pub(super) mtime: (i64, u32),
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Setattr {
    pub(super) const MODE: u32 = 1 << 0;
    pub(super) const UID: u32 = 1 << 1;
    pub(super) const GID: u32 = 1 << 2;
    pub(super) const SIZE: u32 = 1 << 3;
    pub(super) const ATIME: u32 = 1 << 4;
    pub(super) const MTIME: u32 = 1 << 5;
    pub(super) const FH: u32 = 1 << 6;
    pub(super) const ATIME_NOW: u32 = 1 << 7;
    pub(super) const MTIME_NOW: u32 = 1 << 8;
    pub(super) const KILL_PRIVILEGES: u32 = 1 << 11;

    pub(super) fn bytes(&self) -> Bytes {
        let Setattr { atime, mtime, .. } = *self;
        let head = Bytes::new().u32(self.valid).u32(0).u64(self.fh);
        let head = head.u64(self.size).u64(0);
        let times = head.u64(atime.0.cast_unsigned());
        let times = times.u64(mtime.0.cast_unsigned()).u64(0);
        let times = times.u32(atime.1).u32(mtime.1).u32(0);
        let rest = times.u32(self.mode).u32(0);
        rest.u32(self.uid).u32(self.gid).u32(0)
    }
}

/// `struct fuse_setxattr_in` (the long form), the name and the value.
pub(super) fn setxattr(name: &str, value: &[u8], flags: u32, setxattr_flags: u32) -> Bytes {
    let ask = Bytes::new().u32(value.len() as u32).u32(flags);
    ask.u32(setxattr_flags).u32(0).name(name).raw(value)
}

/// `struct fuse_setxattr_in` up to `FUSE_COMPAT_SETXATTR_IN_SIZE`, the name and the value.
pub(super) fn setxattr_short(name: &str, value: &[u8], flags: u32) -> Bytes {
    let ask = Bytes::new().u32(value.len() as u32).u32(flags);
    ask.name(name).raw(value)
}

/// `struct fuse_getxattr_in` and the name.
pub(super) fn getxattr(name: &str, room: u32) -> Bytes {
    Bytes::new().u32(room).u32(0).name(name)
}

/// `struct fuse_getxattr_in` of LISTXATTR.
pub(super) fn listxattr(room: u32) -> Bytes {
    Bytes::new().u32(room).u32(0)
}

/// `struct fuse_ioctl_in` and the argument's bytes.
pub(super) fn ioctl(cmd: u32, argument: &[u8]) -> Bytes {
    ioctl_at(cmd, 0, argument)
}

/// The same, with the argument's address in the caller.
pub(super) fn ioctl_at(cmd: u32, address: u64, argument: &[u8]) -> Bytes {
    let ask = Bytes::new().u64(0).u32(0).u32(cmd).u64(address);
    ask.u32(argument.len() as u32).u32(256).raw(argument)
}
