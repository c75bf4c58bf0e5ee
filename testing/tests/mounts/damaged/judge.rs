//! Reads an image with all readers, and collects what others can read and we cannot.

use std::path::Path;

use crate::damaged::seen::Seen;
use crate::damaged::{debugfs, mounts, ours};

/// The result for one image.
pub(crate) struct Verdict {
    /// What the library reads without the journal, and what a mount shows.
    pub(crate) unrecovered: Seen,
    pub(crate) mount: Seen,
    /// The most names listed by another reader.
    pub(crate) others: usize,
    /// What others can read and we cannot, one line each.
    pub(crate) lacking: Vec<String>,
}

/// Compares an image as it is, and after its journal's replay. `scratch` is a directory for temporary files.
///
/// Names are compared with the kernel's and with those of `debugfs`, which does not check mappings; data is
/// compared with the kernel's, if it mounts the image.
pub(crate) fn judge(image: &Path, scratch: &Path) -> Verdict {
    let mut refused = Vec::new();
    let mut left = |seen: Result<Seen, String>, what: &str| {
        seen.unwrap_or_else(|why| {
            refused.push(format!("{what} is refused: {why}"));
            Seen::default()
        })
    };
    let unrecovered = left(ours::look(image, true), "opening it without recovery");
    let whole = left(ours::look(image, false), "opening it");
    let mount = left(mounts::read_our_mount(image), "mounting it");
    let (kernel, debugfs) = (
        mounts::look(image, ",noload"),
        debugfs::look(image, scratch),
    );
    let mut lacking = unrecovered.lacks_names(&debugfs, "debugfs");
    match &kernel {
        Ok(kernel) => {
            lacking.extend(unrecovered.lacks_names(kernel, "the kernel"));
            lacking.extend(unrecovered.lacks_lookups(kernel, "the kernel"));
            lacking.extend(unrecovered.lacks_data(kernel, "the kernel"));
        }
        Err(_) => lacking.extend(unrecovered.lacks_data(&debugfs, "debugfs")),
    }
    // Files on a mount have only data that the library reads too.
    lacking.extend(mount.lacks_names(&whole, "the library, not the mount,"));
    let after = mounts::read_replayed(image);
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
        unrecovered,
        mount,
        others: others.into_iter().max().unwrap_or(0),
        lacking,
    }
}
