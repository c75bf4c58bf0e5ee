//! [`Timetable`]: the state of a model's law. It reads no clock and moves no bytes.
//!
//! ```text
//!  slot free ─► command stage ─► latency ─► data stage ─► end: the slot is free again
//! ```
//!
//! Invariant: the data stage is never idle while a transfer is ready for it, and delay of one transfer is not
//! made up by others.

use std::collections::VecDeque;

use throughline_device::Op;

use crate::model::{Law, Model};

/// A request as the law sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Operation.
    pub op: Op,
    /// Offset of the first byte.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// The stages of a device, with its law.
#[derive(Clone, Debug)]
pub struct Timetable {
    law: Law,
    /// Completion times of the requests on the device, earliest first; at most one per slot.
    ends_ns: VecDeque<u64>,
    slots: usize,
    /// When the command stage is free.
    command_free_at_ns: u64,
    max_transfer_bytes: u64,
    data_free_at_ns: u64,
    /// End of the last transfer on the device.
    head_bytes: u64,
}

impl Timetable {
    /// An idle device of this model, with its head at the first byte.
    pub fn new(model: &Model) -> Timetable {
        let slots = model.limits.queue_depth.max(1) as usize;
        Timetable {
            law: model.law,
            ends_ns: VecDeque::with_capacity(slots),
            slots,
            command_free_at_ns: 0,
            max_transfer_bytes: u64::from(model.limits.max_transfer_bytes).max(1),
            data_free_at_ns: 0,
            head_bytes: 0,
        }
    }

    /// Changes the throughput from now on; at least one byte per second.
    pub fn set_bytes_per_s(&mut self, bytes_per_s: u64) {
        self.law.bytes_per_s = bytes_per_s.max(1);
    }

    /// The completion time of `work` that arrives at `now_ns`. Calls must be in order of arrival.
    ///
    /// Work longer than one transfer is split; each part takes a slot and passes the command stage.
    pub fn admit(&mut self, now_ns: u64, work: Work) -> u64 {
        match work.op {
            Op::Read | Op::Write => self.transfers(now_ns, work),
            // After the data already queued.
            Op::Flush => {
                let ready_ns = self.pass(now_ns);
                let end_ns = self.data_free_at_ns.max(ready_ns) + self.law.flush_ns;
                self.ends(end_ns)
            }
            Op::Discard | Op::WriteZeroes => {
                let ready_ns = self.pass(now_ns);
                let end_ns = self.data_free_at_ns.max(ready_ns);
                self.ends(end_ns)
            }
        }
    }

    /// Takes a slot for a transfer that arrives at `now_ns`, and returns when its command is done.
    fn pass(&mut self, now_ns: u64) -> u64 {
        let mut begin_ns = now_ns.max(self.command_free_at_ns);
        if self.ends_ns.len() == self.slots
            && let Some(slot_at_ns) = self.ends_ns.pop_front()
        {
            begin_ns = begin_ns.max(slot_at_ns);
        }
        self.command_free_at_ns = begin_ns.saturating_add(self.law.command_ns);
        self.command_free_at_ns
    }

    fn transfers(&mut self, now_ns: u64, work: Work) -> u64 {
        let (mut at, end) = (
            work.offset_bytes,
            work.offset_bytes.saturating_add(work.len_bytes),
        );
        let mut end_ns = now_ns;
        while at < end {
            let len = self.max_transfer_bytes.min(end - at);
            end_ns = self.transfer(now_ns, at, len);
            at += len;
        }
        end_ns
    }

    fn transfer(&mut self, now_ns: u64, at: u64, len: u64) -> u64 {
        let ready_ns = self.pass(now_ns) + self.law.latency_ns;
        let seek_ns = match at == self.head_bytes {
            true => 0,
            false => self.law.seek_ns,
        };
        let begin_ns = self.data_free_at_ns.max(ready_ns);
        let end_ns = begin_ns + seek_ns + self.transfer_ns(len);
        self.head_bytes = at + len;
        self.ends(end_ns)
    }

    fn ends(&mut self, end_ns: u64) -> u64 {
        self.data_free_at_ns = self.data_free_at_ns.max(end_ns);
        self.ends_ns.push_back(end_ns);
        end_ns
    }

    fn transfer_ns(&self, len_bytes: u64) -> u64 {
        let ns = u128::from(len_bytes) * 1_000_000_000 / u128::from(self.law.bytes_per_s.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX / 4)
    }
}
