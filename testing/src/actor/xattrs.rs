//! Calls on extended attributes.
//!
//! `setxattr P NAME DATA [FLAGS]`, `getxattr P NAME [ROOM]`, `listxattr P [ROOM]`, `removexattr P NAME`; the
//! same with prefix `l` for a symbolic link itself, and with `f` and a FILE instead of a path. ROOM is the
//! buffer size; 0 asks for the length only.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::words::printed;
use super::{Answer, State, Words, done};

/// The object of a call.
enum Of<'a> {
    Path(&'a Path),
    Link(&'a Path),
    File(&'a OwnedFd),
}

impl Of<'_> {
    fn set(&self, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<(), Errno> {
        match self {
            Of::Path(path) => rustix::fs::setxattr(*path, name, value, flags),
            Of::Link(path) => rustix::fs::lsetxattr(*path, name, value, flags),
            Of::File(file) => rustix::fs::fsetxattr(file, name, value, flags),
        }
    }

    fn get(&self, name: &[u8], room: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Of::Path(path) => rustix::fs::getxattr(*path, name, room),
            Of::Link(path) => rustix::fs::lgetxattr(*path, name, room),
            Of::File(file) => rustix::fs::fgetxattr(file, name, room),
        }
    }

    fn list(&self, room: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Of::Path(path) => rustix::fs::listxattr(*path, room),
            Of::Link(path) => rustix::fs::llistxattr(*path, room),
            Of::File(file) => rustix::fs::flistxattr(file, room),
        }
    }

    fn remove(&self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Of::Path(path) => rustix::fs::removexattr(*path, name),
            Of::Link(path) => rustix::fs::lremovexattr(*path, name),
            Of::File(file) => rustix::fs::fremovexattr(file, name),
        }
    }
}

impl State {
    pub(super) fn xattrs(&mut self, words: &Words) -> Option<Answer> {
        let verb = words.text(0);
        if !verb.ends_with("xattr") {
            return None;
        }
        let (of, verb) = match verb.as_bytes()[0] {
            b'l' if verb != "listxattr" => (Of::Link(words.path(1)), &verb[1..]),
            b'f' => (Of::File(self.file(words.text(1))), &verb[1..]),
            _ => (Of::Path(words.path(1)), verb),
        };
        let room = |at: usize| {
            let room = if at < words.count() {
                words.number(at)
            } else {
                65_536
            };
            vec![0; usize::try_from(room).expect("a length")]
        };
        Some(match verb {
            "setxattr" => done(of.set(words.bytes(2), &words.data(3), words.flags(4))),
            "getxattr" => {
                let mut room = room(3);
                of.get(words.bytes(2), &mut room)
                    .map(|n| format!("{n} {}", printed(room.get(..n).unwrap_or_default())))
            }
            "listxattr" => {
                let mut room = room(2);
                of.list(&mut room)
                    .map(|n| format!("{n} {}", sorted(room.get(..n).unwrap_or_default())))
            }
            "removexattr" => done(of.remove(words.bytes(2))),
            other => panic!("no such call: {other}"),
        })
    }
}

/// The names of a list, sorted: their order is up to the file system.
fn sorted(list: &[u8]) -> String {
    let mut names: Vec<String> = list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    names.sort();
    names.join(" ")
}
