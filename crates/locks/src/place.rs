//! [`Place`]: what a thread holds, and where that stands in the order.

use crate::rank::Rank;

#[cfg(debug_assertions)]
pub(crate) use checked::Spot;
#[cfg(debug_assertions)]
pub use checked::{Place, apart};
#[cfg(not(debug_assertions))]
pub(crate) use unchecked::Spot;
#[cfg(not(debug_assertions))]
pub use unchecked::{Place, apart};

#[cfg(not(debug_assertions))]
mod unchecked {
    use std::marker::PhantomData;

    use super::Rank;

    /// Something that is held like a lock; free in this build.
    #[must_use = "it is held until dropped"]
    pub struct Place {
        /// As in a build with the check.
        _not_send: PhantomData<*const ()>,
    }

    impl Place {
        /// Enters the place.
        #[inline(always)]
        pub fn enter(_rank: Rank, _number: u64) -> Self {
            Self {
                _not_send: PhantomData,
            }
        }
    }

    /// Runs a call of the library's user; see the other build.
    #[inline(always)]
    pub fn apart<R>(call: impl FnOnce() -> R) -> R {
        call()
    }

    #[derive(Clone, Copy)]
    pub(crate) struct Spot;

    impl Spot {
        #[inline(always)]
        pub(crate) const fn new(_rank: Rank, _number: u64) -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn enter(self) -> Place {
            Place::enter(Rank::Leaf, 0)
        }

        #[inline(always)]
        pub(crate) fn enter_tried(self) -> Place {
            self.enter()
        }
    }

    impl Place {
        #[inline(always)]
        pub(crate) fn check_last(&self) {}
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;
    use std::fmt;
    use std::marker::PhantomData;
    use std::panic::Location;

    use super::Rank;

    /// Where a lock stands in the order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Spot {
        rank: Rank,
        number: u64,
    }

    /// One lock that a thread holds.
    #[derive(Clone, Copy, PartialEq)]
    struct Taken {
        spot: Spot,
        at: &'static Location<'static>,
    }

    thread_local! {
        static HELD: RefCell<Vec<Taken>> = const { RefCell::new(Vec::new()) };
    }

    /// Something that this thread holds like a lock, until dropped.
    #[must_use = "it is held until dropped"]
    pub struct Place {
        taken: Taken,
        /// It belongs to a list of this thread.
        _not_send: PhantomData<*const ()>,
    }

    impl Place {
        /// Enters the place; for what is waited for like a lock and is not one of this crate's types. Call it
        /// before waiting.
        ///
        /// # Panics
        /// If this thread holds a place that does not come before it, which is a bug.
        #[track_caller]
        pub fn enter(rank: Rank, number: u64) -> Self {
            Spot::new(rank, number).enter()
        }

        /// Panics if this thread took a later place than this one.
        #[track_caller]
        pub(crate) fn check_last(&self) {
            HELD.with_borrow(|held| {
                if let Some(later) = held.iter().find(|other| other.spot > self.taken.spot) {
                    refuse(format_args!("{} is waited with under {later}", self.taken));
                }
            });
        }
    }

    /// Runs a call of the library's user, which may be on another volume: what this thread holds does not
    /// count meanwhile.
    pub fn apart<R>(call: impl FnOnce() -> R) -> R {
        struct Outer(Vec<Taken>);
        impl Drop for Outer {
            fn drop(&mut self) {
                let _ = HELD.try_with(|held| *held.borrow_mut() = std::mem::take(&mut self.0));
            }
        }
        let held = HELD.try_with(|held| std::mem::take(&mut *held.borrow_mut()));
        let _outer = Outer(held.unwrap_or_default());
        call()
    }

    impl Spot {
        pub(crate) const fn new(rank: Rank, number: u64) -> Self {
            Self { rank, number }
        }

        #[track_caller]
        pub(crate) fn enter(self) -> Place {
            let place = Taken {
                spot: self,
                at: Location::caller(),
            };
            // A destructor that runs when the thread's list is gone is not checked.
            let last = HELD.try_with(|held| {
                let held = held.borrow();
                held.iter().max_by_key(|taken| taken.spot).copied()
            });
            if let Ok(Some(last)) = last
                && last.spot >= self
            {
                refuse(format_args!("{place} is taken under {last}"));
            }
            place.hold()
        }

        /// For a lock that was taken without waiting.
        #[track_caller]
        pub(crate) fn enter_tried(self) -> Place {
            let at = Location::caller();
            Taken { spot: self, at }.hold()
        }
    }

    impl Taken {
        fn hold(self) -> Place {
            let _ = HELD.try_with(|held| held.borrow_mut().push(self));
            Place {
                taken: self,
                _not_send: PhantomData,
            }
        }
    }

    impl fmt::Display for Taken {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let Spot { rank, number } = self.spot;
            write!(f, "{rank:?} {number} ({})", self.at)
        }
    }

    /// Panics, unless the thread already does: the first report is the one to read.
    #[track_caller]
    fn refuse(what: fmt::Arguments<'_>) {
        assert!(std::thread::panicking(), "lock order: {what}");
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|taken| *taken == self.taken) {
                    held.remove(at);
                }
            });
        }
    }
}
