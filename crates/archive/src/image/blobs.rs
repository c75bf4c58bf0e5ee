//! Where the files of an image are: in a directory, or in a tar.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::json::Descriptor;
use super::remote::{self, RemoteImage};
use super::sum::DigestSum;
use crate::content::SourceId;
use crate::error::{Error, Result, shown};
use crate::limits::Limits;
use crate::stream::{FileInput, Input, Window};
use crate::tar::{Reader, name_start};
use crate::tree::Tree;

/// A layout's files.
pub(crate) enum Store<'i> {
    Directory(PathBuf),
    /// An image that is fetched, and the bytes that its layers may have.
    Remote(&'i dyn RemoteImage, u64),
    /// A plain tar: its tree, and the file that it is in.
    Tar {
        tree: Box<Tree>,
        window: Window,
    },
}

/// Symlinks followed to a file: `docker save` once wrote equal layers as links to the first.
const SYMLINKS_MAX: usize = 8;
/// A document is not larger.
const DOCUMENT_MAX: u64 = 16 << 20;

impl Store<'_> {
    /// A file of the layout.
    pub(super) fn open(&self, path: &str) -> Result<Window> {
        match self {
            Store::Remote(image, _) => Err(Error::Invalid(format!(
                "{} is not a layout of files",
                image.describe()
            ))),
            Store::Directory(root) => {
                let path = root.join(path);
                let failed = |error| Error::io(path.display(), error);
                let file = File::open(&path).map_err(failed)?;
                if !file.metadata().map_err(failed)?.is_file() {
                    return Err(Error::damaged(path.display(), "is not a regular file"));
                }
                Window::whole(file).map_err(failed)
            }
            Store::Tar { tree, window } => {
                let missing =
                    || Error::damaged(shown(path.as_bytes()), "the archive has no such file");
                let mut path = path.as_bytes().to_vec();
                for _ in 0..SYMLINKS_MAX {
                    let node = tree.node(tree.lookup(&path).ok_or_else(missing)?);
                    if let Some(target) = node.target() {
                        path.truncate(name_start(&path));
                        path.extend_from_slice(target);
                        continue;
                    }
                    let content = node.content().ok_or_else(missing)?;
                    let first = content.extents().next();
                    let at = first.map_or(0, |extent| extent.at);
                    if !content.is_dense() || content.extents().nth(1).is_some() {
                        return Err(Error::damaged(shown(&path), "is a sparse file"));
                    }
                    return Ok(Window {
                        file: Arc::clone(&window.file),
                        start: window.start + at,
                        length: content.size,
                    });
                }
                Err(missing())
            }
        }
    }

    pub(super) fn has(&self, path: &str) -> bool {
        match self {
            Store::Directory(root) => root.join(path).is_file(),
            Store::Tar { tree, .. } => tree.lookup(path.as_bytes()).is_some(),
            Store::Remote(..) => false,
        }
    }

    /// Whether this is an image at all.
    pub(crate) fn is_image(&self) -> bool {
        let names = match self {
            Store::Directory(_) | Store::Remote(..) => true,
            Store::Tar { tree, .. } => tree
                .children(crate::NodeId::ROOT)
                .iter()
                .all(|child| is_image_name(child.name)),
        };
        names && (self.is_oci() || matches!(self, Store::Tar { .. }) && self.has("manifest.json"))
    }

    pub(super) fn is_oci(&self) -> bool {
        matches!(self, Store::Remote(..)) || self.has("oci-layout") && self.has("index.json")
    }

    /// The bytes of all these layers, in their order.
    pub(super) fn layers(&self, layers: &[Descriptor]) -> Result<Vec<Window>> {
        if let Store::Remote(image, limit_bytes) = self {
            return remote::fetch(*image, layers, *limit_bytes);
        }
        let open = |layer: &Descriptor| {
            let window = self.open(&blob_path(&layer.digest)?)?;
            if window.length != layer.size {
                let problem = format!(
                    "it has {} bytes, and should have {}",
                    window.length, layer.size
                );
                return Err(Error::damaged(&layer.digest, problem));
            }
            Ok(window)
        };
        layers.iter().map(open).collect()
    }

    /// A manifest, an index or a configuration, by its digest.
    pub(super) fn blob<T: serde::de::DeserializeOwned>(
        &self,
        digest: &str,
        size: Option<u64>,
        what: Document,
    ) -> Result<T> {
        let path = blob_path(digest)?;
        let (parsed, bytes) = match (self, what) {
            (Store::Remote(image, _), Document::Manifest) => parse(digest, image.manifest(digest)?),
            (Store::Remote(image, _), Document::Config) => {
                let size = size.unwrap_or(0).min(DOCUMENT_MAX);
                parse(digest, image.config(digest, size)?)
            }
            _ => self.document(&path),
        }?;
        let mut sum = DigestSum::new(digest)?;
        sum.update(&bytes);
        sum.check(digest)?;
        Ok(parsed)
    }

    /// A JSON document, and its bytes.
    pub(super) fn document<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<(T, Vec<u8>)> {
        let window = self.open(path)?;
        if window.length > DOCUMENT_MAX {
            return Err(Error::limit(
                path,
                format_args!("a document of {} bytes", window.length),
            ));
        }
        let mut bytes = vec![0; window.length as usize];
        window
            .read_exact_at(0, &mut bytes)
            .map_err(|error| Error::io(path, error))?;
        parse(path, bytes)
    }
}

/// What a document is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Document {
    /// A manifest, or an index of manifests.
    Manifest,
    Config,
}

fn parse<T: serde::de::DeserializeOwned>(place: &str, bytes: Vec<u8>) -> Result<(T, Vec<u8>)> {
    let parsed = serde_json::from_slice(&bytes);
    let parsed = parsed
        .map_err(|error| Error::damaged(place, format_args!("not what it should be: {error}")))?;
    Ok((parsed, bytes))
}

/// The path of a blob in a layout. The digest is checked, so it leads nowhere else.
fn blob_path(digest: &str) -> Result<String> {
    DigestSum::new(digest)?;
    Ok(format!("blobs/{}", digest.replace(':', "/")))
}

/// Whether a path, perhaps with more after a NUL, begins with a name that images have at their top. Trees of
/// files have others.
pub(crate) fn is_image_name(path: &[u8]) -> bool {
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let end = path
        .iter()
        .position(|byte| matches!(byte, b'/' | 0))
        .unwrap_or(path.len());
    let name = &path[..end];
    let hex = name.len() >= 64 && name[..64].iter().all(u8::is_ascii_hexdigit);
    let known = [
        &b""[..],
        b"blobs",
        b"oci-layout",
        b"index.json",
        b"manifest.json",
        b"repositories",
    ];
    hex || known.contains(&name)
}

/// The image in a plain tar, if it is one. Of another tar only the first headers are read.
pub(crate) fn probe(window: &Window, limits: &Limits) -> Result<Option<Store<'static>>> {
    let tree = probe_input(&mut FileInput::new(window.clone()), limits)?;
    let window = window.clone();
    Ok(tree
        .map(|tree| Store::Tar {
            tree: Box::new(tree),
            window,
        })
        .filter(Store::is_image))
}

/// The tree of a tar in which all names are such as images have at their top.
pub(crate) fn probe_input(input: &mut dyn Input, limits: &Limits) -> Result<Option<Tree>> {
    let mut reader = Reader::new(input, limits);
    let mut tree = Tree::new(limits.clone());
    while let Some(entry) = reader.next()? {
        if !is_image_name(&entry.path) {
            return Ok(None);
        }
        entry.add_to(&mut tree, SourceId(0), false)?;
    }
    Ok(Some(tree).filter(|tree| !tree.is_empty()))
}
