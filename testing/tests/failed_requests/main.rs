//! A request that fails: what the mount shows after it equals what a fresh mount shows.
//!
//! ```text
//!  a volume on a device in memory that fails on demand
//!    ├─ mount A: the kernel's caches are warm ── the request, its n-th I/O fails ─┐
//!    ├─ mount B, of the same live volume: no kernel cache yet ────────────────────┤ the same
//!    └─ mount C, of the image opened again, where the volume still took changes ──┘
//! ```
//!
//! For every request that changes something (`requests.rs`), n counts up until the request succeeds without
//! the fault: first with I/O errors, then with a volume that has n free blocks. The mounts are served by this
//! process. `THROUGHLINE_SOAK=1` tries more volumes, options and kinds of failure.

mod requests;
mod seen;
mod stage;

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use throughline_testing::Fault;

use requests::{REQUESTS, Request};
use stage::{Failure, Stage, Variant};

throughline_testing::mount_server!();

/// The most I/Os of one request that are tried.
const MOST: u64 = 60;

fn soak() -> bool {
    std::env::var_os("THROUGHLINE_SOAK").is_some()
}

/// Tries every request with a failure at each step; returns the number of requests that failed.
fn sweep(stage: &Stage, variant: &Variant, failure: fn(u64) -> Failure) -> (usize, Vec<String>) {
    let (next, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong = Mutex::new(Vec::new());
    let worker = || {
        while let Some(request) = REQUESTS.get(next.fetch_add(1, Ordering::Relaxed)) {
            for step in 0..MOST {
                match stage.run(variant, request, failure(step)) {
                    Ok(done) => {
                        refused.fetch_add(usize::from(done.refused), Ordering::Relaxed);
                        if !done.failed {
                            break;
                        }
                    }
                    Err(what) => {
                        let name = request.name;
                        let all = format!("{name}, {variant:?}, {:?}: {what}", failure(step));
                        wrong.lock().push(all);
                        break;
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(worker))));
    (refused.into_inner(), wrong.into_inner())
}

#[track_caller]
fn check(variants: &[Variant], failures: &[fn(u64) -> Failure], least: usize) {
    let Some(stage) = Stage::new() else { return };
    let (mut refused, mut wrong) = (0, Vec::new());
    for variant in variants {
        for failure in failures {
            let (some, more) = sweep(&stage, variant, *failure);
            eprintln!("{variant:?} {:?}: {some} requests failed", failure(0));
            refused += some;
            wrong.extend(more);
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
    assert!(refused >= least, "only {refused} requests failed");
}

const DURABLE: Variant = Variant {
    image: 0,
    options: "sync,dirsync",
    warm: true,
};
const COLD: Variant = Variant {
    image: 0,
    options: "",
    warm: false,
};

#[test]
fn after_an_io_error_the_kernel_keeps_what_the_volume_has() {
    let once: fn(u64) -> Failure = |n| Failure::Io(Fault::Once(n));
    let from: fn(u64) -> Failure = |n| Failure::Io(Fault::From(n));
    if !soak() {
        return check(&[DURABLE, COLD], &[once], 60);
    }
    let variants: Vec<_> = (0..stage::IMAGES.len())
        .flat_map(|image| {
            let durable = Variant { image, ..DURABLE };
            [
                durable,
                Variant { image, ..COLD },
                Variant {
                    warm: false,
                    ..durable
                },
            ]
        })
        .collect();
    check(&variants, &[once, from], 600);
}

#[test]
fn after_a_lack_of_space_the_kernel_keeps_what_the_volume_has() {
    let warm = Variant { warm: true, ..COLD };
    let room: fn(u64) -> Failure = Failure::Room;
    match soak() {
        false => check(&[warm], &[room], 15),
        true => {
            let all: Vec<_> = (0..stage::IMAGES.len())
                .map(|image| Variant { image, ..warm })
                .collect();
            check(&all, &[room], 40);
        }
    }
}

/// Without a failure every request of the table succeeds: the others show what a failure leaves.
#[test]
fn every_request_succeeds_without_a_failure() {
    let Some(stage) = Stage::new() else { return };
    let failed = |request: &&Request| {
        let done = stage.run(&DURABLE, request, Failure::Io(Fault::Never));
        if let Err(why) = &done {
            eprintln!("{}: {why}", request.name);
        }
        !done.is_ok_and(|done| !done.refused)
    };
    let failed: Vec<_> = REQUESTS
        .iter()
        .filter(failed)
        .map(|request| request.name)
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}
