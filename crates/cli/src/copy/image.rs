//! An image's side of a copy.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};

use throughline::{Attributes, DeviceNumber, Dir, File, FileType, Metadata};

use super::side::{Change, Content, Create, Folder, Id, Landed, Meta};
use crate::problem::{Problem, Result};

/// A directory of an image.
pub(crate) struct ImageFolder {
    dir: Dir,
    /// The image's number in this run.
    image: usize,
}

impl ImageFolder {
    /// A directory of the image with that number.
    pub(crate) fn new(dir: Dir, image: usize) -> ImageFolder {
        ImageFolder { dir, image }
    }

    fn meta_of(&self, meta: &Metadata) -> Meta {
        meta_of(meta, self.image)
    }

    fn content(&self, file: File) -> Box<dyn Content> {
        Box::new(ImageContent {
            file,
            image: self.image,
        })
    }
}

impl Folder for ImageFolder {
    fn names(&self) -> Result<Box<dyn Iterator<Item = Result<OsString>> + '_>> {
        // Names that lead out of the directory are refused below.
        Ok(Box::new(
            self.dir
                .entries()?
                .map(|entry| Ok(entry?.file_name().to_owned())),
        ))
    }

    fn own(&self) -> Result<Meta> {
        Ok(self.meta_of(&self.dir.own_metadata()?))
    }

    fn meta(&self, name: &OsStr, follow: bool) -> Result<Meta> {
        let meta = if follow {
            self.dir.metadata(name)?
        } else {
            self.dir.symlink_metadata(name)?
        };
        Ok(self.meta_of(&meta))
    }

    fn folder(&self, name: &OsStr, follow: bool) -> Result<Box<dyn Folder>> {
        if !follow && self.dir.symlink_metadata(name)?.is_symlink() {
            return Err(Problem::new("Not a directory"));
        }
        Ok(Box::new(ImageFolder {
            dir: self.dir.open_dir(name)?,
            image: self.image,
        }))
    }

    fn open(&self, name: &OsStr, follow: bool) -> Result<Box<dyn Content>> {
        if !follow && self.dir.symlink_metadata(name)?.is_symlink() {
            return Err(Problem::new("Too many levels of symbolic links"));
        }
        Ok(self.content(self.dir.open_file(name)?))
    }

    fn link_target(&self, name: &OsStr) -> Result<PathBuf> {
        Ok(self.dir.read_link(name)?)
    }

    fn create(&self, name: &OsStr, mode: u32, how: Create) -> Result<Box<dyn Content>> {
        let attributes = Attributes::new().mode(mode);
        let file = match how {
            Create::New => self.dir.create_new(name, &attributes)?,
            Create::Existing | Create::Through => {
                if how == Create::Existing && self.dir.symlink_metadata(name)?.is_symlink() {
                    return Err(Problem::new("Too many levels of symbolic links"));
                }
                let file = self.dir.open_file(name)?;
                file.set_len(0)?;
                file
            }
        };
        Ok(self.content(file))
    }

    fn make_folder(&self, name: &OsStr, mode: u32) -> Result<()> {
        self.dir.create_dir(name, &Attributes::new().mode(mode))?;
        Ok(())
    }

    fn make_symlink(&self, name: &OsStr, target: &Path) -> Result<()> {
        Ok(self.dir.symlink(target, name, &Attributes::new())?)
    }

    fn make_node(
        &self,
        name: &OsStr,
        kind: FileType,
        device: Option<DeviceNumber>,
        mode: u32,
    ) -> Result<()> {
        Ok(self
            .dir
            .make_node(name, kind, device, &Attributes::new().mode(mode))?)
    }

    fn make_link(&self, name: &OsStr, first: &Landed) -> Result<()> {
        match first {
            Landed::Image(ino) => Ok(self.dir.link_inode(*ino, name)?),
            Landed::Host(_) => Err(Problem::new("Invalid cross-device link")),
        }
    }

    fn landed(&self, name: &OsStr) -> Result<Landed> {
        Ok(Landed::Image(self.dir.symlink_metadata(name)?.ino()))
    }

    fn remove(&self, name: &OsStr) -> Result<()> {
        Ok(self.dir.remove_file(name)?)
    }

    fn set(&self, name: &OsStr, change: &Change) -> Result<()> {
        Ok(self.dir.set_symlink_attributes(name, &attributes(change))?)
    }

    fn set_own(&self, change: &Change) -> Result<()> {
        Ok(self.dir.set_own_attributes(&attributes(change))?)
    }
}

/// A regular file of an image.
struct ImageContent {
    file: File,
    image: usize,
}

impl Content for ImageContent {
    fn image_file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn meta(&self) -> Result<Meta> {
        Ok(meta_of(&self.file.metadata()?, self.image))
    }

    fn is_stream(&self) -> bool {
        false
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self.file.read_at(offset_bytes, buffer)?)
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.file.write_all_at(offset_bytes, bytes)?)
    }

    fn next_data(&self, offset_bytes: u64) -> Result<Option<Range<u64>>> {
        match self.file.seek_data(offset_bytes)? {
            Some(start) => Ok(Some(start..self.file.seek_hole(start)?.unwrap_or(u64::MAX))),
            None => Ok(None),
        }
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        Ok(self.file.set_len(len_bytes)?)
    }

    fn set(&self, change: &Change) -> Result<()> {
        Ok(self.file.set_attributes(&attributes(change))?)
    }
}

fn attributes(change: &Change) -> Attributes {
    let mut attributes = Attributes::new();
    if let Some((uid, gid)) = change.owner {
        attributes = attributes.uid(uid).gid(gid);
    }
    if let Some(mode) = change.mode {
        attributes = attributes.mode(mode);
    }
    if let Some((accessed, modified)) = change.times {
        attributes = attributes.accessed(accessed).modified(modified);
    }
    attributes
}

fn meta_of(meta: &Metadata, image: usize) -> Meta {
    Meta {
        id: Id::Image(image, meta.ino()),
        kind: meta.file_type(),
        device: meta.device(),
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
        links: meta.links().into(),
        len_bytes: meta.len(),
        allocated_bytes: meta.blocks_512().saturating_mul(512),
        accessed: meta.accessed(),
        modified: meta.modified(),
    }
}
