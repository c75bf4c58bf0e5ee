//! Dirty throttling: writers pause, and never write.
//!
//! ```text
//!  write()  ── acquire ──►  room of the device, room of the process     never over a limit
//!     └────── balance ───►  the writer's pacer: pause what it owes       no lock, no shared line written
//!  flusher ── cleaned ───►  room again; every 200 ms a window of the control loop ends
//!                             bandwidth → balanced rate → each writer's pace
//! ```
//!
//! Invariants:
//! - Dirty memory, that under write-back among it, never exceeds the device's limit nor the process's, not for a moment.
//!   What is counted is room: it is taken before bytes become dirty.
//! - Below freerun nobody pauses; a pause is never over 200 ms, and never so long that the device runs out of work.
//! - Before the bandwidth was measured nobody pauses: only the limits hold. A guess would starve a fast device or let a slow
//!   one drown.
//! - Who waits at a limit is served in order, and hears of it when write-back fails.
//! - A balance call that is below its batch touches only its thread's own memory.

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
use std::time::{Duration, Instant};

use crate::error::{Error, Reason, Result};

pub use events::{Event, Listener, Subscription};
pub use limits::{DirtyLimits, MIN_LIMIT_BYTES};
pub use process::set_process_limits;
pub use state::{Pauses, ThrottleState};

use control::Positions;
use device::Device;
use law::MAX_PAUSE;
use process::Process;
use room::{Room, Ticket};
use writers::Writers;

/// Whether a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Wait {
    /// As long as it takes.
    #[default]
    Yes,
    /// It answers [`crate::Reason::WouldBlock`] instead.
    No,
}

/// The dirty memory of one device, and the process's.
pub struct Throttle {
    device: Arc<Device>,
    process: Arc<Process>,
    writers: Writers,
}

impl Throttle {
    /// With a device's limits, of a cache with `budget_bytes`.
    pub fn new(limits: DirtyLimits, budget_bytes: u64) -> Throttle {
        Self::within(Process::global(), limits, budget_bytes)
    }

    /// As [`Throttle::new`], counted by a process of one's own: for tests.
    fn within(process: Arc<Process>, limits: DirtyLimits, budget_bytes: u64) -> Throttle {
        let device = Arc::new(Device::new(limits, budget_bytes));
        process.join(&device);
        Throttle {
            device,
            process,
            writers: Writers::default(),
        }
    }

    /// What is called when dirty memory passes a background threshold, when somebody waits for room, and when limits
    /// change: to wake the flusher, which looks at [`Throttle::over_background`] then. It is called on a writer's thread: it
    /// must not wait. The first one given stays.
    pub(crate) fn on_need(&self, bell: impl Fn() + Send + Sync + 'static) {
        self.device.set_bell(Box::new(bell));
    }

    /// Other limits of this device, from now on. Where more is dirty already, nothing more becomes so until it is written.
    pub fn set_limits(&self, limits: DirtyLimits) {
        self.device.set_limits(limits);
    }

    /// The cache has another budget: limits that are parts of it follow.
    pub(crate) fn set_budget_bytes(&self, bytes: u64) {
        self.device.set_budget_bytes(bytes);
    }

    /// Tells `listener` what happens from now on, until the subscription is dropped.
    pub fn subscribe(&self, listener: Arc<dyn Listener>) -> Subscription {
        self.device.listeners.subscribe(listener)
    }

    // ---- room

    /// Makes room for `bytes` that are about to become dirty, so that the limits hold afterwards. Waits for write-back
    /// where there is none, and may. A request larger than the limit is the caller's bug: ask in pieces of at most
    /// [`Throttle::most_at_once`] (or of one block).
    ///
    /// # Errors
    /// `WouldBlock`; the error of a write-back that fails, where waiting for it is in vain.
    pub(crate) fn acquire(&self, bytes: u64, wait: Wait) -> Result<()> {
        // Who has room of the device waits for that of the process, never the other way round: no circle.
        let used = self.take(&self.device.room, bytes, wait)?;
        if passes(self.device.background_bytes(), used, bytes) {
            self.device.kick();
        }
        let used = self
            .take(&self.process.room, bytes, wait)
            .inspect_err(|_| self.device.room.give_back(bytes))?;
        if passes(self.process.background_bytes(), used, bytes) {
            self.process.kick();
        }
        Ok(())
    }

    /// Takes room, or waits for it. The bytes in use then; `None` after a wait.
    fn take(&self, room: &Room<Error>, bytes: u64, wait: Wait) -> Result<Option<u64>> {
        if let Some(used) = room.take(bytes) {
            return Ok(Some(used));
        }
        if wait == Wait::No {
            return Err(room.stuck().unwrap_or_else(|| Reason::WouldBlock.into()));
        }
        let Some(ticket) = room.take_or_queue(bytes)? else {
            return Ok(None);
        };
        let began = Instant::now();
        let answer = self.wait(ticket, bytes);
        let waited = began.elapsed();
        self.device.waits.add(waited);
        events::tell(&self.device.listeners, || Event::Waited {
            bytes,
            waited,
            ok: answer.is_ok(),
        });
        answer.map(|()| None)
    }

    /// In turns of 200 ms, so that windows of measurement end while everybody waits for a device that stands still.
    fn wait(&self, mut ticket: Ticket<'_, Error>, bytes: u64) -> Result<()> {
        loop {
            // Also those of other devices: the process's room is theirs too.
            self.process.kick();
            if let Some(answer) = ticket.wait(MAX_PAUSE) {
                return answer;
            }
            if let Some(error) = self.process.in_vain(bytes) {
                return Err(error);
            }
            self.device.sample(self.device.now(), self.positions());
        }
    }

    /// The most bytes that one [`Throttle::acquire`] should ask for.
    pub(crate) fn most_at_once(&self) -> u64 {
        let Positions { device, process } = self.positions();
        device
            .thresholds
            .most_at_once()
            .min(process.thresholds.most_at_once())
    }

    /// Room that was acquired and not used, or whose dirty bytes were thrown away.
    pub(crate) fn release(&self, bytes: u64) {
        // The process first: who waits for it holds room of its device.
        self.process.room.give_back(bytes);
        self.device.room.give_back(bytes);
    }

    /// Dirty bytes are on the device: they make room, and count for its bandwidth.
    pub(crate) fn cleaned(&self, bytes: u64) {
        self.device.count_cleaned(bytes);
        self.release(bytes);
        self.device.sample(self.device.now(), self.positions());
    }

    /// Write-back does not get on (`Some`), or does again. Those who wait for room hear of it.
    pub(crate) fn stuck(&self, error: Option<Error>) {
        self.device.room.set_stuck(error);
    }

    /// Why write-back does not get on, if it does not.
    pub(crate) fn stuck_error(&self) -> Option<Error> {
        self.device.room.stuck()
    }

    /// Dirty bytes of this device, those under write-back among them.
    pub fn dirty_bytes(&self) -> u64 {
        self.device.room.used_bytes()
    }

    /// Whether the flusher should write without being asked: the device's dirty memory, or the process's, is over its
    /// background threshold, or somebody waits for room. Part of it may be room that was acquired and is not dirty yet.
    pub(crate) fn over_background(&self) -> bool {
        self.device.over_background() || self.process.over_background()
    }

    /// Whether somebody waits for room that this device can make.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.device.room.is_waited_for() || self.process.room.is_waited_for()
    }

    // ---- pace

    /// Pauses the calling thread for what it dirtied since it was here last, 200 ms at most. The pause it made.
    pub fn balance(&self, dirtied_bytes: u64) -> Duration {
        let pause = self.charge(dirtied_bytes, |_| true);
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        pause
    }

    /// As [`Throttle::balance`], for who must not sleep: what is owed stays owed, and [`Throttle::would_pause`] says how much
    /// that is.
    pub fn owe(&self, dirtied_bytes: u64) {
        self.charge(dirtied_bytes, |pause| pause.is_zero());
    }

    /// How long the calling thread would have to pause now if it had dirtied `bytes` more; `None` where it would not. Who
    /// must not sleep asks this before it writes, with zero to pay later, and comes again after the time that it says.
    pub fn would_pause(&self, bytes: u64) -> Option<Duration> {
        let pacer = self.writers.this_thread().pacer.get();
        let positions = self.positions();
        if !pacer.is_due(bytes) || positions.is_free() {
            return None;
        }
        let pace = positions.pace(self.device.rates()?);
        let pause = pacer.owed(bytes, self.device.now(), pace);
        (!pause.is_zero()).then_some(pause)
    }

    /// Adds to the thread's account, and settles it when that is due and `settle` agrees to the pause. The pause to make.
    fn charge(&self, bytes: u64, settle: impl FnOnce(Duration) -> bool) -> Duration {
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
        let pause = pacer.settle(now, positions.pace(rates));
        if !settle(pause) {
            return Duration::ZERO;
        }
        writer.pacer.set(pacer);
        if !pause.is_zero() {
            self.device.pauses.add(pause);
            events::tell(&self.device.listeners, || Event::Paused {
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

    // ---- what it has come to

    /// What the flusher writes of one file before it turns to the next, in bytes.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        let limit = self.device.room.limit_bytes();
        let bandwidth = self
            .device
            .rates()
            .map_or(0.0, |rates| rates.bandwidth_bytes_per_s);
        law::chunk_bytes(bandwidth, limit.min(self.process.room.limit_bytes()))
    }

    /// What may be dirty at most, in bytes: by the device's limit and by the process's.
    pub(crate) fn limit_bytes(&self) -> u64 {
        let device = self.device.room.limit_bytes();
        device.min(self.process.room.limit_bytes())
    }

    /// What the device takes of write-back, in bytes a second; `None` until it was measured.
    pub fn bandwidth_bytes_per_s(&self) -> Option<u64> {
        let rates = self.device.rates()?;
        Some(rates.bandwidth_bytes_per_s as u64)
    }

    /// Dirty memory, limits, rates and pauses at this moment.
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
    /// What is dirty still is lost with its cache; the process has room for others again.
    fn drop(&mut self) {
        self.process.room.give_back(self.device.room.used_bytes());
    }
}

/// Whether taking `bytes` brought the bytes in use from below a threshold to above it.
fn passes(threshold_bytes: u64, used_bytes: Option<u64>, bytes: u64) -> bool {
    used_bytes.is_some_and(|used| used > threshold_bytes && used - bytes <= threshold_bytes)
}
