//! The time to wake a thread on another CPU. Every request that another thread answers waits for that
//! twice. On a virtual machine whose CPUs sleep as soon as they are idle, each wake-up needs an
//! interrupt through the host.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Maximum number of round trips.
const ROUNDS: usize = 200;
/// Time limit. The round trips completed by then are used.
const ENOUGH: Duration = Duration::from_millis(8);

/// Half the median time of a round trip of a byte to another thread through two pipes, in microseconds. The
/// threads run on two CPUs if there are two. Measured once per process; 0 if it cannot be measured.
pub fn wake_up_us() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    let measure = || {
        let (one, other) = two_processors()?;
        Ok::<f64, io::Error>(round_trip_us(one, other)? / 2.0)
    };
    *MEASURED.get_or_init(|| measure().unwrap_or(0.0))
}

/// The median time of a round trip of a byte between threads on these CPUs, in microseconds.
fn round_trip_us(here: CpuSet, other: CpuSet) -> io::Result<f64> {
    let (there, sent) = io::pipe()?;
    let (back, answered) = io::pipe()?;
    // Separate threads, so that the caller's affinity is not changed. If one fails, it closes its pipes,
    // which ends the other.
    let name = || thread::Builder::new().name("wake-up".into());
    let echo = name().spawn(move || echo(&other, there, answered))?;
    let timed = name().spawn(move || timed(&here, sent, back));
    let trips = timed.map(thread::JoinHandle::join);
    let ended = echo.join();
    match (trips?, ended) {
        (Ok(Ok(mut trips)), Ok(Ok(()))) if !trips.is_empty() => {
            trips.sort();
            Ok(trips[trips.len() / 2].as_secs_f64() * 1e6)
        }
        _ => Err(io::Error::other("the two threads did not wake each other")),
    }
}

/// The first two CPUs this thread may run on, or the only one twice.
fn two_processors() -> io::Result<(CpuSet, CpuSet)> {
    let allowed = sched_getaffinity(None)?;
    let mut usable = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let only = |cpu: Option<usize>| {
        let mut set = CpuSet::new();
        set.set(cpu?);
        Some(set)
    };
    match (only(usable.next()), only(usable.next())) {
        (Some(one), Some(other)) => Ok((one, other)),
        _ => Ok((allowed, allowed)),
    }
}

fn echo(on: &CpuSet, mut from: PipeReader, mut to: PipeWriter) -> io::Result<()> {
    sched_setaffinity(None, on)?;
    let mut byte = [0];
    while from.read(&mut byte)? > 0 {
        to.write_all(&byte)?;
    }
    Ok(())
}

fn timed(on: &CpuSet, mut to: PipeWriter, mut from: PipeReader) -> io::Result<Vec<Duration>> {
    sched_setaffinity(None, on)?;
    let mut byte = [0];
    let began = Instant::now();
    let mut trips = Vec::with_capacity(ROUNDS);
    while trips.len() < ROUNDS && began.elapsed() < ENOUGH {
        let left = Instant::now();
        to.write_all(&byte)?;
        from.read_exact(&mut byte)?;
        trips.push(left.elapsed());
    }
    Ok(trips)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_measured_once() {
        let first = wake_up_us();
        assert!(first.is_finite() && first >= 0.0);
        assert_eq!(wake_up_us(), first);
    }
}
