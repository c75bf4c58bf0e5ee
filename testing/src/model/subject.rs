//! What is driven beside the model: any file system that takes these calls by path.

/// Why a call was refused, as far as the model tells refusals apart.
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
    /// It would have to wait, and may not.
    WouldBlock,
    /// Anything else: always a failure of the test. The text says what.
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

/// What a subject says about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: FileKind,
    /// The twelve permission bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// How many names it has.
    pub links: u32,
    /// Size in bytes; of a directory, whatever.
    pub len_bytes: u64,
    /// Numbers of a device node.
    pub device: Option<(u32, u32)>,
    /// Seconds since 1970 and nanoseconds of the last change of the content.
    pub modified: (i64, u32),
}

/// How a rename treats a taken name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum RenameMode {
    Replace,
    NoReplace,
    Exchange,
}

/// What `fallocate` does.
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

/// How a file is open.
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
    /// Several.
    Vectored,
    /// One that may not wait.
    Try,
}

/// What a flush makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Data, size and name.
    All,
    /// Data, and what is needed to find it.
    Data,
    /// Of a range, data alone; without a promise.
    Range(u64, u64),
}

/// What a program says about its reading to come. It changes no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Advice {
    Normal,
    Sequential,
    Random,
    WillNeed,
    DontNeed,
}

/// Files that a subject keeps open.
pub const SLOTS: usize = 4;

/// Free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Blocks that a file may still get.
    pub free_blocks: u64,
    /// Inodes still free.
    pub free_inodes: u64,
}

/// A file system under test. Paths are absolute; none is followed through a symbolic link at its end, except by the
/// calls for content.
pub trait Subject {
    /// Makes an empty file.
    fn create(&mut self, path: &[u8], mode: u32) -> Answer<()>;
    /// Makes a directory.
    fn mkdir(&mut self, path: &[u8], mode: u32) -> Answer<()>;
    /// Makes a symbolic link.
    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Answer<()>;
    /// Makes a special file.
    fn mknod(&mut self, path: &[u8], kind: FileKind, mode: u32, device: (u32, u32)) -> Answer<()>;
    /// Gives a file a further name.
    fn link(&mut self, from: &[u8], to: &[u8]) -> Answer<()>;
    /// Removes a name of anything but a directory.
    fn unlink(&mut self, path: &[u8]) -> Answer<()>;
    /// Removes an empty directory.
    fn rmdir(&mut self, path: &[u8]) -> Answer<()>;
    /// Renames.
    fn rename(&mut self, from: &[u8], to: &[u8], mode: RenameMode) -> Answer<()>;
    /// Writes; returns how much.
    fn write(
        &mut self,
        path: &[u8],
        handle: Handle,
        form: Form,
        offset: u64,
        data: &[u8],
    ) -> Answer<usize>;
    /// Writes at the end; returns where and how much.
    fn append(&mut self, path: &[u8], handle: Handle, data: &[u8]) -> Answer<(u64, usize)>;
    /// Reads; returns how much.
    fn read(&mut self, path: &[u8], handle: Handle, offset: u64, to: &mut [u8]) -> Answer<usize>;
    /// Makes a file durable, or a part of it.
    fn flush(&mut self, path: &[u8], flush: Flush) -> Answer<()>;
    /// Advises on a kept file.
    fn advise(&mut self, slot: usize, advice: Advice, offset: u64, len: u64) -> Answer<()>;
    /// Copies from one file into another; returns how much, less than asked only at the end of the first or where an
    /// error came after it.
    fn copy_range(
        &mut self,
        from: (&[u8], u64),
        to: (&[u8], u64),
        handle: Handle,
        len: u64,
    ) -> Answer<u64>;
    /// Sets the size.
    fn truncate(&mut self, path: &[u8], len: u64) -> Answer<()>;
    /// Allocates, punches and so on.
    fn fallocate(&mut self, path: &[u8], mode: FallocateMode, offset: u64, len: u64) -> Answer<()>;
    /// The first data at or behind `offset`, `None` for none up to the end.
    fn seek_data(&mut self, path: &[u8], offset: u64) -> Answer<Option<u64>>;
    /// The first hole at or behind `offset`; the end counts as one.
    fn seek_hole(&mut self, path: &[u8], offset: u64) -> Answer<Option<u64>>;
    /// Describes a file.
    fn stat(&mut self, path: &[u8]) -> Answer<Stat>;
    /// The target of a symbolic link.
    fn read_link(&mut self, path: &[u8]) -> Answer<Vec<u8>>;
    /// The names of a directory but `.` and `..`, in any order, with their kinds where the directory keeps them.
    fn read_dir(&mut self, path: &[u8]) -> Answer<Vec<(Vec<u8>, Option<FileKind>)>>;
    /// Sets mode and owner, what is given.
    fn set_attributes(
        &mut self,
        path: &[u8],
        mode: Option<u32>,
        owner: Option<(u32, u32)>,
    ) -> Answer<()>;
    /// Sets the time of the last change.
    fn set_modified(&mut self, path: &[u8], time: (i64, u32)) -> Answer<()>;
    /// Opens a file to keep, in place of the one kept in the slot before.
    fn keep(&mut self, slot: usize, path: &[u8], handle: Handle) -> Answer<()>;
    /// Writes into a kept file.
    fn write_kept(&mut self, slot: usize, form: Form, offset: u64, data: &[u8]) -> Answer<usize>;
    /// Writes at the end of a kept file; returns where and how much.
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
    /// Closes the volume and opens it again.
    fn reopen(&mut self) -> Answer<()>;
    /// Free space.
    fn space(&mut self) -> Answer<Space>;
}
