//! Images in object storage, named by URL: `s3://bucket/disk.img`. They are only read.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use throughline::internal::{object_cache_dir, object_scheme_bytes, object_shown};

use crate::problem::Problem;
pub(crate) use crate::text::shown;

/// Whether the name of an image is that of an object.
pub(crate) fn is_object(image: &Path) -> bool {
    object_shown(image).is_some()
}

/// How long the beginning of a name is in which no `:/` separates image and path.
pub(crate) fn scheme_bytes(name: &[u8]) -> usize {
    object_scheme_bytes(name).unwrap_or(0)
}

/// The directory below which chunks of objects are cached, if there is one.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    object_cache_dir()
}

/// What tells images apart, and whether it is a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) is_dir: bool,
}

impl Identity {
    /// Of an image. That of an object is its name.
    ///
    /// # Errors
    /// If there is no such file on the host.
    pub(crate) fn of(image: &Path) -> io::Result<Identity> {
        if is_object(image) {
            let mut name = DefaultHasher::new();
            image.hash(&mut name);
            return Ok(Identity {
                // No device has this number.
                device: u64::MAX,
                inode: name.finish(),
                is_dir: false,
            });
        }
        let found = std::fs::metadata(image)?;
        Ok(Identity {
            device: found.dev(),
            inode: found.ino(),
            is_dir: found.is_dir(),
        })
    }
}

/// Refuses to make an image in object storage.
///
/// # Errors
/// If the name is that of an object.
pub(crate) fn check_host(image: &Path) -> Result<(), Problem> {
    match is_object(image) {
        true => Err(Problem::new("an object is only read")
            .with_next("make the image in a file, and upload it with your store's own tool")),
        false => Ok(()),
    }
}
