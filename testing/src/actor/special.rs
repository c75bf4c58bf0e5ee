//! Special files: device nodes, FIFOs and sockets.
//!
//! `mknod P fifo|socket|char|block|file MODE [MAJOR MINOR]`, `bind NAME P`, `connect NAME P`,
//! `accept NAME AS`, `send NAME DATA`, `receive NAME LENGTH`, `hangup NAME`.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{CWD, FileType, makedev};
use rustix::io::Errno;

use super::words::printed;
use super::{Answer, State, Words, done, errno_of};

impl State {
    pub(super) fn special(&mut self, words: &Words) -> Option<Answer> {
        let name = || words.text(1).to_owned();
        Some(match words.text(0) {
            "mknod" => make_node(words),
            "bind" => UnixListener::bind(words.path(2))
                .map(|listener| {
                    self.listeners.insert(name(), listener);
                    String::new()
                })
                .map_err(|error| errno_of(&error)),
            "connect" => UnixStream::connect(words.path(2))
                .map(|stream| {
                    self.connections.insert(name(), stream);
                    String::new()
                })
                .map_err(|error| errno_of(&error)),
            "accept" => self
                .listeners
                .get(words.text(1))
                .ok_or_else(|| Errno::BADF.into())
                .and_then(UnixListener::accept)
                .map(|(stream, _)| {
                    self.connections.insert(words.text(2).to_owned(), stream);
                    String::new()
                })
                .map_err(|error| errno_of(&error)),
            "send" => match self.connections.get_mut(words.text(1)) {
                Some(stream) => stream
                    .write_all(&words.data(2))
                    .map(|()| String::new())
                    .map_err(|error| errno_of(&error)),
                None => Err(Errno::BADF),
            },
            "receive" => {
                let mut room = vec![0; usize::try_from(words.number(2)).expect("a length")];
                match self.connections.get_mut(words.text(1)) {
                    Some(stream) => stream
                        .read_exact(&mut room)
                        .map(|()| printed(&room))
                        .map_err(|error| errno_of(&error)),
                    None => Err(Errno::BADF),
                }
            }
            "hangup" => {
                self.connections.remove(words.text(1));
                self.listeners.remove(words.text(1));
                Ok(String::new())
            }
            _ => return None,
        })
    }
}

fn make_node(words: &Words) -> Answer {
    let kind = match words.text(2) {
        "fifo" => FileType::Fifo,
        "socket" => FileType::Socket,
        "char" => FileType::CharacterDevice,
        "block" => FileType::BlockDevice,
        "file" => FileType::RegularFile,
        other => panic!("a node of type {other}"),
    };
    let device = if words.count() > 4 {
        let number = |at| u32::try_from(words.number(at)).expect("a device number");
        makedev(number(4), number(5))
    } else {
        0
    };
    done(rustix::fs::mknodat(
        CWD,
        words.path(1),
        kind,
        words.mode(3),
        device,
    ))
}
