//! [`Model`]: the numbers of a device and their sources.

use throughline_device::Limits;

/// The description of a device.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Name, such as `ufs-phone`.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Limits of requests. Requests longer than `max_transfer_bytes` are accepted and split as a kernel does.
    pub limits: Limits,
    /// Timing of the device itself.
    pub law: Law,
    /// Timing of the computer that drives it.
    pub host: Host,
    /// Default length in bytes.
    pub len_bytes: u64,
    /// Every relevant number above and its source.
    pub figures: &'static [Figure],
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
    /// Number of command stages and sets of slots.
    pub commands: Commands,
    /// Nanoseconds from the end of the command stage until the data can move. Latencies of several requests
    /// overlap.
    pub latency_ns: u64,
    /// Nanoseconds that the data stage loses if a transfer does not begin at the end of the previous one.
    pub seek_ns: u64,
    /// Nanoseconds of a flush, after everything that was submitted before it.
    pub flush_ns: u64,
}

/// The unit that has a command stage and slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    /// The device: all queues share them.
    OfDevice,
    /// Each queue.
    OfQueue,
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

/// A number of a model.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What the number describes.
    pub what: &'static str,
    /// The number, with its unit.
    pub value: &'static str,
    /// Its source, or that it is assumed and why.
    pub source: &'static str,
}
