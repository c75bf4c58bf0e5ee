//! The diary of the process that is killed: a line before each operation, and a line when the call has
//! returned.
//!
//! Invariants:
//! - When [`Diary::begin`] or [`Diary::end`] returns, the complete line is in the file and survives the
//!   process, because it is in the kernel's page cache. Only the last line may be torn.
//! - The order of lines is a possible order of the calls: what ended before another began is above it.

#![allow(dead_code)] // each test uses a part of it

pub(crate) mod load;
pub(crate) mod model;
pub(crate) mod tree;

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use parking_lot::Mutex;

/// An operation of a thread of the load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Creates a file, with its number as owner.
    Create { id: u32, path: String },
    /// Writes whole sectors.
    Write {
        id: u32,
        at: u64,
        len: u64,
        version: u64,
        promise: Promise,
    },
    /// `fsync` or `fdatasync`.
    Sync { id: u32, promise: Promise },
    /// Renames a file, possibly over another one.
    Rename { id: u32, to: String },
    /// Removes a name.
    Unlink { id: u32 },
    /// Sets the size.
    Cut { id: u32, size: u64 },
    /// Sets an attribute to the value with this number, or removes it.
    Attribute {
        id: u32,
        name: u8,
        value: Option<u8>,
    },
    /// Syncs the volume.
    SyncAll,
    /// Syncs a directory, that is, its names.
    SyncDir { dir: String },
    /// Closes the volume.
    Close,
}

/// The promise about a file that a returned call makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Nothing.
    None,
    /// Its data, and the name it was created with.
    Data,
    /// Also its latest name.
    All,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create { id, path } => write!(f, "create {id} {path}"),
            Op::Write {
                id,
                at,
                len,
                version,
                promise,
            } => write!(f, "write {id} {at} {len} {version} {promise:?}"),
            Op::Sync { id, promise } => write!(f, "sync {id} {promise:?}"),
            Op::Rename { id, to } => write!(f, "rename {id} {to}"),
            Op::Unlink { id } => write!(f, "unlink {id}"),
            Op::Cut { id, size } => write!(f, "cut {id} {size}"),
            Op::Attribute { id, name, value } => match value {
                Some(value) => write!(f, "attribute {id} {name} {value}"),
                None => write!(f, "attribute {id} {name} none"),
            },
            Op::SyncAll => write!(f, "syncall"),
            Op::SyncDir { dir } => write!(f, "syncdir {dir}"),
            Op::Close => write!(f, "close"),
        }
    }
}

impl Op {
    fn parse(words: &[&str]) -> Option<Op> {
        let number = |index: usize| words.get(index)?.parse::<u64>().ok();
        let id = || Some(number(1)? as u32);
        let text = || Some((*words.get(2)?).to_owned());
        let promise = |index: usize| {
            let all = [Promise::None, Promise::Data, Promise::All];
            let word = *words.get(index)?;
            all.into_iter().find(|one| format!("{one:?}") == word)
        };
        Some(match *words.first()? {
            "create" => Op::Create {
                id: id()?,
                path: text()?,
            },
            "write" => Op::Write {
                id: id()?,
                at: number(2)?,
                len: number(3)?,
                version: number(4)?,
                promise: promise(5)?,
            },
            "sync" => Op::Sync {
                id: id()?,
                promise: promise(2)?,
            },
            "rename" => Op::Rename {
                id: id()?,
                to: text()?,
            },
            "unlink" => Op::Unlink { id: id()? },
            "cut" => Op::Cut {
                id: id()?,
                size: number(2)?,
            },
            "attribute" => Op::Attribute {
                id: id()?,
                name: number(2)? as u8,
                value: number(3).map(|value| value as u8),
            },
            "syncall" => Op::SyncAll,
            "syncdir" => Op::SyncDir {
                dir: (*words.get(1)?).to_owned(),
            },
            "close" => Op::Close,
            _ => return None,
        })
    }
}

/// An operation in the diary. Numbers are line numbers.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) thread: usize,
    pub(crate) begin: usize,
    /// `None`: the call had not returned.
    pub(crate) end: Option<usize>,
    pub(crate) op: Op,
}

/// The contents of a diary.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// The volume was opened.
    pub(crate) opened: bool,
    /// The volume was closed.
    pub(crate) closed: bool,
    /// In the order in which they began.
    pub(crate) entries: Vec<Entry>,
}

/// Reads the diary of a dead process.
pub(crate) fn read(path: &Path) -> Result<Read, String> {
    let mut read = Read::default();
    let text = match std::fs::read_to_string(path) {
        // Killed before it wrote anything.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(read),
        text => text.map_err(|e| e.to_string())?,
    };
    // Bytes after the last line's end are torn.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (line, entry) in whole.lines().enumerate() {
        let bad = || format!("line {line} of the diary: {entry}");
        let words: Vec<&str> = entry.split(' ').collect();
        let thread = || words.get(1)?.parse::<usize>().ok();
        match words[0] {
            "opened" => read.opened = true,
            "failed" => return Err(format!("the load failed: {entry}")),
            "b" => {
                let op = words.get(2..).and_then(Op::parse).ok_or_else(bad)?;
                read.entries.push(Entry {
                    thread: thread().ok_or_else(bad)?,
                    begin: line,
                    end: None,
                    op,
                });
            }
            "e" => {
                let thread = thread().ok_or_else(bad)?;
                let mut open = read.entries.iter_mut().rev();
                let entry = open.find(|entry| entry.thread == thread).ok_or_else(bad)?;
                entry.end = Some(line);
                read.closed |= entry.op == Op::Close;
            }
            "r" => {
                let thread = thread().ok_or_else(bad)?;
                let last = read.entries.iter().rposition(|e| e.thread == thread);
                read.entries.remove(last.ok_or_else(bad)?);
            }
            _ => return Err(bad()),
        }
    }
    Ok(read)
}

/// The writing end.
pub(crate) struct Diary {
    file: Mutex<File>,
}

impl Diary {
    /// Starts a new diary.
    pub(crate) fn create(path: &Path) -> Diary {
        let file = File::create(path).expect("a place for the diary");
        Diary {
            file: Mutex::new(file),
        }
    }

    fn line(&self, line: String) {
        let mut file = self.file.lock();
        file.write_all((line + "\n").as_bytes())
            .expect("the diary is written");
    }

    /// Records that the volume is open.
    pub(crate) fn opened(&self) {
        self.line("opened".into());
    }

    /// Records that a call misbehaved.
    pub(crate) fn failed(&self, what: &str) {
        self.line(format!("failed {}", what.replace('\n', " ")));
    }

    /// Records that `op` is about to be called.
    pub(crate) fn begin(&self, thread: usize, op: &Op) {
        self.line(format!("b {thread} {op}"));
    }

    /// Records that the thread's last operation has returned without effect.
    pub(crate) fn refused(&self, thread: usize) {
        self.line(format!("r {thread}"));
    }

    /// Records that the thread's last operation has returned.
    pub(crate) fn end(&self, thread: usize) {
        self.line(format!("e {thread}"));
    }
}
