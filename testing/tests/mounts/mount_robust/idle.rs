//! An unused mount costs nothing: no thread of its server wakes, on either transport. And none has the policy
//! `SCHED_IDLE`, with which it would be late for the next request if other programs begin to compute.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use throughline_testing::sectors::filled;
use throughline_testing::transport::{DEV_FUSE, IO_URING, io_uring_is_on};
use throughline_testing::{DiskImage, Mounted};

use crate::mount_robust::proc::{idle_policy, switches, ticks, woken_since};
use crate::mount_robust::transports;
use crate::mount_robust::work::wait_until;
use crate::oracle::seeds::soak;

/// Allowance for a last commit, and for threads that have just answered when the status was read.
const STRAY_SWITCHES: u64 = 20;
const STRAY_TICKS: u64 = 3;

#[test]
fn an_idle_server_sleeps_over_io_uring() {
    if io_uring_is_on() {
        an_idle_server_sleeps(IO_URING);
    }
}

#[test]
fn an_idle_server_sleeps_through_dev_fuse() {
    an_idle_server_sleeps(DEV_FUSE);
}

fn an_idle_server_sleeps(transport: &str) {
    let possible = Mounted::possible();
    let Some(image) = possible
        .then(|| DiskImage::make("-t ext4", "64m"))
        .flatten()
    else {
        return;
    };
    let mounted = Mounted::new(image.path(), &format!("{transport},commit=1"));
    let over_rings = transports::transport(&mounted)["kind"] == "io_uring";
    assert_eq!(over_rings, transport == IO_URING);
    for number in 0..50 {
        let bytes = filled(64 << 10, number, 0, 1);
        std::fs::write(mounted.path(&format!("file-{number}")), bytes).expect("a file");
    }
    assert!(std::fs::read_dir(mounted.root()).expect("the root").count() > 50);
    // Between requests in quick succession, some that wait for the device: of a thread that has the policy.
    let synced = std::fs::File::create(mounted.path("synced")).expect("a file");
    for turn in 0..20 {
        for number in 0..100 {
            assert!(!mounted.path(&format!("none-{turn}-{number}")).exists());
        }
        let bytes = filled(5000, turn, 0, 1);
        synced.write_all_at(&bytes, turn * 5000).expect("written");
        synced.sync_all().expect("synced");
    }
    drop(synced);
    // Written data is committed by its age; then there is nothing to do.
    let pid = mounted.pid();
    let mut last = switches(pid);
    let quiet = Duration::from_millis(1500);
    wait_until("the server is idle", || {
        std::thread::sleep(quiet);
        let before = std::mem::replace(&mut last, switches(pid));
        last == before
    });
    assert_eq!(idle_policy(pid), Vec::<String>::new(), "{transport}");
    let seconds = if soak() { 60 } else { 5 };
    // Other processes make requests to all mounts of the machine, for example by sync(2). The requests that
    // the test makes to read the status are the least of several counts, as others may come in between.
    let own = (0..5).map(|_| served(&mounted).abs_diff(served(&mounted)));
    let own = own.min().expect("five of them");
    let (mut woken, mut ran) = (Vec::new(), 0);
    wait_until("nobody uses the mount", || {
        let requests = served(&mounted);
        let before = (switches(pid), ticks(pid));
        std::thread::sleep(Duration::from_secs(seconds));
        (woken, ran) = (woken_since(&before.0, pid), ticks(pid) - before.1);
        let others = (served(&mounted) - requests).saturating_sub(own);
        eprintln!(
            "{transport}: {woken:?}, {ran} ticks and {others} requests of others in {seconds} s"
        );
        others == 0
    });
    let sum: u64 = woken.iter().map(|(_, times)| times).sum();
    assert!(sum <= STRAY_SWITCHES, "in {seconds} s: {woken:?}");
    assert!(ran <= STRAY_TICKS, "{ran} ticks in {seconds} s");
    mounted.unmount();
}

/// Requests served so far.
fn served(mounted: &Mounted) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&mounted.status()).expect("JSON");
    status["requests"]["served"].as_u64().expect("a number")
}
