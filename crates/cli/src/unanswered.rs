//! Exit codes of a command that ends without a result.

use throughline_face::unanswered::{Unanswered, called};

use crate::mount;

/// The codes for the command that this process was started for.
pub(crate) fn here() -> Unanswered {
    match called(&["mount"]) {
        true => Unanswered {
            usage: mount::EXIT_USAGE,
            failed: mount::EXIT_SYSTEM,
            bug: mount::EXIT_INTERNAL,
        },
        false => Unanswered::here(),
    }
}
