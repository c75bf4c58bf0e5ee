//! The pass over sources that are read in their own order, as compressed archives.
//!
//! Slices are assembled while their bytes arrive, and written when they are complete; the slices of small
//! files are written several at a time. Bytes of several files may arrive in turns: each has one slice in
//! memory.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::mpsc;
use std::thread::Builder;

use sha2::{Digest, Sha256};
use throughline_archive as archive;

use super::data::{Failure, Pass, SLICE_BYTES, Slice, Slices, Sum};
use super::inode::Inline;
use super::tree::NodeId;
use crate::buffer::Buffer;
use crate::error::{Error, Result};

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// Batches that wait to be written; each has at most two slices' bytes.
const WAITING: usize = 2;

/// Complete slices: their bytes, and the places of these.
#[derive(Default)]
struct Batch {
    bytes: Buffer,
    pieces: Vec<(u64, Range<usize>)>,
}

/// A slice that is not complete.
struct Open {
    slice: Slice,
    bytes: Vec<u8>,
    digest: Sha256,
    /// Bytes of data that are to come.
    left: u64,
    /// The next byte of the file that may come.
    next: u64,
}

/// Takes the data in the order of the source.
struct Taker<'p> {
    pass: &'p Pass<'p>,
    slices: &'p Slices,
    sums: &'p mut [Sum],
    /// Slices that are complete.
    done: usize,
    /// By file.
    open: HashMap<NodeId, Open>,
    /// Files in their inodes, and the bytes that are to come.
    inline: &'p mut Inline,
    inline_left: HashMap<NodeId, u64>,
    batch: Batch,
    queue: mpsc::SyncSender<Batch>,
    /// Batches that are written, to be filled again.
    spare: mpsc::Receiver<Batch>,
}

/// Copies the slices that are streamed: fills in their digests, and the data of files in their inodes.
///
/// # Errors
/// Of the source, of the device; data that does not come.
pub(super) fn run(
    pass: &Pass<'_>,
    slices: &Slices,
    sums: &mut [Sum],
    inline: &mut Inline,
) -> Result<()> {
    let failure = Failure::default();
    let taken = std::thread::scope(|scope| {
        let (queue, batches) = mpsc::sync_channel::<Batch>(WAITING);
        let (give, spare) = mpsc::channel();
        let failure = &failure;
        let write = move || {
            for mut batch in batches {
                let pieces: Vec<(u64, &[u8])> = batch
                    .pieces
                    .iter()
                    .map(|(place, piece)| (*place, &batch.bytes[piece.clone()]))
                    .collect();
                if let Err(error) = pass.disk.write_batch(&pieces) {
                    failure.set(0, error.into());
                    return;
                }
                pass.wrote(batch.bytes.len() as u64);
                batch.bytes.clear();
                batch.pieces.clear();
                // At the end of the stream, nobody takes it.
                let _ = give.send(batch);
            }
        };
        let started = Builder::new().spawn_scoped(scope, write);
        started.map_err(|source| Error::System {
            what: "starting a thread",
            source,
        })?;
        let mut taker = Taker::new(pass, slices, sums, inline, (queue, spare));
        let input = pass.placed.measured.walk.tree;
        let mut visit = |node, offset, bytes: &[u8]| taker.take(node, offset, bytes);
        let streamed = input
            .sources
            .for_each_streamed(input.tree, pass.threads(), &mut visit);
        streamed.map_err(Error::Source)?;
        taker.finish()
    });
    // An error of the device is why the stream ended.
    match failure.into_error() {
        Some(error) => Err(error),
        None => taken,
    }
}

impl<'p> Taker<'p> {
    fn new(
        pass: &'p Pass<'p>,
        slices: &'p Slices,
        sums: &'p mut [Sum],
        inline: &'p mut Inline,
        (queue, spare): (mpsc::SyncSender<Batch>, mpsc::Receiver<Batch>),
    ) -> Taker<'p> {
        let walk = pass.placed.measured.walk;
        let mut inline_left = HashMap::new();
        let is_streamed = |node: &&NodeId| walk.tree.is_streamed(**node);
        for node in slices.inline.iter().filter(is_streamed) {
            let data = walk.tree.data(*node);
            inline_left.insert(*node, data.iter().map(|data| data.end - data.start).sum());
            inline.insert(*node, vec![0; pass.size(*node) as usize]);
        }
        Taker {
            pass,
            slices,
            sums,
            done: 0,
            open: HashMap::new(),
            inline,
            inline_left,
            batch: Batch::default(),
            queue,
            spare,
        }
    }

    fn take(
        &mut self,
        node: NodeId,
        offset: u64,
        bytes: &[u8],
    ) -> std::result::Result<(), BoxedError> {
        if let Some(left) = self.inline_left.get_mut(&node) {
            let place = self.inline.get_mut(&node).and_then(|all| {
                let from = usize::try_from(offset).ok()?;
                all.get_mut(from..from.checked_add(bytes.len())?)
            });
            let place = place.ok_or_else(|| self.pass.changed(node))?;
            place.copy_from_slice(bytes);
            *left = left.saturating_sub(bytes.len() as u64);
            return Ok(());
        }
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let end = (at / SLICE_BYTES + 1) * SLICE_BYTES;
            let len = rest.len().min((end - at) as usize);
            self.take_part(node, at, &rest[..len])?;
            (at, rest) = (at + len as u64, &rest[len..]);
        }
        Ok(())
    }

    /// Takes bytes of one slice.
    fn take_part(
        &mut self,
        node: NodeId,
        at: u64,
        bytes: &[u8],
    ) -> std::result::Result<(), BoxedError> {
        let slice = Slice {
            node,
            index: (at / SLICE_BYTES) as u32,
        };
        let open = match self.open.entry(node) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(self.pass.begin(slice))
            }
        };
        let len = bytes.len() as u64;
        if open.slice.index != slice.index || at < open.next || len > open.left {
            return Err(self.pass.changed(node).into());
        }
        let mut base = 0;
        for (run, _) in self.pass.runs(slice) {
            if run.contains(&at) && at + len <= run.end {
                let place = base + (at - run.start) as usize;
                open.bytes[place..place + bytes.len()].copy_from_slice(bytes);
                open.digest.update(bytes);
                (open.next, open.left) = (at + len, open.left - len);
                return match open.left {
                    0 => self.complete(node),
                    _ => Ok(()),
                };
            }
            base += (run.end - run.start) as usize;
        }
        // Bytes that lie in two runs of the device.
        let cut = self
            .pass
            .runs(slice)
            .map(|(run, _)| run.end)
            .find(|end| (at + 1..at + len).contains(end));
        let cut = cut.ok_or_else(|| self.pass.changed(node))?;
        let (first, second) = bytes.split_at((cut - at) as usize);
        self.take_part(node, at, first)?;
        self.take_part(node, cut, second)
    }

    fn complete(&mut self, node: NodeId) -> std::result::Result<(), BoxedError> {
        let Some(open) = self.open.remove(&node) else {
            return Ok(());
        };
        if let Some(at) = self.slices.position(open.slice) {
            self.sums[at] = open.digest.finalize().into();
        }
        self.done += 1;
        let mut at = self.batch.bytes.len();
        for (run, place) in self.pass.runs(open.slice) {
            let len = (run.end - run.start) as usize;
            self.batch.pieces.push((place, at..at + len));
            at += len;
        }
        self.batch.bytes.extend_from_slice(&open.bytes);
        if self.batch.bytes.len() as u64 >= SLICE_BYTES {
            let next = self.spare.try_recv().unwrap_or_default();
            let batch = std::mem::replace(&mut self.batch, next);
            // The writer has failed, and says why.
            return self
                .queue
                .send(batch)
                .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        let left = self.inline_left.iter().filter(|(_, left)| **left > 0);
        let missing = left.map(|(node, _)| node).chain(self.open.keys()).min();
        if let Some(node) = missing {
            return Err(self.pass.changed(*node).into());
        }
        debug_assert_eq!(self.done, self.slices.streamed);
        let batch = std::mem::take(&mut self.batch);
        // The writer has failed, and says why.
        let _ = self.queue.send(batch);
        Ok(())
    }
}

impl Pass<'_> {
    /// A slice without its bytes.
    fn begin(&self, slice: Slice) -> Open {
        let within = slice.bytes();
        let data = self.placed.measured.walk.tree.data(slice.node);
        let first = data.partition_point(|data| data.end <= within.start);
        let parts = data[first..]
            .iter()
            .take_while(|data| data.start < within.end);
        let left = parts
            .map(|data| data.end.min(within.end) - data.start.max(within.start))
            .sum();
        Open {
            slice,
            bytes: vec![0; self.mapped(slice) as usize],
            digest: Sha256::new(),
            left,
            next: within.start,
        }
    }

    /// The source gives other data than it said.
    fn changed(&self, node: NodeId) -> archive::Error {
        archive::Error::Changed(self.placed.measured.walk.path(node))
    }
}
