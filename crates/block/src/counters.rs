//! Per-queue counters without shared cache lines.
//!
//! A queue belongs to one thread at a time, so its counters have one writer: a plain load and store instead
//! of a locked instruction, on cache lines that no other thread writes. A reading sums over the queues. It is
//! exact when the writers are idle, and at most one bio per queue behind while they run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use throughline_device::Op;

use crate::limits::SplitReason;

/// Sums over all queues of a [`crate::Disk`] since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    bios: [u64; OPS],
    bytes: [u64; OPS],
    splits: [u64; SplitReason::ALL.len()],
    merges: u64,
    fua: u64,
}

const OPS: usize = 5;

fn op_index(op: Op) -> usize {
    match op {
        Op::Read => 0,
        Op::Write => 1,
        Op::Flush => 2,
        Op::Discard => 3,
        Op::WriteZeroes => 4,
    }
}

impl Counters {
    /// Bios submitted for `op`.
    pub fn bios(&self, op: Op) -> u64 {
        self.bios[op_index(op)]
    }

    /// All bios submitted.
    pub(crate) fn all_bios(&self) -> u64 {
        self.bios.iter().sum()
    }

    /// Bytes of the bios submitted for `op`.
    pub fn bytes(&self, op: Op) -> u64 {
        self.bytes[op_index(op)]
    }

    /// How often a bio was closed for `reason` although its caller had more to add.
    pub fn splits(&self, reason: SplitReason) -> u64 {
        self.splits[reason as usize]
    }

    /// Bios that a plug merged into the one before.
    pub fn merges(&self) -> u64 {
        self.merges
    }

    /// Write bios with FUA, durable on completion. On a device without FUA each one also causes a flush.
    pub fn fua(&self) -> u64 {
        self.fua
    }

    /// The difference to `earlier`, an earlier reading of the same disk.
    pub fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            bios: std::array::from_fn(|i| f(self.bios[i], other.bios[i])),
            bytes: std::array::from_fn(|i| f(self.bytes[i], other.bytes[i])),
            splits: std::array::from_fn(|i| f(self.splits[i], other.splits[i])),
            merges: f(self.merges, other.merges),
            fua: f(self.fua, other.fua),
        }
    }
}

/// One queue's counters.
#[derive(Debug, Default)]
pub(crate) struct QueueCounters(CachePadded<Cells>);

#[derive(Debug, Default)]
struct Cells {
    bios: [AtomicU64; OPS],
    bytes: [AtomicU64; OPS],
    splits: [AtomicU64; SplitReason::ALL.len()],
    merges: AtomicU64,
    fua: AtomicU64,
    done: AtomicU64,
    leased: AtomicBool,
}

/// Adds without a locked instruction. Correct because the queue's current owner is the only writer.
fn add(cell: &AtomicU64, amount: u64) {
    cell.store(
        cell.load(Ordering::Relaxed).wrapping_add(amount),
        Ordering::Relaxed,
    );
}

fn read_all<const N: usize>(cells: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|i| cells[i].load(Ordering::Relaxed))
}

impl QueueCounters {
    pub(crate) fn bio(&self, op: Op, len_bytes: u64) {
        add(&self.0.bios[op_index(op)], 1);
        add(&self.0.bytes[op_index(op)], len_bytes);
    }

    pub(crate) fn split(&self, reason: SplitReason) {
        add(&self.0.splits[reason as usize], 1);
    }

    pub(crate) fn merge(&self) {
        add(&self.0.merges, 1);
    }

    pub(crate) fn fua(&self) {
        add(&self.0.fua, 1);
    }

    /// Counts `bios` as completed.
    pub(crate) fn done(&self, bios: usize) {
        add(&self.0.done, bios as u64);
    }

    /// Bios submitted and not completed.
    pub(crate) fn in_flight(&self) -> u64 {
        // Read in this order, so that bios completed between the two loads do not exceed those submitted.
        let done = self.0.done.load(Ordering::Relaxed);
        let submitted: u64 = read_all(&self.0.bios).iter().sum();
        submitted.saturating_sub(done)
    }

    /// Whether a thread leases the queue.
    pub(crate) fn is_leased(&self) -> bool {
        self.0.leased.load(Ordering::SeqCst)
    }

    /// Marks the queue as leased or idle.
    pub(crate) fn set_leased(&self, leased: bool) {
        // Only a thread that takes a lease checks another flag afterwards (`Queues::is_cut`).
        let order = if leased {
            Ordering::SeqCst
        } else {
            Ordering::Release
        };
        self.0.leased.store(leased, order);
    }

    pub(crate) fn read(&self) -> Counters {
        Counters {
            bios: read_all(&self.0.bios),
            bytes: read_all(&self.0.bytes),
            splits: read_all(&self.0.splits),
            merges: self.0.merges.load(Ordering::Relaxed),
            fua: self.0.fua.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences() {
        let (a, b) = (QueueCounters::default(), QueueCounters::default());
        a.bio(Op::Read, 4096);
        b.bio(Op::Read, 512);
        b.bio(Op::Flush, 0);
        b.split(SplitReason::Chunk);
        let first = a.read().plus(&b.read());
        assert_eq!(
            (
                first.bios(Op::Read),
                first.bytes(Op::Read),
                first.bios(Op::Flush)
            ),
            (2, 4608, 1)
        );
        assert_eq!(
            (
                first.splits(SplitReason::Chunk),
                first.splits(SplitReason::Target)
            ),
            (1, 0)
        );
        a.merge();
        a.bio(Op::Write, 1);
        a.fua();
        let step = a.read().plus(&b.read()).since(&first);
        assert_eq!(
            (step.merges(), step.bios(Op::Write), step.bios(Op::Read)),
            (1, 1, 0)
        );
        assert_eq!((first.fua(), step.fua()), (0, 1));
    }
}
