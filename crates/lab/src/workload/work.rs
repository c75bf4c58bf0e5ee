//! One round of a workload on one target: its threads, their operations, and the time of each.
//!
//! The queue depth is implemented by threads: on every target, each operation in flight is a call by its own
//! thread.
//!
//! Invariants:
//! - Buffers are allocated once for all rounds and targets ([`Crew`]), because memory placement affects the
//!   results.
//! - The offsets of a round depend only on seed, round and worker, so they are the same for all targets. With
//!   a queue depth above 1, the scheduler decides which worker performs which operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use throughline_device::AlignedBuf;
use throughline_locks::{Mutex, Rank};

use super::durations::{Durations, MOST};
use super::targets::{Access, Target};
use super::{Direction, Layout, SyncPolicy, Workload};
use crate::Result;
use crate::meter::Spent;
use crate::mounts::work::together;

/// Latencies of the operations.
pub(super) struct Times {
    pub(super) reads: Durations,
    pub(super) writes: Durations,
    pub(super) syncs: Durations,
}

impl Times {
    /// No latencies, with a capacity of `most` for each kind.
    fn new(most: usize) -> Times {
        Times {
            reads: Durations::new(most),
            writes: Durations::new(most),
            syncs: Durations::new(most),
        }
    }

    fn add(&mut self, other: &mut Times) {
        self.reads.add(&mut other.reads);
        self.writes.add(&mut other.writes);
        self.syncs.add(&mut other.syncs);
    }
}

/// The result of a round.
pub(super) struct Done {
    pub(super) spent: Spent,
    /// Number of completed reads and writes.
    pub(super) operations: u64,
    pub(super) times: Times,
}

/// The state of a worker.
struct Lane {
    buffer: AlignedBuf,
    times: Times,
}

/// The workers of a run, with their buffers.
pub(super) struct Crew<'a> {
    workload: &'a Workload,
    lanes: Vec<Mutex<Lane>>,
}

/// State shared by the workers of one thread.
struct Share {
    access: Arc<dyn Access>,
    /// Offset of its first block.
    base: u64,
    blocks: u64,
    /// Number of operations per pass.
    operations: u64,
    /// The number of the next operation.
    next: CachePadded<AtomicU64>,
    written: AtomicU64,
    /// Number of workers that are still running. The last one syncs.
    working: AtomicU32,
}

/// A round, shared by all workers.
struct Round<'r> {
    workload: &'r Workload,
    shares: Vec<Share>,
    seed: u64,
    /// Whether a worker failed.
    failed: AtomicBool,
    interrupted: &'r (dyn Fn() -> bool + Sync),
}

impl<'a> Crew<'a> {
    pub(super) fn new(workload: &'a Workload) -> Result<Crew<'a>> {
        let mut random = fastrand::Rng::with_seed(workload.seed);
        let lane = |_| {
            let mut buffer = AlignedBuf::zeroed(workload.block_bytes as usize, 4096);
            random.fill(&mut buffer);
            let times = Times::new(MOST / workload.workers() as usize);
            Ok(Mutex::ranked(Rank::Experiment, Lane { buffer, times }))
        };
        Ok(Crew {
            workload,
            lanes: (0..workload.workers()).map(lane).collect::<Result<_>>()?,
        })
    }

    /// Runs round number `round` on `target`; `None` if interrupted.
    pub(super) fn round(
        &self,
        target: &dyn Target,
        round: u32,
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<Done>> {
        let work = Round {
            workload: self.workload,
            shares: shares(self.workload, target)?,
            seed: mixed(self.workload.seed, u64::from(round)),
            failed: AtomicBool::new(false),
            interrupted,
        };
        for share in &work.shares {
            if self.workload.layout == Layout::Empty {
                share.access.empty()?;
            }
            share.access.write_back(self.workload.cold)?;
        }
        let spent = together(self.lanes.len(), |worker| {
            // Never contended, because each worker has its own lane.
            let mut lane = self.lanes[worker].lock();
            let done = work.worker(worker, &mut lane);
            work.failed.fetch_or(done.is_err(), Ordering::Relaxed);
            done
        })?;
        if interrupted() {
            return Ok(None);
        }
        // Write back dirty data, so that this does not slow down the next target.
        work.shares
            .iter()
            .try_for_each(|share| share.access.write_back(false))?;
        let mut times = Times::new(MOST);
        for lane in &self.lanes {
            times.add(&mut lane.lock().times);
        }
        Ok(Some(Done {
            spent,
            operations: times.reads.count() + times.writes.count(),
            times,
        }))
    }
}

/// What each thread works on: a file of its own, or a range of the only file.
fn shares(workload: &Workload, target: &dyn Target) -> Result<Vec<Share>> {
    let part = workload.part_bytes();
    let per_file = workload.file_per_thread && target.has_many();
    let one = |thread: u32| {
        let access = target.open(if per_file { thread } else { 0 })?;
        let own_part = !per_file && (!workload.random || workload.file_per_thread);
        let base = if own_part {
            u64::from(thread) * part
        } else {
            0
        };
        let bytes = match workload.random && !workload.file_per_thread {
            true => workload.size_bytes,
            false => part,
        };
        Ok(Share {
            access,
            base: workload.offset_bytes + base,
            blocks: bytes / workload.block_bytes,
            operations: part / workload.block_bytes,
            next: CachePadded::default(),
            written: AtomicU64::new(0),
            working: AtomicU32::new(workload.queue_depth),
        })
    };
    (0..workload.threads).map(one).collect()
}

impl Round<'_> {
    fn worker(&self, worker: usize, lane: &mut Lane) -> Result<()> {
        let share = &self.shares[worker / self.workload.queue_depth as usize];
        let mut random = fastrand::Rng::with_seed(mixed(self.seed, worker as u64));
        let deadline = self
            .workload
            .runtime
            .map(|runtime| Instant::now() + runtime);
        loop {
            if self.failed.load(Ordering::Relaxed) || (self.interrupted)() {
                return Ok(());
            }
            let number = share.next.fetch_add(1, Ordering::Relaxed);
            let begun = Instant::now();
            let over = !self.workload.time_based && number >= share.operations;
            if over || deadline.is_some_and(|deadline| begun >= deadline) {
                break;
            }
            let block = match self.workload.random {
                true => random.u64(..share.blocks),
                false => number % share.blocks,
            };
            let at = share.base + block * self.workload.block_bytes;
            self.operation(share, at, begun, &mut random, lane)?;
        }
        let last = share.working.fetch_sub(1, Ordering::AcqRel) == 1;
        let wrote = share.written.load(Ordering::Relaxed) > 0;
        if last && wrote && self.workload.sync == SyncPolicy::End {
            return sync(share, lane);
        }
        Ok(())
    }

    /// Performs one read or write, and the sync that is due after it.
    fn operation(
        &self,
        share: &Share,
        at: u64,
        begun: Instant,
        random: &mut fastrand::Rng,
        lane: &mut Lane,
    ) -> Result<()> {
        let reads = match self.workload.direction {
            Direction::Read => true,
            Direction::Write => false,
            Direction::Mixed(percent) => random.u8(..100) < percent,
        };
        if reads {
            share.access.read(at, &mut lane.buffer)?;
            note(&mut lane.times.reads, begun);
            return Ok(());
        }
        share.access.write(at, &lane.buffer)?;
        note(&mut lane.times.writes, begun);
        let written = share.written.fetch_add(1, Ordering::Relaxed) + 1;
        match self.workload.sync {
            SyncPolicy::Every(writes) if written.is_multiple_of(writes) => sync(share, lane),
            _ => Ok(()),
        }
    }
}

fn sync(share: &Share, lane: &mut Lane) -> Result<()> {
    let begun = Instant::now();
    share.access.sync()?;
    note(&mut lane.times.syncs, begun);
    Ok(())
}

fn note(times: &mut Durations, begun: Instant) {
    times.note(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
}

/// Mixes two numbers into a seed. Adjacent numbers give unrelated seeds.
fn mixed(seed: u64, number: u64) -> u64 {
    fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
}
