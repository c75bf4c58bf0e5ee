//! [`Connector`]: the HTTP client of all stores, which follows redirects itself.
//!
//! A library would send the next server headers that authorize a request under names that it does not know
//! (`x-amz-security-token`), or the URL that redirected, with its signature (`Referer`).
//!
//! Invariants:
//! - What authorizes a request goes to the origin (scheme, host and port) of its own URL alone. To another
//!   one, and to all after that, go the headers of [`HARMLESS`], and nothing else.
//! - A request that carries data is not redirected.

use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpService,
};
use object_store::path::Path;
use object_store::{ClientConfigKey, ClientOptions};
use percent_encoding::percent_decode_str;
use throughline_web::{Proxies, Trust};
use ureq::Proxy;
use ureq::http::Method;
use ureq::http::header::{
    ACCEPT, AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LOCATION, RANGE, USER_AGENT,
};
use ureq::tls::Certificate;
use url::Url;

use crate::answers::Checking;
use crate::connections::{Connections, PIECE_BYTES};

/// The headers that another server may see.
const HARMLESS: [HeaderName; 7] = [
    ACCEPT,
    RANGE,
    IF_MATCH,
    IF_NONE_MATCH,
    IF_MODIFIED_SINCE,
    IF_UNMODIFIED_SINCE,
    USER_AGENT,
];
/// As many as browsers follow, or fewer.
const REDIRECTS_MAX: usize = 10;
/// How long a connection is kept for the next request.
const IDLE: Duration = Duration::from_secs(90);
/// The longest silence. Who waits bounds a reply, as its time depends on its length.
const SILENT: Duration = Duration::from_secs(3600);

/// Makes such clients.
#[derive(Debug)]
pub(crate) struct Connector {
    authorization: Option<HeaderValue>,
    /// Of the object.
    path: String,
}

impl Connector {
    /// For a store that is told who asks in its own way.
    pub(crate) fn new(path: &Path) -> Connector {
        Connector {
            authorization: None,
            path: path.to_string(),
        }
    }

    /// For a store whose requests all go to the origin of this URL: with the user and the password in it.
    pub(crate) fn of(url: &Url, path: &Path) -> Connector {
        let mut connector = Connector::new(path);
        if url.username().is_empty() && url.password().is_none() {
            return connector;
        }
        let mut both: Vec<u8> = percent_decode_str(url.username()).collect();
        both.push(b':');
        both.extend(percent_decode_str(url.password().unwrap_or_default()));
        let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(both))).ok();
        if let Some(value) = &mut value {
            value.set_sensitive(true);
        }
        connector.authorization = value;
        connector
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let following = Following {
            client: HttpClient::new(connections(options)?),
            authorization: self.authorization.clone(),
        };
        let client = HttpClient::new(following);
        Ok(HttpClient::new(Checking::new(client, &self.path)))
    }
}

/// The connections to a store, with the settings that the environment may have.
fn connections(options: &ClientOptions) -> object_store::Result<Connections> {
    let text = |key| options.get_config_value(&key);
    let is_set = |key| text(key).is_some_and(|value| is_true(&value));
    let time = |key| text(key).map(|value| parse_time(&value)).transpose();
    if is_set(ClientConfigKey::Http2Only) {
        return Err(failed(Astray(
            "HTTP/2 alone is asked for: only HTTP/1.1 is spoken",
        )));
    }
    let mut trust = Trust {
        verify: !is_set(ClientConfigKey::AllowInvalidCertificates),
        system: !is_set(ClientConfigKey::NoSystemCertificates),
        more: Vec::new(),
    };
    let mut proxies = Proxies::of_env();
    if let Some(url) = text(ClientConfigKey::ProxyUrl) {
        let proxy = Proxy::new(&url).map_err(failed)?;
        let without = text(ClientConfigKey::ProxyExcludes);
        proxies = Proxies::one(proxy, &without.unwrap_or_default());
        if let Some(certificate) = text(ClientConfigKey::ProxyCaCertificate) {
            let certificate = Certificate::from_pem(certificate.as_bytes());
            trust.more.push(certificate.map_err(failed)?);
        }
    }
    let connect = time(ClientConfigKey::ConnectTimeout)?;
    let mut config = throughline_web::agent(trust)
        .https_only(!is_set(ClientConfigKey::AllowHttp))
        .max_idle_connections(1)
        .input_buffer_size(PIECE_BYTES)
        .output_buffer_size(PIECE_BYTES)
        .max_idle_age(time(ClientConfigKey::PoolIdleTimeout)?.unwrap_or(IDLE))
        .timeout_global(time(ClientConfigKey::Timeout)?)
        .timeout_resolve(connect)
        .timeout_connect(connect)
        .timeout_per_read(Some(time(ClientConfigKey::ReadTimeout)?.unwrap_or(SILENT)))
        .timeout_per_write(Some(SILENT));
    if let Some(name) = text(ClientConfigKey::UserAgent) {
        config = config.user_agent(name);
    }
    Ok(Connections::new(config.build(), proxies))
}

/// As `object_store` reads them.
fn is_true(value: &str) -> bool {
    ["1", "true", "on", "yes", "y"].contains(&&*value.to_ascii_lowercase())
}

fn parse_time(value: &str) -> object_store::Result<Duration> {
    humantime::parse_duration(value).map_err(failed)
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> object_store::Error {
    object_store::Error::Generic {
        store: "HTTP client",
        source: Box::new(error),
    }
}

#[derive(Debug)]
struct Following {
    /// Follows nothing itself.
    client: HttpClient,
    authorization: Option<HeaderValue>,
}

#[async_trait]
impl HttpService for Following {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(authorization) = &self.authorization {
            let headers = request.headers_mut();
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let method = request.method().clone();
        if !matches!(method, Method::GET | Method::HEAD) || request.body().content_length() > 0 {
            return self.client.execute(request).await;
        }
        let mut at = Url::parse(&request.uri().to_string()).map_err(astray)?;
        let mut headers = request.headers().clone();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.client.execute(request).await?;
            let Some(next) = target(&at, &response)? else {
                return Ok(response);
            };
            if origin(&next) != origin(&at) {
                headers = harmless(&headers);
            }
            at = next;
            request = HttpRequest::new(HttpRequestBody::empty());
            *request.method_mut() = method.clone();
            *request.uri_mut() = at.as_str().parse().map_err(astray)?;
            *request.headers_mut() = headers.clone();
        }
        Err(astray(Astray("it redirects too often")))
    }
}

/// Where a response redirects to, if it does.
fn target(at: &Url, response: &HttpResponse) -> Result<Option<Url>, HttpError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(to) = response.headers().get(LOCATION) else {
        return Ok(None);
    };
    let next = to.to_str().ok().and_then(|to| at.join(to).ok());
    let next = next.filter(|next| matches!(next.scheme(), "http" | "https"));
    let mut next = next.ok_or_else(|| astray(Astray("it redirects to no address of HTTP")))?;
    // A server has no password to give.
    let _ = next.set_username("");
    let _ = next.set_password(None);
    next.set_fragment(None);
    Ok(Some(next))
}

fn origin(url: &Url) -> (&str, Option<&str>, Option<u16>) {
    (url.scheme(), url.host_str(), url.port_or_known_default())
}

fn harmless(headers: &HeaderMap) -> HeaderMap {
    let may_go = HARMLESS.into_iter();
    may_go
        .filter_map(|name| Some((name.clone(), headers.get(name)?.clone())))
        .collect()
}

/// A redirect that is not followed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Astray(&'static str);

fn astray(error: impl std::error::Error + Send + Sync + 'static) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_a_password_are_decoded_and_not_shown() {
        for (url, value) in [
            ("https://user:word@h/x", Some("Basic dXNlcjp3b3Jk")),
            ("https://u%40x:p%3A%2F@h/x", Some("Basic dUB4OnA6Lw==")),
            ("https://token@h/x", Some("Basic dG9rZW46")),
            ("https://h/x?a=1", None),
        ] {
            let connector = Connector::of(&Url::parse(url).unwrap(), &Path::from("x"));
            let header = connector.authorization.as_ref();
            assert_eq!(header.and_then(|it| it.to_str().ok()), value, "{url}");
            assert!(!format!("{connector:?}").contains("Basic"));
        }
    }
}
