//! The properties of a machine that are needed to interpret its figures.

use std::fmt;
use std::fs;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use throughline_device::wake_up_us;

/// The machine of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model name.
    pub cpu: String,
    /// Processors this process may run on.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// This program's version.
    pub version: String,
    /// Whether the program was built with optimisation; figures of a debug build are meaningless.
    pub optimised: bool,
    /// Microseconds to wake a thread on another processor; 0 if it could not be measured. A request that
    /// another thread answers, as with FUSE, costs two wake-ups.
    #[serde(default)]
    pub wake_up_us: f64,
    /// How long an idle processor of this virtual machine polls for work before it sleeps, in nanoseconds.
    /// With 0, every wake-up is expensive. `None` if the kernel has no such setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest_halt_poll_ns: Option<u64>,
    /// Whether free memory of this virtual machine returns to its host, so that allocating it again is slow.
    #[serde(default)]
    pub free_memory_leaves: bool,
}

const GUEST_HALT_POLL_NS: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";

impl Machine {
    /// This machine, according to the kernel.
    pub fn here() -> Machine {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpuinfo
            .lines()
            .find_map(|line| {
                line.strip_prefix("model name")
                    .and_then(|rest| rest.split_once(": "))
            })
            .map_or_else(|| "unknown processor".into(), |(_, name)| name.into());
        let memory_mib = fs::read_to_string("/proc/meminfo")
            .unwrap_or_default()
            .lines()
            .find_map(|line| {
                line.strip_prefix("MemTotal:")?
                    .trim()
                    .strip_suffix(" kB")?
                    .parse::<u64>()
                    .ok()
            })
            .map_or(0, |kib| kib / 1024);
        let uname = rustix::system::uname();
        Machine {
            cpu,
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib,
            kernel: uname.release().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION").into(),
            optimised: !cfg!(debug_assertions),
            wake_up_us: wake_up_us(),
            guest_halt_poll_ns: fs::read_to_string(GUEST_HALT_POLL_NS)
                .ok()
                .and_then(|text| text.trim().parse().ok()),
            free_memory_leaves: free_memory_leaves(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} × {}, {} MiB, Linux {}, throughline {}",
            self.cpus, self.cpu, self.memory_mib, self.kernel, self.version
        )?;
        if self.wake_up_us > 0.0 {
            write!(f, ", wake-up {:.1} µs", self.wake_up_us)?;
        }
        if let Some(ns) = self.guest_halt_poll_ns {
            write!(f, ", guest_halt_poll_ns {ns}")?;
        }
        if self.free_memory_leaves {
            f.write_str(", free memory is returned to the host")?;
        }
        if self.optimised {
            Ok(())
        } else {
            write!(f, ", DEBUG BUILD: the figures are meaningless")
        }
    }
}

/// Feature bit of the balloon: `VIRTIO_BALLOON_F_REPORTING` of the virtio specification.
const REPORTING: usize = 5;

/// Whether free memory of this machine returns to its host. Determined once.
pub fn free_memory_leaves() -> bool {
    static LEAVES: OnceLock<bool> = OnceLock::new();
    *LEAVES.get_or_init(|| {
        let balloons = std::fs::read_dir("/sys/bus/virtio/drivers/virtio_balloon");
        balloons.into_iter().flatten().flatten().any(|entry| {
            std::fs::read_to_string(entry.path().join("features")).is_ok_and(|bits| reports(&bits))
        })
    })
}

/// Whether this feature is set. `bits` are the features of a balloon, bit 0 first.
fn reports(bits: &str) -> bool {
    bits.as_bytes().get(REPORTING) == Some(&b'1')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifth_bit_of_a_balloon_says_it() {
        assert!(reports("0110010100\n"));
        assert!(!reports("0110000100\n") && !reports(""));
    }
}
