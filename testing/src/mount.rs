//! The kernel's own ext4 as a reference: mounts an image on a loop device and unmounts it on every exit.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use throughline_testkit::kernel;

/// Offsets of the feature words in an image, and the bits tested.
const COMPAT_AT: u64 = 1024 + 0x5C;
const INCOMPAT_AT: u64 = 1024 + 0x60;
const HAS_JOURNAL: u32 = 0x4;
const INLINE_DATA: u32 = 0x8000;

/// An image mounted by the kernel.
pub struct Mount {
    mount: kernel::Mount,
    // Removed after the mount.
    point: tempfile::TempDir,
}

impl Mount {
    /// Mounts an image.
    ///
    /// # Errors
    /// The output of `mount` on failure: no root, no loop devices, or a feature or block size that the kernel
    /// does not support.
    pub fn new(image: &Path, writable: bool) -> Result<Mount, String> {
        let mut options = String::from(if writable { "loop,rw" } else { "loop,ro" });
        if writable && feature(image, INCOMPAT_AT, INLINE_DATA) {
            // Kernels (6.18 among them) can hang forever in a commit that meets a file whose delayed write
            // has not left its inode yet.
            options.push_str(",nodelalloc");
            if feature(image, COMPAT_AT, HAS_JOURNAL) {
                options.push_str(",data=writeback");
            }
        }
        Mount::with_options(image, &options)
    }

    /// Mounts an image with options for `mount -o`, including `loop`.
    ///
    /// # Errors
    /// As [`Mount::new`].
    pub fn with_options(image: &Path, options: &str) -> Result<Mount, String> {
        let point = tempfile::tempdir().map_err(|e| e.to_string())?;
        let arguments = ["-t", "ext4", "-o", options];
        let mount = kernel::Mount::new(image, point.path(), &arguments)?;
        Ok(Mount { mount, point })
    }

    /// As [`Mount::new`]. On failure prints what is skipped and why to standard error, and returns `None`.
    pub fn or_skip(image: &Path, writable: bool) -> Option<Mount> {
        Mount::new(image, writable)
            .map_err(|why| kernel::skip(&why))
            .ok()
    }

    /// The mount point.
    pub fn root(&self) -> &Path {
        self.point.path()
    }

    /// The host path of a path on the volume.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    /// Unmounts. Afterwards all data is in the image, and no other process uses it.
    pub fn close(self) {
        self.mount.unmount();
    }
}

fn feature(image: &Path, at: u64, bit: u32) -> bool {
    let mut word = [0; 4];
    File::open(image)
        .and_then(|file| file.read_exact_at(&mut word, at))
        .is_ok()
        && u32::from_le_bytes(word) & bit != 0
}
