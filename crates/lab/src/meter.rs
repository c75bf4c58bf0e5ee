//! Measuring one run of one variant: wall time and processor time of the whole process.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Wall and processor time spent since its making.
#[derive(Debug)]
pub struct Meter {
    wall: Duration,
    cpu: Duration,
}

/// What a [`Meter`] read.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Wall-clock time.
    pub wall: Duration,
    /// User and system time of all threads of this process.
    pub cpu: Duration,
}

impl Meter {
    /// Starts measuring.
    pub fn start() -> Meter {
        Meter {
            wall: now(ClockId::Monotonic),
            cpu: now(ClockId::ProcessCPUTime),
        }
    }

    /// Time since the start.
    pub fn spent(&self) -> Spent {
        Spent {
            wall: now(ClockId::Monotonic).saturating_sub(self.wall),
            cpu: now(ClockId::ProcessCPUTime).saturating_sub(self.cpu),
        }
    }
}

impl Spent {
    /// Throughput in 10⁶ bytes per second.
    pub fn mb_per_s(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e6 / self.wall.as_secs_f64().max(1e-9)
    }

    /// Processor seconds per GiB moved.
    pub fn cpu_s_per_gib(&self, bytes: u64) -> f64 {
        self.cpu.as_secs_f64() / (bytes as f64 / f64::from(1 << 30)).max(1e-12)
    }
}

fn now(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        time.tv_sec.max(0).unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
