//! Discovers the properties of a file or block device by `stat`, `statx`, ioctls, and `/sys/dev/block`.
//!
//! A regular file has the limits that its file system reports (`STATX_DIOALIGN`), and those of the disk below
//! if one can be found. None can for btrfs, overlayfs and tmpfs.

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, StatxFlags, fstatfs, ioctl_blkpbszget, ioctl_blksszget, major, minor, statx,
};
use rustix::ioctl;

use crate::{DeviceKind, Limits};

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
const EXT_MAGIC: u64 = 0xef53;
const XFS_MAGIC: u64 = 0x5846_5342;
const BTRFS_MAGIC: u64 = 0x9123_683e;
const F2FS_MAGIC: u64 = 0xf2f5_2010;
const MIN_BLOCK_BYTES: u32 = 512;

pub(super) struct Discovered {
    pub(super) kind: DeviceKind,
    pub(super) len_bytes: u64,
    pub(super) limits: Limits,
}

/// `_IO(0x12, 94)` of linux/fs.h: returns whether a block device is write-protected, as an int.
const BLKROGET: ioctl::Opcode = ioctl::opcode::none(0x12, 94);

/// Whether it is a write-protected block device. Opening one for writing may still succeed.
pub(crate) fn is_write_protected(file: &File, metadata: &Metadata) -> bool {
    if !is_block_device(metadata) {
        return false;
    }
    // SAFETY: BLKROGET fills an int.
    let get = unsafe { ioctl::Getter::<BLKROGET, libc::c_int>::new() };
    // SAFETY: it writes only that memory.
    unsafe { ioctl::ioctl(file, get) }.is_ok_and(|protected| protected != 0)
}

pub(crate) fn is_block_device(metadata: &Metadata) -> bool {
    metadata.file_type().is_block_device()
}

/// Whether to try direct I/O on the file.
///
/// Memory file systems accept `O_DIRECT` but still copy through their pages. A file system may report that it
/// is impossible for this file (an encrypted one, for example).
pub(crate) fn may_be_direct(file: &File, metadata: &Metadata) -> bool {
    // Only regular files: a block device's node is in a memory file system too, but its content is not.
    let in_memory = metadata.is_file()
        && fstatfs(file).is_ok_and(|s| matches!(s.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC));
    !in_memory && direct_alignment(file) != DirectAlignment::Impossible
}

/// Whether a write to the file with `RWF_DSYNC` is durable when it returns.
///
/// That depends on the file system: FUSE servers do not get the flag, and some network file systems contact
/// their server only at `fsync`. So the flag is trusted only on file systems known to honour it; elsewhere a
/// flush follows.
fn keeps_dsync(file: &File, metadata: &Metadata) -> bool {
    // For a block device, `fstatfs` would describe the file system of its node.
    is_block_device(metadata) || is_of_this_machine(file)
}

/// Whether the file is on a known local file system of the kernel, on a disk or in memory.
pub(crate) fn is_of_this_machine(file: &File) -> bool {
    fstatfs(file).is_ok_and(|s| is_own(s.f_type as u64))
}

fn is_own(magic: u64) -> bool {
    matches!(
        magic & 0xffff_ffff,
        EXT_MAGIC | XFS_MAGIC | BTRFS_MAGIC | F2FS_MAGIC | TMPFS_MAGIC | RAMFS_MAGIC
    )
}

pub(super) fn discover(file: &File, direct: bool) -> io::Result<Discovered> {
    let metadata = file.metadata()?;
    let is_device = is_block_device(&metadata);
    let disk = Disk::of(if is_device {
        metadata.rdev()
    } else {
        metadata.dev()
    });
    let mut limits = disk.limits();
    limits.fua = keeps_dsync(file, &metadata);
    let (kind, len_bytes) = if is_device {
        limits.logical_block_bytes = ioctl_blksszget(file)?;
        limits.physical_block_bytes = ioctl_blkpbszget(file)?;
        (DeviceKind::BlockDevice, (&*file).seek(SeekFrom::End(0))?)
    } else {
        // Whether the file system supports these shows only when they are tried. A flush is needed at least
        // for the file's own metadata, whatever the disk's cache.
        (limits.discard, limits.write_zeroes, limits.volatile_cache) = (true, true, true);
        (DeviceKind::RegularFile, metadata.len())
    };
    match direct_alignment(file) {
        _ if !direct => {
            limits.memory_align_bytes = 1;
            if !is_device {
                limits.logical_block_bytes = MIN_BLOCK_BYTES;
            }
        }
        DirectAlignment::Known { memory, offset } => {
            limits.memory_align_bytes = memory;
            limits.logical_block_bytes = if is_device {
                offset.max(limits.logical_block_bytes)
            } else {
                offset
            };
        }
        DirectAlignment::Unknown | DirectAlignment::Impossible => {
            if !disk.is_known() {
                limits.logical_block_bytes = 4096;
            }
            limits.memory_align_bytes = limits.logical_block_bytes;
        }
    }
    Ok(Discovered {
        kind,
        len_bytes,
        limits: normalised(limits),
    })
}

/// Normalises the values that the system reported to what `Limits` guarantees.
fn normalised(mut limits: Limits) -> Limits {
    let power = |bytes: u32, least: u32| bytes.clamp(least, 1 << 30).next_power_of_two();
    limits.logical_block_bytes = power(limits.logical_block_bytes, MIN_BLOCK_BYTES);
    limits.physical_block_bytes = power(limits.physical_block_bytes, limits.logical_block_bytes);
    limits.memory_align_bytes = power(limits.memory_align_bytes, 1);
    let block = limits.logical_block_bytes;
    let whole_blocks = |bytes: u32| bytes - bytes % block;
    limits.max_transfer_bytes = whole_blocks(limits.max_transfer_bytes).max(block);
    limits.io_min_bytes = whole_blocks(limits.io_min_bytes);
    limits.io_opt_bytes = whole_blocks(limits.io_opt_bytes);
    limits.chunk_bytes = whole_blocks(limits.chunk_bytes);
    limits
}

#[derive(PartialEq, Eq)]
enum DirectAlignment {
    /// Not reported (by kernels before 6.1, or this file system).
    Unknown,
    /// The kernel reports that direct I/O on this file is impossible.
    Impossible,
    /// In bytes.
    Known { memory: u32, offset: u32 },
}

fn direct_alignment(file: &File) -> DirectAlignment {
    let Ok(found) = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
        return DirectAlignment::Unknown;
    };
    if found.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        DirectAlignment::Unknown
    } else if found.stx_dio_offset_align == 0 || found.stx_dio_mem_align == 0 {
        DirectAlignment::Impossible
    } else {
        DirectAlignment::Known {
            memory: found.stx_dio_mem_align,
            offset: found.stx_dio_offset_align,
        }
    }
}

/// The `queue` directory in sysfs of a disk, or of a partition's disk; `None` if there is none.
struct Disk(Option<PathBuf>);

impl Disk {
    fn of(device: u64) -> Disk {
        let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        let Ok(mut folder) = Path::new(&link).canonicalize() else {
            return Disk(None);
        };
        if folder.join("partition").exists() {
            folder.pop();
        }
        Disk(Some(folder.join("queue")).filter(|queue| queue.is_dir()))
    }

    fn is_known(&self) -> bool {
        self.0.is_some()
    }

    fn word(&self, name: &str) -> Option<String> {
        Some(
            std::fs::read_to_string(self.0.as_ref()?.join(name))
                .ok()?
                .trim()
                .to_owned(),
        )
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.word(name)?.parse().ok()
    }

    /// The number times `unit`, in bytes, saturated; `default` if it is not reported.
    fn bytes(&self, name: &str, unit: u64, default: u32) -> u32 {
        match self.number(name) {
            Some(n) => u32::try_from(n.saturating_mul(unit)).unwrap_or(u32::MAX),
            None => default,
        }
    }

    fn limits(&self) -> Limits {
        let or = Limits::default();
        let can = |name| self.number(name).is_some_and(|bytes| bytes > 0);
        Limits {
            logical_block_bytes: self.bytes("logical_block_size", 1, or.logical_block_bytes),
            physical_block_bytes: self.bytes("physical_block_size", 1, or.physical_block_bytes),
            memory_align_bytes: or.memory_align_bytes, // set by the caller, from statx
            max_transfer_bytes: self.bytes("max_sectors_kb", 1024, or.max_transfer_bytes),
            max_segments: self
                .bytes("max_segments", 1, or.max_segments)
                .clamp(1, 1024),
            io_min_bytes: self.bytes("minimum_io_size", 1, or.io_min_bytes),
            io_opt_bytes: self.bytes("optimal_io_size", 1, or.io_opt_bytes),
            chunk_bytes: self.bytes("chunk_sectors", 512, or.chunk_bytes),
            // The kernel splits at its own memory boundaries, so the layers above need not.
            virt_boundary_mask: 0,
            queue_depth: self.bytes("nr_requests", 1, or.queue_depth).clamp(1, 256),
            discard: can("discard_max_bytes"),
            write_zeroes: true, // the kernel writes zeros if the device cannot
            fua: or.fua,        // set by the caller, from the file system
            volatile_cache: self
                .word("write_cache")
                .is_none_or(|cache| cache == "write back"),
            rotational: self.number("rotational") == Some(1),
        }
    }
}
