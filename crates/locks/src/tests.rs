use super::*;

fn at(rank: Rank, number: u64) -> Mutex<()> {
    Mutex::numbered(rank, number, ())
}

#[test]
fn the_order_is_kept() {
    let (a, b, c) = (
        at(Rank::Directory, 2),
        at(Rank::Directory, 12),
        at(Rank::Mapping, 2),
    );
    for _ in 0..2 {
        let _a = a.lock();
        let _b = b.lock();
        let _c = c.lock();
    }
}

#[test]
fn locks_are_released_in_any_order() {
    let (a, b) = (at(Rank::Directory, 2), at(Rank::Mapping, 2));
    let first = a.lock();
    let second = b.lock();
    drop(first);
    drop(second);
    drop(a.lock());
}

#[test]
fn a_lock_that_is_tried_may_come_before_those_that_are_held() {
    let (a, b) = (at(Rank::Directory, 2), at(Rank::Mapping, 2));
    let _b = b.lock();
    assert!(a.try_lock().is_some());
    assert!(b.try_lock().is_none());
}

/// A device of the library's user may be a file of another volume.
#[test]
fn calls_of_users_are_apart() {
    let (a, b) = (at(Rank::Directory, 2), at(Rank::Mapping, 2));
    let _b = b.lock();
    apart(|| drop(a.lock()));
}

/// What the check refuses.
#[cfg(debug_assertions)]
mod refused {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn refuses(what: impl FnOnce()) {
        let panic = catch_unwind(AssertUnwindSafe(what)).expect_err("a panic");
        let said = panic.downcast_ref::<String>().expect("a message");
        assert!(said.starts_with("lock order: "), "{said}");
        // Nothing is held any more.
        drop(at(Rank::Experiment, 0).lock());
    }

    /// No writer waits: nothing would hang.
    #[test]
    fn a_shared_lock_twice() {
        let lock = RwLock::ranked(Rank::Mapping, 7);
        refuses(|| assert_eq!(*lock.read() + *lock.read(), 14));
        refuses(|| drop((lock.write(), lock.read())));
        refuses(|| drop((lock.try_read(), lock.read())));
    }

    #[test]
    fn a_later_rank_or_number_before_an_earlier_one() {
        let (two, three, map) = (
            at(Rank::FileIo, 2),
            at(Rank::FileIo, 3),
            at(Rank::Mapping, 1),
        );
        refuses(|| drop((three.lock(), two.lock())));
        refuses(|| drop((map.lock(), two.lock())));
        refuses(|| drop((map.lock(), two.try_lock(), three.lock())));
        refuses(|| drop((map.lock(), Place::enter(Rank::Handle, 0))));
        refuses(|| {
            let _map = map.lock();
            apart(|| ());
            drop(two.lock());
        });
    }

    #[test]
    fn any_lock_under_one_without_a_rank() {
        refuses(|| drop((Mutex::new(1).lock(), Mutex::new(2).lock())));
        refuses(|| drop((RwLock::new(1).read(), at(Rank::Mapping, 1).lock())));
    }

    #[test]
    fn waiting_under_a_later_lock() {
        let (first, later) = (at(Rank::Directory, 1), at(Rank::Mapping, 1));
        refuses(|| {
            let mut guard = first.lock();
            let _later = later.lock();
            Condvar::new().wait_for(&mut guard, Duration::from_millis(1));
        });
    }
}
