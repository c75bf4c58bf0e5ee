//! [`Router`]: sorts what the kernel tells to the devices it is about, finds out which of them the command had to do with, and
//! pairs begins with ends.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use super::devices::Dev;
use super::events::{Name, Seen, What};
use crate::explain::accountant::{Accountant, Calls, Explained, Io};

/// Devices that are told apart; a machine with more is told to name one.
const MAX_DEVICES: usize = 16;
/// Requests on one device that are remembered.
const MAX_IN_FLIGHT: usize = 1 << 16;
/// Processes and threads of the command that are remembered.
const MAX_THREADS: usize = 1 << 16;

pub(super) const THE_COMMAND: &str = "the command";

/// See the module.
pub(super) struct Router {
    /// When the command began, on the trace's clock.
    start_ns: u64,
    /// The command's processes and threads.
    tree: HashSet<i32>,
    calls: Calls,
    devices: BTreeMap<Dev, Device>,
    /// The disk of each device number that was met.
    disks: HashMap<Dev, Dev>,
    other_calls: BTreeSet<&'static str>,
    /// Not all devices are watched.
    too_many: bool,
    /// When the command ended.
    end_ns: Option<u64>,
}

#[derive(Default)]
struct Device {
    accountant: Accountant,
    /// The command had to do with it, or a person asked for it.
    touched: bool,
    on_device: HashMap<(&'static str, u64), VecDeque<Request>>,
    in_flight: usize,
    commits: HashMap<u32, u64>,
    dirtied: bool,
}

struct Request {
    since_ns: u64,
    len_bytes: u64,
}

impl Router {
    /// For a command that begins at this moment of the trace's clock; `first` is the thread that starts it.
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

    /// The command ended at this moment: from then on only what is on the devices counts, until it is done.
    pub(super) fn end(&mut self, end_ns: u64) {
        self.end_ns = Some(end_ns);
    }

    fn device(&mut self, dev: Dev) -> Option<&mut Device> {
        let disk = match self.disks.get(&dev) {
            Some(disk) => *disk,
            None => {
                let disk = dev.disk();
                // More numbers than devices are of partitions; a machine has no more of them than this.
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

    /// Takes in one event. They come in the order of time.
    pub(super) fn take(&mut self, seen: &Seen) {
        // What was before the command is none of its business.
        let Some(at_ns) = seen.at_ns.checked_sub(self.start_ns) else {
            return;
        };
        let is_over = self.end_ns.is_some_and(|end| seen.at_ns > end);
        if is_over && !matches!(seen.what, What::Complete { .. }) {
            return;
        }
        let of_command = self.tree.contains(&seen.thread);
        match seen.what {
            What::Fork { child } if of_command && self.tree.len() < MAX_THREADS => {
                self.tree.insert(child);
            }
            What::Fork { .. } => {}
            What::CallBegins if of_command => self.calls.begin(thread(seen), at_ns),
            What::CallEnds { op, bytes } if of_command => self.calls.end(thread(seen), op, bytes),
            What::OtherCall(name) if of_command => {
                self.other_calls.insert(name);
            }
            What::CallBegins | What::CallEnds { .. } | What::OtherCall(_) => {}
            What::Bio { dev, io, kind, by } => self.bio(at_ns, seen, (dev, io, kind, by)),
            What::Dirty { dev } if of_command => {
                if let Some(device) = self.device(dev) {
                    device.touched = true;
                    device.dirtied = true;
                }
            }
            What::Dirty { .. } => {}
            What::Plug | What::Unplug if of_command => self.plugged(seen.what),
            What::Plug | What::Unplug => {}
            What::Pause { .. } if !of_command => {}
            what => self.of_device(at_ns, what),
        }
    }

    fn bio(&mut self, at_ns: u64, seen: &Seen, bio: (Dev, Io, &'static str, Name)) {
        let (dev, io, kind, by) = bio;
        let of_command = self.tree.contains(&seen.thread);
        let first = match of_command {
            true => self.calls.first_bio(thread(seen)),
            false => None,
        };
        let by = match of_command {
            true => THE_COMMAND.to_owned(),
            false => by.kind(),
        };
        if let Some(device) = self.device(dev) {
            device.touched |= of_command;
            device.accountant.bio(at_ns, io, kind, &by, first);
        }
    }

    /// Plugs are of threads, not of devices: they count for each device that the command has had to do with.
    fn plugged(&mut self, what: What) {
        for device in self.devices.values_mut().filter(|device| device.touched) {
            let account = device.accountant.account_mut();
            match what {
                What::Plug => account.plugs += 1,
                _ => account.unplugs += 1,
            }
        }
    }

    fn of_device(&mut self, at_ns: u64, what: What) {
        let (What::Merge { dev, .. }
        | What::Split { dev, .. }
        | What::Issue { dev, .. }
        | What::Complete { dev, .. }
        | What::Requeue { dev, .. }
        | What::Pause { dev, .. }
        | What::Chunk { dev, .. }
        | What::DirectIo { dev, .. }
        | What::Mapping { dev, .. }
        | What::CommitBegins { dev, .. }
        | What::CommitEnds { dev, .. }) = what
        else {
            return;
        };
        let Some(device) = self.device(dev) else {
            return;
        };
        let accountant = &mut device.accountant;
        match what {
            What::Merge { io, how, .. } => accountant.merge(at_ns, io, how),
            What::Split { offset_bytes, .. } => {
                accountant.split(at_ns, offset_bytes, "the device's limits");
            }
            What::Issue { io, .. } => device.issue(at_ns, io),
            What::Complete { io, ok, .. } => device.complete(at_ns, io, ok),
            What::Requeue { io, .. } => device.requeue(at_ns, io),
            What::Pause { ns, .. } => accountant.pause(at_ns, ns, false),
            What::Chunk { bytes, .. } => accountant.written_back(bytes),
            What::DirectIo { bytes, .. } => accountant.account_mut().direct.add(bytes),
            What::Mapping { bytes, .. } => accountant.account_mut().mappings.add(bytes),
            What::CommitBegins { tid, .. } => {
                // A journal has one commit at a time; what is left of others was lost.
                device.commits.clear();
                device.commits.insert(tid, at_ns);
            }
            What::CommitEnds { tid, .. } => {
                if let Some(began) = device.commits.remove(&tid) {
                    accountant.commit(at_ns, at_ns.saturating_sub(began));
                }
            }
            _ => {}
        }
    }

    /// Requests on the devices that the command had to do with.
    pub(super) fn in_flight(&self) -> usize {
        let touched = self.devices.values().filter(|device| device.touched);
        touched.map(|device| device.in_flight).sum()
    }

    /// An account for each device that the command had to do with, the busiest first; `notes` go to each.
    pub(super) fn finish(self, lost: u64, notes: &[String]) -> Vec<Explained> {
        let end_ns = self.end_ns.unwrap_or(0).saturating_sub(self.start_ns);
        let mut notes = notes.to_vec();
        for name in &self.other_calls {
            notes.push(format!(
                "the command also uses {name}, whose bytes are not in the calls"
            ));
        }
        if self.too_many {
            notes.push(format!(
                "there are more than {MAX_DEVICES} devices at work, and not all are watched: name yours with --device"
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
                    "it wrote to the page cache: what the kernel writes back later is not here; let the command end with \
                     a sync"
                        .to_owned(),
                );
            }
            if device.in_flight > 0 {
                account.notes.push(format!(
                    "{} requests were still on the device when watching ended",
                    device.in_flight
                ));
            }
            let series = format!("{} (kernel)", dev.name());
            explained.push(device.accountant.finish(&series, end_ns));
        }
        explained.sort_by_key(|one| std::cmp::Reverse(one.account.bios_with_data().bytes));
        explained
    }
}

fn thread(seen: &Seen) -> u64 {
    u64::from(seen.thread.unsigned_abs())
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

    /// The request that this is about, which is no longer on the device.
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
        // One that began before the command is not known.
        let Some(request) = self.take(&io) else {
            return;
        };
        if ok && io.len_bytes > 0 && io.len_bytes < request.len_bytes {
            // Only its beginning is done.
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
