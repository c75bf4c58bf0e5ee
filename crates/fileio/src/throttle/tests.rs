//! Tests of the throttle with real threads. The control law is tested in simulated time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use throughline_locks::Mutex;

use super::*;

const MIB: u64 = 1 << 20;

fn process(limit_bytes: u64) -> Arc<Process> {
    Process::new(DirtyLimits::new(Some(limit_bytes), None), 0)
}

fn throttle(limit_bytes: u64) -> Throttle {
    within(&process(1 << 50), limit_bytes)
}

fn within(process: &Arc<Process>, limit_bytes: u64) -> Throttle {
    let limits = DirtyLimits::new(Some(limit_bytes), None);
    Throttle::within(Arc::clone(process), limits, 0)
}

/// Makes the throttle measure about 100 MiB per second.
fn measured(throttle: &Throttle) {
    let begin = throttle.device.now() + Duration::from_secs(2);
    throttle.device.sample(begin, throttle.positions());
    for window in 1..10 {
        let now = begin + Duration::from_millis(200 * window);
        throttle.device.count_cleaned(20 * MIB);
        throttle.device.sample(now, throttle.positions());
    }
    let bandwidth = throttle.bandwidth_bytes_per_s().expect("measured");
    assert_eq!((bandwidth + 500) >> 10, 100 << 10);
}

/// Whether a writer of this much would not have to wait.
fn has_room(throttle: &Throttle, bytes: u64) -> bool {
    let rooms = [&throttle.device.room, &throttle.process.room];
    let has_room = |room: &&Room<Error>| room.take(bytes).map(|_| room.give_back(bytes)).is_some();
    rooms.iter().all(has_room)
}

fn broken() -> Error {
    Error::Unsupported("broken".into())
}

#[test]
fn the_limit_holds_and_every_writer_progresses() {
    let throttle = throttle(MIB);
    let taken = AtomicU64::new(0);
    let rounds = 2000;
    thread::scope(|scope| {
        for writer in 0..4 {
            let (throttle, taken) = (&throttle, &taken);
            scope.spawn(move || {
                for round in 0..rounds {
                    let bytes = 4096 * (1 + (round * 7 + writer) % 64);
                    throttle.acquire(bytes).expect("nothing is stuck");
                    assert!(throttle.dirty_bytes() <= MIB);
                    taken.fetch_add(bytes, Ordering::SeqCst);
                    throttle.balance(bytes);
                }
            });
        }
        scope.spawn(|| {
            let all: u64 = (0..4)
                .flat_map(|writer| {
                    (0..rounds).map(move |round| 4096 * (1 + (round * 7 + writer) % 64))
                })
                .sum();
            let mut cleaned = 0;
            while cleaned < all {
                let bytes = taken.swap(0, Ordering::SeqCst);
                cleaned += bytes;
                if bytes == 0 {
                    thread::yield_now();
                } else {
                    throttle.cleaned(bytes);
                }
            }
        });
    });
    let state = throttle.state();
    assert_eq!((state.dirty_bytes, state.process_dirty_bytes), (0, 0));
    assert_eq!(state.balance_calls, 4 * rounds);
    assert!(state.pauses.longest <= MAX_PAUSE);
}

#[test]
fn devices_share_the_process_limit() {
    let process = process(8 * MIB);
    let (a, b) = (within(&process, 6 * MIB), within(&process, 6 * MIB));
    a.acquire(6 * MIB).expect("room");
    assert!(!has_room(&b, 3 * MIB));
    assert_eq!(b.dirty_bytes(), 0, "what failed keeps no room");
    b.acquire(2 * MIB).expect("room");
    assert!(
        b.over_background(),
        "below its own threshold, over the process's"
    );
    thread::scope(|scope| {
        let waiter = scope.spawn(|| b.acquire(3 * MIB));
        while process.room.waiting() == 0 {
            thread::yield_now();
        }
        a.cleaned(3 * MIB);
        waiter.join().expect("no panic").expect("room");
    });
    assert_eq!(b.dirty_bytes(), 5 * MIB);
    drop(a);
    assert_eq!(b.state().process_dirty_bytes, 5 * MIB);
    process.set_limits(DirtyLimits::new(Some(5 * MIB), None));
    assert!(!has_room(&b, 4096));
}

#[test]
fn waiters_get_errors() {
    let throttle = throttle(MIB);
    throttle.acquire(MIB).expect("room");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| throttle.acquire(4096));
        while throttle.state().waiting == 0 {
            thread::yield_now();
        }
        throttle.stuck(Some(broken()));
        let answer = waiter.join().expect("no panic");
        assert!(matches!(answer, Err(Error::Unsupported(_))));
    });
    let answer = throttle.acquire(4096);
    assert!(matches!(answer, Err(Error::Unsupported(_))));
    throttle.release(4096);
    throttle.acquire(4096).expect("there is room, stuck or not");
    throttle.stuck(None);
    assert!(!has_room(&throttle, 4096));
}

#[test]
fn a_wait_fails_if_a_broken_device_holds_the_room() {
    let process = process(4 * MIB);
    let (broken_one, other) = (within(&process, 4 * MIB), within(&process, 4 * MIB));
    broken_one.acquire(4 * MIB).expect("room");
    broken_one.stuck(Some(broken()));
    let answer = other.acquire(4096);
    assert!(matches!(answer, Err(Error::Unsupported(_))));
    assert_eq!(other.dirty_bytes(), 0);
    broken_one.release(4096);
    other.acquire(4096).expect("room");
}

#[test]
fn limits_change_while_writers_wait() {
    let throttle = throttle(MIB);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&reports);
    let listener = Arc::new(move |event: &Event| to.lock().push(*event));
    let subscription = throttle.subscribe(listener);
    throttle.acquire(MIB).expect("room");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| throttle.acquire(MIB / 2));
        while throttle.state().waiting == 0 {
            thread::yield_now();
        }
        throttle.set_limits(DirtyLimits::new(Some(4 * MIB), Some(MIB)));
        waiter.join().expect("no panic").expect("room");
    });
    let state = throttle.state();
    assert_eq!((state.limit_bytes, state.background_bytes), (4 * MIB, MIB));
    assert_eq!(state.waits.count, 1);
    drop(subscription);
    throttle.set_limits(DirtyLimits::default());
    assert_eq!(
        throttle.state().limit_bytes,
        DirtyLimits::MIN_BYTES,
        "without a budget"
    );
    throttle.set_budget_bytes(100 * MIB);
    assert_eq!(throttle.state().limit_bytes, 20 * MIB);
    let reports = reports.lock();
    let changed = |event: &Event| {
        matches!(
            event,
            Event::LimitChanged { limit_bytes, of_process: false, .. } if *limit_bytes == 4 * MIB
        )
    };
    let waited =
        |event: &Event| matches!(event, Event::Waited { ok: true, bytes, .. } if *bytes == MIB / 2);
    assert_eq!(reports.iter().filter(|event| changed(event)).count(), 1);
    assert_eq!(reports.iter().filter(|event| waited(event)).count(), 1);
    assert_eq!(reports.len(), 2, "{reports:?}");
}

#[test]
fn the_flusher_is_woken_at_the_threshold_and_for_waiters() {
    let throttle = throttle(8 * MIB);
    let rung = Arc::new(AtomicU64::new(0));
    let bell = Arc::clone(&rung);
    throttle.on_need(move || {
        bell.fetch_add(1, Ordering::SeqCst);
    });
    throttle.acquire(4 * MIB).expect("room");
    assert!(!throttle.over_background());
    assert_eq!(rung.load(Ordering::SeqCst), 0);
    throttle.acquire(4096).expect("room");
    assert!(throttle.over_background());
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    throttle.acquire(4 * MIB - 4096).expect("room");
    assert_eq!(rung.load(Ordering::SeqCst), 1);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| throttle.acquire(2 * MIB));
        while rung.load(Ordering::SeqCst) < 2 {
            thread::yield_now();
        }
        throttle.cleaned(8 * MIB);
        waiter.join().expect("no panic").expect("room");
    });
    assert!(!throttle.over_background());
}

#[test]
fn no_pause_below_freerun_or_before_any_measurement() {
    let throttle = throttle(100 * MIB);
    throttle.acquire(99 * MIB).expect("room");
    assert_eq!(throttle.balance(99 * MIB), Duration::ZERO, "not measured");
    measured(&throttle);
    throttle.release(30 * MIB);
    assert_eq!(throttle.balance(69 * MIB), Duration::ZERO, "free");
    assert_eq!(throttle.state().pauses.count, 0);
}

#[test]
fn writers_pause_over_freerun() {
    let throttle = throttle(100 * MIB);
    throttle.acquire(80 * MIB).expect("room");
    measured(&throttle);
    let reports = Arc::new(AtomicU64::new(0));
    let to = Arc::clone(&reports);
    let _subscription = throttle.subscribe(Arc::new(move |event: &Event| {
        if matches!(event, Event::Paused { dirtied_bytes, .. } if *dirtied_bytes == 4 * MIB) {
            to.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let pause = throttle.balance(4 * MIB);
    assert!(pause > Duration::ZERO && pause <= MAX_PAUSE);
    assert_eq!(throttle.balance(0), Duration::ZERO, "paid");
    let state = throttle.state();
    assert_eq!((state.pauses.count, state.pauses.longest), (1, pause));
    assert_eq!(state.pauses.histogram.iter().sum::<u64>(), 1);
    assert_eq!(reports.load(Ordering::SeqCst), 1);
}

#[test]
fn each_thread_pays_for_itself() {
    let throttle = throttle(100 * MIB);
    throttle.acquire(80 * MIB).expect("room");
    measured(&throttle);
    thread::scope(|scope| {
        let other = scope.spawn(|| throttle.balance(4 * MIB));
        assert!(other.join().expect("no panic") > Duration::ZERO);
    });
    assert_eq!(throttle.balance(0), Duration::ZERO);
}

#[test]
fn chunks_follow_what_was_measured() {
    let throttle = throttle(1 << 30);
    assert_eq!(throttle.state().chunk_bytes, 4 * MIB);
    throttle.acquire(600 * MIB).expect("room");
    measured(&throttle);
    assert_eq!(throttle.state().chunk_bytes, 52 * MIB);
}
