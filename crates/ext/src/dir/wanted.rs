//! A name that is looked for in a directory, in the way in which the directory compares names.

use throughline_extfmt::casefold::CaseFolding;

use crate::error::{Reason, Result};
use crate::inode::Inode;
use crate::names::Names;

/// See the head of this file.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a [u8],
    /// How the directory folds names, if it ignores case.
    folding: Option<CaseFolding>,
    /// The folded form, if it does and the name has one.
    folded: Option<Vec<u8>>,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(fs: &Names, dir: &Inode, name: &'a [u8]) -> Self {
        let folding = fs.hash_rules.folding(dir.raw.read().flags());
        Self {
            name,
            folding,
            folded: folding.and_then(|folding| folding.fold(name)),
        }
    }

    /// Fails if the directory takes no such name.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn check_new(&self) -> Result<()> {
        match self.folding {
            Some(folding) if !folding.allows(self.name) => {
                let what = "the name is not UTF-8, which the volume requires in this directory";
                Err(Reason::Invalid(what).into())
            }
            _ => Ok(()),
        }
    }

    /// Whether the directory compares names as bytes.
    pub(super) fn is_exact(&self) -> bool {
        self.folding.is_none()
    }

    /// Whether a stored name is this one.
    pub(super) fn is(&self, stored: &[u8]) -> bool {
        match (self.folding, &self.folded) {
            _ if stored == self.name => true,
            (Some(folding), Some(folded)) => {
                // Most names are ASCII, and no other name has an ASCII form of another length.
                if stored.is_ascii() {
                    return stored.eq_ignore_ascii_case(folded);
                }
                folding.fold(stored).is_some_and(|stored| stored == *folded)
            }
            _ => false,
        }
    }
}
