//! Presents a device as it will be after the journal's replay, without modifying it.
//!
//! ```text
//!   read:   the device below ◄─ overlaid by: copies in the journal ◄─ overlaid by: blocks written here
//!   write:  into memory, up to the limit
//! ```
//!
//! Every read goes to the device below. Where the range covers blocks that have newer copies in the journal,
//! these copies are read too and replace the content. So every layer above, for metadata and data, sees the
//! replayed volume. Fast commits are applied on top by the file system, which writes the resulting blocks to
//! this device; they stay in memory.
//!
//! Invariants:
//! - The device below gets only reads.
//! - A read whose newer copies cannot be read fails; it never returns the old content.
//! - Written blocks stay within the limit; a write beyond it is refused.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::{BlockDevice, Completion, DeviceInfo, Op, Queue, Request};
use throughline_extfmt::FsBlock;
use throughline_extfmt::jbd2::unescape;
use throughline_locks::RwLock;

use crate::error::Result;
use crate::recovery::{Replay, ReplayBlock};

/// The most blocks read from the journal at once.
const BATCH_BLOCKS: usize = 64;

/// See the head of this file.
pub struct OverlayDevice {
    below: Arc<dyn BlockDevice>,
    info: DeviceInfo,
    overlay: Arc<Overlay>,
}

struct Overlay {
    /// Reads the copies, through queues other than the one whose request is being completed.
    journal: Disk,
    replay: Arc<Replay>,
    block_bytes: u32,
    /// Whole blocks written to this device, by number.
    written: RwLock<BTreeMap<u64, Box<[u8]>>>,
    /// The most entries of `written`.
    most_written: usize,
}

impl OverlayDevice {
    /// `below` with `replay` laid over it, for reading only. The file system has blocks of `block_bytes`.
    ///
    /// # Errors
    /// Errors of opening `below` as a disk.
    pub fn new(below: Arc<dyn BlockDevice>, replay: Arc<Replay>, block_bytes: u32) -> Result<Self> {
        Self::with_room(below, replay, block_bytes, 0)
    }

    /// As [`OverlayDevice::new`], but writable: written blocks stay in memory, at most `most_written` of
    /// them.
    ///
    /// # Errors
    /// As [`OverlayDevice::new`].
    pub fn with_room(
        below: Arc<dyn BlockDevice>,
        replay: Arc<Replay>,
        block_bytes: u32,
        most_written: usize,
    ) -> Result<Self> {
        let journal = Disk::new(Arc::clone(&below))?;
        let mut info = below.info().clone();
        info.read_only = most_written == 0;
        // Only reads reach the device below, so its discard and write-zeroes are not available.
        info.limits.discard = false;
        info.limits.write_zeroes = false;
        Ok(Self {
            below,
            info,
            overlay: Arc::new(Overlay {
                journal,
                replay,
                block_bytes,
                written: RwLock::default(),
                most_written,
            }),
        })
    }

    /// The same device for reading only, including the blocks written so far.
    #[must_use]
    pub fn read_only(&self) -> Self {
        let mut info = self.info.clone();
        info.read_only = true;
        Self {
            below: Arc::clone(&self.below),
            info,
            overlay: Arc::clone(&self.overlay),
        }
    }

    /// The blocks written so far with their contents, ascending.
    pub fn written(&self) -> Vec<(FsBlock, Box<[u8]>)> {
        let written = self.overlay.written.read();
        let blocks = written.iter();
        blocks
            .map(|(at, content)| (FsBlock(*at), content.clone()))
            .collect()
    }
}

impl BlockDevice for OverlayDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        self.below.len_bytes()
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        let below = self.below.open_queue()?;
        Ok(Box::new(OverlayQueue {
            below,
            overlay: Arc::clone(&self.overlay),
            read_only: self.info.read_only,
            ready: Vec::new(),
        }))
    }
}

struct OverlayQueue {
    below: Box<dyn Queue>,
    overlay: Arc<Overlay>,
    read_only: bool,
    /// Requests completed without the device below.
    ready: Vec<Completion>,
}

impl Queue for OverlayQueue {
    fn submit(&mut self, request: Request) {
        let result = match request.op() {
            Op::Read => return self.below.submit(request),
            Op::Flush => Ok(()),
            Op::Write if !self.read_only => self.overlay.write(&request),
            _ => Err(io::Error::new(
                io::ErrorKind::ReadOnlyFilesystem,
                "the replayed view of the image is read-only",
            )),
        };
        self.ready.push(Completion { request, result });
    }

    fn kick(&mut self) {
        self.below.kick();
    }

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        let wait_for = wait_for.saturating_sub(self.ready.len());
        done.append(&mut self.ready);
        let fresh = done.len();
        self.below.reap(wait_for, done);
        for completion in done.iter_mut().skip(fresh) {
            if completion.result.is_ok() {
                completion.result = self.overlay.lay_over(&mut completion.request);
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.below.in_flight() + self.ready.len()
    }

    fn depth(&self) -> usize {
        self.below.depth()
    }
}

impl Overlay {
    /// Keeps the data that `request` writes.
    fn write(&self, request: &Request) -> io::Result<()> {
        let size = u64::from(self.block_bytes);
        let (start, end) = (
            request.offset_bytes(),
            request.offset_bytes().saturating_add(request.len_bytes()),
        );
        for block in start / size..end.div_ceil(size) {
            let home = block * size;
            let (from, to) = (start.max(home), end.min(home + size));
            let mut content = self.content(block, to - from < size)?;
            let place = &mut content[(from - home) as usize..(to - home) as usize];
            request.copy_out((from - start) as usize, place);
            let mut written = self.written.write();
            if written.len() >= self.most_written && !written.contains_key(&block) {
                let text = "recovery changes more blocks than the memory limit allows";
                return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
            }
            written.insert(block, content);
        }
        Ok(())
    }

    /// The current content of a whole block, or zeroes if the content is not `wanted`.
    fn content(&self, block: u64, wanted: bool) -> io::Result<Box<[u8]>> {
        let size = self.block_bytes as usize;
        let mut content = vec![0; size].into_boxed_slice();
        if !wanted {
            return Ok(content);
        }
        if let Some(written) = self.written.read().get(&block) {
            return Ok(written.clone());
        }
        let newer = self.replay.in_range(FsBlock(block), FsBlock(block + 1));
        let from = newer.first().map_or(block, |newer| newer.copy.0);
        self.journal
            .read_at(from * size as u64, &mut content)
            .map_err(io::Error::other)?;
        if newer.first().is_some_and(|newer| newer.escaped) {
            unescape(&mut content);
        }
        Ok(content)
    }

    /// Replaces those parts of the data that `request` read for which there is newer content.
    fn lay_over(&self, request: &mut Request) -> io::Result<()> {
        let bytes = u64::from(self.block_bytes);
        let first = request.offset_bytes() / bytes;
        let end = request
            .offset_bytes()
            .saturating_add(request.len_bytes())
            .div_ceil(bytes);
        let newer = self.replay.in_range(FsBlock(first), FsBlock(end));
        newer
            .chunks(BATCH_BLOCKS)
            .try_for_each(|batch| self.lay_batch(request, batch))?;
        for (block, content) in self.written.read().range(first..end) {
            self.lay_block(request, *block, content);
        }
        Ok(())
    }

    fn lay_batch(&self, request: &mut Request, batch: &[ReplayBlock]) -> io::Result<()> {
        let size = self.block_bytes as usize;
        let mut copies = vec![0; size * batch.len()];
        // Recovery has read these blocks, so their offsets fit.
        let mut pieces: Vec<(u64, &mut [u8])> = batch
            .iter()
            .zip(copies.chunks_mut(size))
            .map(|(block, piece)| (block.copy.0.saturating_mul(size as u64), piece))
            .collect();
        self.journal
            .read_batch(&mut pieces)
            .map_err(io::Error::other)?;
        for (block, copy) in batch.iter().zip(copies.chunks_mut(size)) {
            if block.escaped {
                unescape(copy);
            }
            self.lay_block(request, block.home.0, copy);
        }
        Ok(())
    }

    /// Copies the content of a block over its part of the data that `request` read.
    fn lay_block(&self, request: &mut Request, block: u64, content: &[u8]) {
        let home = block * u64::from(self.block_bytes);
        let (from, skip) = match request.offset_bytes().checked_sub(home) {
            Some(inside) => (inside as usize, 0),
            None => (0, (home - request.offset_bytes()) as usize),
        };
        request.copy_in(skip, &content[from..]);
    }
}
