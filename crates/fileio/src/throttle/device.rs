//! The dirty memory of one device: its room, thresholds and control loop, and the callback that wakes its
//! flusher.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use throughline_locks::{Mutex, Rank};

use crate::error::Error;
use crate::throttle::bandwidth::SAMPLE_EVERY;
use crate::throttle::control::{Control, Positions, Rates, Totals};
use crate::throttle::events::{Event, Listeners, emit};
use crate::throttle::law::Position;
use crate::throttle::limits::{DirtyLimits, Thresholds};
use crate::throttle::room::Room;
use crate::throttle::state::Tally;

type Bell = Box<dyn Fn() + Send + Sync>;

/// See the module documentation.
pub(crate) struct Device {
    pub(crate) room: Room<Error>,
    /// See [`Throttle::keep`](crate::throttle::Throttle::keep).
    pub(crate) kept_bytes: AtomicU64,
    /// All bytes that ever became clean. Written once per run of write-back.
    cleaned_bytes: CachePadded<AtomicU64>,
    background_bytes: AtomicU64,
    /// The configured limits, and the budget for limits that are fractions of it.
    asked: Mutex<(DirtyLimits, u64)>,
    bell: OnceLock<Bell>,
    born: Instant,
    /// Locked briefly every 200 ms, by the thread that ends the window.
    control: Mutex<Control>,
    /// End of the current window, in nanoseconds since `born`.
    window_ends_ns: AtomicU64,
    /// Latest rates from the control loop, in bytes per second; zero while unknown.
    bandwidth_bytes_per_s: AtomicU64,
    ratelimit_bytes_per_s: AtomicU64,
    pub(crate) pauses: Tally,
    pub(crate) waits: Tally,
    pub(crate) listeners: Arc<Listeners>,
}

impl Device {
    pub(crate) fn new(limits: DirtyLimits, budget_bytes: u64) -> Device {
        let thresholds = limits.resolve(budget_bytes);
        Device {
            room: Room::new(thresholds.limit_bytes),
            kept_bytes: AtomicU64::new(0),
            cleaned_bytes: CachePadded::default(),
            background_bytes: AtomicU64::new(thresholds.background_bytes),
            asked: Mutex::ranked(Rank::DirtyLimits, (limits, budget_bytes)),
            bell: OnceLock::new(),
            born: Instant::now(),
            control: Mutex::default(),
            window_ends_ns: AtomicU64::new(0),
            bandwidth_bytes_per_s: AtomicU64::new(0),
            ratelimit_bytes_per_s: AtomicU64::new(0),
            pauses: Tally::default(),
            waits: Tally::default(),
            listeners: Arc::default(),
        }
    }

    pub(crate) fn set_limits(&self, limits: DirtyLimits) {
        let mut asked = self.asked.lock();
        asked.0 = limits;
        self.resolve(&asked);
    }

    pub(crate) fn set_budget_bytes(&self, bytes: u64) {
        let mut asked = self.asked.lock();
        asked.1 = bytes;
        self.resolve(&asked);
    }

    fn resolve(&self, &(limits, budget_bytes): &(DirtyLimits, u64)) {
        let thresholds = limits.resolve(budget_bytes);
        self.background_bytes
            .store(thresholds.background_bytes, Ordering::Relaxed);
        self.room.set_limit(thresholds.limit_bytes);
        self.emit_limits(false, thresholds);
        self.kick();
    }

    pub(crate) fn emit_limits(&self, of_process: bool, thresholds: Thresholds) {
        emit(&self.listeners, || Event::LimitChanged {
            of_process,
            background_bytes: thresholds.background_bytes,
            limit_bytes: thresholds.limit_bytes,
        });
    }

    pub(crate) fn background_bytes(&self) -> u64 {
        self.background_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn position(&self) -> Position {
        Position {
            dirty_bytes: self.room.used_bytes(),
            thresholds: Thresholds {
                background_bytes: self.background_bytes(),
                limit_bytes: self.room.limit_bytes(),
            },
        }
    }

    pub(crate) fn over_background(&self) -> bool {
        self.room.used_bytes() > self.background_bytes() || self.room.is_waited_for()
    }

    /// Counts cleaned bytes for the bandwidth.
    pub(crate) fn count_cleaned(&self, bytes: u64) {
        self.cleaned_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The control loop's clock.
    pub(crate) fn now(&self) -> Duration {
        self.born.elapsed()
    }

    /// Ends the measurement window if it is due, unless another thread is doing so.
    pub(crate) fn sample(&self, now: Duration, positions: Positions) {
        if now.as_nanos() < u128::from(self.window_ends_ns.load(Ordering::Relaxed)) {
            return;
        }
        let Some(mut control) = self.control.try_lock() else {
            return;
        };
        let totals = Totals {
            cleaned_bytes: self.cleaned_bytes.load(Ordering::Relaxed),
            pauses: self.pauses.count(),
        };
        let rates = control.sample(now, positions, totals);
        let next = (now + SAMPLE_EVERY).as_nanos();
        self.window_ends_ns
            .store(u64::try_from(next).unwrap_or(u64::MAX), Ordering::Relaxed);
        let Some(rates) = rates else { return };
        let (bandwidth, ratelimit) = (
            rates.bandwidth_bytes_per_s as u64,
            rates.ratelimit_bytes_per_s as u64,
        );
        self.bandwidth_bytes_per_s
            .store(bandwidth.max(1), Ordering::Relaxed);
        self.ratelimit_bytes_per_s
            .store(ratelimit.max(1), Ordering::Relaxed);
        drop(control);
        emit(&self.listeners, || Event::Bandwidth {
            bandwidth_bytes_per_s: bandwidth,
            ratelimit_bytes_per_s: ratelimit,
            dirty_bytes: positions.device.dirty_bytes,
        });
    }

    /// The learned rates, if known.
    pub(crate) fn rates(&self) -> Option<Rates> {
        let bandwidth = self.bandwidth_bytes_per_s.load(Ordering::Relaxed);
        let ratelimit = self.ratelimit_bytes_per_s.load(Ordering::Relaxed);
        (bandwidth > 0 && ratelimit > 0).then_some(Rates {
            bandwidth_bytes_per_s: bandwidth as f64,
            ratelimit_bytes_per_s: ratelimit as f64,
        })
    }

    /// Sets the callback that wakes the flusher. Only the first one set is used.
    pub(crate) fn set_bell(&self, bell: Bell) {
        // A throttle belongs to one cache only.
        let _ = self.bell.set(bell);
    }

    /// Wakes the flusher.
    pub(crate) fn kick(&self) {
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }
}
