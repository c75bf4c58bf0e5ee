//! Listing directories: OPENDIR, READDIR, READDIRPLUS, FSYNCDIR.
//!
//! The position in a listing is a key of the volume that stays valid when the directory changes. So no state
//! is kept between two requests.

use std::sync::Arc;

use rustix::io::Errno;
use throughline::internal::VolumeLayers;
use throughline::{Error, FileType, Listed, Node, Volume};
use zerocopy::{FromBytes, IntoBytes};

use super::shown::Shown;
use super::{Answer, Answered, Request};
use crate::channel::Scratch;
use crate::nodes::Nodes;
use crate::wire::{Dirent, EntryOut, FSYNC_FDATASYNC, FsyncIn, InHeader, ReadIn};

/// See the head of this file.
pub(super) struct DirectoryRequests {
    pub(super) volume: Volume,
    pub(super) nodes: Arc<Nodes>,
    pub(super) shown: Arc<Shown>,
}

impl DirectoryRequests {
    /// After ENOSYS, the kernel opens directories without a request, and caches their listings.
    pub(super) fn open(&self) -> Answered {
        Err(Errno::NOSYS.into())
    }

    pub(super) fn fsync(&self, request: &Request<'_>) -> Answered {
        let (fsync, _) = request.argument::<FsyncIn>()?;
        let node = self.nodes.get(request.header.nodeid)?;
        node.sync(fsync.flags & FSYNC_FDATASYNC != 0)?;
        Answer::done()
    }

    pub(super) fn read(&self, header: &InHeader, scratch: &mut Scratch, plus: bool) -> Answered {
        let (read, _) = ReadIn::read_from_prefix(scratch.body(header)).map_err(|_| Errno::INVAL)?;
        let dir = self.nodes.get(header.nodeid)?;
        let room = scratch.reply_data();
        let room = room.get_mut(..read.size as usize).ok_or(Errno::INVAL)?;
        let mut page = Page::new(room);
        let mut from = read.offset;
        'page: loop {
            let names = match dir.list(from) {
                // The kernel counts the look-ups of the names that it receives, so names already in the page
                // are sent. The error is returned by the next request.
                Err(_) if page.used > 0 => break,
                names => names?,
            };
            if names.is_empty() {
                break;
            }
            for name in &names {
                if !page.has_room(name, plus) {
                    break 'page;
                }
                if plus {
                    page.put(self.listed_entry(&dir, name).as_bytes());
                }
                page.put_name(name);
                from = name.next;
            }
        }
        Ok(Answer::Data(page.used))
    }

    /// The attributes for a name. Empty for `.` and `..`, for a file that was removed meanwhile, and for an
    /// inode that cannot be read: the name is listed, and a look-up returns the error.
    fn listed_entry(&self, dir: &Node, name: &Listed) -> EntryOut {
        if matches!(name.name.as_slice(), b"." | b"..") {
            return EntryOut::default();
        }
        match dir.lookup_listed(name) {
            Ok(node) => {
                let entry = self.shown.entry_in(dir, &self.nodes, &node);
                entry.unwrap_or_default()
            }
            Err(error) => {
                if let Error::Corrupt(damage) = &error {
                    self.volume.fs().count_damage(damage);
                }
                EntryOut::default()
            }
        }
    }
}

/// The reply while it is filled.
pub(super) struct Page<'a> {
    room: &'a mut [u8],
    used: usize,
}

impl<'a> Page<'a> {
    pub(super) fn new(room: &'a mut [u8]) -> Page<'a> {
        Page { room, used: 0 }
    }

    pub(super) fn has_room(&self, name: &Listed, plus: bool) -> bool {
        let entry = if plus { size_of::<EntryOut>() } else { 0 };
        let name = (size_of::<Dirent>() + name.name.len()).next_multiple_of(8);
        self.used + entry + name <= self.room.len()
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.room[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }

    pub(super) fn put_name(&mut self, name: &Listed) {
        let dirent = Dirent {
            ino: name.ino,
            off: name.next,
            namelen: name.name.len() as u32,
            kind: kind(name.file_type),
        };
        self.put(dirent.as_bytes());
        self.put(&name.name);
        let end = self.used.next_multiple_of(8);
        self.room[self.used..end].fill(0);
        self.used = end;
    }
}

/// `DT_…` of `dirent.h`.
fn kind(file_type: Option<FileType>) -> u32 {
    match file_type {
        None => 0,
        Some(FileType::Fifo) => 1,
        Some(FileType::CharDevice) => 2,
        Some(FileType::Directory) => 4,
        Some(FileType::BlockDevice) => 6,
        Some(FileType::File) => 8,
        Some(FileType::Symlink) => 10,
        Some(FileType::Socket) => 12,
    }
}
