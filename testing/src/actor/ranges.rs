//! Calls on ranges of files: sizes, allocation, copies, durability.
//!
//! `truncate P SIZE`, `ftruncate FILE SIZE`, `fallocate FILE FLAGS|- AT LENGTH`, `copy FROM AT|- TO AT|-
//! LENGTH` (`copy_file_range`; `-` is the file's own position), `sendfile TO FROM LENGTH`, `splice TO FROM
//! LENGTH` (through a pipe), `clone TO FROM` (FICLONE), `fsync FILE`, `fdatasync FILE`, `holes FILE` (data
//! ranges and holes), `blocks P` (in units of 512 bytes), `advise FILE` (`POSIX_FADV_DONTNEED` for the whole
//! file).

use std::fmt::Write;

use rustix::fs::{Advice, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::pipe::SpliceFlags;

use super::{Answer, State, Words, done};

impl State {
    pub(super) fn ranges(&mut self, words: &Words) -> Option<Answer> {
        Some(match words.text(0) {
            "truncate" => truncate(words),
            "ftruncate" => done(rustix::fs::ftruncate(
                self.file(words.text(1)),
                words.number(2),
            )),
            "fallocate" => {
                let flags = match words.text(2) {
                    "-" => FallocateFlags::empty(),
                    _ => words.flags(2),
                };
                let file = self.file(words.text(1));
                done(rustix::fs::fallocate(
                    file,
                    flags,
                    words.number(3),
                    words.number(4),
                ))
            }
            "copy" => self.copy(words),
            "sendfile" => {
                let (to, from) = (self.file(words.text(1)), self.file(words.text(2)));
                let length = usize::try_from(words.number(3)).expect("a length");
                rustix::fs::sendfile(to, from, None, length).map(|n| n.to_string())
            }
            "splice" => self.splice(words),
            "clone" => {
                let (to, from) = (self.file(words.text(1)), self.file(words.text(2)));
                done(rustix::fs::ioctl_ficlone(to, from))
            }
            "fsync" => done(rustix::fs::fsync(self.file(words.text(1)))),
            "fdatasync" => done(rustix::fs::fdatasync(self.file(words.text(1)))),
            "advise" => done(rustix::fs::fadvise(
                self.file(words.text(1)),
                0,
                None,
                Advice::DontNeed,
            )),
            "holes" => self.holes(words),
            "blocks" => rustix::fs::lstat(words.path(1)).map(|stat| stat.st_blocks.to_string()),
            _ => return None,
        })
    }

    fn copy(&self, words: &Words) -> Answer {
        let place = |at: usize| (words.text(at) != "-").then(|| words.number(at));
        let (mut from, mut to) = (place(2), place(4));
        let length = usize::try_from(words.number(5)).expect("a length");
        let copied = rustix::fs::copy_file_range(
            self.file(words.text(1)),
            from.as_mut(),
            self.file(words.text(3)),
            to.as_mut(),
            length,
        );
        copied.map(|n| n.to_string())
    }

    fn splice(&self, words: &Words) -> Answer {
        let (to, from) = (self.file(words.text(1)), self.file(words.text(2)));
        let length = usize::try_from(words.number(3)).expect("a length");
        let (out, into) = rustix::pipe::pipe()?;
        let moved = rustix::pipe::splice(from, None, into, None, length, SpliceFlags::empty())?;
        let moved = rustix::pipe::splice(out, None, to, None, moved, SpliceFlags::empty());
        moved.map(|n| n.to_string())
    }

    /// The map of a file according to `SEEK_DATA` and `SEEK_HOLE`.
    fn holes(&self, words: &Words) -> Answer {
        let file = self.file(words.text(1));
        let mut text = String::new();
        let mut at = 0;
        loop {
            match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(data) => {
                    at = rustix::fs::seek(file, SeekFrom::Hole(data))?;
                    write!(text, "[{data}..{at})").expect("a string can grow");
                }
                Err(Errno::NXIO) => return Ok(text),
                Err(errno) => return Err(errno),
            }
        }
    }
}

/// Calls `truncate(2)` itself instead of open and `ftruncate`: permissions and errors differ.
fn truncate(words: &Words) -> Answer {
    let size = i64::try_from(words.number(2)).expect("a size");
    let cut = nix::unistd::truncate(words.path(1), size);
    done(cut.map_err(|errno| Errno::from_raw_os_error(errno as i32)))
}

/// Opens a file for a query.
pub(super) fn look_at(words: &Words, at: usize) -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(words.path(at), flags, Mode::empty())
}
