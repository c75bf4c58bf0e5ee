//! The models by name, with the sources of their numbers.

use throughline_device::Limits;

use crate::model::{Commands, Figure, Host, Law, Model};

const KIB: u32 = 1 << 10;
const GIB: u64 = 1 << 30;

/// All models, in listing order.
pub const MODELS: &[Model] = &[XEON_DISK, NVME, DISK_ARRAY, UFS_PHONE, SATA_DISK];

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

/// Report 1.
const XEON_DISK: Model = Model {
    name: "xeon-disk",
    about: "report 1: the disk below ext3, 102 MB/s, and its computer's 6.9 us for each bio",
    limits: Limits {
        queue_depth: 32,
        fua: false,
        rotational: true,
        ..PLAIN
    },
    law: Law {
        bytes_per_s: 102_400_000,
        command_ns: 50_000,
        commands: Commands::OfDevice,
        latency_ns: 0,
        seek_ns: 0,
        flush_ns: 8_300_000,
    },
    host: Host {
        request_ns: 6_840,
        ..NO_HOST
    },
    len_bytes: 256 * GIB,
    figures: &[
        Figure {
            what: "speed",
            value: "102.4 MB/s",
            source: "report 1: 1000 writes of 4096 KiB in 40.948 s, patched; including head movements \
                between them",
        },
        Figure {
            what: "host, each request",
            value: "6.84 us",
            source: "report 1: 74.658 % of 41.304 s less 58.325 % of 40.948 s, over 1000 times the 1024 \
                bios less the 8 of 512 KiB, assuming that sar's percentage is of one processor",
        },
        Figure {
            what: "queue depth, longest transfer, command stage, flush, FUA",
            value: "32, 512 KiB, 50 us, 8.3 ms, no",
            source: "assumed, as sata-disk; no figure of the report depends on them",
        },
    ],
};

/// Report 4.
const UFS_PHONE: Model = Model {
    name: "ufs-phone",
    about: "report 4: the UFS storage of a phone, 2 GB/s, 32 deep, 1 MiB transfers, and the phone's \
        processor",
    limits: Limits {
        logical_block_bytes: 4096,
        max_transfer_bytes: 1024 * KIB,
        queue_depth: 32,
        ..PLAIN
    },
    law: Law {
        bytes_per_s: 2_000_000_000,
        command_ns: 10_000,
        commands: Commands::OfDevice,
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
    figures: &[
        Figure {
            what: "speed",
            value: "2000 MB/s",
            source: "report 4: 512 MB read at 2000 MB/s; 32 MiB take the device 16.7 ms, which is 2009",
        },
        Figure {
            what: "queue depth",
            value: "32",
            source: "report 4",
        },
        Figure {
            what: "longest transfer",
            value: "1 MiB",
            source: "report 4: max_sectors_kb",
        },
        Figure {
            what: "host, each page before submission",
            value: "244 ns",
            source: "report 4: 2 ms until the 8192 pages of 32 MiB are merged",
        },
        Figure {
            what: "host, each request",
            value: "37.5 us",
            source: "report 4: the first bio of 1 MiB is submitted after about 100 us, less its 256 pages",
        },
        Figure {
            what: "host, each page at completion",
            value: "37 ns",
            source: "report 4: 19 ms in all for a bio of 32 MiB, less 2 ms of merging and 16.7 ms of the \
                device, over its pages",
        },
        Figure {
            what: "command stage",
            value: "10 us",
            source: "assumed: 100,000 commands/s, of the order that UFS 3 data sheets state; no figure of \
                the report depends on it",
        },
        Figure {
            what: "latency, flush, logical block",
            value: "50 us, 0.5 ms, 4 KiB",
            source: "assumed: time to read flash cells, time to program them, block size that UFS devices \
                report",
        },
    ],
};

/// Report 5.
const SATA_DISK: Model = Model {
    name: "sata-disk",
    about: "report 5: a 1 TB SATA disk, 133 MB/s, NCQ 32",
    limits: Limits {
        queue_depth: 32,
        fua: false,
        rotational: true,
        ..PLAIN
    },
    law: Law {
        bytes_per_s: 133_000_000,
        command_ns: 50_000,
        commands: Commands::OfDevice,
        latency_ns: 0,
        seek_ns: 12_700_000,
        flush_ns: 8_300_000,
    },
    host: NO_HOST,
    len_bytes: 1_000_204_886_016,
    figures: &[
        Figure {
            what: "speed",
            value: "133 MB/s",
            source: "between report 5's two kernels, 135.7 and 131.0 MB/s, and close to its log's 132.15; \
                MB taken as 10^6 bytes",
        },
        Figure {
            what: "queue depth",
            value: "32",
            source: "NCQ has 32 tags (SATA 3)",
        },
        Figure {
            what: "longest transfer",
            value: "512 KiB",
            source: "Linux 4.0's default max_sectors_kb for a SATA disk",
        },
        Figure {
            what: "seek",
            value: "12.7 ms",
            source: "assumed: 8.5 ms average seek and half a rotation at 7200 rpm, 4.2 ms, as data sheets \
                of such disks state",
        },
        Figure {
            what: "flush",
            value: "8.3 ms",
            source: "assumed: one rotation",
        },
        Figure {
            what: "command stage, FUA, length",
            value: "50 us, no, 1 TB",
            source: "assumed (hidden behind transfers); libata's default; report 5's disk",
        },
    ],
};

/// Report 3.
const DISK_ARRAY: Model = Model {
    name: "disk-array",
    about: "report 3: four disks as one, 330 MB/s, and a processor of 2008 that fills the pages",
    limits: Limits {
        queue_depth: 128,
        rotational: true,
        ..PLAIN
    },
    law: Law {
        bytes_per_s: 330_000_000,
        command_ns: 50_000,
        commands: Commands::OfDevice,
        latency_ns: 0,
        seek_ns: 12_700_000,
        flush_ns: 8_300_000,
    },
    host: Host {
        page_fill_ns: 7_568,
        ..NO_HOST
    },
    len_bytes: 256 * GIB,
    figures: &[
        Figure {
            what: "speed",
            value: "330 MB/s",
            source: "report 3: O_DIRECT",
        },
        Figure {
            what: "host, each page filled",
            value: "7.568 us",
            source: "report 3, fitted: 4 MiB at the old method's 205 MB/s less 4 MiB at the array's 330, \
                over 1024 pages; so the old method's figure is an input, and those of other methods on \
                the same host are results",
        },
        Figure {
            what: "queue depth",
            value: "128",
            source: "assumed: NCQ's 32 tags for each of the four",
        },
        Figure {
            what: "longest transfer, command stage, seek, flush",
            value: "512 KiB, 50 us, 12.7 ms, 8.3 ms",
            source: "assumed, as sata-disk",
        },
    ],
};

/// The kind of device in report 2, as sold at that time.
const NVME: Model = Model {
    name: "nvme",
    about: "report 2: an NVMe disk of 2014 with a queue for each core, 2.8 GB/s, 460,000 IOPS",
    limits: Limits {
        max_transfer_bytes: 128 * KIB,
        queue_depth: 128,
        virt_boundary_mask: 4095,
        memory_align_bytes: 4,
        discard: true,
        write_zeroes: true,
        ..PLAIN
    },
    law: Law {
        bytes_per_s: 2_800_000_000,
        command_ns: 2_174,
        commands: Commands::OfQueue,
        latency_ns: 16_000,
        seek_ns: 0,
        flush_ns: 20_000,
    },
    host: NO_HOST,
    len_bytes: 400_088_457_216,
    figures: &[
        Figure {
            what: "speed",
            value: "2800 MB/s",
            source: "Intel SSD DC P3700's data sheet (2014), sequential read",
        },
        Figure {
            what: "command stage, of each queue",
            value: "2.174 us",
            source: "same source: 460,000 random reads of 4 KiB per second, as the cost of one queue; the \
                report's queues share only the counter",
        },
        Figure {
            what: "latency",
            value: "16 us",
            source: "same source: 20 us for a read of 4 KiB, less command and transfer",
        },
        Figure {
            what: "queue depth, longest transfer",
            value: "128, 128 KiB",
            source: "same source; MDTS 5",
        },
        Figure {
            what: "flush",
            value: "20 us",
            source: "assumed: its cache is backed by capacitors",
        },
        Figure {
            what: "many cores",
            value: "measured, then extrapolated",
            source: "founding/2: the costs of an I/O and of a cache line transfer are measured, and the \
                law of `Scaling` extrapolates to 2 to 128 cores",
        },
    ],
};
