//! The size of an untrusted image is changed. Errors are allowed; a panic, a hang or unbounded memory is not.

use std::sync::Arc;

use throughline::internal::OpenBlockDevice;
use throughline::{NewSize, OpenOptions};

use super::exercise;

/// Ways to change the size.
pub(crate) const KINDS: u64 = 4;

/// Room behind the volume.
const MORE_BYTES: u64 = 9 << 20;

/// Changes the size in the way `kind`, modulo [`KINDS`], then once more, and reads everything. Returns
/// whether the first change succeeded.
pub(crate) fn resize(bytes: &[u8], kind: u64) -> bool {
    let sizes = match kind % KINDS {
        0 => [NewSize::Min, NewSize::Max],
        1 => [NewSize::Max, NewSize::Min],
        2 => [NewSize::Bytes(bytes.len() as u64 / 8 * 7), NewSize::Min],
        _ => [NewSize::More(1 << 20), NewSize::Bytes(bytes.len() as u64)],
    };
    let device = exercise::load(bytes, MORE_BYTES);
    let [first, second] = sizes.map(|size| {
        OpenOptions::new()
            .resize_block_device(Arc::clone(&device), size)
            .is_ok()
    });
    if second && let Ok(volume) = OpenOptions::new().open_block_device(device) {
        exercise::read_all(&volume);
    }
    first
}
