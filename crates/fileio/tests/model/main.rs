//! The crate's concurrent structures under `shuttle`: the same sources, with locks and atomics whose every
//! step its scheduler controls. `SHUTTLE_ITERATIONS=100000 cargo test -p throughline-fileio --test model
//! --release` runs more schedules.
//!
//! To add a structure, include its source here with `#[path]`. It must take its locks and atomics from
//! `crate::sync` and use nothing else of the crate.

#[path = "../../src/cache/activity.rs"]
mod activity;
mod activity_model;
#[path = "../../src/file_lock.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    reason = "the library's face, not all of it used here"
)]
mod file_lock;
mod file_lock_model;
#[path = "../../src/writeback/file_state.rs"]
mod file_state;
mod file_state_model;
#[path = "../../src/readahead/inbox.rs"]
mod inbox;
mod inbox_model;
#[path = "../../src/writeback/ranges.rs"]
#[expect(dead_code, reason = "not all of it is used here")]
mod ranges;
#[path = "../../src/throttle/room.rs"]
mod room;
mod room_model;
mod sync;
#[path = "../../src/cache/waits.rs"]
mod waits;
mod waits_model;
#[path = "../../src/writeback/wake_flag.rs"]
mod wake_flag;
mod wake_flag_model;

use shuttle::scheduler::PctScheduler;
use shuttle::{Config, Runner};
use throughline_testkit::seed;

/// Runs `test` under this many random schedules, and as many that favour few context switches.
fn every_schedule(test: impl Fn() + Send + Sync + Copy + 'static) {
    let iterations = std::env::var("SHUTTLE_ITERATIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(2000);
    let seed = seed::of_run(1);
    shuttle::check_random_with_seed(test, seed, iterations);
    let favouring_few = PctScheduler::new_from_seed(seed, 3, iterations);
    Runner::new(favouring_few, Config::default()).run(test);
}
