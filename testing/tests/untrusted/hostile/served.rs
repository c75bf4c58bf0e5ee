//! A mount's server on an untrusted image, without a kernel: the test sends the requests, over a socket.
//!
//! Some requests are as a kernel would send them, with nodes and handles that the server gave; some have
//! other nodes, handles or numbers; some are bytes at random. Every request that has a reply gets one.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use throughline::internal::OpenBlockDevice;
use throughline::{OpenOptions, Volume};
use throughline_device::BlockDevice;
use throughline_fuse::{MountOptions, Session};

use super::choices::Choices;

const REQUESTS: u32 = 120;
/// What the test offers in INIT, as Linux does: all that needs no ring.
const OFFERED: u64 = 0x007f_ffff | 1 << 25 | 1 << 29 | 1 << 30;
/// The longest reply.
const REPLY_BYTES: usize = 80 << 10;
const MAX_NODES: usize = 40;

/// Operations, by their numbers in `linux/fuse.h`.
mod op {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const READLINK: u32 = 5;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const SETXATTR: u32 = 21;
    pub(super) const GETXATTR: u32 = 22;
    pub(super) const LISTXATTR: u32 = 23;
    pub(super) const REMOVEXATTR: u32 = 24;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const SETLKW: u32 = 33;
    pub(super) const CREATE: u32 = 35;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BMAP: u32 = 37;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const IOCTL: u32 = 39;
    pub(super) const NOTIFY_REPLY: u32 = 41;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const READDIRPLUS: u32 = 44;
    pub(super) const RENAME2: u32 = 45;
    pub(super) const LSEEK: u32 = 46;
    pub(super) const COPY_FILE_RANGE: u32 = 47;
    pub(super) const SYNCFS: u32 = 50;
    pub(super) const STATX: u32 = 52;
    /// One more than the last.
    pub(super) const END: u32 = 54;
}

/// Serves an image to a sequence of requests. Returns how many succeeded.
pub(crate) fn run(device: &Arc<dyn BlockDevice>, mut choices: Choices<'_>) -> usize {
    let mut options = MountOptions::default();
    options.read_only = choices.below(8) == 0;
    let mut open = OpenOptions::new();
    open.write(!options.read_only).allow_unclean(true);
    let Ok(volume) = open.open_block_device(Arc::clone(device)) else {
        return 0;
    };
    let (mut kernel, session, to_shut) = Kernel::mounting(choices, volume, &options);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| session.run());
        for _ in 0..REQUESTS {
            if kernel.choices.is_spent() {
                break;
            }
            kernel.step();
        }
        to_shut.shutdown(Shutdown::Read).expect("the end");
        // It may fail to close a damaged volume.
        let _ = served.join().expect("no panic");
    });
    kernel.answered
}

/// A fuzzer's alarm interrupts calls.
fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

/// The part of the kernel.
pub(crate) struct Kernel<'a> {
    choices: Choices<'a>,
    end: UnixDatagram,
    unique: u64,
    /// Nodes that the server named, the root first.
    nodes: Vec<u64>,
    /// Handles that the server gave.
    handles: Vec<u64>,
    /// Requests that succeeded.
    answered: usize,
}

impl<'a> Kernel<'a> {
    /// A session whose requests come from a test, and what ends it when its reading side is shut down.
    pub(crate) fn mounting(
        choices: Choices<'a>,
        volume: Volume,
        options: &MountOptions,
    ) -> (Self, Session, UnixDatagram) {
        let (end, server) = UnixDatagram::pair().expect("a pair of sockets");
        let to_shut = server.try_clone().expect("a socket");
        let mut kernel = Kernel {
            choices,
            end,
            unique: 0,
            nodes: vec![1],
            handles: vec![0],
            answered: 0,
        };
        let init = [
            &7_u32.to_ne_bytes()[..],
            &40_u32.to_ne_bytes(),
            &words(&[128 << 10]),
        ]
        .concat();
        let flags = words(&[OFFERED as u32, (OFFERED >> 32) as u32]);
        kernel.send(op::INIT, 0, &[&init[..], &flags, &[0; 44]].concat());
        let session = Session::of_connection(volume, server.into(), Path::new("image"), options);
        let session = session.expect("a session");
        kernel.answer(op::INIT);
        (kernel, session, to_shut)
    }

    /// Sends a look-up of a name in the root directory.
    pub(crate) fn look_up(&mut self, name: &str) {
        self.send(op::LOOKUP, 1, &[name.as_bytes(), b"\0"].concat());
    }

    /// Waits for the reply of a look-up: whether there is such a name.
    pub(crate) fn found(&mut self) -> bool {
        self.answer(op::LOOKUP).is_some()
    }

    fn send(&mut self, number: u32, node: u64, body: &[u8]) {
        self.unique += 2;
        let len = u32::try_from(40 + body.len()).expect("short");
        let caller = self.choices.of(&[0, 1000]);
        let head = [
            words(&[len, number]),
            longs(&[self.unique, node]),
            words(&[caller, caller, std::process::id(), 0]),
        ];
        let message = [&head.concat()[..], body].concat();
        retried(|| self.end.send(&message)).expect("a request is sent");
    }

    /// Waits for the reply to the last request; `None`: it is an error.
    fn answer(&mut self, number: u32) -> Option<Vec<u8>> {
        let unanswered = [
            op::FORGET,
            op::INTERRUPT,
            op::NOTIFY_REPLY,
            op::BATCH_FORGET,
        ];
        if unanswered.contains(&number) {
            return None;
        }
        let mut buf = vec![0; REPLY_BYTES + 4096];
        loop {
            let len = retried(|| self.end.recv(&mut buf)).expect("a reply");
            let at = |at: usize| buf[at..at + 8].try_into().expect("8 bytes");
            // Others are notifications.
            if u64::from_ne_bytes(at(8)) == self.unique {
                let is_error = buf[4..8] != [0; 4];
                return (!is_error).then(|| buf[16..len].to_vec());
            }
        }
    }

    fn node(&mut self) -> u64 {
        match self.choices.word_below(20) {
            0 => self.choices.below(40),
            1 => self.choices.any(),
            _ => self.choices.of(&self.nodes),
        }
    }

    fn handle(&mut self) -> u64 {
        match self.choices.word_below(12) {
            0 => self.choices.below(9),
            1 => self.choices.any(),
            _ => self.choices.of(&self.handles),
        }
    }

    /// A name of the images, or another one.
    fn name(&mut self) -> Vec<u8> {
        const NAMES: [&str; 14] = [
            "few",
            "many",
            "pieces",
            "plain",
            "inline",
            "short",
            "long",
            "small",
            "sub",
            "deep",
            "leaf",
            "lost+found",
            "..",
            "far",
        ];
        let mut name = match self.choices.word_below(8) {
            0 => vec![b'n'; self.choices.index(300)],
            1 => (0..self.choices.index(20))
                .map(|_| self.choices.any_byte())
                .collect(),
            2 | 3 => format!("new-{}", self.choices.word_below(30)).into_bytes(),
            _ => self.choices.of(&NAMES).into(),
        };
        name.push(0);
        name
    }

    /// A place or length in a file.
    fn place(&mut self) -> u64 {
        match self.choices.word_below(5) {
            0 => 0,
            1 => self.choices.below(64) * 1024,
            2 => 1 << self.choices.word_below(64),
            3 => self.choices.any(),
            _ => self.choices.below(300_000),
        }
    }

    fn step(&mut self) {
        let number = match self.choices.word_below(4) {
            // What leads to new nodes and handles.
            0 => self.choices.of(&[
                op::LOOKUP,
                op::READDIRPLUS,
                op::OPEN,
                op::CREATE,
                op::OPENDIR,
            ]),
            _ => op::LOOKUP + self.choices.word_below(op::END - op::LOOKUP),
        };
        // They end the connection, or wait for what does not come.
        if matches!(number, op::INIT | op::DESTROY | op::SETLKW) {
            return;
        }
        let mut body = match self.choices.word_below(30) {
            0 => (0..self.choices.index(200))
                .map(|_| self.choices.any_byte())
                .collect(),
            _ => self.body(number),
        };
        if self.choices.word_below(30) == 0 {
            body.truncate(self.choices.index(body.len() + 1));
        }
        let node = self.node();
        self.send(number, node, &body);
        if let Some(reply) = self.answer(number) {
            self.answered += 1;
            self.learn(number, &reply);
        }
    }

    /// Keeps the nodes and handles of a reply.
    fn learn(&mut self, number: u32, reply: &[u8]) {
        let long = |at: usize| {
            let bytes = reply.get(at..at + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let node = match number {
            op::LOOKUP
            | op::CREATE
            | op::MKDIR
            | op::MKNOD
            | op::SYMLINK
            | op::LINK
            | op::READDIRPLUS => long(0),
            _ => None,
        };
        let handle = match number {
            op::OPEN | op::OPENDIR => long(0),
            op::CREATE => long(128),
            _ => None,
        };
        for (new, all) in [(node, &mut self.nodes), (handle, &mut self.handles)] {
            let Some(new) = new.filter(|new| *new != 0) else {
                continue;
            };
            if all.len() == MAX_NODES {
                let at = 1 + self.choices.index(MAX_NODES - 1);
                all.swap_remove(at);
            }
            all.push(new);
        }
    }

    /// The body of a request as a kernel makes it.
    fn body(&mut self, number: u32) -> Vec<u8> {
        let (handle, node) = (self.handle(), self.node());
        let (at, len) = (self.place(), self.place());
        let size = self.choices.word_below(REPLY_BYTES as u32 - 16384);
        let mode = 0o600 | self.choices.any_word() & 0o7777;
        match number {
            op::LOOKUP | op::UNLINK | op::RMDIR | op::REMOVEXATTR => self.name(),
            op::FORGET => longs(&[self.choices.below(3)]),
            op::BATCH_FORGET => [words(&[1, 0]), longs(&[node, 1])].concat(),
            op::GETATTR => [words(&[self.choices.word_below(2), 0]), longs(&[handle])].concat(),
            op::SETATTR => self.setattr(handle, mode),
            op::SYMLINK => [self.name(), self.name()].concat(),
            op::MKNOD => {
                let kind = self
                    .choices
                    .of(&[0o100_000, 0o010_000, 0o020_000, 0o140_000]);
                [words(&[kind | mode, 0x0401, 0, 0]), self.name()].concat()
            }
            op::MKDIR => [words(&[mode, 0]), self.name()].concat(),
            op::RENAME => [longs(&[node]), self.name(), self.name()].concat(),
            op::RENAME2 => {
                let head = [longs(&[node]), words(&[self.choices.word_below(4), 0])].concat();
                [head, self.name(), self.name()].concat()
            }
            op::LINK => [longs(&[node]), self.name()].concat(),
            op::OPEN | op::OPENDIR => words(&[self.choices.word_below(3) | self.flags(), 0]),
            op::CREATE => {
                let flags = 0o100 | 2 | self.flags();
                [words(&[flags, 0o100_000 | mode, 0, 0]), self.name()].concat()
            }
            op::READ | op::READDIR | op::READDIRPLUS => [
                longs(&[handle, at]),
                words(&[size, 0]),
                longs(&[0]),
                words(&[0, 0]),
            ]
            .concat(),
            op::WRITE => {
                let size = self.choices.word_below(20_000);
                let head = [
                    longs(&[handle, at]),
                    words(&[size, 0]),
                    longs(&[0]),
                    words(&[2, 0]),
                ];
                [head.concat(), vec![7; size as usize]].concat()
            }
            op::RELEASE | op::RELEASEDIR => {
                [longs(&[handle]), words(&[0, 0]), longs(&[0])].concat()
            }
            op::FSYNC | op::FLUSH => longs(&[handle, 0, 0]),
            op::SETXATTR => {
                let size = self.choices.of(&[0, 5, 300, 3000]);
                let head = words(&[size, self.choices.word_below(3), 0, 0]);
                [head, self.xattr(), vec![1; size as usize]].concat()
            }
            op::GETXATTR => [words(&[size, 0]), self.xattr()].concat(),
            op::LISTXATTR => words(&[size, 0]),
            op::BMAP => [longs(&[at]), words(&[1024, 0])].concat(),
            op::IOCTL => {
                let command = [0x8008_6601, 0x4008_6602, 0xc020_660b, 0x801c_581f];
                let command = self.choices.of(&command);
                let head = [longs(&[handle]), words(&[0, command]), longs(&[0])].concat();
                [head, words(&[64, 64]), vec![self.choices.any_byte(); 64]].concat()
            }
            op::FALLOCATE => {
                let mode = self.choices.of(&[0, 1, 3, 8, 16, 17, 32]);
                [longs(&[handle, at & !1023, len & !1023]), words(&[mode, 0])].concat()
            }
            op::LSEEK => [
                longs(&[handle, at]),
                words(&[3 + self.choices.word_below(2), 0]),
            ]
            .concat(),
            op::COPY_FILE_RANGE => longs(&[handle, at, node, self.handle(), len, len & 0xffff, 0]),
            op::STATX => [words(&[0, 0]), longs(&[handle]), words(&[0, 0x7ff])].concat(),
            op::READLINK | op::STATFS => Vec::new(),
            op::SYNCFS => longs(&[0]),
            _ => vec![0; self.choices.index(64)],
        }
    }

    /// Flags of open(2): to cut, to append, direct.
    fn flags(&mut self) -> u32 {
        self.choices.of(&[0, 0o1000, 0o2000, 0o40_000])
    }

    fn xattr(&mut self) -> Vec<u8> {
        let of = [
            "user.",
            "trusted.",
            "security.",
            "system.posix_acl_access",
            "",
        ];
        let mut name = self.choices.of(&of).as_bytes().to_vec();
        name.extend(self.choices.word_below(5).to_string().as_bytes());
        name.push(0);
        name
    }

    fn setattr(&mut self, handle: u64, mode: u32) -> Vec<u8> {
        let valid = self.choices.any_word() & 0x1fff;
        let (size, owner) = (self.place(), self.choices.word_below(70_000));
        let head = [words(&[valid, 0]), longs(&[handle, size, 0, 1, 2, 3])].concat();
        [head, words(&[4, 5, 6, mode, 0, owner, owner, 0])].concat()
    }
}
