//! Helpers for several of the attacks: conditions, waiting, tools.

use std::path::Path;
use std::time::{Duration, Instant};

use throughline_testing::DiskImage;
use throughline_testkit::e2fs;

/// Not a measurement: limit for what would otherwise take forever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Whether this runs as root; prints what is skipped and why, if not.
pub(crate) fn root(why: &str) -> bool {
    let root = throughline_testkit::tier::as_root();
    if !root {
        throughline_testkit::missing!("{why}");
    }
    root
}

/// `e2fsck -fn` must find nothing.
pub(crate) fn e2fsck(image: &Path) -> Result<(), String> {
    let ran = e2fs::e2fsck(image, &["-fn"]);
    match ran.status.success() {
        true => Ok(()),
        false => Err(format!("e2fsck -fn: {}\n{}", ran.status, ran.text())),
    }
}

/// Changes an image with a `debugfs` request.
pub(crate) fn debugfs_write(image: &DiskImage, request: &str) {
    e2fs::debugfs_write(image.path(), request);
}

/// Waits until a condition is true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < until, "{what}: not in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
