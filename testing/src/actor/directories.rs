//! Reading directories.
//!
//! `list P` (all names, sorted, with types), `opendir S P`, `next S N [ROOM]` (reads the next N names from
//! the current position, as after `seekdir`), `rest S [ROOM]` (reads all remaining names at once), `skim S`
//! (the same, without the count in the answer), `tell S NAME` and `return S NAME` (`telldir`, `seekdir`),
//! `rewind S`, `closedir S`, `count P` (number of names, including `.` and `..`). ROOM is the buffer size in
//! bytes. The order of names is up to the file system: `next` answers their number, and `seen S` answers the
//! names read since the last rewind, sorted, and the number of duplicates.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use super::words::printed;
use super::{Answer, State, Words};

/// Maximum number of names printed individually.
const NAMES: usize = 64;

/// An open directory.
pub(super) struct Stream {
    file: OwnedFd,
    at: u64,
    places: BTreeMap<String, u64>,
    seen: BTreeMap<String, u32>,
}

impl Stream {
    /// Reads at most `most` names from the current position.
    fn read(&mut self, most: usize, room: usize) -> Result<usize, Errno> {
        rustix::fs::seek(&self.file, SeekFrom::Start(self.at))?;
        let mut buffer = Vec::with_capacity(room);
        let mut names = RawDir::new(&self.file, buffer.spare_capacity_mut());
        let mut read = 0;
        while read < most {
            let Some(entry) = names.next() else { break };
            let entry = entry?;
            self.at = entry.next_entry_cookie();
            let name = printed(entry.file_name().to_bytes());
            *self
                .seen
                .entry(kind(entry.file_type()) + &name)
                .or_default() += 1;
            read += 1;
        }
        Ok(read)
    }

    fn perform(&mut self, words: &Words) -> Answer {
        match words.text(0) {
            "next" => {
                let most = usize::try_from(words.number(2)).expect("a count");
                return self.read(most, room(words, 3)).map(|n| n.to_string());
            }
            "skim" => return self.read(usize::MAX, room(words, 2)).map(|_| String::new()),
            "rest" => return self.read(usize::MAX, room(words, 2)).map(|n| n.to_string()),
            "seen" => return Ok(self.listing()),
            "tell" => drop(self.places.insert(words.text(2).to_owned(), self.at)),
            "return" => self.at = self.places[words.text(2)],
            _ => {
                self.at = 0;
                self.seen.clear();
            }
        }
        Ok(String::new())
    }

    fn listing(&self) -> String {
        let twice = self.seen.values().filter(|times| **times > 1).count();
        if self.seen.len() > NAMES {
            return format!("{} names, {twice} of them twice", self.seen.len());
        }
        let names: Vec<&str> = self.seen.keys().map(String::as_str).collect();
        format!("{twice} twice: {}", names.join(" "))
    }
}

impl State {
    pub(super) fn directories(&mut self, words: &Words) -> Option<Answer> {
        Some(match words.text(0) {
            "opendir" => open(words).map(|stream| {
                self.streams.insert(words.text(1).to_owned(), stream);
                String::new()
            }),
            "list" => all(words, 1).map(|stream| stream.listing()),
            "count" => all(words, 1).map(|stream| stream.seen.len().to_string()),
            "closedir" => {
                let open = self.streams.remove(words.text(1));
                open.map(|_| String::new()).ok_or(Errno::BADF)
            }
            "next" | "rest" | "skim" | "seen" | "tell" | "return" | "rewind" => {
                match self.streams.get_mut(words.text(1)) {
                    Some(stream) => stream.perform(words),
                    None => Err(Errno::BADF),
                }
            }
            _ => return None,
        })
    }
}

fn room(words: &Words, at: usize) -> usize {
    if at < words.count() {
        usize::try_from(words.number(at)).expect("room")
    } else {
        32 << 10
    }
}

fn opened(words: &Words, at: usize) -> Result<Stream, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = rustix::fs::open(words.path(at), flags, Mode::empty())?;
    Ok(Stream {
        file,
        at: 0,
        places: BTreeMap::new(),
        seen: BTreeMap::new(),
    })
}

fn open(words: &Words) -> Result<Stream, Errno> {
    opened(words, 2)
}

fn all(words: &Words, at: usize) -> Result<Stream, Errno> {
    let mut stream = opened(words, at)?;
    stream.read(usize::MAX, 32 << 10)?;
    Ok(stream)
}

/// The letter for a type, as in `ls -F`.
fn kind(kind: FileType) -> String {
    match kind {
        FileType::RegularFile => "",
        FileType::Directory => "/",
        FileType::Symlink => "@",
        FileType::Fifo => "|",
        FileType::Socket => "=",
        FileType::CharacterDevice => "c:",
        FileType::BlockDevice => "b:",
        FileType::Unknown => "?",
    }
    .to_owned()
}
