//! The directories of a tree, by number. Few of them are open: the others are opened again when they are
//! needed, from the nearest one above that is.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::process::{Resource, getrlimit};
use throughline_locks::Mutex;

use super::Unreached;
use super::calls::{Identity, fstat};
use super::held::open_folder;

/// A directory of [`Folders`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderId(u32);

impl FolderId {
    /// The one that the tree begins with.
    pub const ROOT: FolderId = FolderId(0);
}

/// See the module: 24 bytes for each directory, and its name.
pub struct Folders {
    root: Arc<OwnedFd>,
    table: Mutex<Table>,
}

struct Table {
    /// That of the root, which has no name, is first.
    places: Vec<Place>,
    /// The names, one after the other.
    names: Vec<u8>,
    /// Those that are open, the ones used last at the end.
    open: Vec<(FolderId, Arc<OwnedFd>)>,
    most_open: usize,
}

struct Place {
    above: FolderId,
    /// Where its name ends. It begins where that of the place before ends.
    name_end: u32,
    identity: Identity,
}

/// A directory to be opened, below another one.
struct Step {
    id: FolderId,
    name: Vec<u8>,
    identity: Identity,
}

impl fmt::Debug for Folders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folders").finish_non_exhaustive()
    }
}

impl Folders {
    /// A tree that begins with a directory. Its path may lead through links.
    ///
    /// # Errors
    /// The system's.
    pub fn open_root(path: &Path) -> Result<Folders> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Folders::new(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
    }

    /// A tree that begins with an open directory.
    ///
    /// # Errors
    /// The system's.
    pub fn new(root: OwnedFd) -> Result<Folders> {
        let place = Place {
            above: FolderId::ROOT,
            name_end: 0,
            identity: fstat(&root)?.identity,
        };
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Ok(Folders {
            root: Arc::new(root),
            table: Mutex::new(Table {
                places: vec![place],
                names: Vec::new(),
                open: Vec::new(),
                most_open: (limit / 16).clamp(2, 64) as usize,
            }),
        })
    }

    /// Adds a directory that was seen in another one. `None`: there are too many.
    pub fn add(&self, above: FolderId, name: &OsStr, identity: Identity) -> Option<FolderId> {
        let table = &mut *self.table.lock();
        let id = FolderId(u32::try_from(table.places.len()).ok()?);
        let name_end = u32::try_from(table.names.len() + name.len()).ok()?;
        table.names.extend_from_slice(name.as_bytes());
        table.places.push(Place {
            above,
            name_end,
            identity,
        });
        Some(id)
    }

    /// As [`Folders::add`], of one that is opened for it by its name.
    ///
    /// # Errors
    /// The system's: ENOTDIR or ELOOP for anything but a directory.
    pub fn enter(&self, above: FolderId, name: &OsStr) -> std::result::Result<FolderId, Unreached> {
        let dir = self.get(above)?;
        let fd = self
            .patiently(|| open_folder(&dir, name))
            .map_err(Unreached::Failed)?;
        let identity = fstat(&fd)?.identity;
        let id = self.add(above, name, identity);
        let id = id.ok_or(Unreached::Failed(Errno::NOMEM))?;
        self.table.lock().keep(id, &Arc::new(fd));
        Ok(id)
    }

    /// An open descriptor of a directory.
    ///
    /// # Errors
    /// [`Unreached::Replaced`] if its path leads to another one by now.
    pub fn get(&self, id: FolderId) -> std::result::Result<Arc<OwnedFd>, Unreached> {
        let (mut dir, steps) = self.way(id);
        for step in steps.into_iter().rev() {
            let name = OsStr::from_bytes(&step.name);
            let fd = self.patiently(|| open_folder(&dir, name))?;
            if fstat(&fd)?.identity != step.identity {
                return Err(Unreached::Replaced);
            }
            dir = Arc::new(fd);
            self.table.lock().keep(step.id, &dir);
        }
        Ok(dir)
    }

    /// The path of a directory below the root; empty for the root.
    pub fn path(&self, id: FolderId) -> PathBuf {
        let table = self.table.lock();
        let mut names = Vec::new();
        let mut at = id;
        while at != FolderId::ROOT {
            names.push(OsStr::from_bytes(table.name(at)));
            at = table.place(at).above;
        }
        names.into_iter().rev().collect()
    }

    /// The nearest open directory at or above one, and the steps from there, the last one first.
    fn way(&self, id: FolderId) -> (Arc<OwnedFd>, Vec<Step>) {
        let table = &mut *self.table.lock();
        let mut steps = Vec::new();
        let mut at = id;
        loop {
            if at == FolderId::ROOT {
                return (Arc::clone(&self.root), steps);
            }
            if let Some(dir) = table.opened(at) {
                return (dir, steps);
            }
            let place = table.place(at);
            steps.push(Step {
                id: at,
                name: table.name(at).to_vec(),
                identity: place.identity,
            });
            at = place.above;
        }
    }

    /// Opens something. If too many files are open, tries again without the directories that are only open
    /// for later.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn patiently<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        match open() {
            Err(Errno::MFILE) => {
                self.close_all();
                open()
            }
            other => other,
        }
    }

    /// Closes the directories that are only open for later.
    pub fn close_all(&self) {
        self.table.lock().open.clear();
    }
}

impl Table {
    fn place(&self, id: FolderId) -> &Place {
        &self.places[id.0 as usize]
    }

    fn name(&self, id: FolderId) -> &[u8] {
        let before = &self.places[(id.0 as usize).saturating_sub(1)];
        &self.names[before.name_end as usize..self.place(id).name_end as usize]
    }

    fn opened(&mut self, id: FolderId) -> Option<Arc<OwnedFd>> {
        let at = self.open.iter().rposition(|(open, _)| *open == id)?;
        let found = self.open.remove(at);
        let dir = Arc::clone(&found.1);
        self.open.push(found);
        Some(dir)
    }

    fn keep(&mut self, id: FolderId, dir: &Arc<OwnedFd>) {
        if self.open.iter().any(|(open, _)| *open == id) {
            return;
        }
        if self.open.len() >= self.most_open {
            self.open.remove(0);
        }
        self.open.push((id, Arc::clone(dir)));
    }
}
