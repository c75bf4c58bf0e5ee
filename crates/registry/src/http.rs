//! One request: time limits, and redirects.

use std::io::Read;
use std::time::{Duration, Instant};

use throughline_web::{Proxies, Trust};
use ureq::http::HeaderMap;
use ureq::{Agent, Body, Proxy};

use crate::address::{host_of, is_loopback, origin, resolve};
use crate::error::{Error, Kind, Result};

const CONNECT: Duration = Duration::from_secs(20);
/// Until an answer begins.
const ANSWER: Duration = Duration::from_secs(60);
/// Until all of a document is there.
const DOCUMENT: Duration = Duration::from_secs(120);
/// Until a layer is there, or is continued on another connection.
const BODY: Duration = Duration::from_secs(3600);
const REDIRECTS_MAX: usize = 8;
/// Connections that are kept for each host.
const IDLE_MAX: usize = 4;

/// Requests.
pub(crate) struct Http {
    agent: Agent,
    proxies: Proxies,
    pub(crate) tls_verify: bool,
}

/// What a server answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

/// Why there is no answer.
pub(crate) enum Failed {
    /// It may go better the next time.
    Broken(String),
    Final(Error),
}

impl Http {
    pub(crate) fn new(tls_verify: bool, silence: Duration) -> Http {
        let trust = Trust {
            verify: tls_verify,
            ..Trust::default()
        };
        let config = throughline_web::agent(trust)
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .timeout_per_read(Some(silence))
            .timeout_recv_body(Some(BODY))
            .max_idle_connections_per_host(IDLE_MAX);
        Http {
            agent: Agent::new_with_config(config.build()),
            proxies: Proxies::of_env(),
            tls_verify,
        }
    }

    /// Asks for a URL, and follows redirects. `authorization` does not go to another host, port or scheme
    /// than that of the URL.
    pub(crate) fn get(
        &self,
        url: &str,
        headers: &[(&str, String)],
        authorization: Option<&str>,
    ) -> std::result::Result<Answer, Failed> {
        let mut authorization = authorization;
        let mut at = url.to_owned();
        for _ in 0..=REDIRECTS_MAX {
            self.check(url, &at)?;
            let request = self.agent.get(&at).config();
            let mut request = request.proxy(self.proxy(&at)).build();
            for (name, value) in headers {
                request = request.header(*name, value);
            }
            if let Some(authorization) = authorization {
                request = request.header("Authorization", authorization);
            }
            let answer = request.call().map_err(|error| failed(&at, error))?;
            let status = answer.status().as_u16();
            let location = answer.headers().get("Location");
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                return Ok(of(answer));
            }
            let next = location.and_then(|to| resolve(&at, to.to_str().ok()?));
            let Some(next) = next else {
                let text = format!("{} redirects to nowhere", host(&at));
                return Err(Failed::Final(Error::new(Kind::Damaged, text)));
            };
            if origin(&next) != origin(&at) {
                authorization = None;
            }
            at = next;
        }
        let text = format!("{} redirects more than {REDIRECTS_MAX} times", host(url));
        Err(Failed::Final(Error::new(Kind::Damaged, text)))
    }

    /// Sends a form.
    pub(crate) fn post(
        &self,
        url: &str,
        form: &[(&str, &str)],
    ) -> std::result::Result<Answer, Failed> {
        self.check(url, url)?;
        let request = self.agent.post(url).config();
        let request = request.proxy(self.proxy(url)).build();
        let sent = request.send_form(form.iter().copied());
        sent.map(of).map_err(|error| failed(url, error))
    }

    /// None leads to this machine.
    fn proxy(&self, url: &str) -> Option<Proxy> {
        let (scheme, authority) = origin(url);
        match is_loopback(&authority) {
            true => None,
            false => self.proxies.of(scheme, host_of(&authority)),
        }
    }

    /// Refuses a place without TLS, unless it is this machine and so was the start.
    fn check(&self, first: &str, at: &str) -> std::result::Result<(), Failed> {
        let (scheme, authority) = origin(at);
        let (from, from_authority) = origin(first);
        let is_local = is_loopback(&authority) && from == "http" && is_loopback(&from_authority);
        if scheme == "https" || is_local || !self.tls_verify {
            return Ok(());
        }
        let text = format!("{authority} is to be asked without TLS");
        Err(Failed::Final(Error::new(Kind::Plain, text)))
    }
}

fn of(answer: ureq::http::Response<Body>) -> Answer {
    let (parts, body) = answer.into_parts();
    Answer {
        status: parts.status.as_u16(),
        headers: parts.headers,
        body,
    }
}

/// The host of a URL, for messages.
pub(crate) fn host(url: &str) -> String {
    origin(url).1
}

fn failed(url: &str, error: ureq::Error) -> Failed {
    let at = host(url);
    let tls = match &error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>()),
        _ => None,
    };
    match (tls, &error) {
        (Some(rustls::Error::InvalidCertificate(why)), _) => {
            let text = format!("the certificate of {at} is not trusted: {why}");
            Failed::Final(Error::new(Kind::Certificate, text))
        }
        (Some(rustls::Error::InvalidMessage(_)), _) => {
            let text = format!("{at} does not speak TLS");
            Failed::Final(Error::new(Kind::Plain, text))
        }
        (None, ureq::Error::HostNotFound) => {
            let text = format!("there is no host {at}");
            Failed::Final(Error::new(Kind::Unreachable, text))
        }
        (None, ureq::Error::BadUri(_) | ureq::Error::Http(_)) => {
            Failed::Final(Error::new(Kind::Damaged, format!("{at}: {error}")))
        }
        (None, ureq::Error::Io(error)) => Failed::Broken(format!("{at}: {}", words(error))),
        _ => Failed::Broken(format!("{at}: {error}")),
    }
}

/// The text of an error without its number.
pub(crate) fn words(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// All of the body; an error if it is longer than it may be.
    pub(crate) fn bytes(self, most: u64, what: &str) -> std::result::Result<Vec<u8>, Failed> {
        let mut bytes = Vec::new();
        // The length that is announced tells whether the end is the end.
        let announced = self.body.content_length();
        let reader = self.body.into_with_config().limit(u64::MAX).reader();
        let mut reader = reader.take(most + 1);
        let (begun, mut chunk) = (Instant::now(), [0; 16 << 10]);
        loop {
            let read = reader.read(&mut chunk);
            match read.map_err(|error| Failed::Broken(format!("{what}: {}", words(&error))))? {
                0 => break,
                read => bytes.extend_from_slice(&chunk[..read]),
            }
            if begun.elapsed() > DOCUMENT {
                return Err(Failed::Broken(format!("{what}: it is too slow")));
            }
        }
        if bytes.len() as u64 > most {
            let text = format!("{what}: more than {most} bytes");
            return Err(Failed::Final(Error::new(Kind::Limit, text)));
        }
        if announced.is_some_and(|announced| announced != bytes.len() as u64) {
            return Err(Failed::Broken(format!("{what}: the connection broke")));
        }
        Ok(bytes)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Final(error)
    }
}

/// The result of a request that is not repeated.
pub(crate) fn once<T>(result: std::result::Result<T, Failed>) -> Result<T> {
    result.map_err(|failed| match failed {
        Failed::Final(error) => error,
        Failed::Broken(text) => Error::new(Kind::Unreachable, text),
    })
}
