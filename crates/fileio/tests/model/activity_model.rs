//! Background work and freezing: never both, and nobody waits for ever.

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
                    if let Some(_alone) = activity.begin_alone() {
                        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "alone");
                        assert!(activity.begin().is_none() && activity.begin_alone().is_none());
                        thread::yield_now();
                        assert_eq!(running.fetch_sub(1, Ordering::SeqCst), 1, "alone");
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
        assert!(activity.begin_alone().is_some(), "it has thawed");
        assert!(activity.begin().is_some(), "nobody is alone any more");
    });
}

fn freeze(activity: &Activity, running: &AtomicUsize) {
    let frozen = activity.freeze();
    assert_eq!(running.load(Ordering::SeqCst), 0);
    assert!(activity.begin().is_none() && activity.begin_alone().is_none());
    thread::yield_now();
    assert_eq!(running.load(Ordering::SeqCst), 0);
    drop(frozen);
}
