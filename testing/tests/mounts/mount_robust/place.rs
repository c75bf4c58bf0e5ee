//! A mount as the target of the kill test's load, through ordinary system calls.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;
use rustix::process::Uid;
use rustix::thread::set_thread_res_uid;
use throughline_testing::attributes::Attributes;

use crate::diary::load::{self, Found, How};
use crate::diary::tree;
use crate::diary::{Op, Promise};

/// A directory with the volume.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    root: PathBuf,
}

impl Place {
    pub(crate) fn new(root: &Path) -> Place {
        Place {
            root: root.to_owned(),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// Makes the calls as another user, so that new files belong to that user. The process must be root.
fn as_user<R>(id: u32, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    set_thread_res_uid(None, Some(Uid::from_raw(id)), None)?;
    let result = call();
    set_thread_res_uid(None, Some(Uid::ROOT), None).expect("this thread was root before");
    result
}

fn flags(how: How) -> i32 {
    let mut flags = match how.promise {
        Promise::None => OFlags::empty(),
        Promise::Data => OFlags::DSYNC,
        Promise::All => OFlags::SYNC,
    };
    flags.set(OFlags::DIRECT, how.direct);
    flags.bits().cast_signed()
}

impl load::Place for Place {
    type File = File;
    type Error = io::Error;

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        std::fs::read_dir(self.path(dir))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn look(&self, path: &str) -> io::Result<Found> {
        let metadata = std::fs::metadata(self.path(path))?;
        let found = tree::attributes_of_path(&self.path(path))?;
        let attributes = Attributes::of(&found, metadata.mode());
        Ok(Found {
            path: path.to_owned(),
            id: metadata.uid(),
            size: metadata.len(),
            attributes: attributes.map_err(io::Error::other)?,
        })
    }

    fn create(&self, path: &str, id: u32) -> io::Result<()> {
        as_user(id, || File::create_new(self.path(path)).map(drop))
    }

    /// Half of the names are opened for reading too: the server chooses a different cache for those.
    fn open(&self, path: &str, how: How) -> io::Result<File> {
        let read = path.bytes().last().is_some_and(|last| last % 2 == 0);
        OpenOptions::new()
            .write(true)
            .read(read)
            .custom_flags(flags(how))
            .open(self.path(path))
    }

    fn write(&self, file: &File, at: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, at)
    }

    fn sync(&self, file: &File, data_only: bool) -> io::Result<()> {
        match data_only {
            true => file.sync_data(),
            false => file.sync_all(),
        }
    }

    fn set_len(&self, file: &File, size: u64) -> io::Result<()> {
        file.set_len(size)
    }

    fn set_attribute(&self, path: &str, name: &str, value: Option<&[u8]>) -> io::Result<bool> {
        let path = self.path(path);
        let done = match value {
            Some(value) => rustix::fs::setxattr(&path, name, value, XattrFlags::empty()),
            None => rustix::fs::removexattr(&path, name),
        };
        match done {
            Err(Errno::NOSPC) => Ok(false),
            done => Ok(done.map(|()| true)?),
        }
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from), self.path(to))
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(path))
    }

    fn wide(&self, dir: &str) -> Op {
        Op::SyncDir {
            dir: dir.to_owned(),
        }
    }

    fn sync_wide(&self, dir: &str) -> io::Result<()> {
        File::open(self.path(dir))?.sync_all()
    }
}
