//! Zeros to write from.

/// Aligned for every known device. No block is larger.
#[repr(align(4096))]
struct Zeros([u8; 64 << 10]);

static ZEROS: Zeros = Zeros([0; 64 << 10]);

/// So many zeros, and at most 64 KiB.
pub(crate) fn zeros(len: u64) -> &'static [u8] {
    &ZEROS.0[..len.min(ZEROS.0.len() as u64) as usize]
}
