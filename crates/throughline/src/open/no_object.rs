//! What `object.rs` has, in a build without the feature `remote`: every path is one of the host.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline_device::BlockDevice;
use throughline_image::{Object, ReadAt};

/// `None`: no name is one of an object.
pub fn object_scheme_bytes(_name: &[u8]) -> Option<usize> {
    None
}

/// `None`, as well.
pub fn object_shown(_path: &Path) -> Option<String> {
    None
}

pub(crate) fn whole(_path: &Path) -> Option<PathBuf> {
    None
}

/// There are none.
pub fn has_object_secrets() -> bool {
    false
}

/// The text: no URL in it was opened.
pub fn without_url_secrets(text: &str) -> String {
    text.to_owned()
}

/// `None`, as well.
pub fn word_without_url_secrets(_word: &str) -> Option<String> {
    None
}

/// `None`: there are none to cache.
pub fn object_cache_dir() -> Option<PathBuf> {
    None
}

/// There are none.
#[derive(Debug)]
pub struct HeldObject {}

/// `None`, as well.
pub fn hold_object(_path: &Path) -> Option<io::Result<HeldObject>> {
    None
}

pub(crate) fn open(_path: &Path) -> Option<io::Result<Object>> {
    None
}

pub(crate) fn is_named(_path: &Path) -> bool {
    false
}

pub(crate) fn upload(
    _path: &Path,
    _from: &dyn ReadAt,
    _replace: bool,
    _progress: crate::overlay::Progress<'_>,
) -> Option<io::Result<()>> {
    None
}

pub(super) fn device(_path: &Path, _write: bool) -> Option<io::Result<Arc<dyn BlockDevice>>> {
    None
}

pub(super) fn only_read() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}
