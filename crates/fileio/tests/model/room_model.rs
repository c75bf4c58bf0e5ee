//! Room for dirty bytes: never over the limit, first come first served, no lost wake-up, nothing kept by a
//! dropped ticket.

use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::Mutex;
use shuttle::thread;

use crate::every_schedule;
use crate::room::Room;

type TestRoom = Room<&'static str>;

const LONG: Duration = Duration::from_secs(1);

/// Takes room as the throttle does; returns the error of a pointless wait.
fn take(room: &TestRoom, bytes: u64) -> Result<(), &'static str> {
    match room.take_or_queue(bytes)? {
        None => Ok(()),
        Some(mut ticket) => loop {
            if let Some(answer) = ticket.wait(LONG) {
                return answer;
            }
        },
    }
}

#[test]
fn room_is_never_over_its_limit_and_no_wait_is_endless() {
    every_schedule(|| {
        let room = Arc::new(TestRoom::new(10));
        let threads: Vec<_> = [7, 4, 10, 1]
            .into_iter()
            .map(|bytes| {
                let room = Arc::clone(&room);
                thread::spawn(move || {
                    for _ in 0..2 {
                        take(&room, bytes).expect("nothing is stuck");
                        let used = room.used_bytes();
                        assert!((bytes..=10).contains(&used), "{used} in use");
                        room.give_back(bytes);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        assert_eq!(room.used_bytes(), 0);
        assert_eq!(room.waiting(), 0);
    });
}

#[test]
fn the_first_waiter_is_served_first() {
    every_schedule(|| {
        let room = Arc::new(TestRoom::new(10));
        assert_eq!(room.take(10), Some(10));
        let first = room.take_or_queue(9).expect("not stuck").expect("no room");
        let late = {
            let room = Arc::clone(&room);
            // One byte would fit at any time after the first release, but the first waiter needs more.
            thread::spawn(move || take(&room, 1))
        };
        let giver = {
            let room = Arc::clone(&room);
            thread::spawn(move || {
                room.give_back(5);
                assert_eq!(room.take(1), None, "overtook a waiter");
                room.give_back(5);
            })
        };
        let mut first = first;
        assert_eq!(first.wait(LONG), Some(Ok(())));
        giver.join().expect("no panic");
        late.join().expect("no panic").expect("not stuck");
        assert_eq!(room.used_bytes(), 10);
    });
}

#[test]
fn a_dropped_ticket_keeps_no_room_and_blocks_no_waiter() {
    every_schedule(|| {
        let room = Arc::new(TestRoom::new(10));
        assert_eq!(room.take(6), Some(6));
        let large = room.take_or_queue(8).expect("not stuck").expect("no room");
        let small = {
            let room = Arc::clone(&room);
            thread::spawn(move || take(&room, 4))
        };
        let giver = {
            let room = Arc::clone(&room);
            thread::spawn(move || room.give_back(6))
        };
        // Dropped before it is served, or after.
        drop(large);
        small.join().expect("no panic").expect("not stuck");
        giver.join().expect("no panic");
        assert_eq!(room.used_bytes(), 4);
    });
}

#[test]
fn a_dropped_ticket_lets_the_next_waiter_in() {
    every_schedule(|| {
        let room = Arc::new(TestRoom::new(10));
        assert_eq!(room.take(6), Some(6));
        let large = room.take_or_queue(8).expect("not stuck").expect("no room");
        let small = {
            let room = Arc::clone(&room);
            thread::spawn(move || take(&room, 4))
        };
        drop(large);
        small.join().expect("no panic").expect("not stuck");
        assert_eq!((room.used_bytes(), room.waiting()), (10, 0));
    });
}

#[test]
fn waiters_see_an_error_set_and_cleared() {
    every_schedule(|| {
        let room = Arc::new(TestRoom::new(10));
        assert_eq!(room.take(10), Some(10));
        let answers = Arc::new(Mutex::new((0, 0)));
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let (room, answers) = (Arc::clone(&room), Arc::clone(&answers));
                thread::spawn(move || match take(&room, 10) {
                    Ok(()) => {
                        room.give_back(10);
                        answers.lock().expect("no panic").0 += 1;
                    }
                    Err(error) => {
                        assert_eq!(error, "broken");
                        answers.lock().expect("no panic").1 += 1;
                    }
                })
            })
            .collect();
        room.set_stuck(Some("broken"));
        room.set_stuck(None);
        room.give_back(10);
        for waiter in waiters {
            waiter.join().expect("no panic");
        }
        let (served, refused) = *answers.lock().expect("no panic");
        assert_eq!(served + refused, 3);
        assert_eq!(room.used_bytes(), 0);
        assert!(room.stuck().is_none());
        assert_eq!(room.waiting(), 0);
    });
}

#[test]
fn waiters_see_a_changed_limit() {
    every_schedule(|| {
        let room = Arc::new(TestRoom::new(4));
        assert_eq!(room.take(4), Some(4));
        let waiter = {
            let room = Arc::clone(&room);
            thread::spawn(move || take(&room, 4))
        };
        room.set_limit(8);
        waiter.join().expect("no panic").expect("not stuck");
        assert_eq!((room.used_bytes(), room.limit_bytes()), (8, 8));
        // Larger than the lowered limit: granted alone, when nothing else is in use.
        room.set_limit(2);
        let waiter = {
            let room = Arc::clone(&room);
            thread::spawn(move || take(&room, 3))
        };
        room.give_back(4);
        room.give_back(4);
        waiter.join().expect("no panic").expect("not stuck");
        assert_eq!(room.used_bytes(), 3);
    });
}
