//! What our engine did: a listener from the moment a volume is opened until it is closed.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use throughline::{BioInfo, Event, Listener, Op, Purpose, SplitReason, Volume, throttle};

use super::account::Cache;
use super::accountant::{Accountant, Calls, Explained, Io};

/// Watches the volumes that a command opens.
pub struct Watch {
    began: Instant,
    volumes: Mutex<Vec<Arc<Watched>>>,
}

/// One volume.
pub struct Watched {
    began: Instant,
    state: Mutex<State>,
}

struct State {
    /// `None` once it has told all.
    accountant: Option<Accountant>,
    calls: Calls,
    /// Its pauses are told here.
    throttle: Option<throttle::Subscription>,
    name: String,
}

impl Default for Watch {
    fn default() -> Self {
        Watch::new()
    }
}

impl Watch {
    /// From now on.
    pub fn new() -> Watch {
        Watch {
            began: Instant::now(),
            volumes: Mutex::default(),
        }
    }

    /// A listener for the volume on this image, which is about to be opened.
    pub fn volume(&self, image: &Path) -> Arc<Watched> {
        let name = image.file_name().unwrap_or(image.as_os_str());
        let watched = Arc::new(Watched {
            began: self.began,
            state: Mutex::new(State {
                accountant: Some(Accountant::default()),
                calls: Calls::default(),
                throttle: None,
                name: format!("{} (throughline)", name.to_string_lossy()),
            }),
        });
        locked(&self.volumes).push(Arc::clone(&watched));
        watched
    }

    /// What was seen, one account for each volume in the order of their opening. What happens from now on is not.
    pub fn finish(&self) -> Vec<Explained> {
        let end_ns = since(self.began, Instant::now());
        let volumes = std::mem::take(&mut *locked(&self.volumes));
        let told = volumes.iter().filter_map(|watched| watched.finish(end_ns));
        told.collect()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn since(began: Instant, at: Instant) -> u64 {
    ns(at.saturating_duration_since(began))
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Watched {
    fn tell(&self, f: impl FnOnce(&mut Accountant, &mut Calls)) {
        let mut state = locked(&self.state);
        let state = &mut *state;
        if let Some(accountant) = &mut state.accountant {
            f(accountant, &mut state.calls);
        }
    }

    fn now(&self) -> u64 {
        since(self.began, Instant::now())
    }

    /// It is open: its throttle is listened to as well.
    pub fn opened(self: &Arc<Self>, volume: &Volume) {
        let watched = Arc::clone(self);
        let listener = move |event: &throttle::Event| match event {
            throttle::Event::Paused { pause, .. } => {
                watched.tell(|accountant, _| accountant.pause(watched.now(), ns(*pause), false));
            }
            throttle::Event::Waited { waited, .. } => {
                let at = watched.now().saturating_sub(ns(*waited));
                watched.tell(|accountant, _| accountant.pause(at, ns(*waited), true));
            }
            _ => {}
        };
        let subscription = volume.cache().throttle().subscribe(Arc::new(listener));
        locked(&self.state).throttle = Some(subscription);
    }

    /// It is about to be closed: what only the open volume knows is noted.
    pub fn closing(&self, volume: &Volume) {
        // So that what closing has to write is in it; whether it failed, closing says.
        let _ = volume.sync();
        let status = volume.status();
        // Outside of the lock, which what it tells last may want.
        let subscription = locked(&self.state).throttle.take();
        drop(subscription);
        self.tell(|accountant, _| {
            let account = accountant.account_mut();
            account.cache = Some(Cache {
                hits: status.cache.hits,
                hit_bytes: status.cache.hit_bytes,
                misses: status.cache.misses,
                miss_bytes: status.cache.miss_bytes,
            });
            account.writeback.count = status.writeback.runs;
            account.writeback.bytes = status.writeback.bytes;
        });
    }

    fn finish(&self, end_ns: u64) -> Option<Explained> {
        let mut state = locked(&self.state);
        let mut accountant = state.accountant.take()?;
        accountant
            .account_mut()
            .asked
            .clone_from(state.calls.asked());
        Some(accountant.finish(&state.name, end_ns))
    }

    fn submitted(&self, bio: &BioInfo, opened_at: Instant, submitted_at: Instant) {
        let io = io_of(bio);
        let kind = match bio.purpose {
            Purpose::Metadata => "metadata",
            Purpose::Journal => "journal",
            _ => "data",
        };
        let at_ns = since(self.began, submitted_at);
        let opened_ns = since(self.began, opened_at);
        let by = by();
        self.tell(|accountant, calls| {
            let call = calls.first_bio(this_thread());
            accountant.bio(opened_ns, io, kind, by, call);
            accountant.waited_for_queue(at_ns.saturating_sub(opened_ns));
            accountant.begins(at_ns, io);
        });
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
            } => {
                let (io, took_ns) = (io_of(bio), ns(*service_time));
                self.tell(|accountant, _| accountant.completes(self.now(), io, took_ns, *ok));
            }
            Event::Split {
                offset_bytes,
                reason,
            } => self.tell(|accountant, _| {
                accountant.split(self.now(), *offset_bytes, why(*reason));
            }),
            Event::Merge { bio } => {
                self.tell(|accountant, _| accountant.merge(self.now(), io_of(bio), "in the plug"));
            }
            Event::CallBegins => self.tell(|_, calls| calls.begin(this_thread(), self.now())),
            Event::CallEnds { op, bytes } => {
                let op = match op {
                    Op::Read => "read",
                    Op::Write => "write",
                    _ => "sync",
                };
                self.tell(|_, calls| calls.end(this_thread(), op, *bytes));
            }
            Event::Committed { took } => {
                let began = self.now().saturating_sub(ns(*took));
                self.tell(|accountant, _| accountant.commit(began, ns(*took)));
            }
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
        SplitReason::Discontinuity => "elsewhere on the device",
        SplitReason::Target => "the size that bios aim at",
        SplitReason::MaxTransfer => "the device's largest transfer",
        SplitReason::Chunk => "a chunk's end on the device",
        SplitReason::MaxSegments => "too many pieces of memory",
        SplitReason::VirtBoundary => "a gap in memory",
    }
}

/// Who is at work: the engine's own threads have names that begin so.
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

/// A number that no other thread has.
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
