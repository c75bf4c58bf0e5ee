//! Limits of dirty memory as configured ([`DirtyLimits`]) and as the law uses them ([`Thresholds`]).

/// Maximum size of one request for room, in bytes: a folio.
const MAX_REQUEST_BYTES: u64 = 2 << 20;

/// Limits of dirty memory of a device or of the process. Can be changed at run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirtyLimits {
    /// Hard limit of dirty memory in bytes, at least [`DirtyLimits::MIN_BYTES`]; `None`: a fifth of the
    /// cache's budget, for the process a fifth of the memory that it may use.
    pub limit_bytes: Option<u64>,
    /// Threshold in bytes from which the flusher writes in the background, at most three quarters of the
    /// limit; `None`: half of the limit.
    pub background_bytes: Option<u64>,
}

impl DirtyLimits {
    /// The smallest limit, in bytes: four of the largest blocks that a file may have.
    pub const MIN_BYTES: u64 = 256 << 10;

    /// Limits with these values.
    pub fn new(limit_bytes: Option<u64>, background_bytes: Option<u64>) -> Self {
        Self {
            limit_bytes,
            background_bytes,
        }
    }

    /// The effective thresholds. The default limit is a fifth of `memory_bytes`.
    pub(crate) fn resolve(self, memory_bytes: u64) -> Thresholds {
        let limit = self
            .limit_bytes
            .unwrap_or(memory_bytes / 5)
            .max(Self::MIN_BYTES);
        Thresholds {
            background_bytes: self
                .background_bytes
                .unwrap_or(limit / 2)
                .min(limit / 4 * 3),
            limit_bytes: limit,
        }
    }
}

/// The thresholds of dirty memory.
///
/// ```text
///  0 ──────── background ──── freerun ──── setpoint ──── limit
///    nothing    flusher writes │ writers pause, so that dirty memory stays near the setpoint
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    pub(crate) background_bytes: u64,
    pub(crate) limit_bytes: u64,
}

impl Thresholds {
    /// Below this no writer pauses.
    pub(crate) fn freerun_bytes(self) -> u64 {
        middle(self.background_bytes, self.limit_bytes)
    }

    /// Where the law holds dirty memory.
    pub(crate) fn setpoint_bytes(self) -> u64 {
        middle(self.freerun_bytes(), self.limit_bytes)
    }

    /// Maximum size of one request for room, in bytes. It fits between background and limit, so a flusher
    /// that stops at the background threshold leaves no waiter without room.
    pub(crate) fn most_at_once(self) -> u64 {
        (self.limit_bytes / 4).clamp(4096, MAX_REQUEST_BYTES) & !4095
    }
}

fn middle(a: u64, b: u64) -> u64 {
    a / 2 + b / 2
}
