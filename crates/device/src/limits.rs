//! The capabilities of a device and its limits on requests.

use std::io;

use crate::{Op, Request};

/// The description of a device: its kind, engine and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The path, or a generic name for devices without one.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// The I/O engine: `uring`, `threads`, `memory`, `null`.
    pub engine: &'static str,
    /// Whether requests bypass the kernel's page cache (`O_DIRECT`).
    pub direct: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Its limits.
    pub limits: Limits,
}

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A regular file, for example an image.
    RegularFile,
    /// A block special file.
    BlockDevice,
    /// Memory of this process.
    Memory,
    /// Nothing: writes are discarded, reads leave the memory unchanged.
    Null,
    /// Anything else, for example a test's device.
    Other,
}

/// Limits on requests, and capabilities of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Offsets and lengths are multiples of this; a power of two, at least 512.
    pub logical_block_bytes: u32,
    /// The unit that the device writes without a read-modify-write; a multiple of the logical block.
    pub physical_block_bytes: u32,
    /// Segment addresses are multiples of this; a power of two, 1 for any address.
    pub memory_align_bytes: u32,
    /// The longest transfer that the device does at once. A file or block device accepts longer requests,
    /// which the kernel splits; the memory device refuses them.
    pub max_transfer_bytes: u32,
    /// The most segments in one request.
    pub max_segments: u32,
    /// Preferred smallest request; 0 if unknown.
    pub io_min_bytes: u32,
    /// Preferred request for streams, for example a RAID stripe; 0 if unknown.
    pub io_opt_bytes: u32,
    /// Requests should not cross multiples of this; 0 for no such boundary.
    pub chunk_bytes: u32,
    /// Inner segment boundaries are at memory addresses that are multiples of `mask + 1`; 0 for no such
    /// limit.
    pub virt_boundary_mask: u64,
    /// The number of requests that the device processes concurrently.
    pub queue_depth: u32,
    /// Whether [`Op::Discard`] may be tried.
    pub discard: bool,
    /// Whether [`Op::WriteZeroes`] may be tried.
    pub write_zeroes: bool,
    /// Whether a write may carry `fua`.
    pub fua: bool,
    /// Whether a completed write may be lost at a power loss until it is flushed.
    pub volatile_cache: bool,
    /// Whether seeks are expensive.
    pub rotational: bool,
}

impl Default for Limits {
    /// 512-byte blocks, any memory address, 1 MiB transfers, every operation.
    fn default() -> Limits {
        Limits {
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            memory_align_bytes: 1,
            max_transfer_bytes: 1 << 20,
            max_segments: 256,
            io_min_bytes: 4096,
            io_opt_bytes: 0,
            chunk_bytes: 0,
            virt_boundary_mask: 0,
            queue_depth: 128,
            discard: true,
            write_zeroes: true,
            fua: true,
            volatile_cache: true,
            rotational: false,
        }
    }
}

impl Limits {
    /// Checks the range, alignment and flags of `request` for a device of `len_bytes`.
    ///
    /// [`admit_strictly`] also checks `max_transfer_bytes`, `max_segments` and `virt_boundary_mask`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] with the reason.
    ///
    /// [`admit_strictly`]: Limits::admit_strictly
    pub fn admit(&self, request: &Request, len_bytes: u64) -> io::Result<()> {
        if request.op() == Op::Flush {
            return Ok(());
        }
        let block = u64::from(self.logical_block_bytes).max(1);
        let (offset, len) = (request.offset_bytes(), request.len_bytes());
        if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Err(refused(
                request,
                format_args!("is not in whole blocks of {block} bytes"),
            ));
        }
        // If rounding up overflows, the length is so near 2^64 that no request reaches a partial last block.
        let end_of_device = len_bytes
            .checked_next_multiple_of(block)
            .unwrap_or(len_bytes);
        if offset
            .checked_add(len)
            .is_none_or(|end| end > end_of_device)
        {
            return Err(refused(
                request,
                format_args!("is past the end of the device at {len_bytes}"),
            ));
        }
        if request.fua() && (!self.fua || request.op() != Op::Write) {
            return Err(refused(
                request,
                format_args!("carries FUA, which is not supported"),
            ));
        }
        let align_mask = (self.memory_align_bytes.max(1) - 1) as usize;
        if align_mask != 0 && !request.memory_is_aligned(align_mask) {
            return Err(refused(
                request,
                format_args!(
                    "has memory that is not aligned to {} bytes",
                    self.memory_align_bytes
                ),
            ));
        }
        Ok(())
    }

    /// As [`admit`](Limits::admit), and checks the size limits too, for a device without a kernel below it.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] with the reason.
    pub fn admit_strictly(&self, request: &Request, len_bytes: u64) -> io::Result<()> {
        self.admit(request, len_bytes)?;
        if !matches!(request.op(), Op::Read | Op::Write) {
            return Ok(());
        }
        if request.len_bytes() > u64::from(self.max_transfer_bytes) {
            return Err(refused(
                request,
                format_args!(
                    "is longer than one transfer of {} bytes",
                    self.max_transfer_bytes
                ),
            ));
        }
        if request.segment_count() > self.max_segments as usize {
            return Err(refused(
                request,
                format_args!("has more than {} segments", self.max_segments),
            ));
        }
        if self.virt_boundary_mask != 0 && request.has_gap(self.virt_boundary_mask) {
            return Err(refused(
                request,
                format_args!(
                    "has a memory gap (boundary mask {:#x})",
                    self.virt_boundary_mask
                ),
            ));
        }
        Ok(())
    }
}

fn refused(request: &Request, why: std::fmt::Arguments<'_>) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "{:?} of {} bytes at {} {why}",
            request.op(),
            request.len_bytes(),
            request.offset_bytes()
        ),
    )
}
