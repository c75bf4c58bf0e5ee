//! What a thread's I/O is for. Only reported to listeners, with each bio.
//!
//! The layer that determines the purpose sets it around its calls; the default is file data. The cost is
//! one store before and one after such a call.

use std::cell::Cell;

/// What kind of bytes a bio carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// A file's contents.
    #[default]
    Data,
    /// The volume's own structures, at their home blocks.
    Metadata,
    /// The journal.
    Journal,
}

thread_local! {
    static PRESENT: Cell<Purpose> = const { Cell::new(Purpose::Data) };
}

impl Purpose {
    /// Runs `f`. I/O of this thread during the call has this purpose.
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

    /// The current purpose of this thread's I/O.
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
