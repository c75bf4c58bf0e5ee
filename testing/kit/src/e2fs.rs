//! The programs of e2fsprogs, which make and judge images.

use std::path::Path;
use std::process::Command;

/// A program, found also where only root's `PATH` has it.
pub fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// Makes an image with `mke2fs`. `size` is in its own form, such as `8M`. Returns whether `mke2fs` is there;
/// if
/// not, prints that something is skipped.
///
/// # Panics
/// If `mke2fs` fails; with `THROUGHLINE_REQUIRE_ALL=1`, if it is missing.
#[track_caller]
pub fn mke2fs(image: &Path, size: &str, arguments: &[&str]) -> bool {
    let mut make = tool("mke2fs");
    let made = make.args(["-q", "-F"]).args(arguments).arg(image).arg(size);
    match made.output() {
        Ok(made) => {
            let said = String::from_utf8_lossy(&made.stderr);
            assert!(made.status.success(), "mke2fs {arguments:?}: {said}");
            true
        }
        Err(error) => {
            crate::missing!("mke2fs: {error}");
            false
        }
    }
}

/// Checks with `e2fsck -fn` that an image has no error.
///
/// # Panics
/// If it has one, or `e2fsck` cannot be run.
#[track_caller]
pub fn assert_clean(image: &Path) {
    let checked = tool("e2fsck").arg("-fn").arg(image).output();
    let checked = checked.expect("e2fsck can be run");
    let found = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{}: {found}", image.display());
}
