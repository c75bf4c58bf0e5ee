//! The wake flag: no wake-up is lost, and none is sent without the flag.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::mpsc;
use shuttle::thread;

use crate::every_schedule;
use crate::wake_flag::WakeFlag;

#[test]
fn a_sleeper_is_woken_for_all_work() {
    every_schedule(|| {
        let (flag, made) = (Arc::new(WakeFlag::default()), Arc::new(AtomicU64::new(0)));
        let (to, from) = mpsc::channel();
        let makers: Vec<_> = (0..2)
            .map(|_| {
                let (flag, made, to) = (Arc::clone(&flag), Arc::clone(&made), to.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        made.fetch_add(1, Ordering::Relaxed);
                        if flag.take() {
                            to.send(()).expect("the sleeper lives");
                        }
                    }
                })
            })
            .collect();
        let mut seen = 0;
        while seen < 4 {
            flag.set();
            let now = made.load(Ordering::Relaxed);
            if now == seen {
                // A lost wake-up is a deadlock here.
                from.recv().expect("a producer lives");
            }
            flag.clear();
            seen = now;
        }
        for maker in makers {
            maker.join().expect("no thread panics");
        }
    });
}

#[test]
fn only_a_set_flag_is_taken() {
    let test = || {
        let flag = WakeFlag::default();
        assert!(!flag.take());
        flag.set();
        assert!(flag.is_set());
        assert!(flag.take());
        assert!(!flag.take(), "taken once");
    };
    shuttle::check_random_with_seed(test, 1, 1);
}
