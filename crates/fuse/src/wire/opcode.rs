//! The operation of a request.

/// The operations that this server supports; all others get ENOSYS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Lookup,
    Forget,
    Getattr,
    Setattr,
    Readlink,
    Symlink,
    Mknod,
    Mkdir,
    Unlink,
    Rmdir,
    Rename,
    Link,
    Open,
    Read,
    Write,
    Statfs,
    Release,
    Fsync,
    Setxattr,
    Getxattr,
    Listxattr,
    Removexattr,
    Flush,
    Readdir,
    Opendir,
    Releasedir,
    Fsyncdir,
    Create,
    Bmap,
    Destroy,
    Ioctl,
    BatchForget,
    Fallocate,
    Readdirplus,
    Rename2,
    Lseek,
    CopyFileRange,
    Syncfs,
    Tmpfile,
    Statx,
}

impl Opcode {
    /// The operation of that number.
    pub(crate) fn of(number: u32) -> Option<Opcode> {
        Some(match number {
            1 => Opcode::Lookup,
            2 => Opcode::Forget,
            3 => Opcode::Getattr,
            4 => Opcode::Setattr,
            5 => Opcode::Readlink,
            6 => Opcode::Symlink,
            8 => Opcode::Mknod,
            9 => Opcode::Mkdir,
            10 => Opcode::Unlink,
            11 => Opcode::Rmdir,
            12 => Opcode::Rename,
            13 => Opcode::Link,
            14 => Opcode::Open,
            15 => Opcode::Read,
            16 => Opcode::Write,
            17 => Opcode::Statfs,
            18 => Opcode::Release,
            20 => Opcode::Fsync,
            21 => Opcode::Setxattr,
            22 => Opcode::Getxattr,
            23 => Opcode::Listxattr,
            24 => Opcode::Removexattr,
            25 => Opcode::Flush,
            27 => Opcode::Opendir,
            28 => Opcode::Readdir,
            29 => Opcode::Releasedir,
            30 => Opcode::Fsyncdir,
            35 => Opcode::Create,
            37 => Opcode::Bmap,
            38 => Opcode::Destroy,
            39 => Opcode::Ioctl,
            42 => Opcode::BatchForget,
            43 => Opcode::Fallocate,
            44 => Opcode::Readdirplus,
            45 => Opcode::Rename2,
            46 => Opcode::Lseek,
            47 => Opcode::CopyFileRange,
            50 => Opcode::Syncfs,
            51 => Opcode::Tmpfile,
            52 => Opcode::Statx,
            _ => return None,
        })
    }

    /// Operations that may be sent on behalf of users without access to the mount: by the kernel itself, or
    /// on files that are already open, for which the kernel checks the descriptor only.
    pub(crate) fn is_for_all(self) -> bool {
        matches!(
            self,
            Opcode::Forget
                | Opcode::BatchForget
                | Opcode::Read
                | Opcode::Write
                | Opcode::Lseek
                | Opcode::Fallocate
                | Opcode::CopyFileRange
                | Opcode::Fsync
                | Opcode::Flush
                | Opcode::Release
                | Opcode::Readdir
                | Opcode::Readdirplus
                | Opcode::Releasedir
                | Opcode::Fsyncdir
                | Opcode::Destroy
                | Opcode::Syncfs
        )
    }

    /// Operations after whose success the kernel keeps attributes of the request's inode that they change:
    /// the change time after an IOCTL, the access time of the source of a copy.
    pub(crate) fn hides_changes(self) -> bool {
        matches!(self, Opcode::Ioctl | Opcode::CopyFileRange)
    }

    /// Operations after whose failure the kernel keeps cached data that they may have changed.
    pub(crate) fn may_keep_data(self) -> bool {
        matches!(self, Opcode::Setattr | Opcode::Open | Opcode::CopyFileRange)
    }

    /// Operations that usually wait for the device.
    pub(crate) fn waits_for_device(self) -> bool {
        matches!(
            self,
            Opcode::Fsync
                | Opcode::Fsyncdir
                | Opcode::Syncfs
                | Opcode::Ioctl
                | Opcode::Fallocate
                | Opcode::CopyFileRange
        )
    }
}
