//! The file system under test, as the driver calls it: by path.

/// Why a call was refused, as far as the model distinguishes reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the field's names for them
pub enum Refusal {
    NotFound,
    Exists,
    NotDir,
    IsDir,
    NotEmpty,
    NoSpace,
    TooLarge,
    NameTooLong,
    Invalid,
    TooManyLinks,
    Permission,
    ReadOnly,
    Busy,
    Loop,
    Unsupported,
    /// Any other reason: always a test failure. The text describes it.
    Other(String),
}

/// The result of a subject's call.
pub type Answer<T> = Result<T, Refusal>;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// Attributes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// File type.
    pub kind: FileKind,
    /// The twelve permission bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// Number of names.
    pub links: u32,
    /// Size in bytes; arbitrary for a directory.
    pub len_bytes: u64,
    /// Device numbers of a device node.
    pub device: Option<(u32, u32)>,
    /// Time of the last change of the content: seconds since 1970 and nanoseconds.
    pub modified: (i64, u32),
}

/// How a rename treats an existing target name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RenameMode {
    Replace,
    NoReplace,
    Exchange,
}

/// Operations of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FallocateMode {
    Allocate,
    KeepSize,
    PunchHole,
    ZeroRange,
    Collapse,
    Insert,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Handle {
    Buffered,
    #[default]
    Direct,
    /// Buffered, and durable when the call returns.
    Sync,
}

/// The form of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// One buffer.
    #[default]
    Plain,
    /// Several buffers.
    Vectored,
}

/// What a flush makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Data, size and name.
    All,
    /// Data, and what is needed to read it.
    Data,
    /// Only the data of a range, best effort.
    Range(u64, u64),
}

/// Advice about future reads. Does not change any answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Advice {
    Normal,
    Sequential,
    Random,
    WillNeed,
    DontNeed,
}

/// Number of files that a subject keeps open.
pub const SLOTS: usize = 4;

/// Free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Blocks available to files.
    pub free_blocks: u64,
    /// Free inodes.
    pub free_inodes: u64,
}

/// A file system under test. Paths are absolute. A symbolic link at the end of a path is followed only by the
/// calls on contents.
pub trait Subject {
    /// Creates an empty file.
    fn create(&mut self, path: &[u8], mode: u32) -> Answer<()>;
    /// Creates a directory.
    fn mkdir(&mut self, path: &[u8], mode: u32) -> Answer<()>;
    /// Creates a symbolic link.
    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Answer<()>;
    /// Creates a special file.
    fn mknod(&mut self, path: &[u8], kind: FileKind, mode: u32, device: (u32, u32)) -> Answer<()>;
    /// Adds a name to a file.
    fn link(&mut self, from: &[u8], to: &[u8]) -> Answer<()>;
    /// Removes a name, except a directory's.
    fn unlink(&mut self, path: &[u8]) -> Answer<()>;
    /// Removes an empty directory.
    fn rmdir(&mut self, path: &[u8]) -> Answer<()>;
    /// Renames.
    fn rename(&mut self, from: &[u8], to: &[u8], mode: RenameMode) -> Answer<()>;
    /// Writes; returns the number of bytes.
    fn write(
        &mut self,
        path: &[u8],
        handle: Handle,
        form: Form,
        offset: u64,
        data: &[u8],
    ) -> Answer<usize>;
    /// Writes at the end; returns the offset and the number of bytes.
    fn append(&mut self, path: &[u8], handle: Handle, data: &[u8]) -> Answer<(u64, usize)>;
    /// Reads; returns the number of bytes.
    fn read(&mut self, path: &[u8], handle: Handle, offset: u64, to: &mut [u8]) -> Answer<usize>;
    /// Makes a file, or part of it, durable.
    fn flush(&mut self, path: &[u8], flush: Flush) -> Answer<()>;
    /// Gives advice on a kept file.
    fn advise(&mut self, slot: usize, advice: Advice, offset: u64, len: u64) -> Answer<()>;
    /// Copies from one file to another. Returns the number of bytes, less than requested only at the end of
    /// the source or if an error occurred after them.
    fn copy_range(
        &mut self,
        from: (&[u8], u64),
        to: (&[u8], u64),
        handle: Handle,
        len: u64,
    ) -> Answer<u64>;
    /// Sets the size.
    fn truncate(&mut self, path: &[u8], len: u64) -> Answer<()>;
    /// Allocates, punches, and so on.
    fn fallocate(&mut self, path: &[u8], mode: FallocateMode, offset: u64, len: u64) -> Answer<()>;
    /// The first data at or after `offset`; `None` if there is none up to the end.
    fn seek_data(&mut self, path: &[u8], offset: u64) -> Answer<Option<u64>>;
    /// The first hole at or after `offset`; the end counts as one.
    fn seek_hole(&mut self, path: &[u8], offset: u64) -> Answer<Option<u64>>;
    /// Attributes of a file.
    fn stat(&mut self, path: &[u8]) -> Answer<Stat>;
    /// The target of a symbolic link.
    fn read_link(&mut self, path: &[u8]) -> Answer<Vec<u8>>;
    /// The names in a directory except `.` and `..`, in any order, with their types if the directory stores
    /// them.
    fn read_dir(&mut self, path: &[u8]) -> Answer<Vec<(Vec<u8>, Option<FileKind>)>>;
    /// Sets mode and owner, as far as given.
    fn set_attributes(
        &mut self,
        path: &[u8],
        mode: Option<u32>,
        owner: Option<(u32, u32)>,
    ) -> Answer<()>;
    /// Sets the time of the last change.
    fn set_modified(&mut self, path: &[u8], time: (i64, u32)) -> Answer<()>;
    /// Opens a file into a slot; closes the one that was there.
    fn keep(&mut self, slot: usize, path: &[u8], handle: Handle) -> Answer<()>;
    /// Writes to a kept file; returns the number of bytes.
    fn write_kept(&mut self, slot: usize, form: Form, offset: u64, data: &[u8]) -> Answer<usize>;
    /// Writes at the end of a kept file; returns the offset and the number of bytes.
    fn append_kept(&mut self, slot: usize, data: &[u8]) -> Answer<(u64, usize)>;
    /// Reads from a kept file.
    fn read_kept(&mut self, slot: usize, offset: u64, to: &mut [u8]) -> Answer<usize>;
    /// Sets the size of a kept file.
    fn truncate_kept(&mut self, slot: usize, len: u64) -> Answer<()>;
    /// Makes a kept file durable.
    fn flush_kept(&mut self, slot: usize, flush: Flush) -> Answer<()>;
    /// Closes a kept file.
    fn close_kept(&mut self, slot: usize) -> Answer<()>;
    /// Makes everything durable.
    fn sync(&mut self) -> Answer<()>;
    /// Closes the volume and reopens it.
    fn reopen(&mut self) -> Answer<()>;
    /// Free space.
    fn space(&mut self) -> Answer<Space>;
}
