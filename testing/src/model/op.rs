//! An operation of the driver.

use std::fmt;

use super::subject::{Advice, FallocateMode, FileKind, Flush, Form, Handle, RenameMode};

/// A path, printed as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Path(pub Vec<u8>);

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.escape_ascii().to_string();
        match text.char_indices().nth(60) {
            Some((at, _)) => write!(f, "{}...({} bytes)", &text[..at], self.0.len()),
            None => f.write_str(&text),
        }
    }
}

/// Data of a write, defined by its length and the seed of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Length in bytes.
    pub len: usize,
    /// Seed of the bytes.
    pub seed: u64,
}

impl Data {
    /// The bytes.
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        fastrand::Rng::with_seed(self.seed).fill(&mut bytes);
        bytes
    }
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the calls of `Subject`
pub enum Op {
    Create(Path, u32),
    Mkdir(Path, u32),
    Symlink(Path, Path),
    Mknod(Path, FileKind, u32, (u32, u32)),
    Link(Path, Path),
    Unlink(Path),
    Rmdir(Path),
    Rename(Path, Path, RenameMode),
    Write(Path, Handle, Form, u64, Data),
    Append(Path, Handle, Data),
    Read(Path, Handle, u64, usize),
    Flush(Path, Flush),
    CopyRange(Path, u64, Path, u64, Handle, u64),
    Truncate(Path, u64),
    Fallocate(Path, FallocateMode, u64, u64),
    Seek(Path, u64),
    Stat(Path),
    ReadLink(Path),
    ReadDir(Path),
    SetAttributes(Path, Option<u32>, Option<(u32, u32)>),
    SetModified(Path, (i64, u32)),
    Keep(usize, Path, Handle),
    WriteKept(usize, Form, u64, Data),
    AppendKept(usize, Data),
    ReadKept(usize, u64, usize),
    TruncateKept(usize, u64),
    FlushKept(usize, Flush),
    AdviseKept(usize, Advice, u64, u64),
    CloseKept(usize),
    Sync,
    Reopen,
}
