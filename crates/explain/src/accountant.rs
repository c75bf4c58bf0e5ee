//! [`Accountant`]: turns the events of one device into an [`Account`] and a trace.
//!
//! Our engine's events and the kernel's tracepoints are fed to it in the same terms. Times are nanoseconds
//! from the start of the command. Memory is bounded, however long the command runs.

use std::collections::BTreeMap;

use super::account::{Account, Counted};
use super::gather::{InFlight, SizeCounts, TimeCounts, us};
use crate::{Latencies, TraceEvent};

/// Maximum number of trace events kept. Events beyond it are still counted.
const MAX_TRACE: usize = 100_000;
/// Maximum number of distinct names kept for submitters, reasons and the like.
const MAX_NAMES: usize = 64;
/// The name that further names are counted under.
const OTHERS: &str = "others";

/// A bio or a request, in the form common to both sources.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    /// The operation: `read`, `write`, `flush`, `discard`, `zero`.
    pub(super) op: &'static str,
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Accountant {
    account: Account,
    bio_sizes: BTreeMap<&'static str, SizeCounts>,
    request_sizes: BTreeMap<&'static str, SizeCounts>,
    writeback_sizes: SizeCounts,
    first_submit: TimeCounts,
    waiting: TimeCounts,
    latency: BTreeMap<&'static str, TimeCounts>,
    depth: InFlight,
    pauses: TimeCounts,
    waits: TimeCounts,
    commits: TimeCounts,
    trace: Vec<TraceEvent>,
    left_out: u64,
}

/// The entry `name`, or the entry for others if there are too many names.
fn named<'m, V: Default>(map: &'m mut BTreeMap<String, V>, name: &str) -> &'m mut V {
    let name = match map.len() < MAX_NAMES || map.contains_key(name) {
        true => name,
        false => OTHERS,
    };
    map.entry(name.to_owned()).or_default()
}

/// Whether an operation's size is meaningful.
fn has_size(op: &str) -> bool {
    matches!(op, "read" | "write")
}

impl Accountant {
    /// A bio was submitted by `by` with this content (`data`, `metadata`, `journal`). `call_ns` is the start
    /// of the call, if this is its first bio.
    pub(super) fn bio(&mut self, at_ns: u64, io: Io, kind: &str, by: &str, call_ns: Option<u64>) {
        let name = match has_size(io.op) {
            true => format!("{} {kind}", io.op),
            false => io.op.to_owned(),
        };
        named(&mut self.account.bios, &name).add(io.len_bytes);
        *named(&mut self.account.submitted_by, by) += 1;
        if has_size(io.op) {
            self.bio_sizes.entry(io.op).or_default().add(io.len_bytes);
        }
        self.account.first_bio_us.get_or_insert(us(at_ns));
        if let Some(began) = call_ns {
            self.first_submit.add(at_ns.saturating_sub(began));
        }
        self.note("build", at_ns, io, &name, 0);
    }

    /// A bio waited this long for the device's queue.
    pub(super) fn waited_for_queue(&mut self, ns: u64) {
        self.waiting.add(ns);
    }

    /// A request, distinct from the bios, was submitted to the device.
    pub(super) fn request(&mut self, io: Io) {
        named(&mut self.account.requests, io.op).add(io.len_bytes);
        if has_size(io.op) {
            self.request_sizes
                .entry(io.op)
                .or_default()
                .add(io.len_bytes);
        }
    }

    /// An I/O was submitted to the device at `at_ns`.
    pub(super) fn begins(&mut self, at_ns: u64, io: Io) {
        self.depth.more(at_ns);
        self.note("submit", at_ns, io, io.op, 0);
    }

    /// An I/O completed at `at_ns`, `took_ns` after its submission.
    pub(super) fn completes(&mut self, at_ns: u64, io: Io, took_ns: u64, ok: bool) {
        self.depth.less(at_ns);
        self.latency.entry(io.op).or_default().add(took_ns);
        self.account.failed += u64::from(!ok);
        self.note("complete", at_ns, io, io.op, took_ns);
    }

    /// The driver returned an I/O, which will be submitted again.
    pub(super) fn requeued(&mut self, at_ns: u64, io: Io) {
        self.depth.less(at_ns);
        self.account.requeued += 1;
        self.note("requeue", at_ns, io, io.op, 0);
    }

    /// A bio was closed or split before `offset_bytes`.
    pub(super) fn split(&mut self, at_ns: u64, offset_bytes: u64, reason: &str) {
        *named(&mut self.account.splits, reason) += 1;
        let io = Io {
            op: "",
            offset_bytes,
            len_bytes: 0,
        };
        self.note("split", at_ns, io, reason, 0);
    }

    /// A bio was merged into another I/O.
    pub(super) fn merge(&mut self, at_ns: u64, io: Io, how: &str) {
        *named(&mut self.account.merges, how) += 1;
        self.note("merge", at_ns, io, how, 0);
    }

    /// A writer paused for `took_ns`; with `waited`, at the hard limit.
    pub(super) fn pause(&mut self, at_ns: u64, took_ns: u64, waited: bool) {
        match waited {
            true => self.waits.add(took_ns),
            false => self.pauses.add(took_ns),
        }
        let why = if waited { "at the limit" } else { "throttled" };
        self.note("pause", at_ns, NO_IO, why, took_ns);
    }

    /// The journal has committed.
    pub(super) fn commit(&mut self, at_ns: u64, took_ns: u64) {
        self.commits.add(took_ns);
        self.note("commit", at_ns, NO_IO, "", took_ns);
    }

    /// A piece of dirty memory was written back.
    pub(super) fn written_back(&mut self, bytes: u64) {
        self.account.writeback.add(bytes);
        self.writeback_sizes.add(bytes);
    }

    /// The account, for values that need only be counted.
    pub(super) fn account_mut(&mut self) -> &mut Account {
        &mut self.account
    }

    fn note(&mut self, what: &str, at_ns: u64, io: Io, detail: &str, took_ns: u64) {
        if self.trace.len() >= MAX_TRACE {
            self.left_out += 1;
            return;
        }
        self.trace.push(TraceEvent {
            at_us: us(at_ns),
            what: what.to_owned(),
            detail: detail.to_owned(),
            offset_bytes: io.offset_bytes,
            len_bytes: io.len_bytes,
            took_us: us(took_ns),
        });
    }

    /// The result, for a command that ended at `end_ns`.
    pub(super) fn finish(mut self, series: &str, end_ns: u64) -> Explained {
        let latencies: Vec<Latencies> = self
            .latency
            .iter()
            .map(|(op, times)| Latencies {
                series: series.to_owned(),
                quantity: (*op).to_owned(),
                round: 1,
                classes_us: times.classes_us(),
            })
            .collect();
        let mut account = self.account;
        let sizes = |counts: BTreeMap<&str, SizeCounts>| {
            let each = counts.into_iter();
            each.map(|(op, sizes)| (op.to_owned(), sizes.sizes()))
                .collect()
        };
        account.series = series.to_owned();
        account.wall_us = us(end_ns);
        account.bio_sizes = sizes(self.bio_sizes);
        account.request_sizes = sizes(self.request_sizes);
        account.writeback_sizes = self.writeback_sizes.sizes();
        account.first_submit = self.first_submit.times();
        account.waiting = self.waiting.times();
        account.latency = self
            .latency
            .iter()
            .map(|(op, times)| ((*op).to_owned(), times.times()))
            .collect();
        account.depth = self.depth.depth(end_ns);
        account.pauses = self.pauses.times();
        account.waits = self.waits.times();
        account.commits = self.commits.times();
        if self.left_out > 0 {
            account.notes.push(format!(
                "the trace has the first {MAX_TRACE} events, {} are left out; the counts include all",
                self.left_out
            ));
        }
        self.trace.sort_by(|a, b| a.at_us.total_cmp(&b.at_us));
        Explained {
            account,
            trace: self.trace,
            latencies,
        }
    }
}

/// The I/O of events that have none.
pub(super) const NO_IO: Io = Io {
    op: "",
    offset_bytes: 0,
    len_bytes: 0,
};

/// The result of tracing one device.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The table column.
    pub account: Account,
    /// Single events in chronological order.
    pub trace: Vec<TraceEvent>,
    /// I/O latencies, in classes.
    pub latencies: Vec<Latencies>,
}

/// The calls of a command, and which of them have not yet caused a bio.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// When each thread's current call started.
    open: BTreeMap<u64, u64>,
    asked: BTreeMap<String, Counted>,
}

/// Threads whose calls are tracked.
const MAX_THREADS: usize = 4096;

impl Calls {
    /// A call starts on this thread.
    pub(super) fn begin(&mut self, thread: u64, at_ns: u64) {
        if self.open.len() < MAX_THREADS {
            self.open.insert(thread, at_ns);
        }
    }

    /// A call ended after moving this many bytes.
    pub(super) fn end(&mut self, thread: u64, op: &str, bytes: u64) {
        self.open.remove(&thread);
        named(&mut self.asked, op).add(bytes);
    }

    /// When the thread's call started, if this is its first bio.
    pub(super) fn first_bio(&mut self, thread: u64) -> Option<u64> {
        self.open.remove(&thread)
    }

    /// The calls so far.
    pub(super) fn asked(&self) -> &BTreeMap<String, Counted> {
        &self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset_bytes: u64, len_bytes: u64) -> Io {
        Io {
            op: "write",
            offset_bytes,
            len_bytes,
        }
    }

    #[test]
    fn events_become_an_account() {
        let (mut accountant, mut calls) = (Accountant::default(), Calls::default());
        calls.begin(7, 1_000);
        let io = write(4096, 8192);
        let first = calls.first_bio(7);
        accountant.bio(3_000, io, "data", "the command", first);
        assert_eq!(calls.first_bio(7), None, "only the first");
        accountant.begins(4_000, io);
        accountant.requeued(4_000, io);
        accountant.begins(4_000, io);
        accountant.completes(9_000, io, 5_000, true);
        accountant.split(4_000, 12288, "target");
        accountant.pause(5_000, 10_000_000, false);
        accountant.commit(6_000, 100);
        calls.end(7, "write", 8192);
        let explained = accountant.finish("x", 10_000);
        let account = explained.account;
        assert_eq!(
            account.bios["write data"],
            Counted {
                count: 1,
                bytes: 8192
            }
        );
        assert_eq!(account.bio_sizes["write"], [(8192, 1)]);
        assert_eq!(account.first_bio_us, Some(3.0));
        assert_eq!(
            (account.first_submit.count, account.first_submit.max_us),
            (1, 2.0)
        );
        assert_eq!(account.latency["write"].count, 1);
        assert_eq!((account.depth.most, account.depth.busy), (1, 0.5));
        assert_eq!(account.requeued, 1);
        assert_eq!(account.splits["target"], 1);
        assert_eq!((account.pauses.count, account.commits.count), (1, 1));
        assert_eq!(calls.asked()["write"].bytes, 8192);
        let what: Vec<&str> = explained.trace.iter().map(|e| e.what.as_str()).collect();
        assert_eq!(
            what,
            [
                "build", "submit", "requeue", "submit", "split", "pause", "commit", "complete"
            ]
        );
    }

    #[test]
    fn names_are_bounded() {
        let mut accountant = Accountant::default();
        for number in 0..1000 {
            accountant.bio(0, write(0, 512), "data", &format!("thread {number}"), None);
        }
        let account = accountant.finish("x", 1).account;
        assert_eq!(account.submitted_by.len(), MAX_NAMES + 1);
        assert_eq!(account.submitted_by[OTHERS], 1000 - MAX_NAMES as u64);
    }
}
