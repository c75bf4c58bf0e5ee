//! Damaged volumes, read: whatever the kernel's ext4 or `debugfs` can still read of an image, so can we. Names are compared by
//! directory, data by block.
//!
//! Own images are damaged at one place each. `THROUGHLINE_DAMAGED_IMAGES=DIR` runs a public collection, too: each folder of DIR
//! with an `image.gz` (or each `*.img.gz` in it), as e2fsprogs' source package has them in `tests/`.

mod debugfs;
mod groups;
mod judge;
mod made;
mod mounts;
mod ours;
mod public;
mod seen;

throughline_testing::mount_server!();
