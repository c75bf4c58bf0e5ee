//! The report's old way, built on the public API: the writer calls balance for every page, and writes back 4
//! MiB itself, synchronously, whenever it has dirtied that much.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_device::AlignedBuf;

use super::model::Pace;
use crate::Result;
use crate::streams::targets::{OpenFile, OurStream};
use crate::streams::writers::Stream;

const PAGE_BYTES: usize = 4096;

/// The size of the old writer's write-back.
const CHUNK_BYTES: usize = 4 << 20;

/// Accounting shared by all writers to a device.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    dirty_bytes: AtomicU64,
    balance_calls: AtomicU64,
}

impl Accounts {
    /// The number of balance calls since this was last read.
    pub(super) fn take_balance_calls(&self) -> u64 {
        self.balance_calls.swap(0, Ordering::Relaxed)
    }

    /// Accounts for a dirty page. Returns whether its writer must write back.
    fn balance(&self, own_dirty_bytes: usize) -> bool {
        self.balance_calls.fetch_add(1, Ordering::Relaxed);
        self.dirty_bytes
            .fetch_add(PAGE_BYTES as u64, Ordering::Relaxed);
        own_dirty_bytes >= CHUNK_BYTES
    }

    fn cleaned(&self, bytes: usize) {
        self.dirty_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// A writer in the old way.
pub(super) struct OldWay {
    /// A direct handle.
    file: OpenFile,
    accounts: Arc<Accounts>,
    /// The file offset of the next chunk.
    at: u64,
    chunk: AlignedBuf,
    dirty_bytes: usize,
    /// The time that a slower computer takes to fill the chunk.
    pace: Pace,
}

impl OldWay {
    /// A writer into a direct stream.
    pub(super) fn new(stream: OurStream, accounts: &Arc<Accounts>, pace: Pace) -> OldWay {
        OldWay {
            file: stream.file,
            accounts: Arc::clone(accounts),
            at: stream.base,
            chunk: AlignedBuf::zeroed(CHUNK_BYTES, PAGE_BYTES),
            dirty_bytes: 0,
            pace,
        }
    }

    fn write_back(&mut self) -> Result<()> {
        let dirty = &self.chunk[..self.dirty_bytes];
        self.file.write_all_at(dirty, self.at)?;
        self.accounts.cleaned(dirty.len());
        self.at += dirty.len() as u64;
        self.dirty_bytes = 0;
        Ok(())
    }
}

impl Stream for OldWay {
    fn write(&mut self, _at: u64, bytes: &[u8]) -> Result<()> {
        for page in bytes.chunks(PAGE_BYTES) {
            self.chunk[self.dirty_bytes..][..page.len()].copy_from_slice(page);
            self.dirty_bytes += page.len();
            if self.accounts.balance(self.dirty_bytes) {
                self.pace.filled(self.dirty_bytes);
                self.write_back()?;
                self.pace.begin();
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.write_back()?;
        Ok(self.file.sync_all()?)
    }
}
