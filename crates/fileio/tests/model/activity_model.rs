//! Background work and freezes: never both at once, and no thread waits forever.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use crate::activity::Activity;
use crate::every_schedule;

#[test]
fn nothing_runs_while_frozen() {
    every_schedule(|| {
        let (activity, running) = (Activity::default(), Arc::new(AtomicUsize::new(0)));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (activity, running) = (activity.clone(), Arc::clone(&running));
                thread::spawn(move || {
                    for _ in 0..2 {
                        if let Some(_work) = activity.begin() {
                            running.fetch_add(1, Ordering::SeqCst);
                            thread::yield_now();
                            running.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                })
            })
            .collect();
        let lone = {
            let (activity, running) = (activity.clone(), Arc::clone(&running));
            thread::spawn(move || {
                for _ in 0..2 {
                    if let Some(_exclusive) = activity.begin_exclusive() {
                        assert_eq!(
                            running.fetch_add(1, Ordering::SeqCst),
                            0,
                            "must be exclusive"
                        );
                        assert!(activity.begin().is_none() && activity.begin_exclusive().is_none());
                        thread::yield_now();
                        assert_eq!(
                            running.fetch_sub(1, Ordering::SeqCst),
                            1,
                            "must be exclusive"
                        );
                    }
                }
            })
        };
        let other = {
            let (activity, running) = (activity.clone(), Arc::clone(&running));
            thread::spawn(move || freeze(&activity, &running))
        };
        freeze(&activity, &running);
        for thread in workers.into_iter().chain([lone, other]) {
            thread.join().expect("no thread panics");
        }
        assert!(activity.begin_exclusive().is_some(), "the file has thawed");
        assert!(activity.begin().is_some(), "exclusive work has ended");
    });
}

fn freeze(activity: &Activity, running: &AtomicUsize) {
    let frozen = activity.freeze();
    assert_eq!(running.load(Ordering::SeqCst), 0);
    assert!(activity.begin().is_none() && activity.begin_exclusive().is_none());
    thread::yield_now();
    assert_eq!(running.load(Ordering::SeqCst), 0);
    drop(frozen);
}
