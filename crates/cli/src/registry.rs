//! Images of registries as sources: `docker://HOST/NAME:TAG`.

use std::path::Path;

use throughline::archive::{Error, Merge};

use crate::problem::{Failure, Problem};
use crate::sources::Wanted;

/// What is in front of the name, as for skopeo.
pub(crate) const SCHEME: &str = "docker://";

/// The name of an image, if the source is one of a registry.
pub(crate) fn name(source: &Path) -> Option<&str> {
    source.to_str()?.strip_prefix(SCHEME)
}

/// Adds the image of that name.
#[cfg(feature = "registry")]
pub(crate) fn add(
    merge: &mut Merge,
    name: &str,
    wanted: &Wanted<'_>,
) -> Result<Result<(), Error>, Failure> {
    use throughline_registry::{Options, Reference, RegistryImage};

    use crate::progress::Progress;

    let reference: Reference = name
        .parse()
        .map_err(|error: throughline_registry::Error| Failure::Usage(error.to_string()))?;
    let progress = std::sync::Arc::new(Progress::bytes(Some(0), wanted.quiet));
    let (shown, interrupt) = (progress.clone(), wanted.interrupt.clone());
    let mut options = Options::new();
    options
        .tls_verify(!wanted.is_tls_unverified)
        .progress(move |done, of| {
            shown.at(done, of);
            interrupt.check().is_ok()
        });
    let added = RegistryImage::open(&reference, &options)
        .map_err(Error::from)
        .and_then(|image| merge.add_remote(&image));
    progress.clear();
    wanted.interrupt.check()?;
    Ok(added)
}

/// This build has no TLS.
#[cfg(not(feature = "registry"))]
pub(crate) fn add(
    _: &mut Merge,
    _: &str,
    wanted: &Wanted<'_>,
) -> Result<Result<(), Error>, Failure> {
    // Of use to the other only.
    let _ = (wanted.is_tls_unverified, &wanted.interrupt);
    Err(Failure::Usage(
        "docker:// is not in this build (the feature registry): 'skopeo copy docker://NAME \
         oci-archive:FILE' fetches an image"
            .to_owned(),
    ))
}

/// What to do next about an error of a registry.
#[cfg(feature = "registry")]
pub(crate) fn hinted(error: &Error, source: &Path, problem: Problem) -> Problem {
    use throughline_registry::{Kind, Reference};

    let Error::Caller(inner) = error else {
        return problem;
    };
    let Some(error) = inner.downcast_ref::<throughline_registry::Error>() else {
        return problem;
    };
    let reference = name(source).and_then(|name| name.parse::<Reference>().ok());
    let host = reference
        .as_ref()
        .map_or("HOST", |reference| reference.host());
    let next = match error.kind() {
        Kind::Unauthorized => format!(
            "check the name, and log in: 'skopeo login {host}', 'podman login {host}' or \
             'docker login {host}'"
        ),
        Kind::NotFound => {
            let name = reference
                .as_ref()
                .map_or("NAME", |reference| reference.name());
            format!("check the name and the tag: skopeo list-tags docker://{host}/{name}")
        }
        Kind::Unreachable => {
            "check the host, the network, and the proxy (https_proxy, no_proxy)".to_owned()
        }
        Kind::Certificate => {
            "SSL_CERT_FILE names a file with the certificate of its authority; --tls-verify=false does not \
             verify it"
                .to_owned()
        }
        Kind::Plain => "--tls-verify=false accepts a registry without TLS".to_owned(),
        Kind::Local => "TMPDIR names another directory for temporary files".to_owned(),
        _ => return problem,
    };
    problem.with_next(next)
}

#[cfg(not(feature = "registry"))]
pub(crate) fn hinted(_: &Error, _: &Path, problem: Problem) -> Problem {
    problem
}
