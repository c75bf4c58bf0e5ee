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
//! the fault: with I/O errors, on a volume with n free blocks, and on one with n free inodes. The mounts are
//! served by this process. `THROUGHLINE_SOAK=1` tries more volumes, options and kinds of failure.

mod requests;
mod seen;
mod stage;

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use throughline_testing::Fault;

use requests::REQUESTS;
use stage::{Failure, Stage, Variant};

/// Set for a process that runs one combination: its number.
const ONE: &str = "THROUGHLINE_FAILED_REQUESTS";
/// Before the number of requests that failed, in the output of such a process.
const REFUSED: &str = "requests that failed: ";
/// Not a measurement: limit for what would otherwise take forever.
const PATIENCE: Duration = Duration::from_secs(1200);
/// The most I/Os of one request that are tried.
const MOST: u64 = 60;

use throughline_testkit::tier::soak;

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

/// Runs all combinations, each in a process of its own: a session keeps its descriptors until the process
/// ends.
#[track_caller]
fn check(test: &str, variants: &[Variant], failures: &[fn(u64) -> Failure], least: usize) {
    if let Some(one) = std::env::var_os(ONE) {
        let one: usize = one
            .to_str()
            .and_then(|one| one.parse().ok())
            .expect("a number");
        let (variant, failure) = (one / failures.len(), one % failures.len());
        let Some(stage) = Stage::new() else { return };
        let (refused, wrong) = sweep(&stage, &variants[variant], failures[failure]);
        assert!(
            wrong.is_empty(),
            "{} differ:\n{}",
            wrong.len(),
            wrong.join("\n\n")
        );
        println!("{REFUSED}{refused}");
        return;
    }
    if Stage::new().is_none() {
        return;
    }
    let run = |one: usize| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args([
                "--exact",
                &format!("failed_requests::{test}"),
                "--nocapture",
            ])
            .env(ONE, one.to_string());
        let ran = throughline_testing::program::run(&mut command, PATIENCE);
        assert!(ran.status.success(), "{}\n{}", ran.stdout, ran.stderr);
        let refused = ran
            .stdout
            .split(REFUSED)
            .nth(1)
            .and_then(|rest| rest.lines().next());
        refused
            .and_then(|refused| refused.parse().ok())
            .unwrap_or(0)
    };
    let refused: usize = (0..variants.len() * failures.len()).map(run).sum();
    throughline_testkit::ledger::judged(refused as u64, "failed requests of a mount");
    assert!(refused >= least, "only {refused} requests failed");
}

const DURABLE: Variant = Variant {
    image: 0,
    options: "sync,dirsync",
    warm: true,
};
const COLD: Variant = Variant {
    image: 1,
    options: "",
    warm: false,
};

#[test]
fn after_an_io_error_the_kernel_keeps_what_the_volume_has() {
    let once: fn(u64) -> Failure = |n| Failure::Io(Fault::Once(n));
    let from: fn(u64) -> Failure = |n| Failure::Io(Fault::From(n));
    let test = "after_an_io_error_the_kernel_keeps_what_the_volume_has";
    if !soak() {
        return check(test, &[DURABLE, COLD], &[once], 60);
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
    check(test, &variants, &[once, from], 600);
}

#[test]
fn after_a_lack_of_space_the_kernel_keeps_what_the_volume_has() {
    let test = "after_a_lack_of_space_the_kernel_keeps_what_the_volume_has";
    let (blocks, least): (fn(u64) -> Failure, _) = (Failure::Blocks, [15, 40]);
    check_lack(test, blocks, least);
}

#[test]
fn after_a_lack_of_inodes_the_kernel_keeps_what_the_volume_has() {
    let test = "after_a_lack_of_inodes_the_kernel_keeps_what_the_volume_has";
    let (inodes, least): (fn(u64) -> Failure, _) = (Failure::Inodes, [12, 55]);
    check_lack(test, inodes, least);
}

/// `least`: how many requests have to fail, without and with `THROUGHLINE_SOAK`.
#[track_caller]
fn check_lack(test: &str, lack: fn(u64) -> Failure, least: [usize; 2]) {
    let warm = Variant { warm: true, ..COLD };
    if !soak() {
        return check(test, &[warm], &[lack], least[0]);
    }
    let variants = (0..stage::IMAGES.len()).map(|image| Variant { image, ..warm });
    let variants: Vec<_> = variants.collect();
    check(test, &variants, &[lack], least[1]);
}

/// Without a failure, every request succeeds, and the kernel keeps nothing stale either, access times of what
/// is read included.
#[test]
fn every_request_succeeds_without_a_failure() {
    let Some(stage) = Stage::new() else { return };
    let accessed = Variant {
        options: "strictatime",
        warm: false,
        ..DURABLE
    };
    let mut wrong = Vec::new();
    for variant in [DURABLE, accessed] {
        for request in REQUESTS {
            let name = request.name;
            match stage.run(&variant, request, Failure::Io(Fault::Never)) {
                Ok(done) if !done.refused => {}
                Ok(_) => wrong.push(format!("{name}, {variant:?}: it failed")),
                Err(why) => wrong.push(format!("{name}, {variant:?}: {why}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
