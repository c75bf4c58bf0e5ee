//! Dirty throttling: writers pause; they never write back.
//!
//! ```text
//!  write()  ── acquire ──►  room of the device, room of the process     never over a limit
//!     └────── balance ───►  the writer's pacer: pause for its debt       no lock, no shared line written
//!  flusher ── cleaned ───►  releases room; every 200 ms a window of the control loop ends
//!                             bandwidth → balanced rate → each writer's pace
//! ```
//!
//! Invariants:
//! - Dirty memory, including memory under write-back, never exceeds the device's limit or the process's limit
//!   at any time. Room is acquired before bytes become dirty.
//! - Below the free-run threshold no writer pauses here (one of several long streams may be held to its
//!   backlog: `writeback::backlog`). A pause never exceeds 200 ms and is never so long that the device runs
//!   out of work.
//! - Before the bandwidth has been measured no writer pauses and only the limits apply: a guess would
//!   throttle a fast device or let a slow one be overrun.
//! - Threads waiting at a limit are served in order, and get an error when write-back fails.
//! - A balance call below its batch touches only memory of its own thread.

mod bandwidth;
mod control;
mod device;
mod events;
mod law;
mod limits;
mod pacer;
mod process;
mod ratelimit;
mod room;
#[cfg(test)]
mod simulation;
mod state;
#[cfg(test)]
mod tests;
mod writers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

pub use events::{Event, Listener, Subscription};
pub use limits::DirtyLimits;
pub use process::set_process_limits;
pub use state::{Pauses, ThrottleState};

use control::Positions;
use device::Device;
use law::MAX_PAUSE;
use process::Process;
use room::{Room, Ticket};
use writers::Writers;

/// Divisor of the limits for what [`Throttle::keep`] counts.
const KEPT_SHARE: u64 = 4;

/// The dirty memory of one device, also counted for the process.
pub struct Throttle {
    device: Arc<Device>,
    process: Arc<Process>,
    writers: Writers,
}

impl Throttle {
    /// For a device with these limits and a cache with `budget_bytes`.
    pub fn new(limits: DirtyLimits, budget_bytes: u64) -> Throttle {
        Self::within(Process::global(), limits, budget_bytes)
    }

    /// As [`Throttle::new`], counted in the given process state: for tests.
    fn within(process: Arc<Process>, limits: DirtyLimits, budget_bytes: u64) -> Throttle {
        let device = Arc::new(Device::new(limits, budget_bytes));
        process.join(&device);
        Throttle {
            device,
            process,
            writers: Writers::default(),
        }
    }

    /// Sets the callback for when dirty memory passes a background threshold, a thread waits for room, or
    /// limits change. It wakes the flusher, which then checks [`Throttle::over_background`]. It runs on a
    /// writer's thread and must not wait. Only the first callback set is used.
    pub(crate) fn on_need(&self, bell: impl Fn() + Send + Sync + 'static) {
        self.device.set_bell(Box::new(bell));
    }

    /// Changes the limits of this device. If more is dirty already, nothing more becomes dirty until it is
    /// written back.
    pub fn set_limits(&self, limits: DirtyLimits) {
        self.device.set_limits(limits);
    }

    /// Changes the cache's budget; limits that are fractions of it follow.
    pub(crate) fn set_budget_bytes(&self, bytes: u64) {
        self.device.set_budget_bytes(bytes);
    }

    /// Calls `listener` for every event from now on, until the subscription is dropped.
    pub fn subscribe(&self, listener: Arc<dyn Listener>) -> Subscription {
        self.device.listeners.subscribe(listener)
    }

    // ---- room

    /// Acquires room for `bytes` that are about to become dirty, so that the limits still hold. Waits for
    /// write-back if there is no room. Requests must be at most
    /// [`Throttle::most_at_once`] (or one block).
    ///
    /// # Errors
    /// The error of failing write-back, if waiting for it is pointless.
    pub(crate) fn acquire(&self, bytes: u64) -> Result<()> {
        // Always the device's room before the process's, so there is no deadlock.
        let used = self.take(&self.device.room, bytes)?;
        if passes(self.device.background_bytes(), used, bytes) {
            self.device.kick();
        }
        let used = self
            .take(&self.process.room, bytes)
            .inspect_err(|_| self.device.room.give_back(bytes))?;
        if passes(self.process.background_bytes(), used, bytes) {
            self.process.kick();
        }
        Ok(())
    }

    /// Takes room, or waits for it. Returns the bytes then in use; `None` after a wait.
    fn take(&self, room: &Room<Error>, bytes: u64) -> Result<Option<u64>> {
        if let Some(used) = room.take(bytes) {
            return Ok(Some(used));
        }
        let Some(ticket) = room.take_or_queue(bytes)? else {
            return Ok(None);
        };
        let began = Instant::now();
        let answer = self.wait(ticket, bytes);
        let waited = began.elapsed();
        self.device.waits.add(waited);
        events::emit(&self.device.listeners, || Event::Waited {
            bytes,
            waited,
            ok: answer.is_ok(),
        });
        answer.map(|()| None)
    }

    /// Waits in steps of 200 ms, so that measurement windows end while every writer waits for a stalled
    /// device.
    fn wait(&self, mut ticket: Ticket<'_, Error>, bytes: u64) -> Result<()> {
        loop {
            // Including other devices: they share the process's room.
            self.process.kick();
            if let Some(answer) = ticket.wait(MAX_PAUSE) {
                return answer;
            }
            if let Some(error) = self.process.pointless_wait(bytes) {
                return Err(error);
            }
            self.device.sample(self.device.now(), self.positions());
        }
    }

    /// The largest request for one [`Throttle::acquire`], in bytes.
    pub(crate) fn most_at_once(&self) -> u64 {
        let Positions { device, process } = self.positions();
        device
            .thresholds
            .most_at_once()
            .min(process.thresholds.most_at_once())
    }

    /// Releases room that was acquired and not used, or whose dirty bytes were discarded.
    pub(crate) fn release(&self, bytes: u64) {
        // The process first: a thread that waits for its room already holds room of its device.
        self.process.room.give_back(bytes);
        self.device.room.give_back(bytes);
    }

    /// Counts dirty bytes that are now on the device: releases their room and updates the bandwidth.
    pub(crate) fn cleaned(&self, bytes: u64) {
        self.device.count_cleaned(bytes);
        self.release(bytes);
        self.device.sample(self.device.now(), self.positions());
    }

    /// Counts dirty bytes for which there is no space on the volume, and which therefore stay dirty; false if
    /// they would be more than a quarter of a limit. The rest is for data that can be written.
    pub(crate) fn keep(&self, bytes: u64) -> bool {
        let counts = [
            (&self.device.kept_bytes, self.device.room.limit_bytes()),
            (&self.process.kept_bytes, self.process.room.limit_bytes()),
        ];
        let all = counts.map(|(kept, limit)| {
            kept.fetch_add(bytes, Ordering::Relaxed)
                .saturating_add(bytes)
                <= limit / KEPT_SHARE
        });
        let fits = all == [true; 2];
        if !fits {
            self.end_keeping(bytes);
        }
        fits
    }

    /// Ends the counting of [`Throttle::keep`].
    pub(crate) fn end_keeping(&self, bytes: u64) {
        self.process.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.device.kept_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether bytes that can be written have too little room left, because the limits were lowered.
    pub(crate) fn keeps_too_much(&self) -> bool {
        let kept = self.device.kept_bytes.load(Ordering::Relaxed);
        kept > 0 && kept.saturating_add(self.most_at_once()) > self.limit_bytes()
    }

    /// Dirty bytes that can be written: those for which there is space on the volume.
    pub fn promised_bytes(&self) -> u64 {
        let kept = self.device.kept_bytes.load(Ordering::Relaxed);
        self.dirty_bytes().saturating_sub(kept)
    }

    /// Sets or clears the error that stalls write-back. Threads that wait for room get the error.
    pub(crate) fn stuck(&self, error: Option<Error>) {
        self.device.room.set_stuck(error);
    }

    /// The error that stalls write-back, if any.
    pub(crate) fn stuck_error(&self) -> Option<Error> {
        self.device.room.stuck()
    }

    /// Dirty bytes of this device, including bytes under write-back.
    pub fn dirty_bytes(&self) -> u64 {
        self.device.room.used_bytes()
    }

    /// Whether the flusher should write in the background: dirty memory of the device or of the process is
    /// over its background threshold, or a thread waits for room. Room that was acquired but is not yet dirty
    /// counts.
    pub(crate) fn over_background(&self) -> bool {
        self.device.over_background() || self.process.over_background()
    }

    /// Whether a thread waits for room that this device can release.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.device.room.is_waited_for() || self.process.room.is_waited_for()
    }

    // ---- pace

    /// Pauses the calling thread for what it dirtied since the last call, by at most 200 ms. Returns the
    /// pause.
    pub fn balance(&self, dirtied_bytes: u64) -> Duration {
        let pause = self.charge(dirtied_bytes);
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        pause
    }

    /// Charges the thread's account, and settles it if a settlement is due. Returns the pause to make.
    fn charge(&self, bytes: u64) -> Duration {
        let writer = self.writers.this_thread();
        writer.count();
        let mut pacer = writer.pacer.get();
        let due = pacer.charge(bytes);
        writer.pacer.set(pacer);
        if !due {
            return Duration::ZERO;
        }
        let positions = self.positions();
        if positions.is_free() {
            pacer.forgive(positions.free_batch_bytes());
            writer.pacer.set(pacer);
            return Duration::ZERO;
        }
        let now = self.device.now();
        self.device.sample(now, positions);
        let Some(rates) = self.device.rates() else {
            return Duration::ZERO;
        };
        let dirtied_bytes = pacer.dirtied_bytes();
        let pause = pacer.adjust(now, positions.pace(rates));
        writer.pacer.set(pacer);
        if !pause.is_zero() {
            self.device.pauses.add(pause);
            events::emit(&self.device.listeners, || Event::Paused {
                dirtied_bytes,
                pause,
                dirty_bytes: positions.device.dirty_bytes,
            });
        }
        pause
    }

    fn positions(&self) -> Positions {
        Positions {
            device: self.device.position(),
            process: self.process.position(),
        }
    }

    // ---- state

    /// The number of bytes that the flusher writes of one file before it turns to the next.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        let limit = self.device.room.limit_bytes();
        let bandwidth = self
            .device
            .rates()
            .map_or(0.0, |rates| rates.bandwidth_bytes_per_s);
        law::chunk_bytes(bandwidth, limit.min(self.process.room.limit_bytes()))
    }

    /// The effective limit of dirty memory in bytes: the smaller of the device's and the process's.
    pub(crate) fn limit_bytes(&self) -> u64 {
        let device = self.device.room.limit_bytes();
        device.min(self.process.room.limit_bytes())
    }

    /// Measured write-back bandwidth of the device in bytes per second; `None` until measured.
    pub fn bandwidth_bytes_per_s(&self) -> Option<u64> {
        let rates = self.device.rates()?;
        Some(rates.bandwidth_bytes_per_s as u64)
    }

    /// A snapshot of dirty memory, limits, rates and pauses.
    pub fn state(&self) -> ThrottleState {
        let Positions { device, process } = self.positions();
        let rates = self.device.rates();
        ThrottleState {
            dirty_bytes: device.dirty_bytes,
            background_bytes: device.thresholds.background_bytes,
            freerun_bytes: device.thresholds.freerun_bytes(),
            setpoint_bytes: device.thresholds.setpoint_bytes(),
            limit_bytes: device.thresholds.limit_bytes,
            process_dirty_bytes: process.dirty_bytes,
            process_background_bytes: process.thresholds.background_bytes,
            process_limit_bytes: process.thresholds.limit_bytes,
            waiting: self.device.room.waiting() + self.process.room.waiting(),
            bandwidth_bytes_per_s: self.bandwidth_bytes_per_s(),
            ratelimit_bytes_per_s: rates.map(|rates| rates.ratelimit_bytes_per_s as u64),
            chunk_bytes: self.chunk_bytes(),
            balance_calls: self.writers.calls(),
            pauses: self.device.pauses.read(),
            waits: self.device.waits.read(),
        }
    }
}

impl Drop for Throttle {
    /// Dirty bytes that remain are lost with the cache; their room in the process is released.
    fn drop(&mut self) {
        self.process.room.give_back(self.device.room.used_bytes());
        let kept = self.device.kept_bytes.load(Ordering::Relaxed);
        self.process.kept_bytes.fetch_sub(kept, Ordering::Relaxed);
    }
}

/// Whether taking `bytes` raised the bytes in use from at most `threshold_bytes` to above it.
fn passes(threshold_bytes: u64, used_bytes: Option<u64>, bytes: u64) -> bool {
    used_bytes.is_some_and(|used| used > threshold_bytes && used - bytes <= threshold_bytes)
}
