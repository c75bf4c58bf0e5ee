//! [`Model`]: the numbers of a device.

use throughline_device::Limits;

/// The description of a device.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Name, such as `ufs-phone`.
    pub name: &'static str,
    /// Limits of requests. Requests longer than `max_transfer_bytes` are accepted and split as a kernel does.
    pub limits: Limits,
    /// Timing of the device itself.
    pub law: Law,
    /// Timing of the computer that drives it.
    pub host: Host,
    /// Default length in bytes.
    pub len_bytes: u64,
}

/// The completion time of a request.
///
/// A request takes one of the device's slots (`queue_depth` of the limits), passes the command stage, waits
/// for its latency, and then its bytes are moved by the single data stage. When they are moved, the request
/// completes and its slot is free. The stages work on different requests concurrently, each on one request at
/// a time, in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    /// Throughput of the data stage, in bytes per second.
    pub bytes_per_s: u64,
    /// Nanoseconds per transfer in the command stage.
    pub command_ns: u64,
    /// Nanoseconds from the end of the command stage until the data can move. Latencies of several requests
    /// overlap.
    pub latency_ns: u64,
    /// Nanoseconds that the data stage loses if a transfer does not begin at the end of the previous one.
    pub seek_ns: u64,
    /// Nanoseconds of a flush, after everything that was submitted before it.
    pub flush_ns: u64,
}

/// Time that the computer needs for a request, apart from the device: a phone's processor is slower than a
/// server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Processor time of the submitting thread per request, in nanoseconds.
    pub request_ns: u64,
    /// Processor time of the submitting thread per 4 KiB page, before the device gets any of the request, in
    /// nanoseconds.
    pub page_in_ns: u64,
    /// Nanoseconds per page between the device's completion and the request's completion.
    pub page_out_ns: u64,
    /// Nanoseconds that a program's thread needs to put a page into a cache, including accounting and copy.
    /// The device does not charge it; the simulated program must.
    pub page_fill_ns: u64,
}
