//! The calls of our own on the files of a mount: those whose cost a program of the system would hide.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::OFlags;

use crate::mounts::Session;
use crate::mounts::place::Place;
use crate::mounts::work::{NEW, together};
use crate::{Error, Result};

const FILE_BYTES: usize = 2048;
const BLOCK_BYTES: usize = 4096;
/// Reads for each MiB of the file.
const READS_PER_MIB: u64 = 1600;

/// What is done with each file of a directory.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Call {
    /// open with O_CREAT and O_EXCL, write, close
    Create,
    /// open, read, close
    Read,
    /// stat of a name that does not exist
    Missing,
    /// unlink
    Unlink,
    /// reading the directory, and stat of each name
    List,
    /// reading the directory, and removing each name (`rm -r`)
    Remove,
    /// Of one file, `file`: blocks at random offsets.
    ReadAt,
}

/// A call, by this many threads, each in a directory of its own.
#[derive(Clone, Copy)]
pub(super) struct Calls {
    pub(super) call: Call,
    /// The name of the directories, before the number of the thread.
    pub(super) dir: &'static str,
    pub(super) threads: usize,
}

impl Calls {
    /// Makes the calls on `size` files of all directories, or on a file of `size` MiB. Returns their rate.
    pub(super) fn per_second(&self, session: &Session<'_>, size: u64) -> Result<f64> {
        let all = match self.call {
            Call::ReadAt => size * READS_PER_MIB,
            _ => size,
        };
        let each = all / self.threads as u64;
        let (root, content) = (session.root(), &session.bench.source[..FILE_BYTES]);
        let spent = together(self.threads, |thread| match self.call {
            Call::ReadAt => read_at_random(root, thread, size, each),
            _ => self.of_thread(root, thread, each, content),
        })?;
        Ok((each * self.threads as u64) as f64 / spent.wall.as_secs_f64())
    }

    fn of_thread(&self, root: Place<'_>, thread: usize, files: u64, content: &[u8]) -> Result<()> {
        let name = format!("{}{thread}", self.dir);
        let dir = match self.call {
            Call::Create => root.make_dir(&name)?,
            _ => root.dir(&name)?,
        };
        let dir = Place::new(dir.as_fd());
        match self.call {
            Call::List => dir
                .names()?
                .iter()
                .try_for_each(|name| dir.stat(name).map(drop)),
            Call::Remove => {
                dir.names()?.iter().try_for_each(|name| dir.remove(name))?;
                root.remove_dir(&name)
            }
            _ => (0..files)
                .try_for_each(|number| self.one(dir, &format!("file-{number:06}"), content)),
        }
    }

    fn one(&self, dir: Place<'_>, name: &str, content: &[u8]) -> Result<()> {
        match self.call {
            Call::Create => Ok(dir
                .open(name, NEW | OFlags::EXCL)?
                .write_all_at(content, 0)?),
            Call::Missing => match dir.stat(&name.replace("file", "none")) {
                Ok(_) => Err(Error::new("a name that was never created exists")),
                Err(_) => Ok(()),
            },
            Call::Unlink => dir.remove(name),
            _ => Ok(dir
                .open(name, OFlags::RDONLY)?
                .read_exact_at(&mut [0; FILE_BYTES], 0)?),
        }
    }
}

/// Reads this many blocks. The offsets are the same for every contestant.
fn read_at_random(root: Place<'_>, thread: usize, file_mib: u64, reads: u64) -> Result<()> {
    let file = root.open("file", OFlags::RDONLY)?;
    let mut random = fastrand::Rng::with_seed(thread as u64);
    let (blocks, mut block) = ((file_mib << 20) / BLOCK_BYTES as u64, [0; BLOCK_BYTES]);
    for _ in 0..reads {
        file.read_exact_at(&mut block, random.u64(..blocks) * BLOCK_BYTES as u64)?;
    }
    Ok(())
}
