//! The lock of a file while it is being widened: exclusion holds, and no thread waits forever.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

use crate::every_schedule;
use crate::file_lock::FileLock;
use crate::sync::{Place, Rank};

/// Thread changes until the lock is widened: at various points of a schedule.
const TURNS: u32 = 2;

#[derive(Default)]
struct Seen {
    lock: FileLock,
    sharing: AtomicUsize,
    exclusive: AtomicUsize,
}

impl Seen {
    fn share(&self) {
        let _shared = self.lock.shared_after(TURNS, Place::enter(Rank::FileIo, 0));
        self.sharing.fetch_add(1, Ordering::SeqCst);
        assert_eq!(self.exclusive.load(Ordering::SeqCst), 0, "held exclusively");
        thread::yield_now();
        assert_eq!(self.exclusive.load(Ordering::SeqCst), 0, "held exclusively");
        self.sharing.fetch_sub(1, Ordering::SeqCst);
    }

    fn be_exclusive(&self) {
        let _exclusive = self.lock.exclusive(Place::enter(Rank::FileIo, 0));
        assert_eq!(
            self.exclusive.fetch_add(1, Ordering::SeqCst),
            0,
            "two exclusive holders"
        );
        assert_eq!(self.sharing.load(Ordering::SeqCst), 0, "held shared");
        thread::yield_now();
        assert_eq!(self.sharing.load(Ordering::SeqCst), 0, "held shared");
        self.exclusive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn exclusive_means_exclusive() {
    every_schedule(|| {
        let seen = Arc::new(Seen::default());
        let spawn = |work: fn(&Seen), times: usize| {
            let seen = Arc::clone(&seen);
            thread::spawn(move || (0..times).for_each(|_| work(&seen)))
        };
        let threads = [
            spawn(Seen::share, 3),
            spawn(Seen::share, 3),
            spawn(Seen::be_exclusive, 2),
            spawn(Seen::be_exclusive, 1),
        ];
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        seen.share();
        seen.be_exclusive();
    });
}
