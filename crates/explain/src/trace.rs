//! Data kept for single I/Os: events in chronological order, and latencies in classes.

use serde::{Deserialize, Serialize};

/// Latencies of single operations in one sample, as counts per class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// What was measured: the variant or the target.
    pub series: String,
    /// The kind of operation, such as `write`.
    pub quantity: String,
    /// The round.
    pub round: u32,
    /// Ascending pairs: the longest time measured in the class, in microseconds (in files of version 1, the
    /// upper bound of the class), and the number of operations in it, all longer than the previous class.
    pub classes_us: Vec<(f64, u64)>,
}

/// One event on the I/O path during a sample. The pipeline of a request is drawn from these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Microseconds since the trace began.
    pub at_us: f64,
    /// What happened: `build`, `submit`, `requeue` (returned by the driver, to be submitted again),
    /// `complete`, `split`, `merge`, `pause`, `commit`.
    pub what: String,
    /// For a bio, `read`, `write` or the device's own name for it; for a split, the reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// First byte on the device.
    #[serde(default)]
    pub offset_bytes: u64,
    /// Bytes; 0 for a pause or a commit.
    #[serde(default)]
    pub len_bytes: u64,
    /// Duration in microseconds: for `complete`, since submission; for `pause` and `commit`, the total.
    #[serde(default)]
    pub took_us: f64,
}
