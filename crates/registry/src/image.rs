//! [`RegistryImage`]: the image that a name leads to.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use throughline_archive::{self as archive, Blob, DigestSum, Fetched, RemoteImage};
use throughline_locks::{Mutex, Rank};

use crate::blobs;
use crate::error::{Error, Kind, Result};
use crate::http::{Answer, once};
use crate::options::{Options, Progress};
use crate::reference::{Reference, is_digest};
use crate::retry::Tries;
use crate::session::Session;

/// Registries accept manifests of 4 MiB.
const MANIFEST_MAX: u64 = 4 << 20;
/// A configuration is not larger.
const CONFIG_MAX: u64 = 16 << 20;
/// What is read: manifests and indexes, by their media types.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
                      application/vnd.oci.image.manifest.v1+json, \
                      application/vnd.docker.distribution.manifest.list.v2+json, \
                      application/vnd.docker.distribution.manifest.v2+json";
/// The form of 2013, which some registries still answer with.
const OLD: &str = "distribution.manifest.v1";

/// An image in a registry. Nothing is fetched before [`archive::Merge::add_remote`] asks for it.
///
/// ```no_run
/// use throughline_archive::{Limits, Merge};
/// use throughline_registry::{Options, RegistryImage};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let image = RegistryImage::open(&"debian:13".parse()?, &Options::new())?;
/// let mut merge = Merge::new(Limits::default());
/// merge.add_remote(&image)?;
/// let (tree, sources) = merge.finish();
/// # let _ = (tree, sources);
/// # Ok(())
/// # }
/// ```
pub struct RegistryImage {
    session: Session,
    progress: Arc<Progress>,
    /// What a tag led to: its digest, and the manifest.
    found: Mutex<Option<(String, Vec<u8>)>>,
}

impl std::fmt::Debug for RegistryImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("RegistryImage");
        shown.field("reference", self.session.reference());
        shown.finish_non_exhaustive()
    }
}

impl RegistryImage {
    /// The image of that name. A registry on this machine is asked whether it has TLS.
    ///
    /// # Errors
    /// [`Kind::Unreachable`] and [`Kind::Certificate`], of a registry on this machine or without
    /// verification.
    pub fn open(reference: &Reference, options: &Options) -> Result<RegistryImage> {
        Ok(RegistryImage {
            session: Session::new(reference, options)?,
            progress: Arc::clone(&options.progress),
            found: Mutex::ranked(Rank::Manifest, None),
        })
    }

    /// The digest of the manifest or index that the name leads to now. A registry is asked once.
    ///
    /// # Errors
    /// [`Kind::NotFound`], [`Kind::Unauthorized`], and those of requests.
    pub fn digest(&self) -> Result<String> {
        let reference = self.session.reference();
        if let Some(digest) = reference.digest() {
            return Ok(digest.to_owned());
        }
        let mut found = self.found.lock();
        if let Some((digest, _)) = &*found {
            return Ok(digest.clone());
        }
        let (bytes, said) = self.fetch_manifest(reference.manifest())?;
        let sum: String = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let digest = format!("sha256:{sum}");
        let said = said.filter(|said| said.starts_with("sha256:") && is_digest(said));
        if said.is_some_and(|said| said != digest) {
            let text = format!("{reference}: the manifest does not have the digest that is said");
            return Err(Error::new(Kind::Damaged, text));
        }
        *found = Some((digest.clone(), bytes));
        Ok(digest)
    }

    /// A manifest by tag or digest, and the digest that the registry says.
    fn fetch_manifest(&self, of: &str) -> Result<(Vec<u8>, Option<String>)> {
        let headers = [("Accept", ACCEPT.to_owned())];
        self.fetched(&format!("manifests/{of}"), &headers, |answer| {
            let kind = answer.header("Content-Type").unwrap_or_default();
            if kind.contains(OLD) {
                let text = format!("manifests of the form {kind} are not read");
                return Err(Error::new(Kind::Unsupported, text));
            }
            let said = answer.header("Docker-Content-Digest").map(str::to_owned);
            Ok((once(answer.bytes(MANIFEST_MAX, "the manifest"))?, said))
        })
    }

    fn fetch_config(&self, digest: &str, size: u64) -> Result<Vec<u8>> {
        self.fetched(&format!("blobs/{digest}"), &[], |answer| {
            let bytes = once(answer.bytes(size.min(CONFIG_MAX), "the configuration"))?;
            match bytes.len() as u64 == size {
                true => Ok(bytes),
                false => Err(Error::new(
                    Kind::Unreachable,
                    "the configuration is cut off",
                )),
            }
        })
    }

    /// Fetches what `read` takes out of an answer. What cannot be reached is tried again.
    fn fetched<T>(
        &self,
        what: &str,
        headers: &[(&'static str, String)],
        read: impl Fn(Answer) -> Result<T>,
    ) -> Result<T> {
        let goes_on = || (self.progress)(0, 0);
        let mut tries = Tries::new(&goes_on);
        loop {
            match read(self.session.get(what, headers, &mut tries)?) {
                Err(error) if error.kind() == Kind::Unreachable => tries.again(&error, None)?,
                done => return done,
            }
        }
    }
}

impl RemoteImage for RegistryImage {
    fn describe(&self) -> String {
        format!("docker://{}", self.session.reference())
    }

    fn root(&self) -> archive::Result<String> {
        Ok(self.digest()?)
    }

    fn manifest(&self, digest: &str) -> archive::Result<Vec<u8>> {
        DigestSum::new(digest)?;
        let found = self.found.lock();
        if let Some((known, bytes)) = &*found
            && known == digest
        {
            return Ok(bytes.clone());
        }
        drop(found);
        let (bytes, _) = self.fetch_manifest(digest)?;
        Ok(bytes)
    }

    fn config(&self, digest: &str, size: u64) -> archive::Result<Vec<u8>> {
        DigestSum::new(digest)?;
        Ok(self.fetch_config(digest, size)?)
    }

    fn fetch(&self, layers: &[Blob]) -> archive::Result<Vec<Fetched>> {
        Ok(blobs::fetch(&self.session, &*self.progress, layers)?)
    }
}

/// An error of the crate `archive`: the registry's.
pub(crate) fn damaged(error: archive::Error) -> Error {
    Error::new(Kind::Damaged, error)
}
