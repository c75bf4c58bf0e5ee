//! What the samples are compared with, and the limits.

use super::{SLOWEST, WRITERS, Way, kernels, label};
use crate::outcome::{Outcome, ratios};
use crate::streams::kernel::KernelWay;

/// Our targets, with the names that the kernel's ways have there.
const TARGETS: [(&str, [&str; 2]); 2] = [
    ("image", ["kernel ext4", "kernel ext4"]),
    ("plain file", ["kernel buffered", "kernel"]),
];

/// Adds the ratios and the limits.
pub(super) fn add(outcome: &mut Outcome) {
    for writers in WRITERS {
        for (target, names) in TARGETS {
            ours(outcome, target, writers);
            beside_the_kernel(outcome, target, names, writers);
        }
        let of = |what: &str| label("image", what, writers);
        let [buffered, ext4, xfs] = ["buffered", "kernel ext4", "kernel xfs"].map(of);
        ratios! { outcome;
            of("buffered / kernel ext4")              => "throughput", buffered, ext4, at_least 1.3;
            of("buffered / kernel xfs")               => "throughput", buffered, xfs;
            of("machine cpu, buffered / kernel ext4") => "machine cpu", buffered, ext4, at_most 1.0;
        }
    }
    for (target, _) in TARGETS {
        eight(outcome, target);
    }
}

/// Our ways beside one another.
fn ours(outcome: &mut Outcome, target: &str, writers: u64) {
    let [old, buffered, direct] = Way::ALL.map(|way| label(target, way.name(), writers));
    let name = |what: &str| label(target, what, writers);
    let of_direct = if writers == 1 { 0.99 } else { 0.95 };
    ratios! { outcome;
        name("buffered / direct")  => "throughput", buffered, direct, at_least of_direct;
        name("buffered / old way") => "throughput", buffered, old, at_least 1.0;
    }
}

/// Our buffered writes beside the kernel's writes that leave no data in its cache.
fn beside_the_kernel(
    outcome: &mut Outcome,
    target: &str,
    [plain, prefix]: [&str; 2],
    writers: u64,
) {
    let of = |what: &str| label(target, what, writers);
    let [kernel, uncached, direct] = [KernelWay::Buffered, KernelWay::DontCache, KernelWay::Direct]
        .map(|way| of(&kernels::name(plain, prefix, way)));
    let buffered = of("buffered");
    ratios! { outcome;
        of("buffered / kernel RWF_DONTCACHE") => "throughput", buffered, uncached, at_least 1.0;
        of("call, p99.9, buffered / kernel RWF_DONTCACHE") => SLOWEST, buffered, uncached, at_most 1.0;
        of("buffered / kernel O_DIRECT")      => "throughput", buffered, direct;
        of("call, p99.9, buffered / kernel buffered") => SLOWEST, buffered, kernel;
    }
    if target == "plain file" {
        ratios! { outcome;
            of("buffered / kernel buffered") => "throughput", buffered, kernel;
        }
    }
}

/// Eight writers beside one, and beside one another.
fn eight(outcome: &mut Outcome, target: &str) {
    let [one, eight] = WRITERS.map(|writers| label(target, "buffered", writers));
    let of = |what: &str| format!("{target}, {what}");
    ratios! { outcome;
        of("buffered, 8 writers / 1 writer") => "throughput", eight, one, at_least 0.97;
    }
    let ends = ["smallest share", "largest share"].map(|of| outcome.range(&eight, of));
    if let [Some((smallest, _)), Some((_, largest))] = ends {
        outcome.at_least(&of("smallest share of 8 writers"), smallest, 0.8);
        outcome.at_most(&of("largest share of 8 writers"), largest, 1.2);
    }
}
