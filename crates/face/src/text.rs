//! Names and numbers as text.

use std::path::{Path, PathBuf};

use throughline::internal::object_shown;

pub use throughline_forms::text::{human, printable, quote};

/// Parses a size such as `4k`; see [`throughline::internal::parse_size`].
pub fn parse_size(text: &str) -> Result<u64, String> {
    throughline::internal::parse_size(text)
        .map_err(|reason| format!("invalid size {}: {reason}", quote(text)))
}

/// The name of an image for messages, without the credentials of an object's.
pub fn shown(image: &Path) -> PathBuf {
    object_shown(image).map_or_else(|| image.to_owned(), PathBuf::from)
}
