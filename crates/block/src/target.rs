//! The target size of bios, derived from the device.
//!
//! Large bios cost little CPU per byte; small ones start early, finish early and use the device's
//! parallelism. The best compromise is the device's latency times its bandwidth: the transfer of such a bio
//! takes as long as the latency of a request, so a few of them in flight keep the device busy, and a larger
//! one only delays others. A queue too shallow for "a few" gets larger bios instead. The device's preferred
//! size and limits bound the result. The target is not below the size that a plug submits alone, because
//! smaller bios only cost more CPU.
//!
//! Until a disk has been measured ([`crate::meter`]), latency and bandwidth are assumed, depending on whether
//! it rotates. A target set with [`crate::Disk::set_bio_target_bytes`] takes precedence.

use std::sync::atomic::{AtomicU32, Ordering};

use throughline_device::Limits;

use crate::limits::align_down;
use crate::plug::LARGE_BYTES;

/// Latency and bandwidth of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed {
    pub(crate) latency_ns: f64,
    pub(crate) bytes_per_ns: f64,
}

/// The number of bios in flight that keeps the device busy while completions are turned into new requests.
const BUSY_BIOS: f64 = 4.0;

impl Speed {
    /// The assumed speed of a device that has not been measured: that of a hard disk or of an ordinary SSD.
    pub(crate) fn assumed(limits: &Limits) -> Self {
        // Virtual disks often claim to rotate, but have a queue longer than a drive's 32 commands.
        match limits.rotational && limits.queue_depth <= 32 {
            true => Self {
                latency_ns: 8e6,
                bytes_per_ns: 0.15,
            },
            false => Self {
                latency_ns: 1e5,
                bytes_per_ns: 2.5,
            },
        }
    }
}

/// The size target in bytes for a device with these limits and this speed: a multiple of the logical block.
pub(crate) fn derive(limits: &Limits, speed: Speed) -> u32 {
    let block = u64::from(limits.logical_block_bytes.max(1));
    let most = align_down(u64::from(limits.max_transfer_bytes), block).max(block);
    let least = u64::from(limits.physical_block_bytes.max(limits.io_min_bytes))
        .max(LARGE_BYTES)
        .clamp(block, most);
    let too_shallow = (BUSY_BIOS / f64::from(limits.queue_depth.max(1))).max(1.0);
    let wanted = (speed.latency_ns * speed.bytes_per_ns * too_shallow).clamp(1.0, most as f64);
    let mut size = nearest_power_of_two(wanted).max(least);
    let preferred = u64::from(limits.io_opt_bytes);
    if preferred != 0 && preferred <= most {
        size = size.next_multiple_of(preferred);
    }
    let size = align_down(size.min(most), block).max(block);
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// The power of two nearest to `value` (at least 1) on a logarithmic scale.
fn nearest_power_of_two(value: f64) -> u64 {
    1 << (value.log2().round().clamp(0.0, 62.0) as u32)
}

/// The target of one disk. Read once per call; written only when it changes, which is rare.
#[derive(Debug)]
pub(crate) struct Target {
    derived: AtomicU32,
    /// 0 if not set.
    chosen: AtomicU32,
}

impl Target {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            derived: AtomicU32::new(derive(limits, Speed::assumed(limits))),
            chosen: AtomicU32::new(0),
        }
    }

    pub(crate) fn bytes(&self) -> u32 {
        match self.chosen.load(Ordering::Relaxed) {
            0 => self.derived.load(Ordering::Relaxed),
            chosen => chosen,
        }
    }

    /// Sets a newly derived size.
    pub(crate) fn set_derived(&self, bytes: u32) {
        // It is mostly unchanged; not storing it keeps the cache line shared.
        if self.derived.load(Ordering::Relaxed) != bytes {
            self.derived.store(bytes, Ordering::Relaxed);
        }
    }

    /// The chosen size, if one was chosen.
    pub(crate) fn chosen(&self) -> Option<u32> {
        Some(self.chosen.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0)
    }

    pub(crate) fn choose(&self, bytes: Option<u32>) {
        self.chosen
            .store(bytes.map_or(0, |bytes| bytes.max(1)), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SSD: Limits = Limits {
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        memory_align_bytes: 512,
        max_transfer_bytes: 4 << 20,
        max_segments: 254,
        io_min_bytes: 0,
        io_opt_bytes: 0,
        chunk_bytes: 0,
        virt_boundary_mask: 0,
        queue_depth: 256,
        discard: true,
        write_zeroes: true,
        fua: true,
        volatile_cache: true,
        rotational: false,
    };

    fn of(limits: &Limits) -> u32 {
        derive(limits, Speed::assumed(limits))
    }

    #[test]
    fn follows_the_device() {
        assert_eq!(of(&SSD), 256 << 10);
        assert_eq!(
            of(&Limits {
                rotational: true,
                queue_depth: 32,
                ..SSD
            }),
            1 << 20
        );
        let virtual_disk = Limits {
            rotational: true,
            ..SSD
        };
        assert_eq!(of(&virtual_disk), 256 << 10);
        assert_eq!(
            of(&Limits {
                max_transfer_bytes: 128 << 10,
                ..SSD
            }),
            128 << 10
        );
        assert_eq!(
            of(&Limits {
                io_opt_bytes: 192 << 10,
                ..SSD
            }),
            384 << 10,
            "whole stripes"
        );
        assert_eq!(
            of(&Limits {
                io_opt_bytes: 16 << 20,
                ..SSD
            }),
            256 << 10,
            "no stripe fits a transfer"
        );
        assert_eq!(
            of(&Limits {
                queue_depth: 1,
                ..SSD
            }),
            1 << 20,
            "a queue depth of one needs larger bios"
        );
        let slow = Speed {
            latency_ns: 1e5,
            bytes_per_ns: 0.001,
        };
        assert_eq!(
            derive(&SSD, slow),
            128 << 10,
            "no less than a plug submits alone"
        );
        let fast = Speed {
            latency_ns: 1e6,
            bytes_per_ns: 1000.0,
        };
        assert_eq!(derive(&SSD, fast), 4 << 20, "no more than one transfer");
    }

    #[test]
    fn nonsense_gives_a_usable_size() {
        let nothing = Limits {
            logical_block_bytes: 0,
            max_transfer_bytes: 0,
            queue_depth: 0,
            ..SSD
        };
        assert_eq!(of(&nothing), 1);
        let odd = Limits {
            logical_block_bytes: 520,
            max_transfer_bytes: u32::MAX,
            io_opt_bytes: 7,
            ..SSD
        };
        assert!(of(&odd) > 0 && of(&odd).is_multiple_of(520));
    }
}
