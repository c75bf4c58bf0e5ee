//! Reading damaged volumes: whatever the kernel's ext4 or `debugfs` can read of an image, so can we. Names
//! are compared by directory, data by block.
//!
//! Our own images are damaged at one place each. `THROUGHLINE_DAMAGED_IMAGES=DIR` also runs a public
//! collection: each directory in DIR with an `image.gz` (or each `*.img.gz` in it), as in `tests/` of
//! e2fsprogs' source package.

mod debugfs;
mod groups;
mod judge;
mod made;
mod mounts;
mod ours;
mod public;
mod seen;
