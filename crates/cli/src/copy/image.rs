//! The image side of a copy.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use throughline::{Attributes, DeviceNumber, Dir, File, FileOptions, FileType, Metadata, NewNode};
use throughline_forms::owner::Owner;

use super::extended::{Holder, Refused};
use super::pump::ALIGN_BYTES;
use super::side::{Change, Content, Create, Folder, Id, Landed, Meta};
use crate::commands::chown;
use crate::problem::{Problem, Result};

/// A directory of an image.
pub(crate) struct ImageFolder {
    dir: Dir,
    /// The index of the image in this run.
    image: usize,
    /// The owner and umask of new names. They are read once, because reading the owner for each file would
    /// cost two system calls.
    owned: Attributes,
    long_calls: LongCalls,
}

/// The path of long reads and writes of an image's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongCalls {
    /// Straight between the copy's buffers and the device: a file that is copied once gains nothing from a
    /// cache, which would take memory and copy each byte once more.
    Direct,
    /// Through throughline's page cache.
    Cached,
}

impl ImageFolder {
    /// Wraps a directory of the image with that index. `umask`: permission bits that new names do not get,
    /// unless the directory has a default ACL.
    pub(crate) fn new(dir: Dir, image: usize, umask: u32, long_calls: LongCalls) -> ImageFolder {
        ImageFolder {
            dir,
            image,
            owned: Attributes::new()
                .umask(umask)
                .uid(rustix::process::geteuid().as_raw())
                .gid(rustix::process::getegid().as_raw()),
            long_calls,
        }
    }

    /// The attributes of a new name.
    fn attributes(&self, mode: u32) -> Attributes {
        self.owned.clone().mode(mode)
    }

    fn meta_of(&self, meta: &Metadata) -> Meta {
        meta_of(meta, self.image)
    }

    fn content(&self, file: File) -> Box<dyn Content> {
        Box::new(ImageContent::new(file, self.image, self.long_calls))
    }
}

impl Folder for ImageFolder {
    fn names(&self) -> Result<Box<dyn Iterator<Item = Result<OsString>> + '_>> {
        // Names that lead out of the directory are refused when they are used.
        Ok(Box::new(
            self.dir.entries()?.map(|entry| Ok(entry?.file_name())),
        ))
    }

    fn adds_names_alone(&self) -> bool {
        true
    }

    fn own(&self) -> Result<Meta> {
        Ok(self.meta_of(&self.dir.metadata(".")?))
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
            owned: self.owned.clone(),
            long_calls: self.long_calls,
        }))
    }

    fn open(&self, name: &OsStr, follow: bool, _known: &Meta) -> Result<Box<dyn Content>> {
        if !follow && self.dir.symlink_metadata(name)?.is_symlink() {
            return Err(Problem::new("Too many levels of symbolic links"));
        }
        Ok(self.content(self.dir.open_file(name)?))
    }

    fn link_target(&self, name: &OsStr, _known: &Meta) -> Result<PathBuf> {
        Ok(self.dir.read_link(name)?)
    }

    fn create(&self, name: &OsStr, mode: u32, how: Create) -> Result<Box<dyn Content>> {
        let file = match how {
            Create::New => {
                let new = self
                    .dir
                    .make_node(name, NewNode::File, &self.attributes(mode))?;
                new.open_file()?
            }
            Create::Existing(_) | Create::Through => {
                if how != Create::Through && self.dir.symlink_metadata(name)?.is_symlink() {
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
        self.dir
            .make_node(name, NewNode::Directory, &self.attributes(mode))?;
        Ok(())
    }

    fn let_owner_in(&self, name: &OsStr) -> Result<()> {
        let change = Change {
            mode: Some(self.meta(name, false)?.mode | 0o700),
            ..Change::default()
        };
        self.dir
            .set_symlink_attributes(name, &attributes(&change))?;
        Ok(())
    }

    fn make_symlink(&self, name: &OsStr, target: &Path) -> Result<()> {
        Ok(self.dir.symlink(target, name)?)
    }

    fn make_node(
        &self,
        name: &OsStr,
        kind: FileType,
        device: Option<DeviceNumber>,
        mode: u32,
    ) -> Result<()> {
        let kind = match (kind, device) {
            (FileType::Fifo, _) => NewNode::Fifo,
            (FileType::Socket, _) => NewNode::Socket,
            (FileType::CharDevice, Some(device)) => NewNode::CharDevice(device),
            (FileType::BlockDevice, Some(device)) => NewNode::BlockDevice(device),
            _ => return Err(Problem::new("Invalid argument")),
        };
        self.dir.make_node(name, kind, &self.attributes(mode))?;
        Ok(())
    }

    fn make_link(&self, name: &OsStr, first: &Landed) -> Result<()> {
        match first {
            Landed::Image(ino) => {
                let node = self.dir.volume().node_by_ino(*ino)?;
                Ok(self.dir.link_node(&node, name)?)
            }
            Landed::Host(_) => Err(Problem::new("Invalid cross-device link")),
        }
    }

    fn landed(&self, _name: &OsStr, id: Id) -> Landed {
        match id {
            Id::Image(_, ino) | Id::Host(_, ino) => Landed::Image(ino),
        }
    }

    fn remove(&self, name: &OsStr) -> Result<()> {
        Ok(self.dir.remove_file(name)?)
    }

    fn holder(&self, name: &OsStr, _known: &Meta) -> Result<Holder<'_>> {
        Ok(Holder::Node(self.dir.node(name)?))
    }

    fn own_holder(&self) -> Result<Holder<'_>> {
        Ok(Holder::Node(self.dir.node(".")?))
    }

    fn set(
        &self,
        name: &OsStr,
        _made: (FileType, Option<DeviceNumber>),
        change: &Change,
    ) -> Result<Vec<Refused>> {
        self.dir.set_symlink_attributes(name, &attributes(change))?;
        set_extended(change, || Ok(Holder::Node(self.dir.node(name)?)))
    }

    fn set_own(&self, change: &Change) -> Result<Vec<Refused>> {
        self.dir.set_attributes(".", &attributes(change))?;
        set_extended(change, || self.own_holder())
    }
}

/// A regular file of an image.
///
/// glibc frees allocations of at most 120 bytes without a lock if another thread made them (its "fast bins").
/// Workers free the contents of small files that the walk allocated; with a lock, they and the walk would
/// wait for each other. So a file is two short allocations.
pub(crate) struct ImageContent {
    file: Box<File>,
    image: usize,
    long_calls: LongCalls,
    /// The handle for direct calls, opened for the first one.
    direct: OnceLock<Box<File>>,
}

// With the check of their order, locks are larger.
#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<ImageContent>() <= 120 && size_of::<File>() <= 120);

/// Reads and writes of at least this many bytes count as long.
const LONG_BYTES: usize = 1 << 20;

impl ImageContent {
    /// A file of the image with that number.
    pub(crate) fn new(file: File, image: usize, long_calls: LongCalls) -> ImageContent {
        ImageContent {
            file: Box::new(file),
            image,
            long_calls,
            direct: OnceLock::new(),
        }
    }

    /// The handle for a call at `offset_bytes` with `memory`.
    fn handle(&self, offset_bytes: u64, memory: &[u8]) -> Result<&File> {
        let is_aligned = offset_bytes.is_multiple_of(ALIGN_BYTES as u64)
            && memory.as_ptr().addr().is_multiple_of(ALIGN_BYTES);
        if self.long_calls == LongCalls::Cached || memory.len() < LONG_BYTES || !is_aligned {
            return Ok(&self.file);
        }
        if let Some(direct) = self.direct.get() {
            return Ok(direct);
        }
        let direct = Box::new(self.file.reopen(FileOptions::new().direct(true))?);
        Ok(self.direct.get_or_init(|| direct))
    }
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

    fn has_holes(&self) -> bool {
        true
    }

    fn read_at(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<usize> {
        Ok(self
            .handle(offset_bytes, buffer)?
            .read_at(buffer, offset_bytes)?)
    }

    fn write_at(&self, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
        let handle = self.handle(offset_bytes, bytes)?;
        Ok(handle.write_all_at(bytes, offset_bytes)?)
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

    /// Writing errors of an image are reported when it is synced or closed.
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn holder(&self) -> Holder<'_> {
        Holder::Node(self.file.node())
    }

    fn set(&self, change: &Change) -> Result<Vec<Refused>> {
        self.file.set_attributes(&attributes(change))?;
        set_extended(change, || Ok(self.holder()))
    }
}

/// Called after the owner is set, which clears capabilities.
fn set_extended<'a>(
    change: &Change,
    holder: impl FnOnce() -> Result<Holder<'a>>,
) -> Result<Vec<Refused>> {
    if change.extended.is_empty() {
        return Ok(Vec::new());
    }
    let holder = holder()?;
    change.extended.give_lists(&holder)?;
    // Setting an ACL changes the permissions; restore the requested ones.
    if let (Holder::Node(node), Some(mode)) = (&holder, change.mode) {
        node.set_attributes(&Attributes::new().mode(mode))?;
    }
    Ok(change.extended.give_attributes(&holder))
}

fn attributes(change: &Change) -> Attributes {
    let mut attributes = chown::attributes(change.owner.unwrap_or(Owner::NONE));
    if change.owner.is_some() {
        // A set-id program loses its privileges with a change of owner.
        if change.mode.is_none() {
            attributes = attributes.drop_privileges();
        }
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
        links: meta.nlink().into(),
        len_bytes: meta.len(),
        allocated_bytes: meta.blocks_512().saturating_mul(512),
        accessed: meta.accessed(),
        modified: meta.modified(),
    }
}
