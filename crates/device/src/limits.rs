//! What a device can do and what it asks of a request.

use std::io;

use crate::{Op, Request};

/// What a device is, how it is reached, and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Path, or a word for devices that have none.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// Which engine carries its requests: `uring`, `threads`, `memory`, `null`.
    pub engine: &'static str,
    /// Whether requests bypass the kernel's page cache (`O_DIRECT`).
    pub direct: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Its limits.
    pub limits: Limits,
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A regular file, for example an image.
    RegularFile,
    /// A block special file.
    BlockDevice,
    /// Our own memory.
    Memory,
    /// Nothing: writes vanish, reads leave the memory as it is.
    Null,
    /// Something else, as a test's device.
    Other,
}

/// What requests must look like, and what the device is good at. Bytes, counts, and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Offsets and lengths are multiples of this; a power of two, at least 512.
    pub logical_block_bytes: u32,
    /// What the device writes without a read-modify-write; a multiple of the logical block.
    pub physical_block_bytes: u32,
    /// Segment addresses are multiples of this; a power of two, 1 where any address will do.
    pub memory_align_bytes: u32,
    /// The longest transfer that the device takes as one. A file or block device takes longer requests
    /// too, and the kernel splits them; the memory device refuses them.
    pub max_transfer_bytes: u32,
    /// The most segments in one request.
    pub max_segments: u32,
    /// Preferred smallest request; 0 where unknown.
    pub io_min_bytes: u32,
    /// Preferred request for streams, as a RAID stripe; 0 where unknown.
    pub io_opt_bytes: u32,
    /// A request is best not to cross multiples of this; 0 for no such boundary.
    pub chunk_bytes: u32,
    /// Inner segment boundaries are multiples of `mask + 1` in memory; 0 for no such demand.
    pub virt_boundary_mask: u64,
    /// How many requests the device works on at once.
    pub queue_depth: u32,
    /// Whether [`Op::Discard`] may be tried.
    pub discard: bool,
    /// Whether [`Op::WriteZeroes`] may be tried.
    pub write_zeroes: bool,
    /// Whether a write may carry `fua`.
    pub fua: bool,
    /// Whether a finished write may still be lost at power loss until a flush.
    pub volatile_cache: bool,
    /// Whether seeks cost.
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
    /// Whether `request` may go to a device of `len_bytes`: its range, its alignment, its flags.
    ///
    /// `max_transfer_bytes`, `max_segments` and `virt_boundary_mask` are [`admit_strictly`]'s.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] with what is wrong.
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
        // A length so near 2^64 that it cannot be rounded up has no partial block that could be used.
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
                format_args!("carries FUA, which cannot be done"),
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

    /// As [`admit`](Limits::admit), and the size limits too: what a device without a kernel below it asks.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] with what is wrong.
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
                format_args!("has more segments than {}", self.max_segments),
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
