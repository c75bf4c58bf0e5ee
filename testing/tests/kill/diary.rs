//! What the process that is killed says about its work: a line before each operation, a line when the call has returned.
//!
//! Invariants:
//! - A line is in the file, whole, when [`Diary::begin`] or [`Diary::end`] returns, and stays there whatever becomes of the
//!   process: it is in the kernel's page cache. Only the last line may be torn.
//! - The order of lines is an order in which the calls may have happened: what ended before another began is above it.

use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use parking_lot::Mutex;

/// What a thread of the load does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Makes a file, whose owner is its number.
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
    /// Gives a file another name, which may have been another file's.
    Rename { id: u32, to: String },
    /// Takes the name away.
    Unlink { id: u32 },
    /// Sets the size.
    Cut { id: u32, size: u64 },
    /// Sets an attribute to the value of that number, or takes it away.
    Attribute {
        id: u32,
        name: u8,
        value: Option<u8>,
    },
    /// Syncs the volume.
    SyncAll,
    /// Syncs a directory: its names.
    SyncDir { dir: String },
    /// Closes the volume.
    Close,
}

/// What a file is promised when a call has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Nothing.
    None,
    /// Its data, and the name it was made with.
    Data,
    /// Its latest name too.
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

/// One operation, as the diary has it. Numbers are of lines.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) thread: usize,
    pub(crate) begin: usize,
    /// `None`: the call had not returned.
    pub(crate) end: Option<usize>,
    pub(crate) op: Op,
}

/// What was read of a diary.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// The volume was open.
    pub(crate) opened: bool,
    /// The volume was closed.
    pub(crate) closed: bool,
    /// In the order in which they began.
    pub(crate) entries: Vec<Entry>,
}

/// Reads what a process that is dead has written.
pub(crate) fn read(path: &Path) -> Result<Read, String> {
    let mut read = Read::default();
    let text = match std::fs::read_to_string(path) {
        // Killed before it could say anything.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(read),
        text => text.map_err(|e| e.to_string())?,
    };
    // What is behind the last line's end is torn.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (line, said) in whole.lines().enumerate() {
        let bad = || format!("line {line} of the diary: {said}");
        let words: Vec<&str> = said.split(' ').collect();
        let thread = || words.get(1)?.parse::<usize>().ok();
        match words[0] {
            "opened" => read.opened = true,
            "failed" => return Err(format!("the load failed: {said}")),
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
    /// Starts a new one.
    pub(crate) fn create(path: &Path) -> Diary {
        let file = File::create(path).expect("a place for the diary");
        Diary {
            file: Mutex::new(file),
        }
    }

    fn line(&self, line: String) {
        let mut file = self.file.lock();
        file.write_all((line + "\n").as_bytes())
            .expect("room for the diary");
    }

    /// The volume is open.
    pub(crate) fn opened(&self) {
        self.line("opened".into());
    }

    /// A call did what it must not.
    pub(crate) fn failed(&self, what: &str) {
        self.line(format!("failed {}", what.replace('\n', " ")));
    }

    /// `op` is about to be called.
    pub(crate) fn begin(&self, thread: usize, op: &Op) {
        self.line(format!("b {thread} {op}"));
    }

    /// The thread's last operation has returned, and done nothing.
    pub(crate) fn refused(&self, thread: usize) {
        self.line(format!("r {thread}"));
    }

    /// The thread's last operation has returned.
    pub(crate) fn end(&self, thread: usize) {
        self.line(format!("e {thread}"));
    }
}
