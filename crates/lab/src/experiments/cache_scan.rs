//! `cache/scan`: a hot set of a quarter of the budget is read in 4 KiB at random, while a stream of several budgets
//! passes, read or written. How many of the hot reads still hit.
//!
//! The hot set comes round once while two budgets of the stream pass, each round in an order of its own, so that a cache
//! that drops what was used longest ago has dropped most of it: that cache is simulated beside, as the control.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline::{Advice, RawFile};
use throughline_block::{Event, Listener};
use throughline_device::Op;

use super::Experiment;
use crate::command::make_data;
use crate::interleave::{Sample, Variant};
use crate::meter::Meter;
use crate::outcome::Outcome;
use crate::{Result, Settings};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "cache/scan",
    about: "a hot set under a stream of several budgets' size, read or written: the share of hits it keeps",
    run,
};

const BUDGET_BYTES: u64 = 64 << 20;
const READ_BYTES: u64 = 4096;
const CALL_BYTES: u64 = 1 << 20;
/// The stream passes so many budgets,
const STREAM_BUDGETS: u64 = 8;
/// and over so many before it begins again.
const STREAM_FILE_BUDGETS: u64 = 4;
/// Between two reads of the same hot block so much of the stream passes.
const STREAM_BUDGETS_A_TURN: u64 = 2;
/// The hot set is read so often before the stream begins.
const WARM_TURNS: usize = 3;

/// What the stream does.
#[derive(Clone, Copy)]
enum Stream {
    Read,
    Write,
}

/// Sizes of one run, in bytes; all but the budget in whole calls.
#[derive(Clone, Copy)]
struct Sizes {
    budget: u64,
    hot: u64,
    stream_file: u64,
}

fn run(settings: &Settings<'_>) -> Result<Outcome> {
    let mut outcome = Outcome::new(EXPERIMENT.name);
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
    Ok(outcome)
}

/// Counts what is read from the first bytes of the device.
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

/// One run with a cache of its own.
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

/// The hot blocks, all of them in another order each time round.
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

/// The same accesses against a cache that drops what was used longest ago.
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

/// A cache of so many blocks at the most that drops what was used longest ago.
struct Lru {
    most: usize,
    /// Block → when it was used last, and the other way round.
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

    /// Uses a block; whether it was there.
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
        // What it hits: the first of four turns until the stream has pushed the hot set out (some 0.4 of it), and in the
        // others blocks that come late in one turn and early in the next (some 0.45² / 2): 18 % in all.
        assert!(control(sizes)[0].2 < 20.0);
    }
}
