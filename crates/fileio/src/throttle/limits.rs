//! The limits of dirty memory as a user sets them ([`DirtyLimits`]) and as the law uses them ([`Thresholds`]).

/// No limit is smaller than this: four of the largest blocks that a file may have.
pub const MIN_LIMIT_BYTES: u64 = 256 << 10;

/// The most that is asked for at once, whatever the limit: a folio.
const MOST_AT_ONCE_BYTES: u64 = 2 << 20;

/// Limits of dirty memory, of one device or of the process. Changeable at run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirtyLimits {
    /// Never more dirty than this, in bytes, at least [`MIN_LIMIT_BYTES`]; `None`: a fifth of the budget, and for the process
    /// a fifth of the memory that it may use.
    pub limit_bytes: Option<u64>,
    /// From here on the flusher writes without being asked, three quarters of the limit at most; `None`: half of the
    /// limit.
    pub background_bytes: Option<u64>,
}

impl DirtyLimits {
    /// Both as given.
    pub fn new(limit_bytes: Option<u64>, background_bytes: Option<u64>) -> Self {
        Self {
            limit_bytes,
            background_bytes,
        }
    }

    /// What holds, where a fifth of `memory_bytes` is the default.
    pub(crate) fn resolve(self, memory_bytes: u64) -> Thresholds {
        let limit = self
            .limit_bytes
            .unwrap_or(memory_bytes / 5)
            .max(MIN_LIMIT_BYTES);
        Thresholds {
            background_bytes: self
                .background_bytes
                .unwrap_or(limit / 2)
                .min(limit / 4 * 3),
            limit_bytes: limit,
        }
    }
}

/// Where on the way from clean to full the law does what.
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
    /// Below this nobody pauses.
    pub(crate) fn freerun_bytes(self) -> u64 {
        middle(self.background_bytes, self.limit_bytes)
    }

    /// Where the law holds dirty memory.
    pub(crate) fn setpoint_bytes(self) -> u64 {
        middle(self.freerun_bytes(), self.limit_bytes)
    }

    /// The most bytes of one request for room. It fits between background and limit, so that a flusher that stops at the
    /// background leaves nobody waiting.
    pub(crate) fn most_at_once(self) -> u64 {
        (self.limit_bytes / 4).clamp(4096, MOST_AT_ONCE_BYTES) & !4095
    }
}

fn middle(a: u64, b: u64) -> u64 {
    a / 2 + b / 2
}
