//! The length of a raw file and the allocation of its ranges; what is left to do when it is synced and closed.
//!
//! All of it is alone in the file: the gate is held exclusively, and background work is kept out while the length or the
//! allocation changes.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{RawFile, identity, room, told};
use crate::cache::{Backing, Frozen};
use crate::error::{Error, Reason, Result};
use crate::{buffered, coherence, direct};

/// The parts of blocks at the edges of a range are zeroed from here; no block is longer.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl RawFile {
    /// Makes a plain file `len` bytes long; new bytes read as zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a device, unless that is its length; what the system says; what write-back met.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        if !self.core.can_grow() {
            if len == self.len() {
                return Ok(());
            }
            return Err(Error::Unsupported(
                "a device cannot change its length".into(),
            ));
        }
        self.gate.exclusive(|| {
            let host = self.host();
            let _frozen = match &host {
                Some(host) => Some(self.cut(host, len)?),
                None => None,
            };
            *self.kept_until.lock() = 0;
            self.set_len_alone(len)
        })
    }

    /// Takes out of the cache what is at or behind byte `len`, and keeps background work out.
    fn cut<'h>(&self, host: &'h Arc<dyn Backing>, len: u64) -> Result<Frozen<'h>> {
        let space = host.space();
        let last = coherence::whole_blocks(space, len..len);
        // Of the block that stays in part, the part that stays must be on the device.
        if last.start < len && space.is_dirty(last.clone()) {
            buffered::flush(host, last.start..last.end)?;
        }
        Ok(coherence::take_out(space, &**host, len..u64::MAX))
    }

    /// With the gate held exclusively, and background work kept out.
    pub(super) fn set_len_alone(&self, len: u64) -> Result<()> {
        self.disk().set_len(len).map_err(room::told)?;
        self.core.room.forget_from(len);
        self.core.committed.store(len, Ordering::Release);
        if let Some(cached) = self.cached.get() {
            cached.space.set_size(len);
        }
        Ok(())
    }

    /// Reserves space for `len` bytes from `offset` on, so that writing them cannot run out of it. With `keep_size` the
    /// length stays, else a plain file is lengthened to their end. A device has all its space.
    ///
    /// # Errors
    /// [`Reason::NoSpace`]; what the system says, as that its file system cannot; what write-back met.
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.check_writable()?;
        let end = offset.checked_add(len).ok_or(Reason::TooLarge)?;
        if len == 0 {
            return Ok(());
        }
        if !self.core.can_grow() {
            return match end <= self.len() {
                true => Ok(()),
                false => Err(Reason::NoSpace.into()),
            };
        }
        self.gate.exclusive(|| {
            let host = self.host();
            let _frozen = host.as_ref().map(|host| host.space().freeze());
            let before = self.len();
            self.disk().reserve(offset, len).map_err(room::told)?;
            if keep_size {
                let mut kept = self.kept_until.lock();
                *kept = end.max(*kept);
            } else if end > before {
                self.disk().set_len(end).map_err(room::told)?;
                self.core.committed.fetch_max(end, Ordering::AcqRel);
                if let Some(cached) = self.cached.get() {
                    cached.space.set_size(end);
                }
            }
            Ok(())
        })
    }

    /// Makes a range of a plain file a hole; its length stays.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the host's file system cannot, and on a device; what the device says; what write-back
    /// met.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        if !self.core.can_grow() || !self.disk().limits().discard {
            let what = "holes in a device, or on this file system";
            return Err(Error::Unsupported(what.into()));
        }
        self.clear(offset, len, |whole| {
            self.core.room.forget_from(whole.start);
            let told = self.disk().discard(whole.start, whole.end - whole.start)?;
            match told {
                true => Ok(()),
                false => Err(Error::Unsupported("holes on this file system".into())),
            }
        })
    }

    /// Makes a range read as zero; what is behind the end stays there.
    ///
    /// # Errors
    /// As [`RawFile::write_at`]; what write-back met.
    pub fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.clear(offset, len, |whole| {
            Ok(self
                .disk()
                .write_zeroes(whole.start, whole.end - whole.start)?)
        })
    }

    /// Makes the bytes of a range zero as far as the file has them: the blocks in it by `whole`, the rest by writing.
    fn clear(
        &self,
        offset: u64,
        len: u64,
        whole: impl FnOnce(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        self.check_writable()?;
        self.gate.exclusive(|| {
            let size = self.len();
            let end = offset.saturating_add(len).min(size);
            if offset >= end {
                return Ok(());
            }
            let host = self.host();
            let _frozen = match &host {
                Some(host) => Some(coherence::before_direct_write(host, offset..end)?),
                None => None,
            };
            let block = u64::from(identity::logical_bytes(self.disk()));
            let first = offset.next_multiple_of(block).min(end);
            let last = match end == size {
                // Its last block is the file's alone.
                true => end.next_multiple_of(block),
                false => (end - end % block).max(first),
            };
            self.zero_edge(offset..first)?;
            if first < last && first < end {
                whole(first..last)?;
            }
            let result = self.zero_edge(last.min(end)..end);
            if self.core.can_grow() {
                // The last block may have been written whole.
                self.disk().set_len(size).map_err(room::told)?;
                self.core.room.forget_from(size);
            }
            result
        })
    }

    /// Writes zeros, less than a block of them.
    fn zero_edge(&self, edge: Range<u64>) -> Result<()> {
        let len = (edge.end - edge.start).min(ZEROS.len() as u64);
        let zeros = [IoSlice::new(&ZEROS[..len as usize])];
        told(direct::write(
            self.disk(),
            &self.identity(),
            edge.start,
            &zeros,
        ))?;
        Ok(())
    }

    /// Everything written is with the device, and the length is what it should be.
    ///
    /// # Errors
    /// What write-back met, again at each call until it can be done; what the system says.
    pub(super) fn write_back(&self) -> Result<()> {
        let Some(host) = self.host() else {
            return Ok(());
        };
        // The bulk of it, while others go on.
        buffered::flush(&host, 0..u64::MAX)?;
        if !self.is_ragged() {
            return Ok(());
        }
        self.gate.exclusive(|| {
            // What came since. Nothing comes now.
            buffered::flush(&host, 0..u64::MAX)?;
            let _frozen = host.space().freeze();
            self.trim()
        })
    }

    /// Whether the host's file has another length than ours.
    fn is_ragged(&self) -> bool {
        self.core.can_grow() && self.disk().len_bytes() != self.len()
    }

    /// Sets the host's length to ours, and gives back what was reserved behind it for nothing. All that is written is
    /// committed, and nothing is being written.
    fn trim(&self) -> Result<()> {
        let len = self.core.committed();
        self.disk().set_len(len).map_err(room::told)?;
        self.core.room.forget_from(len);
        let kept = *self.kept_until.lock();
        if kept > len {
            self.disk().reserve(len, kept - len).map_err(room::told)?;
        }
        Ok(())
    }

    /// Writes back what is dirty, sets the host's length and ends the cache.
    ///
    /// # Errors
    /// What write-back met: what it could not write is lost.
    pub fn close(self) -> Result<()> {
        self.shut_down()
    }

    pub(super) fn shut_down(&self) -> Result<()> {
        let Some(host) = self.host() else {
            return Ok(());
        };
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let flushed = buffered::flush(&host, 0..u64::MAX);
        host.space().cache().close();
        let behind = self.is_ragged() || self.core.room.reaches_behind(self.len());
        let trimmed = match self.core.can_grow() && behind && !self.disk().info().read_only {
            true => self.trim(),
            false => Ok(()),
        };
        flushed.and(trimmed)
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            tracing::error!(%error, file = %self.disk().info().name, "closing a file: what was not written back is lost");
        }
    }
}
