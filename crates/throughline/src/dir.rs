//! [`Dir`], an open directory, and the calls by name in it.
//!
//! Every path that a `Dir` takes may have several names; relative ones start here, absolute ones at the volume's root.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline_ext::{
    Corrupt, FsBlock, Inode, InodeNumber, Last, NewInode, NewKind, Place, Reason, RenameMode,
};

use crate::error::{Error, Result};
use crate::file::File;
use crate::metadata::{Attributes, DeviceNumber, FileType, Metadata};
use crate::node::Node;
use crate::volume::{Held, Volume, path_from};

/// An open directory. It stays itself when it is renamed.
pub struct Dir {
    held: Held,
}

impl Dir {
    pub(crate) fn new(volume: &Volume, inode: Arc<Inode>) -> Result<Dir> {
        if !inode.is_dir() {
            return Err(Reason::NotDir.into());
        }
        Ok(Dir {
            held: Held::new(volume, inode)?,
        })
    }

    fn place(&self, path: impl AsRef<Path>, last: Last) -> Result<Place> {
        Ok(self.held.fs().place_from(
            &self.held.inode,
            path.as_ref().as_os_str().as_bytes(),
            last,
        )?)
    }

    fn resolve(&self, path: impl AsRef<Path>, last: Last) -> Result<Arc<Inode>> {
        self.place(path, last)?
            .inode
            .ok_or_else(|| Reason::NotFound.into())
    }

    /// The names in it, without `.` and `..`, read as they are asked for.
    ///
    /// # Errors
    /// None at first; each entry may bring one.
    pub fn entries(&self) -> Result<ReadDir> {
        let held = Held::new(&self.held.volume, Arc::clone(&self.held.inode))?;
        Ok(ReadDir {
            held,
            batch: Vec::new().into_iter(),
            left_out: Vec::new().into_iter(),
            told: HashSet::new(),
            next: Some(0),
        })
    }

    /// Of the directory itself.
    ///
    /// # Errors
    /// Damage.
    pub fn own_metadata(&self) -> Result<Metadata> {
        Metadata::of(&self.held.volume, &self.held.inode)
    }

    /// Sets attributes of the directory itself.
    ///
    /// # Errors
    /// [`Reason::Permission`] for an immutable one, [`Reason::ReadOnly`]; the device's.
    pub fn set_own_attributes(&self, attributes: &Attributes) -> Result<()> {
        attributes.set(&self.held.volume, &self.held.inode)
    }

    /// Returns when the names in it survive a crash, as they are now (`fsync` of a directory). The name of a new file needs
    /// that not: [`Handle::sync`](crate::Handle::sync) of the file is enough.
    ///
    /// # Errors
    /// What the device says, again at every call until it can be done.
    pub fn sync(&self) -> Result<()> {
        Ok(self.held.fs().sync_file(&self.held.inode)?)
    }

    /// What a path stands for; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Metadata::of(&self.held.volume, &*self.resolve(path, Last::Follow)?)
    }

    /// As [`Dir::metadata`], of a symbolic link itself.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        Metadata::of(&self.held.volume, &*self.resolve(path, Last::NoFollow)?)
    }

    /// Sets attributes; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Volume::set_attributes`].
    pub fn set_attributes(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<()> {
        attributes.set(&self.held.volume, &*self.resolve(path, Last::Follow)?)
    }

    /// As [`Dir::set_attributes`], of a symbolic link itself; its mode stays as it is.
    ///
    /// # Errors
    /// As [`Volume::set_attributes`].
    pub fn set_symlink_attributes(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<()> {
        let inode = self.resolve(path, Last::NoFollow)?;
        let mut attributes = attributes.clone();
        if inode.is_symlink() {
            attributes.mode = None;
        }
        attributes.set(&self.held.volume, &inode)
    }

    /// The inode of the directory by itself: what has its extended attributes, for one.
    ///
    /// # Errors
    /// None so far.
    pub fn own_node(&self) -> Result<Node> {
        Node::new(&self.held.volume, Arc::clone(&self.held.inode))
    }

    /// The inode that a path stands for, by itself; of a symbolic link, the link.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn node(&self, path: impl AsRef<Path>) -> Result<Node> {
        Node::new(&self.held.volume, self.resolve(path, Last::NoFollow)?)
    }

    /// Opens a directory; symbolic links are followed.
    ///
    /// # Errors
    /// As [`Volume::open_dir`].
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        Dir::new(&self.held.volume, self.resolve(path, Last::Follow)?)
    }

    /// Opens a regular file, for writing too where the volume is; symbolic links are followed.
    ///
    /// # Errors
    /// [`Reason::IsDir`]; [`Reason::Invalid`] for a device, fifo or socket; as [`Volume::open_dir`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        File::new(&self.held.volume, self.resolve(path, Last::Follow)?)
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// [`Reason::Invalid`] for anything else; as [`Volume::open_dir`].
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let inode = self.resolve(path, Last::NoFollow)?;
        Ok(path_from(self.held.fs().read_link(&inode)?))
    }

    /// Makes a regular file with these attributes, or empties the one that is there (its attributes stay); symbolic links
    /// are followed.
    ///
    /// # Errors
    /// [`Reason::IsDir`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn create_file(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<File> {
        self.open_or_create(path, attributes, true)
    }

    /// Opens a regular file, emptied where `truncate`, or makes it; symbolic links are followed.
    pub(crate) fn open_or_create(
        &self,
        path: impl AsRef<Path>,
        attributes: &Attributes,
        truncate: bool,
    ) -> Result<File> {
        let place = self.place(path, Last::Follow)?;
        let Some(inode) = &place.inode else {
            let inode = self.create_at(&place, NewKind::File, 0o666, attributes)?;
            return File::new(&self.held.volume, inode);
        };
        let file = File::new(&self.held.volume, Arc::clone(inode))?;
        if truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    /// Makes a regular file where there is nothing yet, not even a symbolic link.
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn create_new(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<File> {
        let place = self.place(path, Last::NoFollow)?;
        File::new(
            &self.held.volume,
            self.create_at(&place, NewKind::File, 0o666, attributes)?,
        )
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::TooManyLinks`], [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn create_dir(&self, path: impl AsRef<Path>, attributes: &Attributes) -> Result<Dir> {
        let place = self.place(path, Last::NoFollow)?;
        Dir::new(
            &self.held.volume,
            self.create_at(&place, NewKind::Dir, 0o777, attributes)?,
        )
    }

    /// Makes a symbolic link at `link` that points to `target`: any text of 1 byte to less than a block.
    ///
    /// # Errors
    /// [`Reason::Exists`], [`Reason::NotFound`] (an empty target), [`Reason::NameTooLong`] (too long a target),
    /// [`Reason::NoSpace`], [`Reason::ReadOnly`]; as [`Volume::open_dir`].
    pub fn symlink(
        &self,
        target: impl AsRef<Path>,
        link: impl AsRef<Path>,
        attributes: &Attributes,
    ) -> Result<()> {
        let place = self.place(link, Last::NoFollow)?;
        let target = target.as_ref().as_os_str().as_bytes();
        self.create_at(&place, NewKind::Symlink(target), 0o777, attributes)?;
        Ok(())
    }

    /// Makes a device (with its numbers), a fifo or a socket.
    ///
    /// # Errors
    /// [`Reason::Invalid`] for other kinds and for numbers that are missing or too large; as [`Dir::create_new`].
    pub fn make_node(
        &self,
        path: impl AsRef<Path>,
        kind: FileType,
        device: Option<DeviceNumber>,
        attributes: &Attributes,
    ) -> Result<()> {
        let kind = match (kind, device) {
            (FileType::Fifo, _) => NewKind::Fifo,
            (FileType::Socket, _) => NewKind::Socket,
            (FileType::CharDevice, Some(DeviceNumber { major, minor })) => {
                NewKind::CharDevice { major, minor }
            }
            (FileType::BlockDevice, Some(DeviceNumber { major, minor })) => {
                NewKind::BlockDevice { major, minor }
            }
            _ => {
                return Err(Reason::Invalid(
                    "a node is a fifo, a socket, or a device with its numbers",
                )
                .into());
            }
        };
        let place = self.place(path, Last::NoFollow)?;
        self.create_at(&place, kind, 0o666, attributes)?;
        Ok(())
    }

    fn create_at(
        &self,
        place: &Place,
        kind: NewKind<'_>,
        mode: u32,
        attributes: &Attributes,
    ) -> Result<Arc<Inode>> {
        if place.inode.is_some() || place.name.is_empty() {
            return Err(Reason::Exists.into());
        }
        if place.slash && kind != NewKind::Dir {
            return Err(Reason::IsDir.into());
        }
        let new = NewInode {
            permissions: attributes.mode.unwrap_or(mode) as u16 & 0o7777,
            uid: attributes
                .uid
                .unwrap_or_else(|| rustix::process::geteuid().as_raw()),
            gid: attributes
                .gid
                .unwrap_or_else(|| rustix::process::getegid().as_raw()),
            umask: attributes.umask as u16,
        };
        let inode = self.held.fs().create(&place.dir, &place.name, kind, new)?;
        let times = Attributes {
            accessed: attributes.accessed,
            modified: attributes.modified,
            ..Attributes::default()
        };
        if !times.is_empty() {
            times.set(&self.held.volume, &inode)?;
        }
        Ok(inode)
    }

    /// Gives a file (a symbolic link itself) the additional name `link`.
    ///
    /// # Errors
    /// As [`Dir::link_inode`].
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        // Held from here on: were it known by its number only, that could be another file's when it gets the name.
        let inode = self.resolve(original, Last::NoFollow)?;
        self.link_held(&inode, link)
    }

    /// Gives a file, by its inode number, the additional name `link`. A number may be another file's by now: where the file has a
    /// name or is open, [`Dir::hard_link`] and [`Node::link`] say which one is meant.
    ///
    /// # Errors
    /// [`Reason::Permission`] for a directory, [`Reason::Exists`], [`Reason::TooManyLinks`], [`Reason::NotFound`],
    /// [`Reason::NoSpace`], [`Reason::ReadOnly`].
    pub fn link_inode(&self, ino: u64, link: impl AsRef<Path>) -> Result<()> {
        self.link_held(&self.held.volume.inode(ino)?, link)
    }

    fn link_held(&self, inode: &Arc<Inode>, link: impl AsRef<Path>) -> Result<()> {
        let place = self.place(link, Last::NoFollow)?;
        if place.inode.is_some() || place.name.is_empty() {
            return Err(Reason::Exists.into());
        }
        Ok(self.held.fs().link(inode, &place.dir, &place.name)?)
    }

    /// Takes away a name of anything but a directory. The file goes with its last name, once nobody has it open.
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::IsDir`], [`Reason::Permission`], [`Reason::ReadOnly`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.named(path)?;
        if place.slash {
            return Err(Reason::NotDir.into());
        }
        Ok(self.held.fs().unlink(&place.dir, &place.name)?)
    }

    /// Takes away an empty directory.
    ///
    /// # Errors
    /// [`Reason::NotFound`], [`Reason::NotDir`], [`Reason::NotEmpty`], [`Reason::Permission`], [`Reason::ReadOnly`],
    /// [`Reason::Busy`] for the root.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let place = self.named(path)?;
        Ok(self.held.fs().rmdir(&place.dir, &place.name)?)
    }

    /// As [`Volume::rename`].
    ///
    /// # Errors
    /// As there.
    pub fn rename(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        mode: RenameMode,
    ) -> Result<()> {
        let (from, to) = (self.named(from)?, self.named(to)?);
        if (from.slash || to.slash) && from.inode.as_ref().is_some_and(|inode| !inode.is_dir()) {
            return Err(Reason::NotDir.into());
        }
        Ok(self
            .held
            .fs()
            .rename(&from.dir, &from.name, &to.dir, &to.name, mode)?)
    }

    /// A place whose last name can be taken away.
    fn named(&self, path: impl AsRef<Path>) -> Result<Place> {
        let place = self.place(path, Last::NoFollow)?;
        if place.name.is_empty() {
            return Err(Reason::Busy("it is the root of the volume".into()).into());
        }
        Ok(place)
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    name: OsString,
    ino: u64,
    file_type: Option<FileType>,
}

impl DirEntry {
    /// The name.
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The inode it stands for.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Its kind as the directory says; `None` where the format does not keep it there.
    pub fn file_type(&self) -> Option<FileType> {
        self.file_type
    }
}

/// The names in a directory; see [`Dir::entries`]. Names that come or go meanwhile may or may not be met. Damage that was passed
/// over is an error among them ([`Error::Corrupt`]), and the names that are left follow; it ends after any other error.
pub struct ReadDir {
    held: Held,
    batch: std::vec::IntoIter<throughline_ext::DirEntry>,
    left_out: std::vec::IntoIter<Corrupt>,
    /// Places of damage that was told.
    told: HashSet<(Option<InodeNumber>, Option<FsBlock>)>,
    next: Option<u64>,
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Result<DirEntry>> {
        loop {
            if let Some(entry) = self
                .batch
                .find(|entry| !matches!(entry.name.as_slice(), b"." | b".."))
            {
                return Some(self.checked(entry));
            }
            // A listing that goes on in the middle of a block meets its damage again.
            let told = &mut self.told;
            if let Some(damage) = self.left_out.find(|damage| told.insert(damage.place())) {
                return Some(Err(Error::Corrupt(damage)));
            }
            let fs = self.held.fs();
            match fs.list_dir_around_damage(&self.held.inode, self.next?) {
                Ok(listing) => {
                    self.next = listing.names.last().map(|entry| entry.next);
                    self.batch = listing.names.into_iter();
                    self.left_out = listing.left_out.into_iter();
                }
                Err(error) => {
                    self.next = None;
                    return Some(Err(error.into()));
                }
            }
        }
    }
}

impl ReadDir {
    /// A name that could be taken for a path must not leave the directory: whoever joins it to one would be led astray.
    fn checked(&self, entry: throughline_ext::DirEntry) -> Result<DirEntry> {
        if !is_name(&entry.name) {
            let damage = impossible_name(&self.held.inode, &entry.name);
            self.held.fs().count_damage(&damage);
            return Err(Error::Corrupt(damage));
        }
        Ok(DirEntry {
            name: OsString::from_vec(entry.name),
            ino: entry.ino.0.into(),
            file_type: entry.file_type.map(FileType::from),
        })
    }
}

/// What is said of a name that is none.
pub(crate) fn impossible_name(dir: &Inode, name: &[u8]) -> Corrupt {
    Corrupt {
        inode: Some(dir.ino),
        block: None,
        what: format!(
            "the directory holds the impossible name \"{}\"",
            name.escape_ascii()
        ),
    }
}

pub(crate) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn impossible_names_are_refused() {
        for bad in ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"] {
            assert!(!is_name(bad.as_bytes()), "{bad:?}");
        }
        for good in ["a", "...", " ", "-rf", "a\\b"] {
            assert!(is_name(good.as_bytes()), "{good:?}");
        }
    }
}
