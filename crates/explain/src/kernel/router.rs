//! [`Router`]: assigns the kernel's events to devices, determines which devices the command used, and pairs
//! starts with ends.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::devices::Dev;
use super::events::{Kind, Seen};
use crate::accountant::{Accountant, Calls, Explained, Io};

/// Maximum number of devices tracked. On a machine with more, the user must name one.
const MAX_DEVICES: usize = 16;
/// Maximum number of requests tracked per device.
const MAX_IN_FLIGHT: usize = 1 << 16;
/// Maximum number of the command's processes and threads that are tracked.
const MAX_THREADS: usize = 1 << 16;

pub(super) const THE_COMMAND: &str = "the command";

/// See the module.
pub(super) struct Router {
    /// When the command started, by the trace clock.
    start_ns: u64,
    /// The command's processes and threads.
    tree: HashSet<i32>,
    calls: Calls,
    devices: BTreeMap<Dev, Device>,
    /// The disk for each device number seen.
    disks: HashMap<Dev, Dev>,
    other_calls: BTreeSet<&'static str>,
    /// Whether there were too many devices to track.
    too_many: bool,
    /// When the command ended.
    end_ns: Option<u64>,
}

#[derive(Default)]
struct Device {
    accountant: Accountant,
    /// Whether the command used it, or the user named it.
    touched: bool,
    on_device: HashMap<(&'static str, u64), VecDeque<Request>>,
    in_flight: usize,
    /// The journal transaction being committed, and when the commit started.
    commit: Option<(u64, u64)>,
    dirtied: bool,
}

struct Request {
    since_ns: u64,
    len_bytes: u64,
}

impl Router {
    /// A router for a command that starts at this time of the trace clock. `first` is the thread that starts
    /// it.
    pub(super) fn new(start_ns: u64, first: i32, devices: &[Dev]) -> Router {
        let mut router = Router {
            start_ns,
            tree: HashSet::from([first]),
            calls: Calls::default(),
            devices: BTreeMap::new(),
            disks: HashMap::new(),
            other_calls: BTreeSet::new(),
            too_many: false,
            end_ns: None,
        };
        for dev in devices {
            if let Some(device) = router.device(*dev) {
                device.touched = true;
            }
        }
        router
    }

    /// The command ended at this time. From then on, only completions of I/O in flight are counted.
    pub(super) fn end(&mut self, end_ns: u64) {
        self.end_ns = Some(end_ns);
    }

    fn device(&mut self, dev: Dev) -> Option<&mut Device> {
        let disk = match self.disks.get(&dev) {
            Some(disk) => *disk,
            None => {
                let disk = dev.disk();
                // Partitions have numbers too, so this map may have more entries than there are devices. No
                // machine has as many as this bound.
                if self.disks.len() < 4096 {
                    self.disks.insert(dev, disk);
                }
                disk
            }
        };
        if self.devices.len() >= MAX_DEVICES && !self.devices.contains_key(&disk) {
            self.too_many = true;
            return None;
        }
        Some(self.devices.entry(disk).or_default())
    }

    /// Processes one event. Events must be in chronological order.
    pub(super) fn take(&mut self, seen: &Seen) {
        // Events before the command are ignored.
        let Some(at_ns) = seen.at_ns.checked_sub(self.start_ns) else {
            return;
        };
        let is_over = self.end_ns.is_some_and(|end| seen.at_ns > end);
        if is_over && seen.kind != Kind::Complete {
            return;
        }
        let of_command = self.tree.contains(&seen.thread);
        let thread = u64::from(seen.thread.unsigned_abs());
        match seen.kind {
            Kind::Fork if of_command && self.tree.len() < MAX_THREADS => {
                self.tree.insert(seen.number as i32);
            }
            Kind::Fork => {}
            kind if kind.is_of_calls() && !of_command => {}
            // These belong to a thread, and only those of the command's threads count.
            Kind::Dirty | Kind::Pause if !of_command => {}
            Kind::CallBegins => self.calls.begin(thread, at_ns),
            Kind::CallEnds(op) => self.calls.end(thread, op, seen.number),
            Kind::OtherCall(name) => {
                self.other_calls.insert(name);
            }
            Kind::Bio => {
                let (by, call_ns) = match of_command {
                    true => (THE_COMMAND, self.calls.first_bio(thread)),
                    false => (seen.by.as_str(), None),
                };
                if let Some(device) = seen.dev.and_then(|dev| self.device(dev)) {
                    device.touched |= of_command;
                    let accountant = &mut device.accountant;
                    accountant.bio(at_ns, seen.io, seen.purpose, by, call_ns);
                }
            }
            _ => self.of_device(at_ns, seen),
        }
    }

    fn of_device(&mut self, at_ns: u64, seen: &Seen) {
        let (io, number) = (seen.io, seen.number);
        let Some(device) = seen.dev.and_then(|dev| self.device(dev)) else {
            return;
        };
        let accountant = &mut device.accountant;
        match seen.kind {
            Kind::Dirty => {
                device.touched = true;
                device.dirtied = true;
            }
            Kind::Merge(how) => accountant.merge(at_ns, io, how),
            Kind::Split => accountant.split(at_ns, number, "the device's limits"),
            Kind::Issue => device.issue(at_ns, io),
            Kind::Complete => device.complete(at_ns, io, number == 0),
            Kind::Requeue => device.requeue(at_ns, io),
            Kind::Pause => accountant.pause(at_ns, number, false),
            Kind::Chunk => accountant.written_back(number),
            Kind::DirectIo => accountant.account_mut().direct.add(number),
            // A journal has one commit at a time; if another is open, its end was lost.
            Kind::CommitBegins => device.commit = Some((number, at_ns)),
            Kind::CommitEnds => {
                if let Some((_, began)) = device.commit.take_if(|(tid, _)| *tid == number) {
                    accountant.commit(at_ns, at_ns.saturating_sub(began));
                }
            }
            _ => {}
        }
    }

    /// Requests in flight on the devices the command used.
    pub(super) fn in_flight(&self) -> usize {
        let touched = self.devices.values().filter(|device| device.touched);
        touched.map(|device| device.in_flight).sum()
    }

    /// An account for each device the command used, the busiest first; `notes` are added to each.
    pub(super) fn finish(self, lost: u64, notes: &[String]) -> Vec<Explained> {
        let end_ns = self.end_ns.unwrap_or(0).saturating_sub(self.start_ns);
        let mut notes = notes.to_vec();
        for name in &self.other_calls {
            notes.push(format!(
                "the command also uses {name}; the calls do not include its bytes"
            ));
        }
        if self.too_many {
            notes.push(format!(
                "more than {MAX_DEVICES} devices are in use, and not all are traced: name yours with --device"
            ));
        }
        let mut explained: Vec<Explained> = Vec::new();
        for (dev, mut device) in self
            .devices
            .into_iter()
            .filter(|(_, device)| device.touched)
        {
            let account = device.accountant.account_mut();
            account.asked.clone_from(self.calls.asked());
            account.lost_events = lost;
            account.notes.clone_from(&notes);
            if device.dirtied {
                account.notes.push(
                    "the command wrote to the page cache: later write-back is not included; end the command \
                     with a sync"
                        .to_owned(),
                );
            }
            if device.in_flight > 0 {
                account.notes.push(format!(
                    "{} requests were still in flight when the trace ended",
                    device.in_flight
                ));
            }
            let series = format!("{} (kernel)", dev.name());
            explained.push(device.accountant.finish(&series, end_ns));
        }
        let bytes = |one: &Explained| {
            one.account
                .bios
                .values()
                .map(|bios| bios.bytes)
                .sum::<u64>()
        };
        explained.sort_by_key(|one| std::cmp::Reverse(bytes(one)));
        explained
    }
}

impl Device {
    fn issue(&mut self, at_ns: u64, io: Io) {
        self.accountant.request(io);
        if self.in_flight >= MAX_IN_FLIGHT {
            return;
        }
        self.in_flight += 1;
        self.accountant.begins(at_ns, io);
        self.remember(&io, at_ns);
    }

    fn remember(&mut self, io: &Io, since_ns: u64) {
        let request = Request {
            since_ns,
            len_bytes: io.len_bytes,
        };
        let waiting = self.on_device.entry((io.op, io.offset_bytes)).or_default();
        waiting.push_back(request);
    }

    /// Removes the request with this I/O from those in flight.
    fn take(&mut self, io: &Io) -> Option<Request> {
        let key = (io.op, io.offset_bytes);
        let waiting = self.on_device.get_mut(&key)?;
        let request = waiting.pop_front();
        if waiting.is_empty() {
            self.on_device.remove(&key);
        }
        if request.is_some() {
            self.in_flight -= 1;
        }
        request
    }

    fn requeue(&mut self, at_ns: u64, io: Io) {
        if self.take(&io).is_some() {
            self.accountant.requeued(at_ns, io);
        }
    }

    fn complete(&mut self, at_ns: u64, io: Io, ok: bool) {
        // A request that started before the command is unknown.
        let Some(request) = self.take(&io) else {
            return;
        };
        if ok && io.len_bytes > 0 && io.len_bytes < request.len_bytes {
            // Only its first part completed.
            let rest = Io {
                offset_bytes: io.offset_bytes.saturating_add(io.len_bytes),
                len_bytes: request.len_bytes - io.len_bytes,
                ..io
            };
            self.remember(&rest, request.since_ns);
            self.in_flight += 1;
            return;
        }
        let took_ns = at_ns.saturating_sub(request.since_ns);
        self.accountant.completes(at_ns, io, took_ns, ok);
    }
}

#[cfg(test)]
mod tests;
