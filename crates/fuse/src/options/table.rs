//! The options of `-o`: one table for parsing, for the help, and for suggestions on misspelt names.
//!
//! Invariants: each name is in the table once. An ignored option is in the group for such options in the
//! help, and ignoring it breaks no promise.

mod access;
mod durability;
mod features;
mod image;
mod mount;
mod times;

use super::MountOptions;
use super::group::Group;
use super::ignored::IGNORED;

/// One option.
pub struct Known {
    /// The word before the `=`.
    pub name: &'static str,
    /// The placeholder of the value after the `=`, for the help; empty if it takes none.
    pub value: &'static str,
    /// Its help text.
    pub help: &'static str,
    /// Its group in the help.
    pub group: Group,
    /// Sets it from the text after the `=`. The error says what a valid value is.
    pub(super) set: Setter,
}

pub(super) type Setter = fn(&mut MountOptions, &str) -> Result<(), String>;

/// The options that have an effect, except those of [`super::Choices`], which have their own list; a table
/// for each group.
const EFFECTIVE: [&[Known]; 6] = [
    image::TABLE,
    access::TABLE,
    durability::TABLE,
    times::TABLE,
    features::TABLE,
    mount::TABLE,
];

/// All options that are accepted.
pub fn known() -> impl Iterator<Item = &'static Known> {
    EFFECTIVE.into_iter().flatten().chain(IGNORED)
}

const fn flag(name: &'static str, group: Group, help: &'static str, set: Setter) -> Known {
    with_value(name, "", group, help, set)
}

pub(super) const fn with_value(
    name: &'static str,
    value: &'static str,
    group: Group,
    help: &'static str,
    set: Setter,
) -> Known {
    Known {
        name,
        value,
        help,
        group,
        set,
    }
}

macro_rules! sets {
    ($($field:ident).+ = $value:expr) => {
        |options: &mut $crate::options::MountOptions, _: &str| {
            options.$($field).+ = $value;
            Ok(())
        }
    };
}
use sets;
