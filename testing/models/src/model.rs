//! [`Model`]: what is known of a device, and from where.

use throughline_device::Limits;

/// A device by its numbers.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Its name, such as `ufs-phone`.
    pub name: &'static str,
    /// One line: what it is.
    pub about: &'static str,
    /// What requests must look like. Longer ones than `max_transfer_bytes` are taken too, and split as a kernel splits them.
    pub limits: Limits,
    /// What the device itself takes for a request.
    pub law: Law,
    /// What the computer above it takes.
    pub host: Host,
    /// Length in bytes, unless another is chosen.
    pub len_bytes: u64,
    /// Every number above that matters, and its source.
    pub figures: &'static [Figure],
}

/// When a device is done with a request.
///
/// A request takes one of the device's slots (`queue_depth` of the limits), passes the command stage, waits for its latency,
/// and has its bytes moved by the one data stage; it ends, and its slot is free, when they are. The stages work on different
/// requests at the same time, each on one at a time and in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Law {
    /// Bytes each second that the data stage moves.
    pub bytes_per_s: u64,
    /// Nanoseconds of each transfer in the command stage.
    pub command_ns: u64,
    /// How many command stages, and sets of slots, there are.
    pub commands: Commands,
    /// Nanoseconds from the end of the command stage until the data may move; those of several requests pass at once.
    pub latency_ns: u64,
    /// Nanoseconds that the data stage loses when a transfer does not begin where the one before it ended.
    pub seek_ns: u64,
    /// Nanoseconds of a flush, behind everything that was there before it.
    pub flush_ns: u64,
}

/// Who has a command stage, and slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commands {
    /// One for the device: its queues share them.
    OfDevice,
    /// Each queue has its own.
    OfQueue,
}

/// What the computer takes for a request, apart from the device: a phone's processor is no server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Nanoseconds of the submitting thread's processor for each request handed over.
    pub request_ns: u64,
    /// Nanoseconds of it for each 4 KiB page of one, before the device hears of any of its pages.
    pub page_in_ns: u64,
    /// Nanoseconds for each page of a request between the device's end and the completion.
    pub page_out_ns: u64,
    /// Nanoseconds that a program's thread takes to put a page into a cache, accounting and copy included. The device does not
    /// charge it: it is for whoever plays the program.
    pub page_fill_ns: u64,
}

/// One number of a model.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// What it is.
    pub what: &'static str,
    /// The number, with its unit.
    pub value: &'static str,
    /// Where it is from, or that it is assumed and why.
    pub source: &'static str,
}
