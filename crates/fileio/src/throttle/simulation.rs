//! Simulates the whole feedback loop on model devices and writers: time advances in steps and no thread
//! sleeps.

use std::collections::VecDeque;
use std::time::Duration;

use crate::throttle::control::{Control, Positions, Rates, Totals};
use crate::throttle::law::{MAX_PAUSE, Position};
use crate::throttle::limits::{DirtyLimits, Thresholds};
use crate::throttle::pacer::Pacer;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TICK: Duration = Duration::from_micros(200);

/// Rate at which unthrottled writers dirty memory, in bytes per second.
const MEMORY_BYTES_PER_S: f64 = 8e9;

struct Writer {
    pacer: Pacer,
    call_bytes: u64,
    wakes_at: Duration,
    dirtied_bytes: u64,
    waits: bool,
}

/// Measurements over a period.
#[derive(Debug)]
struct Seen {
    least_dirty: u64,
    most_dirty: u64,
    /// Time average.
    mean_dirty: f64,
    longest_pause: Duration,
    /// Ticks in which the device could have written but had no work.
    idle_ticks: u64,
    cleaned_bytes: u64,
    dirtied_by_writer: Vec<u64>,
}

impl Seen {
    /// The largest relative deviation of a writer from its fair share.
    fn unfairness(&self) -> f64 {
        let share =
            self.dirtied_by_writer.iter().sum::<u64>() as f64 / self.dirtied_by_writer.len() as f64;
        self.dirtied_by_writer
            .iter()
            .map(|&bytes| (bytes as f64 / share - 1.0).abs())
            .fold(0.0, f64::max)
    }
}

struct World {
    now: Duration,
    thresholds: Thresholds,
    process: Thresholds,
    /// Dirty bytes of other devices.
    elsewhere_bytes: u64,
    device_bytes_per_s: f64,
    /// Bytes that become clean at once.
    run_bytes: u64,
    written_ahead: f64,
    dirty_bytes: u64,
    cleaned_bytes: u64,
    pauses: u64,
    control: Control,
    rates: Option<Rates>,
    writers: Vec<Writer>,
    line: VecDeque<usize>,
}

impl World {
    fn new(limit_bytes: u64, device_bytes_per_s: f64, writers: usize, call_bytes: u64) -> World {
        World {
            now: Duration::from_secs(1),
            thresholds: DirtyLimits::new(Some(limit_bytes), None).resolve(0),
            process: DirtyLimits::new(Some(1 << 50), None).resolve(0),
            elsewhere_bytes: 0,
            device_bytes_per_s,
            run_bytes: MIB.min(limit_bytes / 8),
            written_ahead: 0.0,
            dirty_bytes: 0,
            cleaned_bytes: 0,
            pauses: 0,
            control: Control::default(),
            rates: None,
            writers: (0..writers)
                .map(|_| Writer {
                    pacer: Pacer::default(),
                    call_bytes,
                    wakes_at: Duration::ZERO,
                    dirtied_bytes: 0,
                    waits: false,
                })
                .collect(),
            line: VecDeque::new(),
        }
    }

    fn positions(&self) -> Positions {
        Positions {
            device: Position {
                dirty_bytes: self.dirty_bytes,
                thresholds: self.thresholds,
            },
            process: Position {
                dirty_bytes: self.dirty_bytes + self.elsewhere_bytes,
                thresholds: self.process,
            },
        }
    }

    fn sample(&mut self) {
        let totals = Totals {
            cleaned_bytes: self.cleaned_bytes,
            pauses: self.pauses,
        };
        let rates = self.control.sample(self.now, self.positions(), totals);
        self.rates = rates.or(self.rates);
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.dirty_bytes + bytes <= self.thresholds.limit_bytes
            && self.dirty_bytes + self.elsewhere_bytes + bytes <= self.process.limit_bytes
    }

    fn run(&mut self, seconds: u64) -> Seen {
        let until = self.now + Duration::from_secs(seconds);
        let cleaned_before = self.cleaned_bytes;
        let before: Vec<u64> = self.writers.iter().map(|w| w.dirtied_bytes).collect();
        let mut seen = Seen {
            least_dirty: u64::MAX,
            most_dirty: 0,
            mean_dirty: 0.0,
            longest_pause: Duration::ZERO,
            idle_ticks: 0,
            cleaned_bytes: 0,
            dirtied_by_writer: Vec::new(),
        };
        let mut ticks = 0u32;
        while self.now < until {
            self.step(&mut seen);
            seen.least_dirty = seen.least_dirty.min(self.dirty_bytes);
            seen.most_dirty = seen.most_dirty.max(self.dirty_bytes);
            seen.mean_dirty += self.dirty_bytes as f64;
            ticks += 1;
            self.now += TICK;
        }
        seen.mean_dirty /= f64::from(ticks);
        seen.cleaned_bytes = self.cleaned_bytes - cleaned_before;
        let after = self.writers.iter().map(|w| w.dirtied_bytes);
        seen.dirtied_by_writer = after.zip(before).map(|(a, b)| a - b).collect();
        seen
    }

    fn step(&mut self, seen: &mut Seen) {
        for index in 0..self.writers.len() {
            self.writer_works(index, seen);
        }
        self.device_works(seen);
    }

    fn device_works(&mut self, seen: &mut Seen) {
        self.written_ahead += self.device_bytes_per_s * TICK.as_secs_f64();
        while self.written_ahead >= self.run_bytes as f64 {
            if self.dirty_bytes < self.run_bytes {
                seen.idle_ticks += 1;
                self.written_ahead = 0.0;
                break;
            }
            self.written_ahead -= self.run_bytes as f64;
            self.dirty_bytes -= self.run_bytes;
            self.cleaned_bytes += self.run_bytes;
            self.sample();
        }
        while let Some(&first) = self.line.front()
            && self.has_room(self.writers[first].call_bytes)
        {
            self.line.pop_front();
            self.writers[first].waits = false;
            self.dirties(first, seen);
        }
        // Waiting writers sample from time to time.
        if !self.line.is_empty() {
            self.sample();
        }
    }

    fn writer_works(&mut self, index: usize, seen: &mut Seen) {
        let tick_ends = self.now + TICK;
        while !self.writers[index].waits && self.writers[index].wakes_at < tick_ends {
            if !self.line.is_empty() || !self.has_room(self.writers[index].call_bytes) {
                self.writers[index].waits = true;
                self.line.push_back(index);
                return;
            }
            self.dirties(index, seen);
        }
    }

    /// One call: what `Throttle::acquire` and `Throttle::balance` do.
    fn dirties(&mut self, index: usize, seen: &mut Seen) {
        let bytes = self.writers[index].call_bytes;
        self.dirty_bytes += bytes;
        assert!(self.dirty_bytes <= self.thresholds.limit_bytes);
        let took = Duration::from_secs_f64(bytes as f64 / MEMORY_BYTES_PER_S);
        let writer = &mut self.writers[index];
        writer.dirtied_bytes += bytes;
        writer.wakes_at = writer.wakes_at.max(self.now) + took;
        if !writer.pacer.charge(bytes) {
            return;
        }
        let positions = self.positions();
        if positions.is_free() {
            let batch = positions.free_batch_bytes();
            self.writers[index].pacer.forgive(batch);
            return;
        }
        self.sample();
        let Some(rates) = self.rates else { return };
        let writer = &mut self.writers[index];
        let pause = writer.pacer.adjust(writer.wakes_at, positions.pace(rates));
        writer.wakes_at += pause;
        self.pauses += u64::from(!pause.is_zero());
        seen.longest_pause = seen.longest_pause.max(pause);
    }
}

/// Settling time and measuring time, in simulated seconds.
const SETTLE: u64 = 30;
const WATCH: u64 = 30;

fn steady_state(
    limit_bytes: u64,
    device_bytes_per_s: f64,
    writers: usize,
    call_bytes: u64,
) -> Seen {
    let mut world = World::new(limit_bytes, device_bytes_per_s, writers, call_bytes);
    let start = world.run(SETTLE);
    let seen = world.run(WATCH);
    let what = format!(
        "limit {} MiB, {} MB/s, {writers} writers of {} KiB: {seen:?}",
        limit_bytes / MIB,
        device_bytes_per_s / 1e6,
        call_bytes / 1024
    );
    println!("{what}");
    assert!(start.longest_pause <= MAX_PAUSE, "{what}");
    assert!(seen.longest_pause <= MAX_PAUSE, "{what}");
    assert_eq!(
        start.idle_ticks, 0,
        "the device had work from the start: {what}"
    );
    assert_eq!(seen.idle_ticks, 0, "{what}");
    // One run of write-back may fall on either side of the window's ends.
    let whole = device_bytes_per_s * WATCH as f64;
    let run = (limit_bytes / 8).min(MIB) as f64;
    assert!((seen.cleaned_bytes as f64) > whole * 0.999 - run, "{what}");
    seen
}

fn is_near_setpoint(seen: &Seen, limit_bytes: u64) {
    let thresholds = DirtyLimits::new(Some(limit_bytes), None).resolve(0);
    let setpoint = thresholds.setpoint_bytes() as f64;
    let half = (limit_bytes as f64 - setpoint) / 2.0;
    assert!((seen.mean_dirty - setpoint).abs() < half, "{seen:?}");
    assert!(seen.least_dirty > thresholds.background_bytes, "{seen:?}");
}

#[test]
fn dirty_memory_comes_to_the_setpoint() {
    for writers in [1, 8] {
        for (limit, device, call) in [
            (GIB, 2e9, MIB),
            (GIB, 200e6, MIB),
            (GIB, 200e6, 32 << 10),
            (64 * MIB, 200e6, 32 << 10),
            (64 * MIB, 20e6, 4096),
            (16 * MIB, 1e6, 4096),
        ] {
            let seen = steady_state(limit, device, writers, call);
            is_near_setpoint(&seen, limit);
            assert!(seen.unfairness() < 0.05, "{seen:?}");
        }
    }
}

#[test]
fn tiny_limits_and_large_calls_still_keep_the_device_busy() {
    for writers in [1, 8] {
        for (limit, device, call) in [
            (64 * MIB, 2e9, MIB),
            (64 * MIB, 1e6, MIB),
            (MIB, 2e9, 64 << 10),
            (MIB, 100e6, 64 << 10),
            (MIB, 1e6, 4096),
        ] {
            steady_state(limit, device, writers, call);
        }
    }
}

#[test]
fn a_step_of_the_bandwidth_is_followed() {
    for (before, after, limit_mib) in [
        (2e9, 20e6, 256),
        (20e6, 2e9, 256),
        (200e6, 1e6, 32),
        (1e6, 200e6, 32),
    ] {
        let limit = limit_mib * MIB;
        let mut world = World::new(limit, before, 4, 16 << 10);
        let first = world.run(SETTLE);
        world.device_bytes_per_s = after;
        let change = world.run(2 * SETTLE);
        let seen = world.run(WATCH);
        println!("{before} -> {after}: {change:?} {seen:?}");
        for seen in [&first, &change, &seen] {
            assert!(seen.longest_pause <= MAX_PAUSE, "{seen:?}");
        }
        assert_eq!(seen.idle_ticks, 0);
        is_near_setpoint(&seen, limit);
        let bandwidth = world.rates.map_or(0.0, |rates| rates.bandwidth_bytes_per_s);
        assert!(
            (bandwidth / after - 1.0).abs() < 0.5,
            "{bandwidth} of {after}"
        );
    }
}

#[test]
fn a_stalled_device_holds_writers_at_the_limit_and_no_longer() {
    let limit = 256 * MIB;
    let mut world = World::new(limit, 500e6, 8, 256 << 10);
    world.run(SETTLE);
    world.device_bytes_per_s = 0.0;
    let stalled = world.run(20);
    assert_eq!(stalled.cleaned_bytes, 0);
    assert!(stalled.longest_pause <= MAX_PAUSE);
    assert!(stalled.most_dirty <= limit);
    world.device_bytes_per_s = 500e6;
    let again = world.run(SETTLE);
    assert!(again.longest_pause <= MAX_PAUSE);
    assert_eq!(again.idle_ticks, 0, "{again:?}");
    is_near_setpoint(&world.run(WATCH), limit);
}

#[test]
fn the_stricter_of_device_and_process_holds() {
    let mut world = World::new(GIB, 200e6, 2, 256 << 10);
    world.process = DirtyLimits::new(Some(256 * MIB), None).resolve(0);
    world.elsewhere_bytes = 64 * MIB;
    world.run(SETTLE);
    let seen = world.run(WATCH);
    assert!(seen.most_dirty + world.elsewhere_bytes <= 256 * MIB);
    let setpoint = world.process.setpoint_bytes() - world.elsewhere_bytes;
    let off = seen.mean_dirty / setpoint as f64 - 1.0;
    assert!(off.abs() < 0.1, "{seen:?}");
    assert_eq!(seen.idle_ticks, 0);
}

#[test]
fn writers_of_different_sizes_get_the_same() {
    let mut world = World::new(GIB, 400e6, 4, MIB);
    for (writer, call) in world
        .writers
        .iter_mut()
        .zip([4096, 32 << 10, 256 << 10, MIB])
    {
        writer.call_bytes = call;
    }
    world.run(SETTLE);
    let seen = world.run(WATCH);
    println!("{seen:?}");
    assert!(seen.unfairness() < 0.05, "{seen:?}");
}
