//! How much a run of the tests judges, and as whom.
//!
//! | tier | environment | what |
//! | --- | --- | --- |
//! | quick | | each promise that can be judged without root: some cases of each kind |
//! | all | `THROUGHLINE_ALL=1` | more cases, tests as root, and those that take longest |
//! | soak | `THROUGHLINE_SOAK=1` | many more cases, another seed each time |

use std::env::var_os;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether this run is of the tier `all`, or of `soak`.
pub fn all() -> bool {
    soak() || var_os("THROUGHLINE_ALL").is_some()
}

/// Whether this run is of the tier `soak`.
pub fn soak() -> bool {
    var_os("THROUGHLINE_SOAK").is_some()
}

/// What the tier of this run takes: how many cases, for example.
pub fn pick<T>(quick: T, all_tests: T, long: T) -> T {
    match (all(), soak()) {
        (_, true) => long,
        (true, false) => all_tests,
        (false, false) => quick,
    }
}

/// Checks every `step`-th case of a table, as many at once as there are processors. The longest test of a
/// program ends last, and alone.
///
/// # Panics
/// If `check` does.
pub fn each_at_once<T: Sync>(cases: &[T], step: usize, check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let worker = || {
        let take = || cases.get(next.fetch_add(step, Ordering::Relaxed));
        while let Some(case) = take() {
            check(case);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(worker);
        }
    });
}

/// Whether this run does what takes root.
pub fn as_root() -> bool {
    all() && crate::kernel::is_root()
}

/// Whether the quick tier leaves a test out that takes long; prints what.
pub fn is_too_long(what: &str) -> bool {
    if !all() {
        crate::left_out!("{what}, which takes long (THROUGHLINE_ALL=1)");
    }
    !all()
}
