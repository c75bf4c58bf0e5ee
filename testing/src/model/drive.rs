//! The driver: runs each operation on the subject and on the tree, and compares the results.

use std::collections::{BTreeMap, VecDeque};

use super::generate::{Bounds, Generator, Profile};
use super::op::{Data, Op};
use super::subject::{Answer, FallocateMode, Handle, Refusal, SLOTS, Subject};
use super::tree::{Body, Expected, Id, ROOT, Tree};

/// Number of operations printed on a difference.
const SHOWN: usize = 25;
/// Rough estimate of the metadata blocks that an operation may need.
const METADATA_BLOCKS: u64 = 24;

/// Runs random operations on a [`Tree`] and a [`Subject`] in parallel.
pub struct Driver {
    /// The expected contents of the subject.
    pub tree: Tree,
    /// The handle for reading files when comparing.
    pub reader: Handle,
    generator: Generator,
    pub(super) bounds: Bounds,
    recent: VecDeque<(u32, Op)>,
    count: u32,
    /// Number of operations for which the subject had no space.
    pub no_space: u32,
    /// Number of operations refused as unsupported.
    pub unsupported: u32,
}

pub(super) type Check = Result<(), String>;

impl Driver {
    /// A driver with an empty tree. `lost+found` is not part of the tree.
    pub fn new(seed: u64, profile: Profile, bounds: Bounds) -> Self {
        Self {
            tree: Tree::default(),
            reader: Handle::default(),
            generator: Generator::new(seed, profile, bounds),
            bounds,
            recent: VecDeque::new(),
            count: 0,
            no_space: 0,
            unsupported: 0,
        }
    }

    /// Runs `count` operations.
    ///
    /// # Errors
    /// The first difference, and the operations before it.
    pub fn run(&mut self, subject: &mut dyn Subject, count: u32) -> Check {
        for _ in 0..count {
            let op = self.generator.next(&self.tree);
            self.count += 1;
            if self.recent.len() == SHOWN {
                self.recent.pop_front();
            }
            self.recent.push_back((self.count, op.clone()));
            self.apply(subject, &op)
                .map_err(|what| self.report(&what))?;
        }
        Ok(())
    }

    /// `what`, followed by the last operations.
    pub fn report(&self, what: &str) -> String {
        let steps = self
            .recent
            .iter()
            .map(|(number, op)| format!("  {number}: {op:?}\n"));
        format!("{what}\nafter\n{}", steps.collect::<String>())
    }

    fn apply(&mut self, subject: &mut dyn Subject, op: &Op) -> Check {
        match op {
            Op::Create(..) | Op::Mkdir(..) | Op::Symlink(..) | Op::Mknod(..) | Op::Link(..) => {
                self.make(subject, op)
            }
            Op::Unlink(path) => {
                let answer = subject.unlink(&path.0);
                self.judge(subject, answer, 0, |tree| tree.unlink(&path.0))
            }
            Op::Rmdir(path) => {
                let answer = subject.rmdir(&path.0);
                self.judge(subject, answer, 0, |tree| tree.rmdir(&path.0))
            }
            Op::Rename(from, to, mode) => {
                let answer = subject.rename(&from.0, &to.0, *mode);
                self.judge(subject, answer, 0, |tree| {
                    tree.rename(&from.0, &to.0, *mode)
                })
            }
            Op::Truncate(path, len) => {
                let answer = subject.truncate(&path.0, *len);
                self.judge(subject, answer, 0, |tree| {
                    let id = tree.find_file(&path.0)?;
                    tree.content(id).set_len(*len);
                    tree.node_mut(id).modified = None;
                    Ok(())
                })
            }
            Op::Fallocate(path, mode, offset, len) => {
                self.fallocate(subject, &path.0, *mode, *offset, *len)
            }
            Op::Seek(path, offset) => self.seek(subject, &path.0, *offset),
            Op::Stat(path) => self.stat(subject, &path.0),
            Op::ReadLink(path) => {
                let answer = subject.read_link(&path.0);
                let expected =
                    self.tree
                        .find(&path.0)
                        .and_then(|id| match &self.tree.node(id).body {
                            Body::Symlink(target) => Ok(target.clone()),
                            _ => Err(vec![Refusal::Invalid]),
                        });
                same("read_link", answer, expected)
            }
            Op::ReadDir(path) => self.read_dir(subject, &path.0),
            Op::SetAttributes(path, mode, owner) => {
                let answer = subject.set_attributes(&path.0, *mode, *owner);
                self.judge(subject, answer, 0, |tree| {
                    let id = tree.find(&path.0)?;
                    let node = tree.node_mut(id);
                    if !matches!(node.body, Body::Symlink(_)) {
                        node.mode = mode.unwrap_or(node.mode);
                    }
                    node.owner = owner.or(node.owner);
                    Ok(())
                })
            }
            Op::SetModified(path, time) => {
                let answer = subject.set_modified(&path.0, *time);
                self.judge(subject, answer, 0, |tree| {
                    let id = tree.find(&path.0)?;
                    tree.node_mut(id).modified = Some(*time);
                    Ok(())
                })
            }
            Op::Write(..) | Op::Append(..) | Op::Read(..) | Op::Flush(..) | Op::CopyRange(..) => {
                self.content_call(subject, op)
            }
            Op::Keep(..)
            | Op::WriteKept(..)
            | Op::AppendKept(..)
            | Op::ReadKept(..)
            | Op::TruncateKept(..)
            | Op::FlushKept(..)
            | Op::AdviseKept(..)
            | Op::CloseKept(_) => self.kept(subject, op),
            Op::Sync => subject
                .sync()
                .map_err(|refusal| format!("sync: {refusal:?}")),
            Op::Reopen => self.reopen(subject),
        }
    }

    fn make(&mut self, subject: &mut dyn Subject, op: &Op) -> Check {
        let blocks = 1;
        match op {
            Op::Create(path, mode) => {
                let answer = subject.create(&path.0, *mode);
                self.judge(subject, answer, blocks, |tree| {
                    tree.make(&path.0, Body::File(super::Content::default()), *mode)
                        .map(drop)
                })
            }
            Op::Mkdir(path, mode) => {
                let answer = subject.mkdir(&path.0, *mode);
                let body = Body::Dir(BTreeMap::new(), ROOT);
                self.judge(subject, answer, blocks, |tree| {
                    tree.make(&path.0, body, *mode).map(drop)
                })
            }
            Op::Symlink(path, target) => {
                let answer = subject.symlink(&path.0, &target.0);
                let body = Body::Symlink(target.0.clone());
                self.judge(subject, answer, blocks, |tree| {
                    tree.make(&path.0, body, 0o777).map(drop)
                })
            }
            Op::Mknod(path, kind, mode, device) => {
                let answer = subject.mknod(&path.0, *kind, *mode, *device);
                let body = Body::Special(*kind, *device);
                self.judge(subject, answer, blocks, |tree| {
                    tree.make(&path.0, body, *mode).map(drop)
                })
            }
            Op::Link(from, to) => {
                let answer = subject.link(&from.0, &to.0);
                self.judge(subject, answer, blocks, |tree| tree.link(&from.0, &to.0))
            }
            other => Err(format!(
                "{other:?} does not create anything: a bug in the test"
            )),
        }
    }

    /// Compares an answer with that of the tree for the same operation. `blocks` is the space that the
    /// operation may need.
    pub(super) fn judge(
        &mut self,
        subject: &mut dyn Subject,
        answer: Answer<()>,
        blocks: u64,
        change: impl FnOnce(&mut Tree) -> Expected<()>,
    ) -> Check {
        if answer == Err(Refusal::NoSpace) {
            return self.check_full(subject, blocks);
        }
        same("", answer, change(&mut self.tree))
    }

    /// Checks that an answer of "no space" was justified.
    pub(super) fn check_full(&mut self, subject: &mut dyn Subject, blocks: u64) -> Check {
        self.no_space += 1;
        let space = subject
            .space()
            .map_err(|refusal| format!("space: {refusal:?}"))?;
        if self.bounds.exclusive
            && space.free_inodes > 0
            && space.free_blocks > blocks + METADATA_BLOCKS * self.ratio() + blocks / 64
        {
            return Err(format!("no space for {blocks} blocks, with {space:?}"));
        }
        Ok(())
    }

    /// Blocks of a cluster.
    fn ratio(&self) -> u64 {
        self.bounds.cluster_bytes / self.bounds.block_bytes
    }

    /// The most blocks that this many bytes take.
    pub(super) fn blocks(&self, bytes: u64) -> u64 {
        (bytes / self.bounds.cluster_bytes + 2) * self.ratio()
    }

    pub(super) fn written(
        &mut self,
        subject: &mut dyn Subject,
        answer: Answer<usize>,
        id: Expected<Id>,
        offset: u64,
        data: Data,
    ) -> Check {
        if answer == Err(Refusal::NoSpace) {
            // The failed attempt may have changed the time.
            if let Ok(id) = id {
                self.tree.node_mut(id).modified = None;
            }
            return self.check_full(subject, self.blocks(data.len as u64));
        }
        let (id, n) = match (answer, id) {
            (Ok(n), Ok(id)) => (id, n),
            (answer, id) => return same("write", answer.map(drop), id.map(drop)),
        };
        if n > data.len || n == 0 && data.len > 0 {
            return Err(format!("wrote {n} of {} bytes", data.len));
        }
        if n < data.len {
            self.check_full(subject, self.blocks((data.len - n) as u64))?;
        }
        self.tree.content(id).write(offset, &data.bytes()[..n]);
        self.tree.node_mut(id).modified = None;
        Ok(())
    }

    pub(super) fn was_read(
        &mut self,
        answer: Answer<usize>,
        id: Expected<Id>,
        offset: u64,
        bytes: &[u8],
    ) -> Check {
        let id = match (&answer, id) {
            (Ok(_), Ok(id)) => id,
            (_, id) => return same("read", answer.map(drop), id.map(drop)),
        };
        let mut expected = vec![0; bytes.len()];
        let n = self.tree.content(id).read(offset, &mut expected);
        same("read", answer, Ok(n))?;
        differs(&bytes[..n], &expected[..n], offset)
    }

    fn fallocate(
        &mut self,
        subject: &mut dyn Subject,
        path: &[u8],
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Check {
        let answer = subject.fallocate(path, mode, offset, len);
        if answer == Err(Refusal::Unsupported)
            && !self.bounds.extents
            && self.tree.find_file(path).is_ok()
        {
            self.unsupported += 1;
            return Ok(());
        }
        if answer == Err(Refusal::NoSpace) {
            self.check_full(subject, self.blocks(len))?;
            return self.half_allocated(subject, path, mode, offset, len);
        }
        let block = self.bounds.cluster_bytes;
        let whole = offset.is_multiple_of(block) && len.is_multiple_of(block);
        self.judge(subject, answer, 0, |tree| {
            let id = tree.find_file(path)?;
            let content = tree.content(id);
            let (size, end) = (content.len(), offset.saturating_add(len));
            match mode {
                FallocateMode::Allocate => content.set_len(size.max(end)),
                FallocateMode::KeepSize => {}
                FallocateMode::PunchHole => content.zero(offset, len),
                FallocateMode::ZeroRange => {
                    content.zero(offset, len);
                    content.set_len(size.max(end));
                }
                FallocateMode::Collapse if whole && end < size => content.collapse(offset, len),
                FallocateMode::Insert if whole && offset < size => content.insert(offset, len),
                FallocateMode::Collapse | FallocateMode::Insert => {
                    return Err(vec![Refusal::Invalid]);
                }
            }
            tree.node_mut(id).modified = None;
            Ok(())
        })
    }

    /// After an allocation that ran out of space: part of it may be done, but only zeros may have been added.
    fn half_allocated(
        &mut self,
        subject: &mut dyn Subject,
        path: &[u8],
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Check {
        let id = self
            .tree
            .find_file(path)
            .map_err(|_| "no space in what is no file".to_owned())?;
        let size = self.tree.content(id).len();
        let now = subject
            .stat(path)
            .map_err(|refusal| format!("stat: {refusal:?}"))?
            .len_bytes;
        let may_grow = matches!(mode, FallocateMode::Allocate | FallocateMode::ZeroRange);
        if now != size && !(may_grow && (size..=offset + len).contains(&now)) {
            return Err(format!(
                "{mode:?} without space resulted in a size of {now} instead of {size}"
            ));
        }
        self.tree.content(id).set_len(now);
        self.tree.node_mut(id).modified = None;
        if mode != FallocateMode::ZeroRange {
            return Ok(());
        }
        let mut bytes = vec![0; len as usize];
        let n = subject
            .read(path, self.reader, offset, &mut bytes)
            .map_err(|refusal| format!("read: {refusal:?}"))?;
        let mut old = vec![0; n];
        self.tree.content(id).read(offset, &mut old);
        if let Some(at) = (0..n).find(|at| bytes[*at] != 0 && bytes[*at] != old[*at]) {
            return Err(format!(
                "byte {} is neither zero nor unchanged",
                offset + at as u64
            ));
        }
        self.tree.content(id).write(offset, &bytes[..n]);
        Ok(())
    }

    fn seek(&mut self, subject: &mut dyn Subject, path: &[u8], offset: u64) -> Check {
        let (data, hole) = (
            subject.seek_data(path, offset),
            subject.seek_hole(path, offset),
        );
        let id = match self.tree.find_file(path) {
            Ok(id) => id,
            Err(expected) => return same("seek", data.map(drop), Err(expected)),
        };
        let content = self.tree.content(id);
        let size = content.len();
        let data = data.map_err(|refusal| format!("seek_data: {refusal:?}"))?;
        let hole = hole.map_err(|refusal| format!("seek_hole: {refusal:?}"))?;
        if data.is_some_and(|data| data < offset || data >= size) {
            return Err(format!(
                "data at {data:?}, sought from {offset}, size {size}"
            ));
        }
        if let Some(at) = content.first_nonzero(offset, data.unwrap_or(size)) {
            return Err(format!(
                "seek_data from {offset} gave {data:?}, but byte {at} is data"
            ));
        }
        match hole {
            None if offset >= size => Ok(()),
            Some(hole) if offset < size && (offset..=size).contains(&hole) => {
                match content.first_nonzero(hole, (hole + 1).min(size)) {
                    Some(at) => Err(format!(
                        "seek_hole from {offset} gave {hole}, but byte {at} is data"
                    )),
                    None => Ok(()),
                }
            }
            other => Err(format!(
                "hole at {other:?}, sought from {offset}, size {size}"
            )),
        }
    }

    fn reopen(&mut self, subject: &mut dyn Subject) -> Check {
        for slot in 0..SLOTS {
            self.kept(subject, &Op::CloseKept(slot))?;
        }
        subject
            .reopen()
            .map_err(|refusal| format!("reopen: {refusal:?}"))
    }
}

/// Checks that the answer is the expected one, or one of the expected refusals.
pub(super) fn same<T: PartialEq + std::fmt::Debug>(
    call: &str,
    answer: Answer<T>,
    expected: Expected<T>,
) -> Check {
    let right = match (&answer, &expected) {
        (Ok(answer), Ok(expected)) => answer == expected,
        (Err(refusal), Err(expected)) => expected.contains(refusal),
        _ => false,
    };
    if right {
        Ok(())
    } else {
        Err(format!("{call} answered {answer:?}, expected {expected:?}"))
    }
}

fn differs(bytes: &[u8], expected: &[u8], offset: u64) -> Check {
    match bytes
        .iter()
        .zip(expected)
        .position(|(byte, expected)| byte != expected)
    {
        None => Ok(()),
        Some(at) => {
            let wrong = bytes
                .iter()
                .zip(expected)
                .filter(|(byte, expected)| byte != expected)
                .count();
            let (byte, expected) = (bytes[at], expected[at]);
            Err(format!(
                "byte {} is {byte:#x}, expected {expected:#x}; {wrong} wrong",
                offset + at as u64
            ))
        }
    }
}
