//! [`Rank`]: the order of all locks of the workspace.

/// Where a lock stands in the order, outermost first: a thread takes them in this order, and those of one
/// rank by ascending number. What is not here is a [`Rank::Leaf`].
///
/// The handle comes before mapping and group locks: it must not be begun while one of those is held, since
/// that may wait for a commit that needs them. The page cache holds none of its locks when it asks for
/// mappings and space. The flusher takes no file locks, only those from the handle on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    // Callers of the library.
    /// What one thread of an experiment of the lab works with.
    Experiment,
    /// A value that Python holds, during a call.
    PythonValue,
    /// The caches whose counts `explain` reads.
    ExplainCaches,
    /// The variants that `explain` tells apart.
    ExplainVariants,
    /// Keeps the volume of a mount open during a call from another thread.
    Session,
    /// Files that a mount opens without an OPEN.
    UnopenedFiles,
    /// What the kernel's cache may hold of a file; by node id.
    KernelPages,
    /// The inodes that the kernel references.
    KernelNodes,
    /// The position of an open file.
    Position,

    // Plain files and devices.
    /// A lock that has a turnstile for each thread: their list.
    Gate,
    /// One of them; by its place in the list.
    Turnstile,
    /// Serializes buffered writes past the end of a plain file.
    RawExtend,
    /// Space that is reserved on the host for a plain file.
    RawRoom,

    // Volumes.
    /// Serializes renames that move directories.
    Rename,
    /// A directory's contents; by inode number.
    Directory,
    /// Excludes truncation from file I/O; by inode number.
    FileIo,
    /// An inode without users while it is freed; possibly an attribute value of a file that is locked; by
    /// inode number.
    Unused,
    /// Serializes buffered writes past the end of a file; by inode number.
    Extend,
    /// The windows of a stream of reads.
    ReadWindows,
    /// The threads that read ahead.
    ReadaheadThreads,
    /// An open journal handle, or a wait for a commit.
    Handle,
    /// Blocks that the journal still has to write home before they are data.
    GivenUp,
    /// The tree of a quota file, while an entry is added or removed; by kind.
    QuotaTree,
    /// Attributes shared between inodes, while a reference is added or dropped.
    Shares,
    /// An inode's block mapping; by inode number.
    Mapping,
    /// Space that is reserved for a file's cached data.
    Delayed,
    /// The clusters among it (`bigalloc`).
    DelayedClusters,
    /// Freed blocks being discarded.
    Trimming,
    /// Freed blocks whose transaction is not committed.
    Freed,
    /// The inode bitmaps of some groups; by number.
    InodeGroup,
    /// The block bitmap of a group; by number.
    Group,
    /// An inode's orphan record; by inode number.
    Orphan,
    /// The orphan list, or a block of orphan slots; by number.
    OrphanSlots,
    /// Files with a deferred truncation.
    Emptied,
    /// A part of the table of inodes in memory; held while one is loaded.
    InodeTable,
    /// The table of users, groups and projects in memory.
    Owners,
    /// What one of them uses; by kind and number.
    Usage,
    /// The superblock's bytes.
    Super,
    /// An inode's image; by inode number.
    Image,

    // The journal.
    /// The rounds of commits.
    Rounds,
    /// The running transaction.
    Running,
    /// A checkpoint.
    Checkpoint,
    /// What is in the log.
    Ring,
    /// The journal's superblock.
    JournalSuper,
    /// A block of metadata.
    Buffer,

    // The page cache.
    /// The thread that writes back.
    Flusher,
    /// The queues of what may be evicted.
    Eviction,
    /// A span of a file.
    Span,
    /// Limits of dirty memory.
    DirtyLimits,
    /// The line of those who wait for room below such a limit.
    Room,

    // Images of disks, from overlays to their bases.
    /// A flush of a qcow2 image; by age, newest first.
    ImageFlush,
    /// Reads and writes of a qcow2 image; by age, newest first.
    ImageIo,
    /// The reader of an image.
    ImageReader,
    /// The tables of a qcow2 image; by age, newest first.
    ImageTables,
    /// The manifest of a container image, while its registry is asked for it.
    Manifest,
    /// The objects that are open.
    Objects,
    /// The chunks of an object.
    Chunks,

    // What everything may use.
    /// The growth of the memory for pages.
    Growth,
    /// What a listener has counted.
    Listener,
    /// A lock under which no other is taken.
    Leaf,
}
