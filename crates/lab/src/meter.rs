//! Measures one run of one variant: wall time, and processor time of the process and of the whole machine,
//! because kernel threads may do part of the work.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Measures wall and processor time since its creation.
#[derive(Debug)]
pub(crate) struct Meter {
    wall: Duration,
    cpu: Duration,
    machine_cpu: Duration,
}

/// The reading of a [`Meter`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Wall-clock time.
    pub(crate) wall: Duration,
    /// User and system time of all threads of this process.
    pub(crate) cpu: Duration,
    /// Time that the machine's processors were busy, in ticks of the kernel's clock (10 ms). It can be
    /// attributed to a variant only if nothing else runs.
    pub(crate) machine_cpu: Duration,
}

impl Meter {
    /// Starts measuring.
    pub(crate) fn start() -> Meter {
        Meter {
            wall: now(ClockId::Monotonic),
            cpu: now(ClockId::ProcessCPUTime),
            machine_cpu: machine_busy(),
        }
    }

    /// Time since the start.
    pub(crate) fn spent(&self) -> Spent {
        Spent {
            wall: now(ClockId::Monotonic).saturating_sub(self.wall),
            cpu: now(ClockId::ProcessCPUTime).saturating_sub(self.cpu),
            machine_cpu: machine_busy().saturating_sub(self.machine_cpu),
        }
    }
}

impl Spent {
    /// Throughput in 10⁶ bytes per second.
    pub(crate) fn mb_per_s(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e6 / self.wall.as_secs_f64().max(1e-9)
    }

    /// Processor seconds per GiB moved.
    pub(crate) fn cpu_s_per_gib(&self, bytes: u64) -> f64 {
        per_gib(self.cpu, bytes)
    }

    /// Like [`Spent::cpu_s_per_gib`], for the whole machine.
    pub(crate) fn machine_cpu_s_per_gib(&self, bytes: u64) -> f64 {
        per_gib(self.machine_cpu, bytes)
    }

    /// Throughput in 2²⁰ bytes per second.
    pub(crate) fn mib_per_s(&self, bytes: u64) -> f64 {
        bytes as f64 / f64::from(1 << 20) / self.wall.as_secs_f64().max(1e-9)
    }
}

fn per_gib(cpu: Duration, bytes: u64) -> f64 {
    cpu.as_secs_f64() / (bytes as f64 / f64::from(1 << 30)).max(1e-12)
}

/// Busy time of all processors since boot: the first line of `/proc/stat`, without idle time, I/O wait and
/// steal time. Zero if unavailable.
fn machine_busy() -> Duration {
    const NOT_BUSY: [usize; 3] = [3, 4, 7];
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let all = stat.lines().next().unwrap_or_default();
    // The last two fields, guest time, are already included in user time.
    let ticks = all.split_whitespace().skip(1).take(8).enumerate();
    let busy: u64 = ticks
        .filter(|(i, _)| !NOT_BUSY.contains(i))
        .filter_map(|(_, ticks)| ticks.parse::<u64>().ok())
        .sum();
    Duration::from_secs_f64(busy as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The memory of a process: its peak so far (`VmHWM:`), or what it has now (`VmRSS:`). 0 if the kernel does
/// not report it, as for one that has ended.
pub(crate) fn memory_kib(process: u32, which: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(which));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok())
        .unwrap_or(0)
}

fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        time.tv_sec.max(0).unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
