//! [`Accountant`]: turns what happens on one device, event by event, into an [`Account`] and a trace.
//!
//! Our engine's events and the kernel's tracepoints come here in the same words. Times are nanoseconds from the start of the
//! command; what is kept is bounded, however long the command runs.

use std::collections::BTreeMap;

use super::account::{Account, Counted};
use super::gather::{DepthOverTime, SizeCounts, TimeCounts, us};
use crate::record::{Latencies, TraceEvent};

/// Events of a trace that are kept; the counts go on.
const MAX_TRACE: usize = 100_000;
/// Names of submitters, of reasons and the like that are told apart.
const MAX_NAMES: usize = 64;
/// What the others are counted as.
const OTHERS: &str = "others";

/// A bio, or a request, as both sides have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    /// `read`, `write`, `flush`, `discard`, `zero`.
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
    depth: DepthOverTime,
    pauses: TimeCounts,
    waits: TimeCounts,
    commits: TimeCounts,
    trace: Vec<TraceEvent>,
    left_out: u64,
}

/// Entry `name`, or that of the others when there are too many names.
fn named<'m, V: Default>(map: &'m mut BTreeMap<String, V>, name: &str) -> &'m mut V {
    let name = match map.len() < MAX_NAMES || map.contains_key(name) {
        true => name,
        false => OTHERS,
    };
    map.entry(name.to_owned()).or_default()
}

/// Whether an operation's size says something.
fn has_size(op: &str) -> bool {
    matches!(op, "read" | "write")
}

impl Accountant {
    /// A bio was made by `by` for bytes of this kind (`data`, `metadata`, `journal`); `opened_ns` is when, and `call_ns` when
    /// the call began that it is the first of.
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

    /// It waited so long for the device's queue.
    pub(super) fn waited_for_queue(&mut self, ns: u64) {
        self.waiting.add(ns);
    }

    /// A request was given to the device, which is something else than a bio.
    pub(super) fn request(&mut self, io: Io) {
        named(&mut self.account.requests, io.op).add(io.len_bytes);
        if has_size(io.op) {
            self.request_sizes
                .entry(io.op)
                .or_default()
                .add(io.len_bytes);
        }
    }

    /// The device has it from now on.
    pub(super) fn begins(&mut self, at_ns: u64, io: Io) {
        self.depth.more(at_ns);
        self.note("submit", at_ns, io, io.op, 0);
    }

    /// It is done, so long after it was given to the device.
    pub(super) fn completes(&mut self, at_ns: u64, io: Io, took_ns: u64, ok: bool) {
        self.depth.less(at_ns);
        self.latency.entry(io.op).or_default().add(took_ns);
        self.account.failed += u64::from(!ok);
        self.note("complete", at_ns, io, io.op, took_ns);
    }

    /// It goes back, to be given to the device again.
    pub(super) fn requeued(&mut self, at_ns: u64, io: Io) {
        self.depth.less(at_ns);
        self.account.requeued += 1;
        self.note("requeue", at_ns, io, io.op, 0);
    }

    /// It is on the device still, and nobody looks any more.
    pub(super) fn forgotten(&mut self, at_ns: u64) {
        self.depth.less(at_ns);
    }

    /// A bio was closed, or cut, before `offset_bytes`.
    pub(super) fn split(&mut self, at_ns: u64, offset_bytes: u64, reason: &str) {
        *named(&mut self.account.splits, reason) += 1;
        let io = Io {
            op: "",
            offset_bytes,
            len_bytes: 0,
        };
        self.note("split", at_ns, io, reason, 0);
    }

    /// A bio became part of another I/O.
    pub(super) fn merge(&mut self, at_ns: u64, io: Io, how: &str) {
        *named(&mut self.account.merges, how) += 1;
        self.note("merge", at_ns, io, how, 0);
    }

    /// A writer pauses (or, `waited`, has waited for room at the limit).
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

    /// What is only counted.
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

    /// Everything, of a command that ended at `end_ns`.
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
                "the trace has the first {MAX_TRACE} events, {} are left out; all are counted",
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

/// Of what is about no bio.
pub(super) const NO_IO: Io = Io {
    op: "",
    offset_bytes: 0,
    len_bytes: 0,
};

/// What one device's watching came to.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The table's column.
    pub account: Account,
    /// Single events, in the order of time.
    pub trace: Vec<TraceEvent>,
    /// How long I/Os took, as classes.
    pub latencies: Vec<Latencies>,
}

/// What a command asked for, and which of its calls have not come to a bio yet.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// When the thread's present call began.
    open: BTreeMap<u64, u64>,
    asked: BTreeMap<String, Counted>,
}

/// Threads whose call is remembered.
const MAX_THREADS: usize = 4096;

impl Calls {
    /// A call begins on this thread.
    pub(super) fn begin(&mut self, thread: u64, at_ns: u64) {
        if self.open.len() < MAX_THREADS {
            self.open.insert(thread, at_ns);
        }
    }

    /// It ended, and moved so many bytes.
    pub(super) fn end(&mut self, thread: u64, op: &str, bytes: u64) {
        self.open.remove(&thread);
        named(&mut self.asked, op).add(bytes);
    }

    /// When the call began that this thread's bio is the first of.
    pub(super) fn first_bio(&mut self, thread: u64) -> Option<u64> {
        self.open.remove(&thread)
    }

    /// What was asked for.
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
