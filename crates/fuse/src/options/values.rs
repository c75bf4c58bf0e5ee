//! Parsing of option values. Errors say what a valid value is.

use throughline::{OnError, internal};

pub(super) fn parse_on_error(text: &str) -> Result<OnError, String> {
    internal::parse_on_error(text).map_err(|_| "write continue, remount-ro or panic".into())
}

pub(super) fn parse_id(text: &str) -> Result<u32, String> {
    match text.parse() {
        // The kernel uses it for "no ID".
        Ok(u32::MAX) | Err(_) => Err("write a number, as 'id -u' and 'id -g' print it".into()),
        Ok(id) => Ok(id),
    }
}

/// Permissions in octal, as umask(1) prints them.
pub(super) fn parse_mask(text: &str) -> Result<u32, String> {
    let digits = !text.is_empty() && text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
    match u32::from_str_radix(text, 8) {
        Ok(mask @ 0..=0o777) if digits => Ok(mask),
        _ => Err("write permissions in octal, as 027".into()),
    }
}

/// A name that the kernel shows in the list of mounts.
pub(super) fn named(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('\0') {
        return Err("write a name".into());
    }
    Ok(text.to_owned())
}
