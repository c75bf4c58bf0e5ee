//! What our engine did. A listener observes a volume from opening to closing.

use std::cell::Cell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use throughline::internal::VolumeLayers;
use throughline::{BioInfo, Event, Listener, Op, Purpose, SplitReason, Volume};
use throughline_fileio::{PageCache, throttle};
use throughline_locks::{Mutex, Rank};

use super::account::{Cache, Counted};
use super::accountant::{Accountant, Calls, Explained, Io};

/// Observes everything a command opens.
pub struct Watch {
    began: Instant,
    opened: Mutex<Vec<Arc<Watched>>>,
}

/// Observes one volume.
pub struct Watched {
    state: Mutex<State>,
}

struct State {
    /// `None` once the result was taken.
    accountant: Option<Accountant>,
    calls: Calls,
    clock: Clock,
    /// Bios in flight, by operation and first byte.
    on_device: HashMap<(&'static str, u64), u32>,
    /// Subscribes to its throttle's events.
    throttle: Option<throttle::Subscription>,
    series: String,
}

/// Nanoseconds since a start.
struct Clock {
    began: Instant,
}

impl Clock {
    /// The reading at an instant.
    fn of(&self, at: Instant) -> u64 {
        ns(at.saturating_duration_since(self.began))
    }

    fn now(&self) -> u64 {
        self.of(Instant::now())
    }
}

impl Default for Watch {
    fn default() -> Self {
        Watch::new()
    }
}

impl Watch {
    /// Observes from now on.
    pub fn new() -> Watch {
        Watch {
            began: Instant::now(),
            opened: Mutex::default(),
        }
    }

    /// A listener for the volume, file or device at this path, which is about to be opened.
    pub fn path(&self, path: &Path) -> Arc<Watched> {
        let name = path.file_name().unwrap_or(path.as_os_str());
        self.named(&name.to_string_lossy())
    }

    /// A listener for a device with this name, which is about to be opened.
    pub fn named(&self, name: &str) -> Arc<Watched> {
        let watched = Arc::new(Watched::new(format!("{name} (throughline)"), self.began));
        self.opened.lock().push(Arc::clone(&watched));
        watched
    }

    /// The accounts: one for each opened item, in that order, then one for each variant of an experiment.
    /// Items with no activity, as when opening failed, are left out. Later events are ignored.
    pub fn finish(&self) -> Vec<Explained> {
        let opened = std::mem::take(&mut *self.opened.lock());
        let finished = opened.iter().filter_map(|watched| watched.finish());
        finished
            .filter(|one| !one.account.asked.is_empty() || !one.account.bios.is_empty())
            .collect()
    }
}

/// The listener, as [`OpenOptions::listener`](throughline::OpenOptions::listener) takes it.
pub fn listening(watched: Option<&Arc<Watched>>) -> Option<Arc<dyn Listener>> {
    watched.map(|watched| Arc::clone(watched) as Arc<dyn Listener>)
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Watched {
    /// An account with this name, whose time starts at `began`.
    fn new(series: String, began: Instant) -> Watched {
        Watched {
            state: Mutex::ranked(
                Rank::Listener,
                State {
                    accountant: Some(Accountant::default()),
                    calls: Calls::default(),
                    clock: Clock { began },
                    on_device: HashMap::new(),
                    throttle: None,
                    series,
                },
            ),
        }
    }

    fn with_state(&self, f: impl FnOnce(&mut Accountant, &mut Calls, &Clock)) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(accountant) = &mut state.accountant {
            f(accountant, &mut state.calls, &state.clock);
        }
    }

    /// Must be called once the volume is open: subscribes to its throttle.
    pub fn opened(self: &Arc<Self>, volume: &Volume) {
        self.listen_to(volume.cache());
    }

    fn listen_to(self: &Arc<Self>, cache: &PageCache) {
        let watched = Arc::clone(self);
        let listener = move |event: &throttle::Event| watched.throttled(event);
        let subscription = cache.throttle().subscribe(Arc::new(listener));
        self.state.lock().throttle = Some(subscription);
    }

    /// Records a throttle event.
    fn throttled(&self, event: &throttle::Event) {
        self.with_state(|accountant, _, clock| match event {
            throttle::Event::Paused { pause, .. } => {
                accountant.pause(clock.now(), ns(*pause), false);
            }
            throttle::Event::Waited { waited, .. } => {
                let at = clock.now().saturating_sub(ns(*waited));
                accountant.pause(at, ns(*waited), true);
            }
            _ => {}
        });
    }

    /// Must be called before the volume is closed: reads the counts that only an open volume has.
    pub fn closing(&self, volume: &Volume) {
        // Sync first, so that the write-back of the close is counted. The close itself reports any error.
        let _ = volume.sync();
        self.cached(volume.cache());
        self.end_listening();
    }

    fn end_listening(&self) {
        // Drop it outside the lock, because its last events may take the lock.
        let subscription = self.state.lock().throttle.take();
        drop(subscription);
    }

    /// Adds what the cache has counted.
    fn cached(&self, cache: &PageCache) {
        let (reads, written) = (cache.read_counts(), cache.writeback().counts());
        self.with_state(|accountant, _, _| {
            let account = accountant.account_mut();
            account.cache = Some(Cache {
                hits: reads.hits,
                hit_bytes: reads.hit_bytes,
                misses: reads.misses,
                miss_bytes: reads.miss_bytes,
            });
            account.writeback = Counted {
                count: written.runs,
                bytes: written.bytes,
            };
        });
    }

    /// The result; `None` on later calls.
    fn finish(&self) -> Option<Explained> {
        let mut state = self.state.lock();
        let mut accountant = state.accountant.take()?;
        accountant
            .account_mut()
            .asked
            .clone_from(state.calls.asked());
        Some(accountant.finish(&state.series, state.clock.now()))
    }

    fn submitted(&self, bio: &BioInfo, opened_at: Instant, submitted_at: Instant) {
        let io = io_of(bio);
        let kind = match bio.purpose {
            Purpose::Metadata => "metadata",
            Purpose::Journal => "journal",
            _ => "data",
        };
        let by = by();
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(accountant) = &mut state.accountant else {
            return;
        };
        let at_ns = state.clock.of(submitted_at);
        let opened_ns = state.clock.of(opened_at);
        let call = state.calls.first_bio(this_thread());
        accountant.bio(opened_ns, io, kind, by, call);
        accountant.waited_for_queue(at_ns.saturating_sub(opened_ns));
        accountant.begins(at_ns, io);
        let key = (io.op, io.offset_bytes);
        *state.on_device.entry(key).or_default() += 1;
    }

    fn completed(&self, io: Io, took_ns: u64, ok: bool) {
        let mut state = self.state.lock();
        let state = &mut *state;
        // An I/O that started before tracing is unknown.
        let Entry::Occupied(mut waiting) = state.on_device.entry((io.op, io.offset_bytes)) else {
            return;
        };
        match waiting.get() {
            1 => drop(waiting.remove()),
            _ => *waiting.get_mut() -= 1,
        }
        if let Some(accountant) = &mut state.accountant {
            accountant.completes(state.clock.now(), io, took_ns, ok);
        }
    }
}

impl Listener for Watched {
    fn event(&self, event: &Event) {
        match event {
            Event::Submit {
                bio,
                opened_at,
                submitted_at,
            } => self.submitted(bio, *opened_at, *submitted_at),
            Event::Complete {
                bio,
                service_time,
                ok,
                ..
            } => self.completed(io_of(bio), ns(*service_time), *ok),
            Event::Split {
                offset_bytes,
                reason,
            } => self.with_state(|accountant, _, clock| {
                accountant.split(clock.now(), *offset_bytes, why(*reason));
            }),
            Event::Merge { bio } => self.with_state(|accountant, _, clock| {
                accountant.merge(clock.now(), io_of(bio), "in the plug");
            }),
            Event::CallBegins => {
                self.with_state(|_, calls, clock| calls.begin(this_thread(), clock.now()));
            }
            Event::CallEnds { op, bytes } => {
                let op = match op {
                    Op::Read => "read",
                    Op::Write => "write",
                    _ => "sync",
                };
                self.with_state(|_, calls, _| calls.end(this_thread(), op, *bytes));
            }
            Event::Committed { took } => self.with_state(|accountant, _, clock| {
                let began = clock.now().saturating_sub(ns(*took));
                accountant.commit(began, ns(*took));
            }),
            _ => {}
        }
    }
}

fn io_of(bio: &BioInfo) -> Io {
    Io {
        op: match bio.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "zero",
        },
        offset_bytes: bio.offset_bytes,
        len_bytes: bio.len_bytes,
    }
}

fn why(reason: SplitReason) -> &'static str {
    match reason {
        SplitReason::Discontinuity => "discontinuity on the device",
        SplitReason::Target => "size target",
        SplitReason::MaxTransfer => "device's maximum transfer",
        SplitReason::Chunk => "chunk boundary of the device",
        SplitReason::MaxSegments => "maximum number of segments",
        SplitReason::VirtBoundary => "gap between segments in memory",
    }
}

/// The prefix of the engine's own threads, to identify the submitter.
const OWN_THREADS: &str = "tl-";

fn by() -> &'static str {
    let thread = thread::current();
    match thread
        .name()
        .and_then(|name| name.strip_prefix(OWN_THREADS))
    {
        Some("flusher") => "the flusher",
        Some("journal") => "the journal's thread",
        Some(name) if name.starts_with("readahead") => "readahead",
        Some(_) => "other threads of the engine",
        None => "the command",
    }
}

/// A number unique to this thread.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}
