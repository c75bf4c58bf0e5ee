//! How an open file is used: [`FileOptions`].

use std::path::Path;

use crate::dir::Dir;
use crate::error::Result;
use crate::file::File;
use crate::metadata::Attributes;
use crate::volume::Volume;

/// When a write is safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Durability {
    /// At the next sync.
    #[default]
    Later,
    /// When it returns, as far as reading it back needs (`O_DSYNC`).
    Data,
    /// When it returns, times and all (`O_SYNC`).
    All,
}

/// What a handle is for. It never changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) direct: bool,
    pub(crate) append: bool,
    /// Its right to change bytes was settled when it was opened.
    pub(crate) granted: bool,
    pub(crate) durability: Durability,
    /// Its reads leave the access time alone.
    pub(crate) unseen: bool,
}

/// Options for opening a file of a volume, in the spirit of `std::fs::OpenOptions`, and for another handle on an open one.
/// As made by [`FileOptions::new`]: an existing file, buffered.
///
/// Handles of one file see the same bytes at all times, whichever are buffered and whichever direct.
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
    create: bool,
    create_new: bool,
    truncate: bool,
    attributes: Attributes,
}

impl FileOptions {
    /// The options described at the type.
    pub fn new() -> FileOptions {
        FileOptions::default()
    }

    /// Past the cache: data goes straight between the program's memory and the device, and a write is on the device when
    /// it returns. Any offset, length and memory will do; whole blocks and aligned memory are fastest.
    pub fn direct(&mut self, direct: bool) -> &mut Self {
        self.mode.direct = direct;
        self
    }

    /// Every write returns when all of it survives a crash, as [`Handle::sync`](crate::Handle::sync) would make it (`O_SYNC`).
    pub fn sync(&mut self, sync: bool) -> &mut Self {
        self.set_durability(Durability::All, sync)
    }

    /// Every write returns when its data can be read back after a crash, as
    /// [`Handle::sync_data`](crate::Handle::sync_data) would make it (`O_DSYNC`).
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

    /// Every write goes to the end of the file, whatever offset it names (`O_APPEND`). Two of them never overlap.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.mode.append = append;
        self
    }

    /// Its reads leave the access time alone, whatever the volume's options say (`O_NOATIME`).
    pub fn no_access_time(&mut self, no_access_time: bool) -> &mut Self {
        self.mode.unseen = no_access_time;
        self
    }

    /// Its right to write was settled when it was opened ([`Node::check_open`](crate::Node::check_open)), as with an open file
    /// of the kernel: should the file become append-only, this handle changes bytes all the same. For servers.
    pub fn granted(&mut self, granted: bool) -> &mut Self {
        self.mode.granted = granted;
        self
    }

    /// Makes the file where there is none.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.create = create;
        self
    }

    /// Makes the file, and fails where there is something already.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.create_new = create_new;
        self
    }

    /// Empties the file if it is there.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.truncate = truncate;
        self
    }

    /// Attributes of the file if it is made by this.
    pub fn attributes(&mut self, attributes: Attributes) -> &mut Self {
        self.attributes = attributes;
        self
    }

    /// Opens a file of a volume.
    ///
    /// # Errors
    /// As [`Dir::open_file`], [`Dir::create_file`] and [`Dir::create_new`], as far as it does what they do.
    pub fn open(&self, volume: &Volume, path: impl AsRef<Path>) -> Result<File> {
        self.open_in(&volume.root()?, path)
    }

    /// Opens a file by a path that starts at a directory.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn open_in(&self, dir: &Dir, path: impl AsRef<Path>) -> Result<File> {
        let file = if self.create_new {
            dir.create_new_with(path, &self.attributes)?
        } else if self.create {
            dir.open_or_create(path, &self.attributes, self.truncate)?
        } else {
            let file = dir.open_file(path)?;
            if self.truncate {
                file.set_len(0)?;
            }
            file
        };
        file.reopen(self)
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }
}
