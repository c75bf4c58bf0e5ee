//! `cache/scan`: random reads of 4 KiB in a hot set of a quarter of the cache's budget, while a stream of
//! several budgets is read or written. Measures how many of the hot reads still hit.
//!
//! During one pass over the hot set, the stream moves two budgets. Each pass has a new order. So an LRU cache
//! has evicted most of the hot set before it is read again. An LRU cache is simulated as the control.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline::internal::RawLayers;
use throughline::{Advice, RawFile};
use throughline_block::{Event, Listener};
use throughline_device::Op;

use crate::command::make_data;
use crate::interleave::{Sample, Variant};
use crate::meter::Meter;
use crate::outcome::Outcome;
use crate::{Result, Settings};

const BUDGET_BYTES: u64 = 64 << 20;
const READ_BYTES: u64 = 4096;
const CALL_BYTES: u64 = 1 << 20;
/// Length of the stream, in budgets.
const STREAM_BUDGETS: u64 = 8;
/// Length of the stream's file, in budgets. At its end, the stream starts over.
const STREAM_FILE_BUDGETS: u64 = 4;
/// Length of the stream per pass over the hot set, in budgets.
const STREAM_BUDGETS_A_TURN: u64 = 2;
/// Passes over the hot set before the stream starts.
const WARM_TURNS: usize = 3;

/// Whether the stream reads or writes.
#[derive(Clone, Copy)]
enum Stream {
    Read,
    Write,
}

/// Sizes of one run in bytes; all but the budget are multiples of a call.
#[derive(Clone, Copy)]
struct Sizes {
    budget: u64,
    hot: u64,
    stream_file: u64,
}

pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<()> {
    let budget = settings.scaled(BUDGET_BYTES, 8 << 20) / (4 * CALL_BYTES) * 4 * CALL_BYTES;
    let sizes = Sizes {
        budget,
        hot: budget / 4,
        stream_file: budget * STREAM_FILE_BUDGETS,
    };
    let scratch = settings.scratch()?;
    let path = scratch.path().join("plain");
    make_data(&path, sizes.hot + sizes.stream_file)?;
    let sample = |stream| sample(settings, &path, sizes, stream);
    let variants = [
        Variant::new("stream is read", || sample(Stream::Read)),
        Variant::new("stream is written", || sample(Stream::Write)),
        Variant::new("control: least recently used goes", || Ok(control(sizes))),
    ];
    outcome.measure(settings, 5, variants)?;
    outcome.count("budget, MiB", budget as f64 / f64::from(1 << 20));
    for name in ["stream is read", "stream is written"] {
        if let Some((worst, _)) = outcome.range(name, "hot hits") {
            let name = format!("{name}: hits of the hot set, %, the worst sample");
            outcome.at_least(&name, worst, 95.0);
        }
    }
    Ok(())
}

/// Counts the bytes of the hot set, at the start of the device, that are read from the device.
struct HotReads {
    hot: u64,
    bytes: AtomicU64,
}

impl Listener for HotReads {
    fn event(&self, event: &Event) {
        if let Event::Submit { bio, .. } = event
            && bio.op == Op::Read
            && bio.offset_bytes < self.hot
        {
            let hot = bio.len_bytes.min(self.hot - bio.offset_bytes);
            self.bytes.fetch_add(hot, Ordering::Relaxed);
        }
    }
}

/// One run with its own cache.
fn sample(settings: &Settings<'_>, path: &Path, sizes: Sizes, stream: Stream) -> Result<Sample> {
    let mut options = settings.opening();
    options.cache_bytes(Some(sizes.budget));
    let file = options.open_raw(path)?;
    settings.observe_cache_of(&file);
    let hot = file.reopen(&throughline::FileOptions::new())?;
    hot.advise(Advice::Random, 0, 0)?;
    let mut random = fastrand::Rng::with_seed(1);
    let mut turn = HotTurn::new(sizes.hot);
    for _ in 0..WARM_TURNS {
        for _ in 0..turn.blocks.len() {
            read_hot(&hot, turn.next(&mut random))?;
        }
    }
    let listener = Arc::new(HotReads {
        hot: sizes.hot,
        bytes: AtomicU64::new(0),
    });
    let subscription = file
        .disk()
        .subscribe(Arc::clone(&listener) as Arc<dyn Listener>);
    let meter = Meter::start();
    let mut call = vec![0x5a; CALL_BYTES as usize];
    let mut reads = 0_u64;
    for step in 0..steps(sizes) {
        let at = sizes.hot + step * CALL_BYTES % sizes.stream_file;
        match stream {
            Stream::Read => file.read_exact_at(&mut call, at)?,
            Stream::Write => file.write_all_at(&call, at)?,
        }
        for _ in 0..hot_reads_a_step(sizes) {
            read_hot(&hot, turn.next(&mut random))?;
            reads += 1;
        }
    }
    let spent = meter.spent();
    drop(subscription);
    let missed = listener.bytes.load(Ordering::Relaxed) as f64 / READ_BYTES as f64;
    drop(hot);
    file.close()?;
    let hits = 100.0 * (1.0 - missed / reads.max(1) as f64);
    let stream = spent.mb_per_s(steps(sizes) * CALL_BYTES);
    Ok(vec![("hot hits", "%", hits), ("stream", "MB/s", stream)])
}

fn steps(sizes: Sizes) -> u64 {
    sizes.budget * STREAM_BUDGETS / CALL_BYTES
}

fn hot_reads_a_step(sizes: Sizes) -> u64 {
    let steps_a_turn = sizes.budget * STREAM_BUDGETS_A_TURN / CALL_BYTES;
    (sizes.hot / READ_BYTES / steps_a_turn).max(1)
}

fn read_hot(hot: &RawFile, block: u64) -> Result<()> {
    let mut buf = [0; READ_BYTES as usize];
    Ok(hot.read_exact_at(&mut buf, block * READ_BYTES)?)
}

/// The hot blocks, in a new order on each pass.
struct HotTurn {
    blocks: Vec<u64>,
    next: usize,
}

impl HotTurn {
    fn new(hot: u64) -> HotTurn {
        HotTurn {
            blocks: (0..hot / READ_BYTES).collect(),
            next: 0,
        }
    }

    fn next(&mut self, random: &mut fastrand::Rng) -> u64 {
        if self.next == 0 {
            random.shuffle(&mut self.blocks);
        }
        let block = self.blocks[self.next];
        self.next = (self.next + 1) % self.blocks.len();
        block
    }
}

/// The same accesses against an LRU cache.
fn control(sizes: Sizes) -> Sample {
    let mut cache = Lru::new((sizes.budget / READ_BYTES) as usize);
    let mut random = fastrand::Rng::with_seed(1);
    let mut turn = HotTurn::new(sizes.hot);
    for _ in 0..WARM_TURNS * turn.blocks.len() {
        cache.touch(turn.next(&mut random));
    }
    let (mut reads, mut hits) = (0_u64, 0_u64);
    for step in 0..steps(sizes) {
        let at = sizes.hot + step * CALL_BYTES % sizes.stream_file;
        for block in at / READ_BYTES..(at + CALL_BYTES) / READ_BYTES {
            cache.touch(block);
        }
        for _ in 0..hot_reads_a_step(sizes) {
            hits += u64::from(cache.touch(turn.next(&mut random)));
            reads += 1;
        }
    }
    vec![("hot hits", "%", 100.0 * hits as f64 / reads.max(1) as f64)]
}

/// An LRU cache of at most `most` blocks.
struct Lru {
    most: usize,
    /// Block → time of last use, and the reverse.
    used: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
    now: u64,
}

impl Lru {
    fn new(most: usize) -> Lru {
        let (used, order) = (HashMap::new(), BTreeMap::new());
        Lru {
            most,
            used,
            order,
            now: 0,
        }
    }

    /// Accesses a block. Returns whether it was cached.
    fn touch(&mut self, block: u64) -> bool {
        self.now += 1;
        self.order.insert(self.now, block);
        let before = self.used.insert(block, self.now);
        before.map(|before| self.order.remove(&before));
        if self.used.len() > self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
        before.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_forgets_what_was_used_longest_ago() {
        let mut cache = Lru::new(2);
        assert!(!cache.touch(1) && !cache.touch(2) && cache.touch(1));
        assert!(!cache.touch(3) && cache.touch(1) && !cache.touch(2));
    }

    #[test]
    fn the_stream_would_push_the_hot_set_out_of_such_a_cache() {
        let budget = 16 << 20;
        let sizes = Sizes {
            budget,
            hot: budget / 4,
            stream_file: budget * STREAM_FILE_BUDGETS,
        };
        // On the first of four passes it hits until the stream has evicted the hot set (about 0.4 of that
        // pass). On the others it hits only blocks that come late in one pass and early in the next (about
        // 0.45² / 2). That is 18 % in all.
        assert!(control(sizes)[0].2 < 20.0);
    }
}
