//! Directories of the host, as sources and targets of a copy: by descriptors, so that no name can lead out of
//! a directory, even while others rename and replace what is in it
//! ([`host_tree`](throughline::archive::host_tree)).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use throughline::archive::host_tree::{
    FolderId, Folders, Held, Names, Status, Unreached, calls, open_file,
};
use throughline::{DeviceNumber, FileType};

use super::extended::{Holder, Refused};
use super::host::HostContent;
use super::host_meta::{apply, apply_to, id_of, meta_of};
use super::side::{Change, Content, Create, Folder, Id, Landed, Meta};
use crate::problem::{Problem, Result};

/// A directory of the host. It need not be open.
#[derive(Clone, Debug)]
pub(crate) struct HostFolder {
    tree: Arc<Folders>,
    id: FolderId,
}

/// A file that was created in a directory of the host.
#[derive(Clone, Debug)]
pub(crate) struct HostFile {
    folder: HostFolder,
    name: OsString,
    id: Id,
}

impl HostFolder {
    /// Opens a directory by its path; follows links.
    pub(crate) fn open(path: &Path) -> Result<HostFolder> {
        Ok(HostFolder::root(Folders::open_root(path)?))
    }

    fn root(tree: Folders) -> HostFolder {
        HostFolder {
            tree: Arc::new(tree),
            id: FolderId::ROOT,
        }
    }

    fn dir(&self) -> std::result::Result<Arc<OwnedFd>, Unreached> {
        self.tree.get(self.id)
    }

    /// Holds what a name leads to, if that is the inode that is known.
    fn held(&self, name: &OsStr, known: Id) -> Result<Held> {
        let held = self.look(name)?;
        match id_of(held.status().identity) == known {
            true => Ok(held),
            false => Err(Unreached::Replaced.into()),
        }
    }

    fn look(&self, name: &OsStr) -> std::result::Result<Held, Unreached> {
        let dir = self.dir()?;
        Ok(self.tree.patiently(|| Held::look(&dir, name))?)
    }

    /// Opens a file without following links, or with.
    fn open_with(&self, name: &OsStr, flags: OFlags, mode: Mode) -> Result<(File, Status)> {
        let dir = self.dir()?;
        let file = File::from(fs::openat(&dir, name, flags | OFlags::CLOEXEC, mode)?);
        let status = calls::fstat(&file)?;
        Ok((file, status))
    }

    fn content((file, status): (File, Status)) -> Result<Box<dyn Content>> {
        Ok(Box::new(HostContent::new(file, &status)?))
    }
}

impl Folder for HostFolder {
    fn names(&self) -> Result<Box<dyn Iterator<Item = Result<OsString>> + '_>> {
        // All at once: the directory need not stay open.
        let names = Names::read(self.dir()?)?;
        Ok(Box::new(names.map(|(name, _)| Ok(name))))
    }

    fn own(&self) -> Result<Meta> {
        meta_of(&calls::fstat(self.dir()?)?)
    }

    fn meta(&self, name: &OsStr, follow: bool) -> Result<Meta> {
        let flags = if follow {
            AtFlags::empty()
        } else {
            AtFlags::SYMLINK_NOFOLLOW
        };
        meta_of(&calls::statat(self.dir()?, name, flags)?)
    }

    fn folder(&self, name: &OsStr, follow: bool) -> Result<Box<dyn Folder>> {
        let entered = match self.tree.enter(self.id, name) {
            Ok(id) => HostFolder {
                tree: Arc::clone(&self.tree),
                id,
            },
            // A link to a directory: another tree begins there.
            Err(Unreached::Failed(Errno::NOTDIR | Errno::LOOP)) if follow => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let dir = self.dir()?;
                let fd = fs::openat(&dir, name, flags, Mode::empty())?;
                HostFolder::root(Folders::new(fd)?)
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Box::new(entered))
    }

    fn open(&self, name: &OsStr, follow: bool, known: &Meta) -> Result<Box<dyn Content>> {
        let is_known = |found: &Status| id_of(found.identity) == known.id;
        if known.kind == FileType::File {
            let opened = open_file(self.dir()?, name, OFlags::RDONLY, follow, is_known);
            return HostFolder::content(opened?);
        }
        // A device or a fifo, whose bytes are wanted.
        let links = if follow {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        };
        let opened = self.open_with(name, OFlags::RDONLY | links, Mode::empty())?;
        match is_known(&opened.1) {
            true => HostFolder::content(opened),
            false => Err(Unreached::Replaced.into()),
        }
    }

    fn link_target(&self, name: &OsStr, known: &Meta) -> Result<PathBuf> {
        let target = self.held(name, known.id)?.link_target()?;
        Ok(OsString::from_vec(target).into())
    }

    fn holder(&self, name: &OsStr, known: &Meta) -> Result<Holder<'_>> {
        Ok(Holder::Held(self.held(name, known.id)?))
    }

    fn own_holder(&self) -> Result<Holder<'_>> {
        Ok(Holder::Folder(self.dir()?))
    }

    fn create(&self, name: &OsStr, mode: u32, how: Create) -> Result<Box<dyn Content>> {
        let flags = match how {
            Create::New => OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW,
            Create::Through => OFlags::TRUNC,
            Create::Existing(id) => {
                // It is emptied once it is known to be that file.
                let is_known = |found: &Status| id_of(found.identity) == id;
                let opened = open_file(self.dir()?, name, OFlags::WRONLY, false, is_known)?;
                opened.0.set_len(0)?;
                return HostFolder::content(opened);
            }
        };
        let mode = Mode::from_raw_mode(mode);
        HostFolder::content(self.open_with(name, OFlags::WRONLY | flags, mode)?)
    }

    fn is_fresh(&self) -> Result<bool> {
        Ok(Names::are_none(self.dir()?)?)
    }

    fn make_folder(&self, name: &OsStr, mode: u32) -> Result<()> {
        Ok(calls::mkdirat(
            self.dir()?,
            name,
            Mode::from_raw_mode(mode),
        )?)
    }

    fn let_owner_in(&self, name: &OsStr) -> Result<()> {
        let held = self.look(name)?;
        let mode = Mode::from_raw_mode(held.status().mode & 0o7777 | 0o700);
        match held.status().kind() {
            fs::FileType::Directory => Ok(held.chmod(mode)?),
            _ => Err(Unreached::Replaced.into()),
        }
    }

    fn make_symlink(&self, name: &OsStr, target: &Path) -> Result<()> {
        Ok(fs::symlinkat(target, self.dir()?, name)?)
    }

    fn make_node(
        &self,
        name: &OsStr,
        kind: FileType,
        device: Option<DeviceNumber>,
        mode: u32,
    ) -> Result<()> {
        let kind = match kind {
            FileType::Fifo => fs::FileType::Fifo,
            FileType::Socket => fs::FileType::Socket,
            FileType::CharDevice => fs::FileType::CharacterDevice,
            FileType::BlockDevice => fs::FileType::BlockDevice,
            FileType::File | FileType::Directory | FileType::Symlink => {
                return Err(Problem::new("not a special file"));
            }
        };
        let device = device.map_or(0, |device| fs::makedev(device.major, device.minor));
        let mode = Mode::from_raw_mode(mode);
        calls::mknodat(self.dir()?, name, kind, mode, device).map_err(|errno| {
            let problem = Problem::from(errno);
            if errno == Errno::PERM {
                problem.with_next("only root can make device nodes on the host")
            } else {
                problem
            }
        })
    }

    fn make_link(&self, name: &OsStr, first: &Landed) -> Result<()> {
        let Landed::Host(first) = first else {
            return Err(Problem::new("Invalid cross-device link"));
        };
        let held = first.folder.held(&first.name, first.id)?;
        let own = (first.folder.dir()?, &*first.name);
        Ok(held.link(own, (self.dir()?, name))?)
    }

    fn landed(&self, name: &OsStr, id: Id) -> Landed {
        Landed::Host(HostFile {
            folder: self.clone(),
            name: name.to_owned(),
            id,
        })
    }

    fn remove(&self, name: &OsStr) -> Result<()> {
        Ok(calls::unlinkat(self.dir()?, name)?)
    }

    fn set(
        &self,
        name: &OsStr,
        made: (FileType, Option<DeviceNumber>),
        change: &Change,
    ) -> Result<Vec<Refused>> {
        let held = self.look(name)?;
        let found = meta_of(held.status())?;
        if (found.kind, found.device) != made {
            return Err(Unreached::Replaced.into());
        }
        apply(
            change,
            &Holder::Host(held.attributes()),
            |uid, gid| held.chown(uid, gid),
            // The mode of a link is meaningless and cannot be set.
            |mode| match found.kind {
                FileType::Symlink => Ok(()),
                _ => held.chmod(mode),
            },
            |times| held.set_times(times),
        )
    }

    fn set_own(&self, change: &Change) -> Result<Vec<Refused>> {
        apply_to(self.dir()?, change)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::SystemTime;

    use super::*;

    /// A directory with a file that is dear.
    fn folder() -> (tempfile::TempDir, HostFolder) {
        let dir = tempfile::tempdir().unwrap();
        let dear = dir.path().join("dear");
        std::fs::write(&dear, b"dear").unwrap();
        std::fs::set_permissions(dear, PermissionsExt::from_mode(0o600)).unwrap();
        let folder = HostFolder::open(dir.path()).unwrap();
        (dir, folder)
    }

    #[track_caller]
    fn assert_dear(dir: &tempfile::TempDir) {
        let dear = dir.path().join("dear");
        let meta = dear.symlink_metadata().unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.nlink()), (0o600, 1));
        assert_eq!(std::fs::read(dear).unwrap(), b"dear");
    }

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn a_link_below_the_target_is_not_written_through() {
        let (dir, folder) = folder();
        symlink("dear", dir.path().join("link")).unwrap();
        let dear = folder.meta(name("dear"), false).unwrap().id;
        let link = folder.meta(name("link"), false).unwrap().id;
        for how in [Create::New, Create::Existing(dear), Create::Existing(link)] {
            assert!(folder.create(name("link"), 0o644, how).is_err(), "{how:?}");
        }
        assert_dear(&dir);
    }

    /// What was just created gets its attributes, whatever is there by now does not.
    #[test]
    fn attributes_are_not_set_through_what_replaced_a_name() {
        let change = Change {
            mode: Some(0o666),
            times: Some((SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH)),
            ..Change::default()
        };
        for kind in [FileType::Fifo, FileType::Socket] {
            let (dir, folder) = folder();
            folder.make_node(name("made"), kind, None, 0o600).unwrap();
            folder.set(name("made"), (kind, None), &change).unwrap();
            let made = dir.path().join("made");
            assert_eq!(made.symlink_metadata().unwrap().mode() & 0o777, 0o666);
            for replace in [
                |dir: &Path| symlink("dear", dir.join("made")),
                |dir: &Path| std::fs::hard_link(dir.join("dear"), dir.join("made")),
            ] {
                std::fs::remove_file(&made).unwrap();
                replace(dir.path()).unwrap();
                assert!(folder.set(name("made"), (kind, None), &change).is_err());
                let meta = dir.path().join("dear").metadata().unwrap();
                assert_eq!(meta.mode() & 0o777, 0o600, "{kind:?}");
                assert_ne!(meta.mtime(), 0, "{kind:?}");
            }
        }
    }

    #[test]
    fn what_replaced_a_source_is_not_read() {
        let (dir, folder) = folder();
        std::fs::write(dir.path().join("file"), b"public").unwrap();
        symlink("target", dir.path().join("link")).unwrap();
        let known = |of: &str| folder.meta(name(of), false).unwrap();
        let (file, link) = (known("file"), known("link"));
        assert!(folder.open(name("file"), false, &file).is_ok());
        assert_eq!(
            folder.link_target(name("link"), &link).unwrap(),
            Path::new("target")
        );
        let at = |of: &str| dir.path().join(of);
        // Made before the old one goes: an inode number is used anew at once, within a tick of the clock.
        symlink("dear", at("other")).unwrap();
        std::fs::rename(at("other"), at("link")).unwrap();
        assert!(folder.link_target(name("link"), &link).is_err());
        assert!(folder.holder(name("link"), &link).is_err());
        // A fifo, which nobody writes to, does not stop the copy.
        folder
            .make_node(name("fifo"), FileType::Fifo, None, 0o600)
            .unwrap();
        for by in ["dear", "link", "fifo"] {
            std::fs::rename(at(by), at("file")).unwrap();
            assert!(folder.open(name("file"), false, &file).is_err(), "{by}");
        }
    }

    #[test]
    fn a_hard_link_is_one_to_the_file_that_was_made() {
        for by in ["file", "directory"] {
            let (dir, folder) = folder();
            let at = |of: &str| dir.path().join(of);
            std::fs::create_dir(at("outside")).unwrap();
            std::fs::rename(at("dear"), at("outside/made")).unwrap();
            folder.make_folder(name("sub"), 0o755).unwrap();
            let sub = folder.folder(name("sub"), false).unwrap();
            drop(sub.create(name("made"), 0o644, Create::New).unwrap());
            let made = sub.meta(name("made"), false).unwrap();
            let landed = sub.landed(name("made"), made.id);
            folder.make_link(name("second"), &landed).unwrap();
            assert_eq!(folder.meta(name("second"), false).unwrap().id, made.id);
            match by {
                "file" => {
                    std::fs::remove_file(at("sub/made")).unwrap();
                    symlink("../outside/made", at("sub/made")).unwrap();
                }
                _ => {
                    std::fs::rename(at("sub"), at("away")).unwrap();
                    symlink("outside", at("sub")).unwrap();
                    // It is no longer open.
                    folder.tree.close_all();
                }
            }
            assert!(folder.make_link(name("third"), &landed).is_err(), "{by}");
            assert!(at("third").symlink_metadata().is_err(), "{by}");
            std::fs::rename(at("outside/made"), at("dear")).unwrap();
            assert_dear(&dir);
        }
    }

    #[test]
    fn a_symbolic_link_gets_another_name() {
        let (_dir, folder) = folder();
        folder.make_symlink(name("one"), Path::new("dear")).unwrap();
        let one = folder.meta(name("one"), false).unwrap();
        folder
            .make_link(name("two"), &folder.landed(name("one"), one.id))
            .unwrap();
        let two = folder.meta(name("two"), false).unwrap();
        assert_eq!((two.id, two.kind), (one.id, FileType::Symlink));
    }

    #[test]
    fn a_directory_that_was_just_made_is_empty() {
        let (_dir, folder) = folder();
        folder.make_folder(name("sub"), 0o755).unwrap();
        assert!(
            folder
                .folder(name("sub"), false)
                .unwrap()
                .is_fresh()
                .unwrap()
        );
        assert!(!folder.is_fresh().unwrap());
    }

    #[test]
    fn directories_that_were_replaced_are_not_opened_again() {
        let (dir, folder) = folder();
        let at = |of: &str| dir.path().join(of);
        for sub in ["a", "a/b", "other", "other/b"] {
            std::fs::create_dir(at(sub)).unwrap();
        }
        let a = folder.folder(name("a"), false).unwrap();
        let b = a.folder(name("b"), false).unwrap();
        folder.tree.close_all();
        drop(b.names().unwrap());
        std::fs::rename(at("a"), at("away")).unwrap();
        for by in ["other", "link"] {
            symlink("away", at("link")).unwrap();
            std::fs::rename(at(by), at("a")).unwrap();
            folder.tree.close_all();
            assert!(b.names().is_err(), "{by}");
            let _ = (
                std::fs::remove_dir_all(at("a")),
                std::fs::remove_file(at("link")),
            );
        }
        std::fs::rename(at("away"), at("a")).unwrap();
        drop(b.names().unwrap());
    }
}
