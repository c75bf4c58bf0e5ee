//! A wish: no wake-up is lost, and none comes that was not wished for.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::mpsc;
use shuttle::thread;

use crate::every_schedule;
use crate::wish::Wish;

#[test]
fn who_sleeps_is_woken_for_all_that_is_made() {
    every_schedule(|| {
        let (wish, made) = (Arc::new(Wish::default()), Arc::new(AtomicU64::new(0)));
        let (to, from) = mpsc::channel();
        let makers: Vec<_> = (0..2)
            .map(|_| {
                let (wish, made, to) = (Arc::clone(&wish), Arc::clone(&made), to.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        made.fetch_add(1, Ordering::Relaxed);
                        if wish.grant() {
                            to.send(()).expect("the sleeper is there");
                        }
                    }
                })
            })
            .collect();
        let mut seen = 0;
        while seen < 4 {
            wish.make();
            let now = made.load(Ordering::Relaxed);
            if now == seen {
                // A lost wake-up is a deadlock here.
                from.recv().expect("the makers are there");
            }
            wish.drop_it();
            seen = now;
        }
        for maker in makers {
            maker.join().expect("no thread panics");
        }
    });
}

#[test]
fn nobody_is_told_who_does_not_wish() {
    let test = || {
        let wish = Wish::default();
        assert!(!wish.grant());
        wish.make();
        assert!(wish.is_made());
        assert!(wish.grant());
        assert!(!wish.grant(), "told once");
    };
    shuttle::check_random(test, 1);
}
