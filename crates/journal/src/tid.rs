//! [`Tid`], the number of a transaction.

use std::fmt;

/// The number of a transaction: the sequence number of its blocks in the log. Numbers wrap around, so two are
/// compared by their distance, which must be less than half of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tid(pub u32);

impl Tid {
    /// The next number.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The previous number.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }

    /// Whether `self` is later than `other`.
    pub fn is_after(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Tid;

    #[test]
    fn the_order_goes_around() {
        assert!(Tid(0).is_after(Tid(u32::MAX)));
        assert!(!Tid(u32::MAX).is_after(Tid(0)));
        assert!(!Tid(7).is_after(Tid(7)));
        assert_eq!(Tid(u32::MAX).next(), Tid(0));
        assert_eq!(Tid(0).previous(), Tid(u32::MAX));
    }
}
