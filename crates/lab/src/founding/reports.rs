//! What each report claimed, and which variants of its experiment answer it.

use crate::Result;
use crate::experiments::{Experiment, find};

/// One founding report.
#[derive(Debug)]
pub struct Report {
    /// Its number, 1 to 5.
    pub number: u8,
    /// What it is about.
    pub title: &'static str,
    /// The experiment that keeps it alive.
    pub experiment: &'static str,
    /// The report's own figures, a line each.
    pub claimed: &'static [&'static str],
    /// What the kernel's column is, or why there is none.
    pub kernel: &'static str,
    pub(super) rows: &'static [Row],
}

impl Report {
    /// The experiment itself.
    ///
    /// # Errors
    /// None for those in [`REPORTS`].
    pub fn experiment(&self) -> Result<&'static Experiment> {
        find(self.experiment)
    }
}

/// One line of a report's table.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) from: From,
    pub(super) old: &'static str,
    pub(super) ours: &'static str,
    /// Empty where there is none.
    pub(super) kernel: &'static str,
}

/// Where a line's figures are.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    /// In samples of this quantity; the columns name variants.
    Samples(&'static str),
    /// In counts; the columns name them.
    Counts(&'static str),
}

const fn row(
    what: &'static str,
    quantity: &'static str,
    [old, ours, kernel]: [&'static str; 3],
) -> Row {
    Row {
        what,
        from: From::Samples(quantity),
        old,
        ours,
        kernel,
    }
}

/// The reports in their order.
pub const REPORTS: &[Report] = &[FIRST, SECOND, THIRD, FOURTH, FIFTH];

const FIRST: Report = Report {
    number: 1,
    title: "ext3 direct I/O, a bio for each page behind an indirect block",
    experiment: "founding/1",
    claimed: &[
        "CPU 74.7 % -> 58.3 % (x 0.78) for 1000 direct writes of 4 MiB",
        "on a RAM disk 350 MB/s -> 1.2 GB/s (x 3.4)",
    ],
    kernel: "the kernel's ext3 of today on a loop device",
    rows: &[
        row(
            "disk",
            "throughput",
            ["one bio per page", "ours", "kernel ext3 on loop"],
        ),
        row("disk, processor", "cpu", ["one bio per page", "ours", ""]),
        row(
            "disk, bios per call",
            "bios per call",
            ["one bio per page", "ours", ""],
        ),
        row(
            "RAM disk",
            "throughput",
            ["RAM disk: one bio per page", "RAM disk: ours", ""],
        ),
        row(
            "memory",
            "throughput",
            ["memory: one bio per page", "memory: ours", ""],
        ),
        row(
            "model xeon-disk",
            "throughput",
            ["model: one bio per page", "model: ours", ""],
        ),
        row(
            "model xeon-disk, processor",
            "cpu",
            ["model: one bio per page", "model: ours", ""],
        ),
        row(
            "model xeon-disk, bios per call",
            "bios per call",
            ["model: one bio per page", "model: ours", ""],
        ),
    ],
};

const fn cores(what: &'static str, [old, ours]: [&'static str; 2]) -> Row {
    Row {
        what,
        from: From::Counts("kIOPS"),
        old,
        ours,
        kernel: "",
    }
}

const SECOND: Report = Report {
    number: 2,
    title: "i_dio_count, two atomic operations on one shared cache line for each I/O",
    experiment: "founding/2",
    claimed: &[
        "30 % of system time; x 3.6 without it (as merged: 2.5 M -> 9.6 M IOPS) on a many-core machine",
    ],
    kernel: "none: it took the counter away from raw devices in 2015, and what is left is not its cost",
    rows: &[
        row(
            "raw device, 1 thread",
            "rate",
            [
                "raw, one shared counter, 1 threads",
                "raw, none (ours), 1 threads",
                "",
            ],
        ),
        row(
            "raw device, 2 threads",
            "rate",
            [
                "raw, one shared counter, 2 threads",
                "raw, none (ours), 2 threads",
                "",
            ],
        ),
        row(
            "raw device, 4 threads",
            "rate",
            [
                "raw, one shared counter, 4 threads",
                "raw, none (ours), 4 threads",
                "",
            ],
        ),
        row(
            "raw device, 8 threads",
            "rate",
            [
                "raw, one shared counter, 8 threads",
                "raw, none (ours), 8 threads",
                "",
            ],
        ),
        row(
            "file, 1 thread",
            "rate",
            [
                "file, one shared counter, 1 threads",
                "file, sharded (ours), 1 threads",
                "",
            ],
        ),
        row(
            "file, 2 threads",
            "rate",
            [
                "file, one shared counter, 2 threads",
                "file, sharded (ours), 2 threads",
                "",
            ],
        ),
        cores(
            "model,   2 cores",
            [
                "model,   2 cores: one shared counter, kIOPS",
                "model,   2 cores: no count, kIOPS",
            ],
        ),
        cores(
            "model,   4 cores",
            [
                "model,   4 cores: one shared counter, kIOPS",
                "model,   4 cores: no count, kIOPS",
            ],
        ),
        cores(
            "model,   8 cores",
            [
                "model,   8 cores: one shared counter, kIOPS",
                "model,   8 cores: no count, kIOPS",
            ],
        ),
        cores(
            "model,  16 cores",
            [
                "model,  16 cores: one shared counter, kIOPS",
                "model,  16 cores: no count, kIOPS",
            ],
        ),
        cores(
            "model,  32 cores",
            [
                "model,  32 cores: one shared counter, kIOPS",
                "model,  32 cores: no count, kIOPS",
            ],
        ),
        cores(
            "model,  64 cores",
            [
                "model,  64 cores: one shared counter, kIOPS",
                "model,  64 cores: no count, kIOPS",
            ],
        ),
        cores(
            "model, 128 cores",
            [
                "model, 128 cores: one shared counter, kIOPS",
                "model, 128 cores: no count, kIOPS",
            ],
        ),
    ],
};

const THIRD: Report = Report {
    number: 3,
    title: "buffered streaming writes, written back by the writer itself in slices of 4 MiB",
    experiment: "founding/3",
    claimed: &[
        "205 MB/s -> 326 MB/s on an array of four disks where O_DIRECT runs at 330 (x 0.62 -> x 0.99 of direct)",
    ],
    kernel: "the kernel's ext4 of today on a loop device",
    rows: &[
        row(
            "image, 1 writer",
            "throughput",
            [
                "image, old way, 1 writer",
                "image, buffered, 1 writer",
                "image, kernel ext4, 1 writer",
            ],
        ),
        row(
            "image, 1 writer, direct",
            "throughput",
            ["", "image, direct, 1 writer", ""],
        ),
        row(
            "image, 8 writers",
            "throughput",
            [
                "image, old way, 8 writers",
                "image, buffered, 8 writers",
                "image, kernel ext4, 8 writers",
            ],
        ),
        row(
            "image, 8 writers, direct",
            "throughput",
            ["", "image, direct, 8 writers", ""],
        ),
        row(
            "plain file, 1 writer",
            "throughput",
            [
                "plain file, old way, 1 writer",
                "plain file, buffered, 1 writer",
                "",
            ],
        ),
        row(
            "plain file, 1 writer, direct",
            "throughput",
            ["", "plain file, direct, 1 writer", ""],
        ),
        row(
            "model disk-array, 1 writer",
            "throughput",
            [
                "array model, old way, 1 writer",
                "array model, buffered, 1 writer",
                "",
            ],
        ),
        row(
            "model disk-array, direct",
            "throughput",
            ["", "array model, direct, 1 writer", ""],
        ),
    ],
};

const FOURTH: Report = Report {
    number: 4,
    title: "a large direct read gathered into one bio before anything is submitted",
    experiment: "founding/4",
    claimed: &[
        "first submit 2 ms -> 100 us; 32 MiB in 19 -> 17 ms",
        "512 MB read at 1900 -> 2000 MB/s (x 1.05)",
    ],
    kernel: "the kernel's O_DIRECT with the same call on the same file",
    rows: &[
        row(
            "disk, 32 MiB read",
            "throughput",
            [
                "32 MiB read: whole request",
                "32 MiB read: ours",
                "32 MiB read: kernel O_DIRECT",
            ],
        ),
        row(
            "disk, 64 MiB read",
            "throughput",
            [
                "64 MiB read: whole request",
                "64 MiB read: ours",
                "64 MiB read: kernel O_DIRECT",
            ],
        ),
        row(
            "disk, 32 MiB write",
            "throughput",
            [
                "32 MiB write: whole request",
                "32 MiB write: ours",
                "32 MiB write: kernel O_DIRECT",
            ],
        ),
        row(
            "disk, 64 MiB write",
            "throughput",
            [
                "64 MiB write: whole request",
                "64 MiB write: ours",
                "64 MiB write: kernel O_DIRECT",
            ],
        ),
        row(
            "disk, 32 MiB read, first submit",
            "first submit",
            ["32 MiB read: whole request", "32 MiB read: ours", ""],
        ),
        row(
            "disk, 4 requests deep (control)",
            "throughput",
            [
                "32 MiB read: depth 4, whole request",
                "32 MiB read: depth 4, ours",
                "",
            ],
        ),
        row(
            "model ufs-phone, 32 MiB",
            "throughput",
            [
                "phone model, 32 MiB read: whole request",
                "phone model, 32 MiB read: ours",
                "",
            ],
        ),
        row(
            "model ufs-phone, 512 MiB by 64 MiB",
            "throughput",
            [
                "phone model, 64 MiB read: whole request",
                "phone model, 64 MiB read: ours",
                "",
            ],
        ),
        row(
            "model ufs-phone, first submit",
            "first submit",
            [
                "phone model, 32 MiB read: whole request",
                "phone model, 32 MiB read: ours",
                "",
            ],
        ),
    ],
};

const FIFTH: Report = Report {
    number: 5,
    title: "inode_to_bdi(), a call for each page where there was a pointer",
    experiment: "founding/5",
    claimed: &["135.7 (stdev 1.61) -> 131.0 MB/s (stdev 1.01), n = 40: -3.5 %, bisected to -4.5 %"],
    kernel: "none: the change itself is not in the kernel of today",
    rows: &[
        row(
            "memory, ext4",
            "throughput",
            [
                "memory, ext4: looked up per page",
                "memory, ext4: handle cached",
                "",
            ],
        ),
        row(
            "memory, raw",
            "throughput",
            [
                "memory, raw: looked up per page",
                "memory, raw: handle cached",
                "",
            ],
        ),
        row(
            "disk, ext4",
            "throughput",
            [
                "disk, ext4: looked up per page",
                "disk, ext4: handle cached",
                "",
            ],
        ),
        row(
            "disk, raw",
            "throughput",
            [
                "disk, raw: looked up per page",
                "disk, raw: handle cached",
                "",
            ],
        ),
        Row {
            what: "32 KiB, ext4, instructions",
            from: From::Counts(""),
            old: "instructions per 32 KiB, ext4: looked up per page",
            ours: "instructions per 32 KiB, ext4: handle cached",
            kernel: "",
        },
        row(
            "model sata-disk, cost planted",
            "throughput",
            [
                "sata model: a cost for each page planted",
                "sata model: base",
                "",
            ],
        ),
        row(
            "model sata-disk, none (control)",
            "throughput",
            ["sata model: base again", "sata model: base", ""],
        ),
    ],
};
