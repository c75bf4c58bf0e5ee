//! The inbox of the readahead threads: each job is returned once, a waiting thread gets the next one, closing
//! ends all waits.

use std::sync::Arc;

use shuttle::sync::Mutex;
use shuttle::thread;

use crate::every_schedule;
use crate::inbox::Inbox;

#[test]
fn each_job_comes_out_once_and_closing_ends_all_waits() {
    every_schedule(|| {
        let inbox = Arc::new(Inbox::new(2));
        let ran = Arc::new(Mutex::new(Vec::new()));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let (inbox, ran) = (Arc::clone(&inbox), Arc::clone(&ran));
                thread::spawn(move || {
                    while let Some(job) = inbox.next() {
                        ran.lock().expect("no panic").push(job);
                    }
                })
            })
            .collect();
        let senders: Vec<_> = (0..2)
            .map(|sender| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || {
                    (0..3)
                        .filter(|n| inbox.push(sender * 3 + n).is_ok())
                        .count()
                })
            })
            .collect();
        let mut taken = 0;
        for sender in senders {
            taken += sender.join().expect("no panic");
        }
        let left = inbox.close();
        for worker in workers {
            worker.join().expect("no panic");
        }
        assert!(taken >= 2, "at least this many fit");
        let mut seen = ran.lock().expect("no panic").clone();
        seen.extend(left);
        seen.sort_unstable();
        let count = seen.len();
        seen.dedup();
        assert_eq!((seen.len(), count), (taken, taken));
        assert_eq!(inbox.push(9), Err(9));
        assert_eq!(inbox.next(), None);
    });
}

#[test]
fn a_job_wakes_a_thread_that_waits() {
    every_schedule(|| {
        let inbox = Arc::new(Inbox::new(4));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let inbox = Arc::clone(&inbox);
                thread::spawn(move || inbox.next())
            })
            .collect();
        inbox.push(1).expect("room");
        inbox.push(2).expect("room");
        let sum: i32 = workers
            .into_iter()
            .map(|worker| worker.join().expect("no panic").expect("not closed"))
            .sum();
        assert_eq!(sum, 3);
        assert!(inbox.is_behind(), "no waiter and no queued job");
    });
}
