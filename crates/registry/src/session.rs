//! Requests to the registry of an image, with what authorizes them.

use throughline_locks::Mutex;

use crate::address::is_loopback;
use crate::challenge::Challenge;
use crate::credentials::{CredentialFiles, Credentials};
use crate::error::{Error, Kind, Result};
use crate::http::{Answer, Failed, Http, once};
use crate::options::Options;
use crate::reference::Reference;
use crate::retry::Tries;
use crate::token::{said, token};

/// See the module's head.
pub(crate) struct Session {
    http: Http,
    reference: Reference,
    files: CredentialFiles,
    /// Scheme and host.
    base: String,
    /// The header that requests need, once that is known.
    authorization: Mutex<Option<String>>,
}

impl Session {
    /// Finds out how the registry is reached.
    pub(crate) fn new(reference: &Reference, options: &Options) -> Result<Session> {
        let tls_verify = options.tls_verify;
        let http = Http::new(tls_verify, options.silence);
        let server = reference.server();
        let mut base = format!("https://{server}");
        if is_loopback(server) || !tls_verify {
            match http.get(&format!("{base}/v2/"), &[], None) {
                Err(Failed::Final(error)) if error.kind() == Kind::Plain => {
                    base = format!("http://{server}");
                }
                Err(Failed::Final(error)) => return Err(error),
                // A server that does not know TLS may also just hang up.
                Err(Failed::Broken(_)) => {
                    once(http.get(&format!("http://{server}/v2/"), &[], None))?;
                    base = format!("http://{server}");
                }
                Ok(_) => {}
            }
        }
        Ok(Session {
            http,
            reference: reference.clone(),
            files: options.files.clone(),
            base,
            authorization: Mutex::new(None),
        })
    }

    pub(crate) fn reference(&self) -> &Reference {
        &self.reference
    }

    /// Asks for something of the image: `manifests/latest`. Credentials are looked for when they are needed.
    pub(crate) fn get(
        &self,
        what: &str,
        headers: &[(&str, String)],
        tries: &mut Tries<'_>,
    ) -> Result<Answer> {
        let url = format!("{}/v2/{}/{what}", self.base, self.reference.name());
        let mut is_new = false;
        loop {
            let known = self.authorization();
            let answer = tries.ask(|| self.http.get(&url, headers, known.as_deref()))?;
            match answer.status {
                200 | 206 => return Ok(answer),
                401 if !is_new => {
                    self.authorize(&answer, known, tries)?;
                    is_new = true;
                }
                401 | 403 => {
                    let (status, said) = (answer.status, said(answer));
                    let text = format!(
                        "{} does not let {} be read (status {status}{said})",
                        self.reference.host(),
                        self.reference.name(),
                    );
                    return Err(Error::new(Kind::Unauthorized, text));
                }
                404 => {
                    let text = format!(
                        "{} has no such image{}",
                        self.reference.host(),
                        said(answer)
                    );
                    return Err(Error::new(Kind::NotFound, text));
                }
                status => {
                    let text = format!(
                        "{} answered with status {status}{}",
                        self.reference.host(),
                        said(answer)
                    );
                    return Err(Error::new(Kind::Damaged, text));
                }
            }
        }
    }

    fn authorization(&self) -> Option<String> {
        self.authorization.lock().clone()
    }

    /// Gets what the registry asks for, unless another thread did so since `used` was.
    fn authorize(
        &self,
        answer: &Answer,
        used: Option<String>,
        tries: &mut Tries<'_>,
    ) -> Result<()> {
        let mut known = self.authorization.lock();
        if *known != used {
            return Ok(());
        }
        let headers = answer.headers.get_all("WWW-Authenticate").iter();
        let headers = headers.filter_map(|value| value.to_str().ok());
        let challenges: Vec<Challenge> = headers.flat_map(Challenge::parse).collect();
        let of = |scheme: &str| challenges.iter().find(|found| found.scheme == scheme);
        let host = self.reference.host();
        let credentials = self.files.find(&self.reference)?;
        let made = if let Some(bearer) = of("bearer") {
            let scope = format!("repository:{}:pull", self.reference.name());
            let got = token(&self.http, bearer, &scope, credentials.as_ref(), tries)?;
            format!("Bearer {got}")
        } else if of("basic").is_some() {
            let basic = credentials.as_ref().and_then(Credentials::basic);
            basic.ok_or_else(|| {
                let text = format!("{host} asks for a user and a password, and there are none");
                Error::new(Kind::Unauthorized, text)
            })?
        } else {
            let text = format!("{host} asks for a kind of login that is not known");
            return Err(Error::new(Kind::Unsupported, text));
        };
        *known = Some(made);
        Ok(())
    }
}
