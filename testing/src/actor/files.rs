//! Calls on open files: opening, reading, writing, seeking.
//!
//! `open FILE P FLAGS [MODE]`, `dup FILE FILE`, `close FILE`, `write FILE DATA [MIS]`, `read FILE LENGTH`,
//! `pwrite FILE AT DATA [MIS]`, `pread FILE AT LENGTH [MIS]`, `pwritev2 FILE AT|- DATA FLAGS`, `preadv2 FILE
//! AT|- LENGTH FLAGS`, `writev FILE DATA…`, `seek FILE set|cur|end|data|hole OFFSET`, `setfl FILE FLAGS`,
//! `getfl FILE`, `content P` (a whole file), `put P DATA` (creates or truncates a file and writes it), `fill
//! FILE` (writes at the current position until that fails: the errno, and how many times 8 MiB were written).
//! Buffers are page-aligned plus MIS bytes, for O_DIRECT.

use std::io::{IoSlice, IoSliceMut};

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use super::ranges::look_at;
use super::words::printed;
use super::{Answer, State, Words, done, errno_name};

/// Page size: the largest alignment that O_DIRECT requires.
const PAGE: usize = 4096;

/// A buffer at a given offset from a page boundary.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    fn new(length: usize, off: usize) -> Self {
        let bytes = vec![0xEE; length + 2 * PAGE];
        let start = bytes.as_ptr().align_offset(PAGE) + off;
        Self { bytes, start }
    }

    fn holding(data: &[u8], off: usize) -> Self {
        let mut memory = Self::new(data.len(), off);
        memory.slice(data.len()).copy_from_slice(data);
        memory
    }

    fn slice(&mut self, length: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + length]
    }
}

impl State {
    pub(super) fn files(&mut self, words: &Words) -> Option<Answer> {
        Some(match words.text(0) {
            "open" => self.open(words),
            "dup" => rustix::io::fcntl_dupfd_cloexec(self.file(words.text(1)), 0).map(|file| {
                self.files.insert(words.text(2).to_owned(), file);
                String::new()
            }),
            "close" => {
                let open = self.files.remove(words.text(1));
                open.map(|_| String::new()).ok_or(Errno::BADF)
            }
            "write" => self.write(words, None, 2),
            "pwrite" => self.write(words, Some(words.number(2)), 3),
            "read" => self.read(words, None, 2),
            "pread" => self.read(words, Some(words.number(2)), 3),
            "pwritev2" => self.write_with_flags(words),
            "preadv2" => self.read_with_flags(words),
            "writev" => {
                let data: Vec<Vec<u8>> = (2..words.count()).map(|at| words.data(at)).collect();
                let slices: Vec<IoSlice<'_>> = data.iter().map(|d| IoSlice::new(d)).collect();
                rustix::io::writev(self.file(words.text(1)), &slices).map(|n| n.to_string())
            }
            "seek" => self.seek(words),
            "setfl" => done(rustix::fs::fcntl_setfl(
                self.file(words.text(1)),
                words.flags(2),
            )),
            "getfl" => rustix::fs::fcntl_getfl(self.file(words.text(1))).map(|flags| {
                let seen =
                    flags & (OFlags::RWMODE | OFlags::APPEND | OFlags::DIRECT | OFlags::DSYNC);
                format!("{:o}", seen.bits())
            }),
            "fill" => self.fill(words),
            "content" => content(words),
            "put" => put(words),
            _ => return None,
        })
    }

    fn open(&mut self, words: &Words) -> Answer {
        let flags: OFlags = words.flags(3);
        let mode = if words.count() > 4 {
            words.mode(4)
        } else {
            Mode::empty()
        };
        let file = rustix::fs::open(words.path(2), flags | OFlags::CLOEXEC, mode)?;
        self.files.insert(words.text(1).to_owned(), file);
        Ok(String::new())
    }

    fn write(&self, words: &Words, at: Option<u64>, data: usize) -> Answer {
        let file = self.file(words.text(1));
        let bytes = words.data(data);
        let mut memory = Memory::holding(&bytes, off(words, data + 1));
        let memory = memory.slice(bytes.len());
        let written = match at {
            Some(at) => rustix::io::pwrite(file, memory, at),
            None => rustix::io::write(file, memory),
        };
        written.map(|n| n.to_string())
    }

    fn read(&self, words: &Words, at: Option<u64>, length: usize) -> Answer {
        let file = self.file(words.text(1));
        let bytes = usize::try_from(words.number(length)).expect("a length");
        let mut memory = Memory::new(bytes, off(words, length + 1));
        let memory = memory.slice(bytes);
        let read = match at {
            Some(at) => rustix::io::pread(file, &mut *memory, at),
            None => rustix::io::read(file, &mut *memory),
        };
        read.map(|n| format!("{n} {}", printed(&memory[..n])))
    }

    fn write_with_flags(&self, words: &Words) -> Answer {
        let data = words.data(3);
        let mut memory = Memory::holding(&data, 0);
        let slices = [IoSlice::new(memory.slice(data.len()))];
        let flags: ReadWriteFlags = words.flags(4);
        rustix::io::pwritev2(self.file(words.text(1)), &slices, place(words), flags)
            .map(|n| n.to_string())
    }

    fn read_with_flags(&self, words: &Words) -> Answer {
        let length = usize::try_from(words.number(3)).expect("a length");
        let mut memory = Memory::new(length, 0);
        let memory = memory.slice(length);
        let flags: ReadWriteFlags = words.flags(4);
        let file = self.file(words.text(1));
        let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(memory)], place(words), flags);
        read.map(|n| format!("{n} {}", printed(&memory[..n])))
    }

    fn fill(&self, words: &Words) -> Answer {
        let data = vec![b'f'; 64 << 10];
        let mut written = 0;
        loop {
            match rustix::io::write(self.file(words.text(1)), &data) {
                Ok(n) => written += n,
                Err(errno) => {
                    let (errno, times) = (errno_name(errno), written >> 23);
                    return Ok(format!("{errno} after {times} times 8 MiB"));
                }
            }
        }
    }

    fn seek(&self, words: &Words) -> Answer {
        let signed = || words.text(3).parse().expect("an offset");
        let to = match words.text(2) {
            "set" => SeekFrom::Start(words.number(3)),
            "cur" => SeekFrom::Current(signed()),
            "end" => SeekFrom::End(signed()),
            "data" => SeekFrom::Data(words.number(3)),
            "hole" => SeekFrom::Hole(words.number(3)),
            other => panic!("seek from {other}"),
        };
        rustix::fs::seek(self.file(words.text(1)), to).map(|at| at.to_string())
    }
}

/// The offset of a call for which `-` (-1) means the file's own position.
fn place(words: &Words) -> u64 {
    match words.text(2) {
        "-" => u64::MAX,
        _ => words.number(2),
    }
}

fn off(words: &Words, at: usize) -> usize {
    if at < words.count() {
        usize::try_from(words.number(at)).expect("an offset in memory")
    } else {
        0
    }
}

fn content(words: &Words) -> Answer {
    let file = look_at(words, 1)?;
    let mut all = Vec::new();
    let mut part = vec![0; 1 << 20];
    loop {
        match rustix::io::read(&file, &mut part) {
            Ok(0) => return Ok(format!("{} {}", all.len(), printed(&all))),
            Ok(n) => all.extend_from_slice(&part[..n]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn put(words: &Words) -> Answer {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::open(words.path(1), flags, Mode::from_raw_mode(0o644))?;
    rustix::io::write(&file, &words.data(2)).map(|n| n.to_string())
}
