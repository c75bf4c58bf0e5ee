//! The one pass over the data: every byte goes from its source to its place in the image, and into a digest.
//!
//! Files are divided into slices of 4 MiB. A chunk is a slice, or the slices of several small files whose
//! places follow one another. Threads take chunks in the order of their places, read them, and write them: so
//! the device has several long ascending writes under way, and at most a chunk a thread is in memory.
//!
//! Slices of sources that come in their own order, as compressed archives, are written by [`stream`].
//!
//! A digest is made of each slice and then of all of them in order: it depends neither on the number of
//! threads nor on where the slices lie.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Builder;

use sha2::{Digest, Sha256};
use throughline_block::Disk;
use throughline_locks::Mutex;

use super::inode::Inline;
use super::place::Placed;
use super::stream;
use super::tree::{Kind, NodeId};
use crate::buffer::Buffer;
use crate::error::{Error, Result};

/// Bytes of a slice, and most bytes of a chunk.
pub(crate) const SLICE_BYTES: u64 = 4 << 20;
/// Threads at most: with a chunk each, 32 MiB.
const MOST_THREADS: usize = 8;

pub(super) type Sum = [u8; 32];

/// A part of a file, which begins at a multiple of [`SLICE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) node: NodeId,
    pub(super) index: u32,
}

impl Slice {
    pub(super) fn bytes(&self) -> Range<u64> {
        let start = u64::from(self.index) * SLICE_BYTES;
        start..start + SLICE_BYTES
    }
}

/// All slices, in the order of their places.
pub(super) struct Slices {
    pub(super) list: Vec<Slice>,
    /// Which of them are a chunk.
    chunks: Vec<Range<usize>>,
    /// How many are in no chunk: they are streamed.
    pub(super) streamed: usize,
    /// By node: the first of its slices.
    first: Vec<u32>,
    /// Files that are in their inodes.
    pub(super) inline: Vec<NodeId>,
}

impl Slices {
    /// Adds the slice that comes next, of `len` bytes, to a chunk; `bytes` are in the last one.
    fn chunk(&mut self, len: u64, bytes: &mut u64) {
        let at = self.list.len();
        match self.chunks.last_mut() {
            Some(last) if last.end == at && *bytes + len <= SLICE_BYTES => {
                last.end = at + 1;
                *bytes += len;
            }
            _ => {
                self.chunks.push(at..at + 1);
                *bytes = len;
            }
        }
    }

    /// The place of a slice in `list`.
    pub(super) fn position(&self, slice: Slice) -> Option<usize> {
        let first = self.first[slice.node.index()] as usize;
        let from = self.list.get(first..)?;
        let is_before = |known: &Slice| known.node == slice.node && known.index < slice.index;
        let at = first + from.partition_point(is_before);
        (self.list.get(at) == Some(&slice)).then_some(at)
    }
}

/// The error of the first chunk that failed.
#[derive(Default)]
pub(super) struct Failure(Mutex<Option<(usize, Error)>>);

impl Failure {
    pub(super) fn set(&self, at: usize, error: Error) {
        let mut failed = self.0.lock();
        if failed.as_ref().is_none_or(|(first, _)| at < *first) {
            *failed = Some((at, error));
        }
    }

    pub(super) fn into_error(self) -> Option<Error> {
        let failed = self.0.into_inner();
        failed.map(|(_, error)| error)
    }
}

/// What the pass was about.
pub(crate) struct Passed {
    pub(crate) inline: Inline,
    /// Of all data.
    pub(crate) digest: Sum,
}

/// Called with the bytes that were written so far.
pub(crate) type Progress<'p> = dyn Fn(u64) + Sync + 'p;

/// The pass.
pub(crate) struct Pass<'p> {
    pub(crate) placed: &'p Placed<'p>,
    pub(crate) block_bytes: u64,
    pub(crate) disk: &'p Disk,
    pub(crate) progress: &'p Progress<'p>,
    pub(crate) threads: usize,
    pub(crate) written_bytes: AtomicU64,
}

/// The chunks that are left, and what has become of the others.
struct Work<'s> {
    slices: &'s Slices,
    next: AtomicUsize,
    stop: AtomicBool,
    sums: Mutex<Vec<Sum>>,
    failure: Failure,
}

impl Pass<'_> {
    /// Copies everything.
    ///
    /// # Errors
    /// [`Error::Source`], [`Error::Device`].
    pub(crate) fn run(&self) -> Result<Passed> {
        let slices = self.divide();
        let tree = self.placed.measured.walk.tree;
        let mut inline = Inline::new();
        for node in slices
            .inline
            .iter()
            .filter(|node| !tree.is_streamed(**node))
        {
            inline.insert(*node, self.read_inline(*node)?);
        }
        let mut sums = self.run_random(&slices)?;
        if slices.streamed > 0 || inline.len() < slices.inline.len() {
            stream::run(self, &slices, &mut sums, &mut inline)?;
        }
        let mut digest = Sha256::new();
        for node in &slices.inline {
            digest.update(Sha256::digest(
                inline.get(node).map_or(&[][..], Vec::as_slice),
            ));
        }
        for sum in &sums {
            digest.update(sum);
        }
        Ok(Passed {
            inline,
            digest: digest.finalize().into(),
        })
    }

    /// Threads that read.
    pub(super) fn threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism()
                .map_or(2, usize::from)
                .clamp(2, MOST_THREADS),
            threads => threads.min(MOST_THREADS),
        }
    }

    /// Copies all chunks. Returns the digests of all slices; of those that are streamed, zeros.
    fn run_random(&self, slices: &Slices) -> Result<Vec<Sum>> {
        let work = Work {
            slices,
            next: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            sums: Mutex::new(vec![[0; 32]; slices.list.len()]),
            failure: Failure::default(),
        };
        std::thread::scope(|scope| {
            // This thread works, too, and alone if the system allows no other.
            for _ in 1..self.threads().min(slices.chunks.len()) {
                let started = Builder::new().spawn_scoped(scope, || self.work(&work));
                if started.is_err() {
                    break;
                }
            }
            self.work(&work);
        });
        match work.failure.into_error() {
            Some(error) => Err(error),
            None => Ok(work.sums.into_inner()),
        }
    }

    /// Divides the data into slices and chunks.
    fn divide(&self) -> Slices {
        let walk = self.placed.measured.walk;
        let mut slices = Slices {
            list: Vec::new(),
            chunks: Vec::new(),
            streamed: 0,
            first: vec![0; walk.tree.id_bound()],
            inline: Vec::new(),
        };
        let mut bytes = 0;
        for node in walk.nodes() {
            let Kind::File { size } = walk.tree.kind(node) else {
                continue;
            };
            let extents = self.placed.extents(node);
            if extents.is_empty() && size > 0 && !walk.tree.data(node).is_empty() {
                slices.inline.push(node);
            }
            slices.first[node.index()] = slices.list.len() as u32;
            let is_streamed = walk.tree.is_streamed(node);
            let mut next = 0;
            for extent in extents {
                let from = u64::from(extent.block.0) * self.block_bytes / SLICE_BYTES;
                let to = (extent.end() * self.block_bytes).div_ceil(SLICE_BYTES);
                for index in from.max(next)..to {
                    let slice = Slice {
                        node,
                        index: index as u32,
                    };
                    match is_streamed {
                        true => slices.streamed += 1,
                        false => slices.chunk(self.mapped(slice), &mut bytes),
                    }
                    slices.list.push(slice);
                }
                next = to;
            }
        }
        slices
    }

    /// Bytes of a file.
    pub(super) fn size(&self, node: NodeId) -> u64 {
        match self.placed.measured.walk.tree.kind(node) {
            Kind::File { size } => size,
            _ => 0,
        }
    }

    /// Counts bytes that were written.
    pub(super) fn wrote(&self, bytes: u64) {
        let before = self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        (self.progress)(before + bytes);
    }

    /// The mapped runs of a slice: bytes of the file, and their place.
    pub(super) fn runs(&self, slice: Slice) -> impl Iterator<Item = (Range<u64>, u64)> {
        let (bytes, within) = (self.block_bytes, slice.bytes());
        let extents = self.placed.extents(slice.node);
        let first = extents.partition_point(|extent| extent.end() * bytes <= within.start);
        extents[first..].iter().map_while(move |extent| {
            let start = u64::from(extent.block.0) * bytes;
            let run = start.max(within.start)..(extent.end() * bytes).min(within.end);
            let place = extent.start.0 * bytes + (run.start.saturating_sub(start));
            (run.start < run.end).then_some((run, place))
        })
    }

    pub(super) fn mapped(&self, slice: Slice) -> u64 {
        self.runs(slice).map(|(run, _)| run.end - run.start).sum()
    }

    fn read_inline(&self, node: NodeId) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.size(node) as usize];
        let file = self.placed.measured.walk.tree.open(node)?;
        file.read_at(0, &mut bytes)?;
        file.finish()?;
        Ok(bytes)
    }

    fn work(&self, work: &Work<'_>) {
        let mut buf = Buffer::default();
        while !work.stop.load(Ordering::Relaxed) {
            let at = work.next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = work.slices.chunks.get(at) else {
                return;
            };
            match self.copy(&work.slices.list[chunk.clone()], &mut buf) {
                Ok(sums) => {
                    let mut all = work.sums.lock();
                    all[chunk.clone()].copy_from_slice(&sums);
                    drop(all);
                    self.wrote(buf.len() as u64);
                }
                Err(error) => {
                    work.stop.store(true, Ordering::Relaxed);
                    work.failure.set(at, error);
                }
            }
        }
    }

    /// Copies a chunk. Returns the digests of its slices.
    fn copy(&self, slices: &[Slice], buf: &mut Buffer) -> Result<Vec<Sum>> {
        buf.clear();
        let mut sums = Vec::with_capacity(slices.len());
        let mut pieces: Vec<(u64, Range<usize>)> = Vec::new();
        for slice in slices {
            let start = buf.len();
            sums.push(self.read(*slice, buf)?);
            let mut at = start;
            for (run, place) in self.runs(*slice) {
                let len = (run.end - run.start) as usize;
                match pieces.last_mut() {
                    Some((from, piece)) if *from + piece.len() as u64 == place => piece.end += len,
                    _ => pieces.push((place, at..at + len)),
                }
                at += len;
            }
        }
        let pieces: Vec<(u64, &[u8])> = pieces
            .into_iter()
            .map(|(place, piece)| (place, &buf[piece]))
            .collect();
        self.disk.write_batch(&pieces)?;
        Ok(sums)
    }

    /// Appends the mapped blocks of a slice to `buf`. Returns the digest of their data.
    fn read(&self, slice: Slice, buf: &mut Buffer) -> Result<Sum> {
        let node = slice.node;
        let mut digest = Sha256::new();
        let file = self.placed.measured.walk.tree.open(node)?;
        let data = self.placed.measured.walk.tree.data(node);
        for (run, _) in self.runs(slice) {
            let blocks = buf.grow((run.end - run.start) as usize);
            let first = data.partition_point(|data| data.end <= run.start);
            for range in &data[first..] {
                let (from, to) = (range.start.max(run.start), range.end.min(run.end));
                if from >= to {
                    break;
                }
                let place = (from - run.start) as usize;
                let piece = &mut blocks[place..place + (to - from) as usize];
                file.read_at(from, piece)?;
                digest.update(&*piece);
            }
        }
        file.finish()?;
        Ok(digest.finalize().into())
    }
}
