//! A device as it will look after the journal's replay, without touching it.
//!
//! Every read goes to the device below; where it covers blocks that the journal holds newer, their copies in the
//! journal are read too and laid over. So every layer above, metadata and data alike, sees the replayed volume.
//!
//! Invariants:
//! - Nothing is ever written: any request but a read is refused, but for a flush, which has nothing to do.
//! - A read that cannot be overlaid fails; it never shows the old content.

use std::io;
use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::{BlockDevice, Completion, DeviceInfo, Op, Queue, Request};
use throughline_extfmt::FsBlock;
use throughline_extfmt::jbd2::JBD2_MAGIC;

use crate::error::Result;
use crate::recovery::{Replay, ReplayBlock};

/// Blocks that are read from the journal at once.
const BATCH_BLOCKS: usize = 64;

/// See the head of this file.
pub struct OverlayDevice {
    below: Arc<dyn BlockDevice>,
    info: DeviceInfo,
    overlay: Arc<Overlay>,
}

struct Overlay {
    /// Reads the copies, past the queue of whoever waits for them.
    journal: Disk,
    replay: Arc<Replay>,
    block_bytes: u32,
}

impl OverlayDevice {
    /// `below` with `replay`, of a file system of blocks of `block_bytes`, laid over.
    ///
    /// # Errors
    /// What opening the device says.
    pub fn new(below: Arc<dyn BlockDevice>, replay: Arc<Replay>, block_bytes: u32) -> Result<Self> {
        let journal = Disk::new(Arc::clone(&below))?;
        let mut info = below.info().clone();
        info.read_only = true;
        Ok(Self {
            below,
            info,
            overlay: Arc::new(Overlay {
                journal,
                replay,
                block_bytes,
            }),
        })
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
            ready: Vec::new(),
        }))
    }
}

struct OverlayQueue {
    below: Box<dyn Queue>,
    overlay: Arc<Overlay>,
    /// Answered without the device.
    ready: Vec<Completion>,
}

impl Queue for OverlayQueue {
    fn submit(&mut self, request: Request) {
        let result = match request.op() {
            Op::Read => return self.below.submit(request),
            Op::Flush => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::ReadOnlyFilesystem,
                "the journal is not replayed",
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
    /// Replaces what `request` read of blocks that have a newer copy.
    fn lay_over(&self, request: &mut Request) -> io::Result<()> {
        let bytes = u64::from(self.block_bytes);
        let end = request
            .offset_bytes()
            .saturating_add(request.len_bytes())
            .div_ceil(bytes);
        let newer = self
            .replay
            .in_range(FsBlock(request.offset_bytes() / bytes), FsBlock(end));
        newer
            .chunks(BATCH_BLOCKS)
            .try_for_each(|batch| self.lay_batch(request, batch))
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
                copy[..4].copy_from_slice(&JBD2_MAGIC.to_be_bytes());
            }
            let home = block.home.0 * size as u64;
            let (from, skip) = match request.offset_bytes().checked_sub(home) {
                Some(inside) => (inside as usize, 0),
                None => (0, (home - request.offset_bytes()) as usize),
            };
            request.copy_in(skip, &copy[from..]);
        }
        Ok(())
    }
}
