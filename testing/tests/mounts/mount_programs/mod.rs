//! External programs on our mount. After each: unmounted, `e2fsck -fn` finds nothing, and the kernel's mount
//! of the image and a new one of ours show exactly the tree that the program left.
//!
//! Programs that are not installed are skipped, with a message. `THROUGHLINE_SOAK=1` runs the long versions.

mod builds;
mod copies;
mod fio;
mod fsx;
mod git;
mod plant;
mod sqlite;
mod stage;
mod stress;
mod sysbench;
