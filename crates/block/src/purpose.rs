//! What a thread's I/O is for: told to listeners with each bio, and nobody else asks.
//!
//! The layer that knows it says so around its calls; what nobody said is file data. It costs a store on each side of such a
//! call, beside an I/O.

use std::cell::Cell;

/// Whose bytes a bio carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// A file's contents.
    #[default]
    Data,
    /// The volume's own structures, where they belong.
    Metadata,
    /// The journal.
    Journal,
}

thread_local! {
    static PRESENT: Cell<Purpose> = const { Cell::new(Purpose::Data) };
}

impl Purpose {
    /// Does `f`, whose I/Os of this thread are for this.
    pub fn during<R>(self, f: impl FnOnce() -> R) -> R {
        struct Back(Purpose);
        impl Drop for Back {
            fn drop(&mut self) {
                PRESENT.set(self.0);
            }
        }
        let _back = Back(PRESENT.replace(self));
        f()
    }

    /// Of this thread's I/Os at this moment.
    pub(crate) fn present() -> Purpose {
        PRESENT.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_with_its_call() {
        let seen = Purpose::Journal.during(|| {
            Purpose::Metadata.during(|| assert_eq!(Purpose::present(), Purpose::Metadata));
            Purpose::present()
        });
        assert_eq!(
            (seen, Purpose::present()),
            (Purpose::Journal, Purpose::Data)
        );
        let panicked =
            std::panic::catch_unwind(|| Purpose::Journal.during(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(Purpose::present(), Purpose::Data);
    }
}
