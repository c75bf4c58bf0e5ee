//! Images that are not in files yet: those of a registry.

use std::fs::File;
use std::sync::Arc;

use super::Store;
use super::json::Descriptor;
use crate::error::{Error, Result};
use crate::merge::Merge;
use crate::stream::Window;

/// A container image that has to be fetched, as from a registry. Every digest is verified here again.
/// See [`Merge::add_remote`].
pub trait RemoteImage: Sync {
    /// Its name in messages.
    fn describe(&self) -> String;

    /// The digest of the index or manifest that the image's name leads to.
    ///
    /// # Errors
    /// Those of the source.
    fn root(&self) -> Result<String>;

    /// A manifest or index.
    ///
    /// # Errors
    /// Those of the source.
    fn manifest(&self, digest: &str) -> Result<Vec<u8>>;

    /// A configuration of so many bytes.
    ///
    /// # Errors
    /// Those of the source.
    fn config(&self, digest: &str, size: u64) -> Result<Vec<u8>>;

    /// Fetches layers, and says where each of them is.
    ///
    /// # Errors
    /// Those of the source.
    fn fetch(&self, layers: &[Blob]) -> Result<Vec<Fetched>>;
}

/// A blob that is to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Its digest, such as `sha256:` and 64 digits.
    pub digest: String,
    /// Its bytes.
    pub size: u64,
}

/// Where a blob is that was fetched.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The file.
    pub file: Arc<File>,
    /// Where in it the blob begins.
    pub start: u64,
}

/// The layers, fetched.
pub(super) fn fetch(
    image: &dyn RemoteImage,
    layers: &[Descriptor],
    limit_bytes: u64,
) -> Result<Vec<Window>> {
    let all = layers
        .iter()
        .try_fold(0_u64, |sum, layer| sum.checked_add(layer.size));
    if all.is_none_or(|bytes| bytes > limit_bytes) {
        let problem = format!("its layers have more than {limit_bytes} bytes");
        return Err(Error::limit("image", problem));
    }
    let blobs: Vec<Blob> = layers
        .iter()
        .map(|layer| Blob {
            digest: layer.digest.clone(),
            size: layer.size,
        })
        .collect();
    let fetched = image.fetch(&blobs)?;
    let windows = fetched.into_iter().zip(&blobs).map(|(fetched, blob)| {
        let length = blob.size;
        let Fetched { file, start } = fetched;
        Window {
            file,
            start,
            length,
        }
    });
    Ok(windows.collect())
}

impl Merge {
    /// Adds an image that has to be fetched. The layers are fetched at once, as many bytes as
    /// [`Limits::spool_bytes`](crate::Limits::spool_bytes) at most; of an image for several platforms, only
    /// those of the one that is taken.
    ///
    /// # Errors
    /// As [`Merge::add`], and those of the image.
    pub fn add_remote(&mut self, image: &dyn RemoteImage) -> Result<()> {
        let store = Store::Remote(image, self.limits().spool_bytes);
        self.add_layers(&store, None, &image.describe())
    }
}
