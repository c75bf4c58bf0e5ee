//! The models by name, with the sources of their numbers.

use throughline_device::Limits;

use crate::model::{Host, Law, Model};

const KIB: u32 = 1 << 10;
const GIB: u64 = 1 << 30;

/// All models, in listing order.
pub const MODELS: &[Model] = &[XEON_DISK, DISK_ARRAY, UFS_PHONE, SATA_DISK];

/// The model with this name.
pub fn find(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.name == name)
}

/// Limits common to the models.
const PLAIN: Limits = Limits {
    logical_block_bytes: 512,
    physical_block_bytes: 4096,
    memory_align_bytes: 512,
    max_transfer_bytes: 512 * KIB,
    max_segments: 256,
    io_min_bytes: 0,
    io_opt_bytes: 0,
    chunk_bytes: 0,
    virt_boundary_mask: 0,
    queue_depth: 32,
    discard: false,
    write_zeroes: false,
    fua: true,
    volatile_cache: true,
    rotational: false,
};

const NO_HOST: Host = Host {
    request_ns: 0,
    page_in_ns: 0,
    page_out_ns: 0,
    page_fill_ns: 0,
};

/// Report 1: the disk below ext3, 102 MB/s, and its computer's 6.9 us for each bio. The sources of its
/// numbers:
///
/// - speed: 102.4 MB/s; report 1: 1000 writes of 4096 KiB in 40.948 s, patched; including head movements
///   between them
/// - host, each request: 6.84 us; report 1: 74.658 % of 41.304 s less 58.325 % of 40.948 s, over 1000 times
///   the 1024 bios less the 8 of 512 KiB, assuming that sar's percentage is of one processor
/// - queue depth, longest transfer, command stage, flush, FUA: 32, 512 KiB, 50 us, 8.3 ms, no; assumed, as
///   sata-disk; no figure of the report depends on them
const XEON_DISK: Model = Model {
    name: "xeon-disk",
    limits: Limits {
        queue_depth: 32,
        fua: false,
        rotational: true,
        ..PLAIN
    },
    law: Law {
        bytes_per_s: 102_400_000,
        command_ns: 50_000,
        latency_ns: 0,
        seek_ns: 0,
        flush_ns: 8_300_000,
    },
    host: Host {
        request_ns: 6_840,
        ..NO_HOST
    },
    len_bytes: 256 * GIB,
};

/// Report 4: the UFS storage of a phone, 2 GB/s, 32 deep, 1 MiB transfers, and the phone's processor. The
/// sources of its numbers:
///
/// - speed: 2000 MB/s; report 4: 512 MB read at 2000 MB/s; 32 MiB take the device 16.7 ms, which is 2009
/// - queue depth: 32; report 4
/// - longest transfer: 1 MiB; report 4: max_sectors_kb
/// - host, each page before submission: 244 ns; report 4: 2 ms until the 8192 pages of 32 MiB are merged
/// - host, each request: 37.5 us; report 4: the first bio of 1 MiB is submitted after about 100 us, less its
///   256 pages
/// - host, each page at completion: 37 ns; report 4: 19 ms in all for a bio of 32 MiB, less 2 ms of merging
///   and 16.7 ms of the device, over its pages
/// - command stage: 10 us; assumed: 100,000 commands/s, of the order that UFS 3 data sheets state; no figure
///   of the report depends on it
/// - latency, flush, logical block: 50 us, 0.5 ms, 4 KiB; assumed: time to read flash cells, time to program
///   them, block size that UFS devices report
const UFS_PHONE: Model = Model {
    name: "ufs-phone",
    limits: Limits {
        logical_block_bytes: 4096,
        max_transfer_bytes: 1024 * KIB,
        queue_depth: 32,
        ..PLAIN
    },
    law: Law {
        bytes_per_s: 2_000_000_000,
        command_ns: 10_000,
        latency_ns: 50_000,
        seek_ns: 0,
        flush_ns: 500_000,
    },
    host: Host {
        request_ns: 37_500,
        page_in_ns: 244,
        page_out_ns: 37,
        page_fill_ns: 0,
    },
    len_bytes: 4 * GIB,
};

/// Report 5: a 1 TB SATA disk, 133 MB/s, NCQ 32. The sources of its numbers:
///
/// - speed: 133 MB/s; between report 5's two kernels, 135.7 and 131.0 MB/s, and close to its log's 132.15; MB
///   taken as 10^6 bytes
/// - queue depth: 32; NCQ has 32 tags (SATA 3)
/// - longest transfer: 512 KiB; Linux 4.0's default max_sectors_kb for a SATA disk
/// - seek: 12.7 ms; assumed: 8.5 ms average seek and half a rotation at 7200 rpm, 4.2 ms, as data sheets of
///   such disks state
/// - flush: 8.3 ms; assumed: one rotation
/// - command stage, FUA, length: 50 us, no, 1 TB; assumed (hidden behind transfers); libata's default; report
///   5's disk
const SATA_DISK: Model = Model {
    name: "sata-disk",
    limits: Limits {
        queue_depth: 32,
        fua: false,
        rotational: true,
        ..PLAIN
    },
    law: Law {
        bytes_per_s: 133_000_000,
        command_ns: 50_000,
        latency_ns: 0,
        seek_ns: 12_700_000,
        flush_ns: 8_300_000,
    },
    host: NO_HOST,
    len_bytes: 1_000_204_886_016,
};

/// Report 3: four disks as one, 330 MB/s, and a processor of 2008 that fills the pages. The sources of its
/// numbers:
///
/// - speed: 330 MB/s; report 3: O_DIRECT
/// - host, each page filled: 7.568 us; report 3, fitted: 4 MiB at the old method's 205 MB/s less 4 MiB at the
///   array's 330, over 1024 pages; so the old method's figure is an input, and those of other methods on the
///   same host are results
/// - queue depth: 128; assumed: NCQ's 32 tags for each of the four
/// - longest transfer, command stage, seek, flush: 512 KiB, 50 us, 12.7 ms, 8.3 ms; assumed, as sata-disk
const DISK_ARRAY: Model = Model {
    name: "disk-array",
    limits: Limits {
        queue_depth: 128,
        rotational: true,
        ..PLAIN
    },
    law: Law {
        bytes_per_s: 330_000_000,
        command_ns: 50_000,
        latency_ns: 0,
        seek_ns: 12_700_000,
        flush_ns: 8_300_000,
    },
    host: Host {
        page_fill_ns: 7_568,
        ..NO_HOST
    },
    len_bytes: 256 * GIB,
};
