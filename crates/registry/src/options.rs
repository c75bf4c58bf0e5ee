//! How an image is fetched.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::credentials::CredentialFiles;

/// Called with the bytes of layers that were fetched, and all; `false` stops.
pub(crate) type Progress = dyn Fn(u64, u64) -> bool + Send + Sync;

/// See [`Options::silence`].
const SILENCE: Duration = Duration::from_secs(30);

/// How an image is fetched. By default: with the credentials of the user, and with TLS except from this
/// machine.
#[derive(Clone)]
pub struct Options {
    pub(crate) tls_verify: bool,
    pub(crate) files: CredentialFiles,
    pub(crate) progress: Arc<Progress>,
    pub(crate) silence: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            tls_verify: true,
            files: CredentialFiles::of_user(),
            progress: Arc::new(|_, _| true),
            silence: SILENCE,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Options");
        shown.field("tls_verify", &self.tls_verify);
        shown.field("files", &self.files);
        shown
            .field("silence", &self.silence)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// Whether certificates are verified. Without, a registry without TLS is accepted, too: whoever is
    /// between it and this machine reads and changes what is sent, except for what has a digest.
    pub fn tls_verify(&mut self, verify: bool) -> &mut Options {
        self.tls_verify = verify;
        self
    }

    /// Where credentials are looked for.
    pub fn credentials(&mut self, files: CredentialFiles) -> &mut Options {
        self.files = files;
        self
    }

    /// How long a registry may send nothing before the connection counts as broken. Default: 30 s.
    pub fn silence(&mut self, longest: Duration) -> &mut Options {
        self.silence = longest;
        self
    }

    /// Called with the bytes of layers that were fetched so far, and all of them. If it returns `false`, the
    /// call ends with [`Kind::Stopped`](crate::Kind::Stopped). It is called by several threads.
    pub fn progress(
        &mut self,
        progress: impl Fn(u64, u64) -> bool + Send + Sync + 'static,
    ) -> &mut Options {
        self.progress = Arc::new(progress);
        self
    }
}
