//! An image read by all readers, and what others read of it that we do not.

use std::path::Path;

use crate::seen::Seen;
use crate::{debugfs, mounts, ours};

/// What one image came to.
pub(crate) struct Verdict {
    /// What the library reads, its journal passed over, and what a mount shows.
    pub(crate) lies: Seen,
    pub(crate) mount: Seen,
    /// The most names that others list.
    pub(crate) others: usize,
    /// What others read and we do not, a line each.
    pub(crate) lacking: Vec<String>,
}

/// Judges an image as it lies, and as its journal leaves it. `scratch` is a directory for files.
///
/// Names are compared with the kernel's and with those of `debugfs`, which does not ask whether a mapping is sound: bytes are
/// compared with the kernel's, where it mounts the image.
pub(crate) fn judge(image: &Path, scratch: &Path) -> Verdict {
    let mut refused = Vec::new();
    let mut left = |seen: Result<Seen, String>, what: &str| {
        seen.unwrap_or_else(|why| {
            refused.push(format!("{what} is refused: {why}"));
            Seen::default()
        })
    };
    let lies = left(ours::look(image, true), "opening it as it lies");
    let whole = left(ours::look(image, false), "opening it");
    let mount = left(mounts::look_at_ours(image), "mounting it");
    let (kernel, debugfs) = (
        mounts::look(image, ",noload"),
        debugfs::look(image, scratch),
    );
    let mut lacking = lies.lacks_names(&debugfs, "debugfs");
    match &kernel {
        Ok(kernel) => {
            lacking.extend(lies.lacks_names(kernel, "the kernel"));
            lacking.extend(lies.lacks_lookups(kernel, "the kernel"));
            lacking.extend(lies.lacks_data(kernel, "the kernel"));
        }
        Err(_) => lacking.extend(lies.lacks_data(&debugfs, "debugfs")),
    }
    // Files of a mount have no bytes that the library has not.
    lacking.extend(mount.lacks_names(&whole, "the library, not the mount,"));
    let after = mounts::look_at_replayed(image);
    if let Ok(after) = &after {
        let kernel = "the kernel, after a replay,";
        lacking.extend(whole.lacks_names(after, kernel));
        lacking.extend(whole.lacks_data(after, kernel));
        lacking.extend(mount.lacks_names(after, kernel));
        lacking.extend(mount.lacks_lookups(after, kernel));
    }
    if !lacking.is_empty() {
        lacking.splice(0..0, refused);
    }
    let kernels = [kernel, after].map(Result::unwrap_or_default);
    let others = [&debugfs, &kernels[0], &kernels[1]].map(|seen| seen.names.len());
    Verdict {
        lies,
        mount,
        others: others.into_iter().max().unwrap_or(0),
        lacking,
    }
}
