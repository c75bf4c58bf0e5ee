//! Changing the length and allocation of a raw file; the final steps of sync and close.
//!
//! All of these hold the gate exclusively and exclude background work while the length or the allocation
//! changes.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::identity::Identity;
use super::{RawFile, check_writable, host_result, identity, room};
use throughline_block::Disk;

use crate::cache::{Backing, Frozen};
use crate::error::{Error, Reason, Result};
use crate::zeros::zeros;
use crate::{buffered, coherence, direct};

impl RawFile {
    /// Sets the length of a plain file; new bytes read as zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a device, unless `len` is its length; errors of the host and of write-back.
    pub fn set_len(&self, len: u64) -> Result<()> {
        check_writable(self.disk())?;
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
            self.set_len_exclusive(len)
        })
    }

    /// Drops the cached bytes from `len` on, and excludes background work.
    fn cut<'h>(&self, host: &'h Arc<dyn Backing>, len: u64) -> Result<Frozen<'h>> {
        let space = host.space();
        let last = coherence::whole_blocks(space, len..len);
        // The remaining part of a partial block must be on the device.
        if last.start < len && space.is_dirty(last.clone()) {
            buffered::flush(host, last.start..last.end)?;
        }
        Ok(coherence::take_out(space, &**host, len..u64::MAX))
    }

    /// The caller holds the gate exclusively and excludes background work.
    pub(super) fn set_len_exclusive(&self, len: u64) -> Result<()> {
        self.disk().set_len(len).map_err(room::host_error)?;
        self.core.room.forget_from(len);
        self.core.committed.store(len, Ordering::Release);
        if let Some(cached) = self.cached.get() {
            cached.space.set_size(len);
        }
        Ok(())
    }

    /// Reserves space for `len` bytes at `offset`, so that writing them cannot run out of space. Without
    /// `keep_size` a plain file is extended to the end of the range. A device always has its space.
    ///
    /// # Errors
    /// [`Reason::NoSpace`]; errors of the host, such as unsupported reservation.
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        check_writable(self.disk())?;
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
            self.disk().reserve(offset, len).map_err(room::host_error)?;
            if keep_size {
                let mut kept = self.kept_until.lock();
                *kept = end.max(*kept);
            } else if end > before {
                self.disk().set_len(end).map_err(room::host_error)?;
                self.core.committed.fetch_max(end, Ordering::AcqRel);
                if let Some(cached) = self.cached.get() {
                    cached.space.set_size(end);
                }
            }
            Ok(())
        })
    }

    /// Punches a hole into a plain file; its length does not change.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a device or if the host's file system cannot punch holes; errors of the
    /// device and of write-back.
    pub fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        if !self.core.can_grow() || !self.disk().limits().discard {
            let what = "punching holes in a device or on this file system";
            return Err(Error::Unsupported(what.into()));
        }
        self.clear(offset, len, |whole| {
            self.core.room.forget_from(whole.start);
            let punched = self.disk().discard(whole.start, whole.end - whole.start)?;
            match punched {
                true => Ok(()),
                false => Err(Error::Unsupported(
                    "punching holes on this file system".into(),
                )),
            }
        })
    }

    /// Makes a range read as zero, up to the end of the file.
    ///
    /// # Errors
    /// As [`RawFile::write_at`].
    pub fn zero_range(&self, offset: u64, len: u64) -> Result<()> {
        self.clear(offset, len, |whole| {
            Ok(self
                .disk()
                .write_zeroes(whole.start, whole.end - whole.start)?)
        })
    }

    /// Zeroes a range up to the end of the file: its whole blocks with `whole`, the rest by writing.
    fn clear(
        &self,
        offset: u64,
        len: u64,
        whole: impl FnOnce(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        check_writable(self.disk())?;
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
                // The last block contains only this file's data.
                true => end.next_multiple_of(block),
                false => (end - end % block).max(first),
            };
            zero_edge(self.disk(), &self.identity(), offset..first)?;
            if first < last && first < end {
                whole(first..last)?;
            }
            let result = zero_edge(self.disk(), &self.identity(), last.min(end)..end);
            if self.core.can_grow() {
                // The last block may have been written in full.
                self.disk().set_len(size).map_err(room::host_error)?;
                self.core.room.forget_from(size);
            }
            result
        })
    }

    /// Writes back everything and sets the host's length.
    ///
    /// # Errors
    /// Those of write-back, returned by each call until the write succeeds; errors of the host.
    pub(super) fn write_back(&self) -> Result<()> {
        let Some(host) = self.host() else {
            return Ok(());
        };
        // Most of it without exclusion.
        buffered::flush(&host, 0..u64::MAX)?;
        if !self.is_ragged() {
            return Ok(());
        }
        self.gate.exclusive(|| {
            // What was written since; new writes are excluded now.
            buffered::flush(&host, 0..u64::MAX)?;
            let _frozen = host.space().freeze();
            self.trim()
        })
    }

    /// Whether the host's file has a different length.
    fn is_ragged(&self) -> bool {
        self.core.can_grow() && self.disk().len_bytes() != self.len()
    }

    /// Sets the host's length and releases unused reservations past it. Everything written must be committed
    /// and no write may be running.
    fn trim(&self) -> Result<()> {
        let len = self.core.committed();
        self.disk().set_len(len).map_err(room::host_error)?;
        self.core.room.forget_from(len);
        let kept = *self.kept_until.lock();
        if kept > len {
            self.disk()
                .reserve(len, kept - len)
                .map_err(room::host_error)?;
        }
        Ok(())
    }

    /// Writes back everything, sets the host's length and closes the cache.
    ///
    /// # Errors
    /// Those of write-back: data that could not be written is lost.
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
        let behind = self.is_ragged() || self.core.room.reaches_past(self.len());
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
            tracing::error!(
                %error,
                file = %self.disk().info().name,
                "closing a file failed: data not written back is lost"
            );
        }
    }
}

/// Writes zeros to less than one block.
fn zero_edge(disk: &Disk, identity: &Identity<'_>, edge: Range<u64>) -> Result<()> {
    let zeros = [IoSlice::new(zeros(edge.end - edge.start))];
    host_result(direct::write(disk, identity, edge.start, &zeros))?;
    Ok(())
}
