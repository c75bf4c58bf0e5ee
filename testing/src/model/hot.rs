//! Operations that collide: few files, few offsets in them, through handles of every kind.
//!
//! Uses its own random generator, so that the other operations of a seed do not change.

use fastrand::Rng;

use super::generate::{Bounds, Profile};
use super::op::{Data, Op, Path};
use super::subject::{Advice, FallocateMode, Flush, Form, Handle, RenameMode, SLOTS};
use super::tree::{Body, Id, Tree};

/// Number of contended files.
const FILES: usize = 6;
/// Boundaries of long folios, short folios and readahead windows.
const PLACES: [u64; 8] = [
    0,
    4 << 10,
    16 << 10,
    64 << 10,
    128 << 10,
    512 << 10,
    1 << 20,
    2 << 20,
];

pub(super) struct Hot {
    random: Rng,
    bounds: Bounds,
    /// Percentage of operations.
    share: u8,
    /// End of the last access of each kept file.
    cursors: [u64; SLOTS],
}

impl Hot {
    pub(super) fn new(seed: u64, profile: Profile, bounds: Bounds) -> Self {
        Self {
            random: Rng::with_seed(seed ^ 0x0070_6c61_6365_7300),
            bounds,
            share: if profile == Profile::Hot { 92 } else { 25 },
            cursors: [0; SLOTS],
        }
    }

    /// The next hot operation, in the chosen percentage of calls.
    pub(super) fn next(&mut self, tree: &Tree) -> Option<Op> {
        if self.random.u8(..100) >= self.share {
            return None;
        }
        let path = self.path();
        let Ok(id) = tree.find(&path.0) else {
            return Some(Op::Create(path, 0o644));
        };
        let Body::File(content) = &tree.node(id).body else {
            return Some(Op::Unlink(path));
        };
        let size = content.len();
        Some(match self.random.u8(..100) {
            0..22 => Op::Write(
                path,
                Handle::Direct,
                Form::Plain,
                self.offset(size),
                self.data(),
            ),
            22..30 => Op::Append(path, Handle::Direct, self.data()),
            30..44 => Op::Read(
                path,
                Handle::Direct,
                self.offset(size),
                self.len() as usize * 2,
            ),
            44..49 => Op::Truncate(path, self.offset(size)),
            49..55 => self.fallocate(path, size),
            55..58 => Op::Flush(path, self.flush(size)),
            58..61 => self.copy(tree, path, id, size),
            61 => Op::Unlink(path),
            62 => Op::Rename(path, self.path(), RenameMode::Replace),
            63 => Op::Rename(path, self.path(), RenameMode::Exchange),
            64 => Op::Seek(path, self.random.u64(..=size)),
            65 => Op::Stat(path),
            66 if self.random.u8(..8) == 0 => Op::Reopen,
            66 => Op::Sync,
            _ => self.kept(tree, path),
        })
    }

    /// Replaces the direct handle of an operation by a random one.
    pub(super) fn through_some_handle(&mut self, op: Op) -> Op {
        match op {
            Op::Write(path, _, _, offset, data) => {
                let handle = self.handle();
                Op::Write(path, handle, self.form(), offset, data)
            }
            Op::Append(path, _, data) => Op::Append(path, self.handle(), data),
            Op::Read(path, _, offset, len) => Op::Read(path, self.handle(), offset, len),
            Op::Keep(slot, path, _) => Op::Keep(slot, path, self.handle()),
            Op::WriteKept(slot, _, offset, data) => Op::WriteKept(slot, self.form(), offset, data),
            other => other,
        }
    }

    fn path(&mut self) -> Path {
        Path(format!("/h{}", self.random.usize(..FILES)).into_bytes())
    }

    fn handle(&mut self) -> Handle {
        match self.random.u8(..10) {
            0..7 => Handle::Buffered,
            7..9 => Handle::Direct,
            _ => Handle::Sync,
        }
    }

    fn form(&mut self) -> Form {
        match self.random.u8(..8) {
            0..3 => Form::Vectored,
            _ => Form::Plain,
        }
    }

    /// A hot offset or the end, or slightly beside it.
    fn offset(&mut self, size: u64) -> u64 {
        let block = self.bounds.block_bytes;
        let place = match self.random.u8(..10) {
            0..3 => size,
            3 => size / 2 / block * block,
            4 => self.random.u64(..=size),
            _ => PLACES[self.random.usize(..PLACES.len())],
        };
        let off = match self.random.u8(..10) {
            0 => 1,
            1 => block,
            2 => self.random.u64(..block),
            3 => self.random.u64(..16) * block,
            _ => 0,
        };
        match self.random.bool() {
            true => place.saturating_sub(off),
            false => place + off,
        }
    }

    fn len(&mut self) -> u64 {
        let block = self.bounds.block_bytes;
        let len = match self.random.u8(..20) {
            0..3 => self.random.u64(1..300),
            3 => block - 1,
            4 => block + 1,
            5..8 => block,
            8..12 => self.random.u64(1..12) * block,
            12..15 => self.random.u64(1..8 * block),
            15 => 4096,
            16 => 64 << 10,
            17 => (128 << 10) + 1,
            18 => self.random.u64(1..300 << 10),
            _ => self.random.u64(1..=self.bounds.long_bytes),
        };
        len.min(self.bounds.long_bytes)
    }

    fn data(&mut self) -> Data {
        Data {
            len: self.len() as usize,
            seed: self.random.u64(..),
        }
    }

    fn flush(&mut self, size: u64) -> Flush {
        match self.random.u8(..3) {
            0 => Flush::All,
            1 => Flush::Data,
            _ => Flush::Range(self.offset(size), self.len()),
        }
    }

    fn fallocate(&mut self, path: Path, size: u64) -> Op {
        let block = self.bounds.cluster_bytes;
        let (offset, len) = (self.offset(size), self.len());
        let (mode, whole) = match self.random.u8(..8) {
            0 => (FallocateMode::Allocate, false),
            1 => (FallocateMode::KeepSize, false),
            2 | 3 => (FallocateMode::PunchHole, false),
            4 | 5 => (FallocateMode::ZeroRange, false),
            6 => (FallocateMode::Collapse, true),
            _ => (FallocateMode::Insert, true),
        };
        let (offset, len) = match whole {
            true => (
                self.random.u64(..=size.min(2 << 20)) / block * block,
                len.min(8 * block).next_multiple_of(block),
            ),
            false => (offset, len),
        };
        Op::Fallocate(path, mode, offset, len)
    }

    fn copy(&mut self, tree: &Tree, from: Path, id: Id, size: u64) -> Op {
        let to = self.path();
        match tree.find_file(&to.0) {
            Ok(target) if target != id => Op::CopyRange(
                from,
                self.offset(size),
                to,
                self.offset(size),
                self.handle(),
                self.len(),
            ),
            _ => Op::Stat(to),
        }
    }

    /// An operation on a kept file, often where the last one ended, so that streams occur.
    fn kept(&mut self, tree: &Tree, path: Path) -> Op {
        let slot = self.random.usize(..SLOTS);
        let Some(id) = tree.kept[slot] else {
            self.cursors[slot] = 0;
            return Op::Keep(slot, path, Handle::Direct);
        };
        let size = match &tree.node(id).body {
            Body::File(content) => content.len(),
            _ => 0,
        };
        let anywhere = self.offset(size);
        let offset = match self.random.u8(..5) {
            0 | 1 => anywhere,
            _ if self.cursors[slot] < self.bounds.far_bytes.min(4 << 20) => self.cursors[slot],
            _ => 0,
        };
        match self.random.u8(..36) {
            0..13 => {
                let data = self.data();
                self.cursors[slot] = offset + data.len as u64;
                Op::WriteKept(slot, Form::Plain, offset, data)
            }
            13..16 => Op::AppendKept(slot, self.data()),
            16..28 => {
                let len = self.len();
                self.cursors[slot] = (offset + len).min(size);
                Op::ReadKept(slot, offset, len as usize)
            }
            28 => Op::TruncateKept(slot, anywhere),
            29 => Op::FlushKept(slot, self.flush(size)),
            30..33 => Op::AdviseKept(slot, self.advice(), anywhere, self.len() * 4),
            33 => Op::CloseKept(slot),
            _ => Op::Keep(slot, path, Handle::Direct),
        }
    }

    fn advice(&mut self) -> Advice {
        [
            Advice::Normal,
            Advice::Sequential,
            Advice::Random,
            Advice::WillNeed,
            Advice::DontNeed,
        ][self.random.usize(..5)]
    }
}
