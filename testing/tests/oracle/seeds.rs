//! Runs many seeds on all cores, with a deadline for each run.
//!
//! `THROUGHLINE_SEED=n` runs one seed, `n..m` a range, and `n..` as many as usual from `n` on;
//! `THROUGHLINE_SOAK=1` runs many more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use throughline_testkit::ledger::judged;
use throughline_testkit::tier;

use super::image::{Scratch, tools};

/// A run takes a second or two. This is not a measurement: it catches runs that hang.
const DEADLINE: Duration = Duration::from_secs(180);

pub use throughline_testkit::tier::soak;

const VARIABLE: &str = "THROUGHLINE_SEED";

fn number(text: &str) -> u64 {
    let number = text.parse();
    number.expect(
        "THROUGHLINE_SEED is a number, or two with .. between, of which the second may be missing",
    )
}

/// The seeds that the user chose: how many they are is then the user's choice too.
pub fn chosen() -> Option<Vec<u64>> {
    let text = std::env::var(VARIABLE).ok()?;
    match text.split_once("..") {
        Some((_, "")) => None,
        Some((first, end)) => Some((number(first)..number(end)).collect()),
        None => Some(vec![number(&text)]),
    }
}

/// The seeds to run: the chosen ones, or `many` (in the quick tier, every eleventh), from where the user said
/// or from 0.
pub fn seeds(many: u64) -> Vec<u64> {
    // So that seeds of each kind of work, which a test chooses by the remainder, are among them.
    let step = tier::pick(11, 1, 1);
    chosen().unwrap_or_else(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        let first = text.strip_suffix("..").map_or(0, number);
        (first..first + many).step_by(step).collect()
    })
}

/// What the runs of a test counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// How often there was no space.
    pub no_space: u32,
    /// How often an operation was unsupported, or would have waited.
    pub refused: u32,
    /// Files left at the end.
    pub files: usize,
}

/// How many seeds a test runs.
pub struct Seeds {
    pub usual: u64,
    pub soak: u64,
    /// Seeds that once found a bug.
    pub found: &'static [u64],
}

impl Seeds {
    /// Runs the seeds, or those that the user chose, and returns the sum; `None` if the tools are missing, or
    /// if the seeds were chosen, so that the sum says nothing.
    pub fn run(
        &self,
        what: &str,
        run: impl Fn(u64, &Scratch) -> Result<Counts, String> + Sync,
    ) -> Option<Counts> {
        if !tools() {
            return None;
        }
        let most = if soak() { self.soak } else { self.usual };
        let found = self.found.iter().copied().filter(|seed| *seed >= most);
        let is_chosen = chosen().is_some();
        let mut seeds = seeds(most);
        if !is_chosen {
            seeds.extend(found);
        }
        let sum = run_all(&seeds, run)
            .into_iter()
            .fold(Counts::default(), |sum, one| Counts {
                no_space: sum.no_space + one.no_space,
                refused: sum.refused + one.refused,
                files: sum.files + one.files,
            });
        eprintln!("{what}: {sum:?}");
        judged(seeds.len() as u64, &format!("seeds of {what}"));
        (!is_chosen).then_some(sum)
    }
}

/// Ends the process with a message if it is not dropped in time: a hanging test would otherwise print
/// nothing.
pub struct Deadline {
    _done: Sender<()>,
}

impl Deadline {
    pub fn new(what: String) -> Deadline {
        Deadline::within(DEADLINE, what)
    }

    pub fn within(time: Duration, what: String) -> Deadline {
        let (done, wait) = channel::<()>();
        std::thread::spawn(move || {
            if wait.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what} does not end");
                std::process::abort();
            }
        });
        Deadline { _done: done }
    }
}

/// Runs every seed and returns the results.
///
/// # Panics
/// If any seed failed or panicked, with all of their messages.
pub fn run_all<T: Send>(
    seeds: &[u64],
    run: impl Fn(u64, &Scratch) -> Result<T, String> + Sync,
) -> Vec<T> {
    let next = AtomicU64::new(0);
    let worker = || {
        let scratch = Scratch::new();
        let mut results = Vec::new();
        while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let _deadline = Deadline::new(format!("seed {seed}"));
            let caught =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, &scratch)));
            results.push(caught.unwrap_or_else(|_| Err(format!("seed {seed}: panicked"))));
        }
        results
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let results: Vec<Result<T, String>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("panics are caught"))
            .collect()
    });
    let (right, wrong): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    let wrong: Vec<String> = wrong.into_iter().filter_map(Result::err).collect();
    assert!(
        wrong.is_empty(),
        "{} seeds failed (THROUGHLINE_SEED=n repeats one):\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
    right.into_iter().filter_map(Result::ok).collect()
}
