//! The reports' claims, and the variants of the experiments that test them.

use crate::Result;
use crate::experiments::{Experiment, find};

/// One founding report.
#[derive(Debug)]
pub struct Report {
    /// Its number, 1 to 5.
    pub number: u8,
    /// Its subject.
    pub title: &'static str,
    /// Its experiment.
    pub experiment: &'static str,
    /// The report's own figures, one per line.
    pub claimed: &'static [&'static str],
    /// What the kernel column shows, or why there is none.
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
    /// The experiment's name for it; `{}` stands for the variant.
    name: &'static str,
    /// The old way, ours, the kernel; empty if there is none.
    ways: Ways,
}

impl Row {
    /// The experiment's names for the three columns.
    pub(super) fn columns(&self) -> [Option<String>; 3] {
        let named = |way: &str| (!way.is_empty()).then(|| self.name.replace("{}", way));
        self.ways.map(named)
    }
}

type Ways = [&'static str; 3];

/// The source of a line's figures.
#[derive(Clone, Copy, Debug)]
pub(super) enum From {
    /// Samples of this quantity; the columns name variants.
    Samples(&'static str),
    /// Counts with this unit; the columns name them.
    Counts(&'static str),
}

/// One line each: its name here, the source of its figures, its name in the experiment, the variants.
macro_rules! rows {
    ($($what:literal, $from:ident($of:literal), $name:literal, $ways:expr;)*) => {
        &[$(Row { what: $what, from: From::$from($of), name: $name, ways: $ways }),*]
    };
}

/// The reports in order.
pub const REPORTS: &[Report] = &[FIRST, SECOND, THIRD, FOURTH, FIFTH];

const PAGES: Ways = ["one bio per page", "ours", ""];
const PAGES_AND_KERNEL: Ways = ["one bio per page", "ours", "kernel ext3 on loop"];

const FIRST: Report = Report {
    number: 1,
    title: "ext3 direct I/O, a bio for each page behind an indirect block",
    experiment: "founding/1",
    claimed: &[
        "CPU 74.7 % -> 58.3 % (x 0.78) for 1000 direct writes of 4 MiB",
        "on a RAM disk 350 MB/s -> 1.2 GB/s (x 3.4)",
    ],
    kernel: "the present kernel's ext3 on a loop device",
    rows: rows! {
        "disk",                           Samples("throughput"),    "{}",           PAGES_AND_KERNEL;
        "disk, processor",                Samples("cpu"),           "{}",           PAGES;
        "disk, bios per call",            Samples("bios per call"), "{}",           PAGES;
        "RAM disk",                       Samples("throughput"),    "RAM disk: {}", PAGES;
        "memory",                         Samples("throughput"),    "memory: {}",   PAGES;
        "model xeon-disk",                Samples("throughput"),    "model: {}",    PAGES;
        "model xeon-disk, processor",     Samples("cpu"),           "model: {}",    PAGES;
        "model xeon-disk, bios per call", Samples("bios per call"), "model: {}",    PAGES;
    },
};

const RAW: Ways = ["one shared counter", "none (ours)", ""];
const FILE: Ways = ["one shared counter", "sharded (ours)", ""];
const CORES: Ways = ["one shared counter", "no count", ""];

const SECOND: Report = Report {
    number: 2,
    title: "i_dio_count, two atomic operations on one shared cache line for each I/O",
    experiment: "founding/2",
    claimed: &[
        "30 % of system time; x 3.6 without it (as merged: 2.5 M -> 9.6 M IOPS) on a many-core machine",
    ],
    kernel: "none: the kernel removed the counter from raw devices in 2015",
    rows: rows! {
        "raw device, 1 thread",  Samples("rate"), "raw, {}, 1 threads",          RAW;
        "raw device, 2 threads", Samples("rate"), "raw, {}, 2 threads",          RAW;
        "raw device, 4 threads", Samples("rate"), "raw, {}, 4 threads",          RAW;
        "raw device, 8 threads", Samples("rate"), "raw, {}, 8 threads",          RAW;
        "file, 1 thread",        Samples("rate"), "file, {}, 1 threads",         FILE;
        "file, 2 threads",       Samples("rate"), "file, {}, 2 threads",         FILE;
        "model,   2 cores",      Counts("kIOPS"), "model,   2 cores: {}, kIOPS", CORES;
        "model,   4 cores",      Counts("kIOPS"), "model,   4 cores: {}, kIOPS", CORES;
        "model,   8 cores",      Counts("kIOPS"), "model,   8 cores: {}, kIOPS", CORES;
        "model,  16 cores",      Counts("kIOPS"), "model,  16 cores: {}, kIOPS", CORES;
        "model,  32 cores",      Counts("kIOPS"), "model,  32 cores: {}, kIOPS", CORES;
        "model,  64 cores",      Counts("kIOPS"), "model,  64 cores: {}, kIOPS", CORES;
        "model, 128 cores",      Counts("kIOPS"), "model, 128 cores: {}, kIOPS", CORES;
    },
};

const BUFFERED: Ways = ["old way", "buffered", "kernel ext4"];
const BUFFERED_ALONE: Ways = ["old way", "buffered", ""];
const PLAIN: Ways = ["old way", "buffered", "kernel buffered"];
const DIRECT: Ways = ["", "direct", "kernel ext4 O_DIRECT"];
const PLAIN_DIRECT: Ways = ["", "direct", "kernel O_DIRECT"];
const DIRECT_ALONE: Ways = ["", "direct", ""];
const UNCACHED: Ways = ["", "buffered", "kernel ext4 RWF_DONTCACHE"];
const PLAIN_UNCACHED: Ways = ["", "buffered", "kernel RWF_DONTCACHE"];

const THIRD: Report = Report {
    number: 3,
    title: "buffered streaming writes, written back by the writer itself in slices of 4 MiB",
    experiment: "founding/3",
    claimed: &[
        "205 MB/s -> 326 MB/s on an array of four disks where O_DIRECT runs at 330 \
         (x 0.62 -> x 0.99 of direct)",
    ],
    kernel: "the present kernel's ext4 on a loop device, and its page cache on a plain file",
    rows: rows! {
        "image, 1 writer",                      Samples("throughput"),  "image, {}, 1 writer",       BUFFERED;
        "image, 1 writer, direct",              Samples("throughput"),  "image, {}, 1 writer",       DIRECT;
        "image, 1 writer, RWF_DONTCACHE",       Samples("throughput"),  "image, {}, 1 writer",       UNCACHED;
        "image, 8 writers",                     Samples("throughput"),  "image, {}, 8 writers",      BUFFERED;
        "image, 8 writers, direct",             Samples("throughput"),  "image, {}, 8 writers",      DIRECT;
        "image, 8 writers, RWF_DONTCACHE",      Samples("throughput"),  "image, {}, 8 writers",      UNCACHED;
        "plain file, 1 writer",                 Samples("throughput"),  "plain file, {}, 1 writer",  PLAIN;
        "plain file, 1 writer, direct",         Samples("throughput"),  "plain file, {}, 1 writer",  PLAIN_DIRECT;
        "plain file, 1 writer, RWF_DONTCACHE",  Samples("throughput"),  "plain file, {}, 1 writer",  PLAIN_UNCACHED;
        "plain file, 8 writers",                Samples("throughput"),  "plain file, {}, 8 writers", PLAIN;
        "plain file, 8 writers, direct",        Samples("throughput"),  "plain file, {}, 8 writers", PLAIN_DIRECT;
        "plain file, 8 writers, RWF_DONTCACHE", Samples("throughput"),  "plain file, {}, 8 writers", PLAIN_UNCACHED;
        "plain file, 8 writers, a call, p99.9", Samples("call, p99.9"), "plain file, {}, 8 writers", PLAIN_UNCACHED;
        "model disk-array, 1 writer",           Samples("throughput"),  "array model, {}, 1 writer", BUFFERED_ALONE;
        "model disk-array, direct",             Samples("throughput"),  "array model, {}, 1 writer", DIRECT_ALONE;
    },
};

const WHOLE_AND_KERNEL: Ways = ["whole request", "ours", "kernel O_DIRECT"];
const WHOLE: Ways = ["whole request", "ours", ""];

const FOURTH: Report = Report {
    number: 4,
    title: "a large direct read gathered into one bio before anything is submitted",
    experiment: "founding/4",
    claimed: &[
        "first submit 2 ms -> 100 us; 32 MiB in 19 -> 17 ms",
        "512 MB read at 1900 -> 2000 MB/s (x 1.05)",
    ],
    kernel: "the kernel's O_DIRECT with the same call on the same file",
    rows: rows! {
        "disk, 32 MiB read",                  Samples("throughput"),   "32 MiB read: {}", WHOLE_AND_KERNEL;
        "disk, 64 MiB read",                  Samples("throughput"),   "64 MiB read: {}", WHOLE_AND_KERNEL;
        "disk, 32 MiB write",                 Samples("throughput"),   "32 MiB write: {}", WHOLE_AND_KERNEL;
        "disk, 64 MiB write",                 Samples("throughput"),   "64 MiB write: {}", WHOLE_AND_KERNEL;
        "disk, 32 MiB read, first submit",    Samples("first submit"), "32 MiB read: {}", WHOLE;
        "disk, 4 requests deep (control)",    Samples("throughput"),   "32 MiB read: depth 4, {}", WHOLE;
        "model ufs-phone, 32 MiB",            Samples("throughput"),   "phone model, 32 MiB read: {}", WHOLE;
        "model ufs-phone, 512 MiB by 64 MiB", Samples("throughput"),   "phone model, 64 MiB read: {}", WHOLE;
        "model ufs-phone, first submit",      Samples("first submit"), "phone model, 32 MiB read: {}", WHOLE;
    },
};

const LOOKUP: Ways = ["looked up per page", "handle cached", ""];
const PLANTED: Ways = ["a cost for each page planted", "base", ""];
const CONTROL: Ways = ["base again", "base", ""];

const FIFTH: Report = Report {
    number: 5,
    title: "inode_to_bdi(), a call for each page where there was a pointer",
    experiment: "founding/5",
    claimed: &["135.7 (stdev 1.61) -> 131.0 MB/s (stdev 1.01), n = 40: -3.5 %, bisected to -4.5 %"],
    kernel: "none: the change is not in the present kernel",
    rows: rows! {
        "memory, ext4",                    Samples("throughput"), "memory, ext4: {}", LOOKUP;
        "memory, raw",                     Samples("throughput"), "memory, raw: {}", LOOKUP;
        "disk, ext4",                      Samples("throughput"), "disk, ext4: {}", LOOKUP;
        "disk, raw",                       Samples("throughput"), "disk, raw: {}", LOOKUP;
        "32 KiB, ext4, instructions",      Counts(""),            "instructions per 32 KiB, ext4: {}", LOOKUP;
        "model sata-disk, cost planted",   Samples("throughput"), "sata model: {}", PLANTED;
        "model sata-disk, none (control)", Samples("throughput"), "sata model: {}", CONTROL;
    },
};
