//! How an open file is used: [`FileOptions`].

use std::path::Path;

use throughline_ext::{Last, Reason};

use crate::dir::Dir;
use crate::error::Result;
use crate::file::File;
use crate::metadata::Attributes;
use crate::node::NewNode;

/// When a write is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Durability {
    /// At the next sync.
    #[default]
    Later,
    /// On return, as far as needed to read the data back (`O_DSYNC`).
    Data,
    /// On return, timestamps included (`O_SYNC`).
    All,
}

/// The fixed properties of a handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) direct: bool,
    pub(crate) append: bool,
    /// Opened for writing only.
    pub(crate) no_reads: bool,
    /// Opened for reading only.
    pub(crate) no_writes: bool,
    /// Permission to write was checked when it was opened.
    pub(crate) granted: bool,
    pub(crate) durability: Durability,
    /// Reads do not update the access time.
    pub(crate) unseen: bool,
}

/// Options for opening a file of a volume, like `std::fs::OpenOptions`, and for opening another handle on an
/// open file. The default ([`FileOptions::new`]) opens an existing file, buffered, for reading, and for
/// writing if the volume is open for writing. [`FileOptions::read`] and [`FileOptions::write`] restrict this.
///
/// All handles of a file see the same bytes at all times, buffered or direct.
///
/// ```no_run
/// use throughline::{FileOptions, OpenOptions};
///
/// # fn main() -> throughline::Result<()> {
/// let volume = OpenOptions::new().write(true).open("disk.img")?;
/// let log = FileOptions::new().create(true).append(true).data_sync(true).open(&volume, "/log")?;
/// log.append(b"on the disk when this returns\n")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    mode: Mode,
    read: bool,
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    attributes: Attributes,
}

impl FileOptions {
    /// The default options, as described for the type.
    pub fn new() -> FileOptions {
        FileOptions::default()
    }

    pub(crate) fn of(mode: Mode) -> FileOptions {
        FileOptions {
            mode,
            ..FileOptions::default()
        }
    }

    /// Opens for reading, and not for writing unless [`FileOptions::write`] is set too, as in `std::fs`.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.read = read;
        self
    }

    /// Opens for writing, and not for reading unless [`FileOptions::read`] is set too, as in `std::fs`.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.write = write;
        self
    }

    /// Bypasses the cache: data goes straight between the caller's memory and the device, and a write returns
    /// when the device has the data. Any offset, length and memory works; whole blocks and aligned memory are
    /// fastest.
    pub fn direct(&mut self, direct: bool) -> &mut Self {
        self.mode.direct = direct;
        self
    }

    /// Every write returns when all of it survives a crash, as with
    /// [`Handle::sync_all`](crate::Handle::sync_all) (`O_SYNC`).
    pub fn sync(&mut self, sync: bool) -> &mut Self {
        self.set_durability(Durability::All, sync)
    }

    /// Every write returns when its data can be read back after a crash, as with
    /// [`Handle::sync_data`](crate::Handle::sync_data) (`O_DSYNC`).
    pub fn data_sync(&mut self, data_sync: bool) -> &mut Self {
        self.set_durability(Durability::Data, data_sync)
    }

    fn set_durability(&mut self, durability: Durability, on: bool) -> &mut Self {
        if on {
            self.mode.durability = durability;
        } else if self.mode.durability == durability {
            self.mode.durability = Durability::Later;
        }
        self
    }

    /// Every write goes to the end of the file and ignores its offset (`O_APPEND`). Appends never overlap.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.mode.append = append;
        self
    }

    /// Reads do not update the access time, whatever the volume's options (`O_NOATIME`).
    pub fn no_access_time(&mut self, no_access_time: bool) -> &mut Self {
        self.mode.unseen = no_access_time;
        self
    }

    /// See [`OpenGranted`](crate::internal::OpenGranted).
    pub(crate) fn granted(&mut self, granted: bool) -> &mut Self {
        self.mode.granted = granted;
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Creates the file, and fails if the name exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Truncates an existing file to zero length. **A crash may undo this until a sync or the next commit.**
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Attributes for a file that this call creates.
    pub fn attributes(&mut self, attributes: Attributes) -> &mut Self {
        self.attributes = attributes;
        self
    }

    /// Opens a file, by a path in a volume or relative to a directory. **A crash may undo its creation or
    /// truncation until a sync or the next commit.**
    ///
    /// # Errors
    /// As [`Dir::open_file`], [`Dir::create_file`] and [`Dir::create_new`], depending on the options;
    /// [`Reason::Invalid`] for creating or truncating a file that is opened for reading only.
    pub fn open(&self, dir: &Dir, path: impl AsRef<Path>) -> Result<File> {
        let changes = self.create || self.create_new || self.truncate;
        if changes && self.mode().no_writes {
            let why = "a file is created or truncated only if it is opened for writing";
            return Err(Reason::Invalid(why).into());
        }
        if self.create_new {
            return dir
                .make_node(path, NewNode::File, &self.attributes)?
                .open(self);
        }
        let found = dir.find(path, Last::Follow)?;
        if self.create && !found.exists() {
            return found.create(NewNode::File, &self.attributes)?.open(self);
        }
        let file = found.node()?.open(self)?;
        if self.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    pub(crate) fn mode(&self) -> Mode {
        Mode {
            no_reads: self.write && !self.read,
            no_writes: self.read && !self.write && !self.mode.append,
            ..self.mode
        }
    }
}
