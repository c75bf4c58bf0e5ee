//! The wait table: a thread that saw a reason to wait under a lock, and took a ticket under it, is woken by
//! the change.

use std::sync::Arc;

use shuttle::thread;

use crate::every_schedule;
use crate::sync::Mutex;
use crate::waits::Waits;

const KEY: u64 = 7;

#[test]
fn no_wake_is_lost() {
    every_schedule(|| {
        let waits = Arc::new(Waits::new());
        let filling = Arc::new(Mutex::new(2));
        let waiters: Vec<_> = (0..2)
            .map(|waiter| {
                let (waits, filling) = (Arc::clone(&waits), Arc::clone(&filling));
                thread::spawn(move || {
                    loop {
                        let state = filling.lock();
                        if *state == 0 {
                            return;
                        }
                        let ticket = waits.ticket(KEY);
                        drop(state);
                        // Under shuttle the bounded wait has no timeout.
                        match waiter {
                            0 => waits.wait(ticket),
                            _ => waits.wait_timeout(ticket),
                        }
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            *filling.lock() -= 1;
            waits.wake(KEY);
        }
        for waiter in waiters {
            waiter.join().expect("it is woken");
        }
    });
}
