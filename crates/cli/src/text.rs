//! Names and numbers as text.

pub(crate) use throughline_forms::text::{human, printable, quote};

/// Parses a size such as `4k`; see [`throughline::internal::parse_size`].
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    throughline::internal::parse_size(text)
        .map_err(|reason| format!("invalid size {}: {reason}", quote(text)))
}
