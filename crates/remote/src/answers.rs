//! [`Checking`]: responses with a status of failure become errors of a type, as `object_store` does not
//! export the types of its own.
//!
//! Some are passed on: those for which `object_store` has public errors, and those after which it tries
//! another way.

use async_trait::async_trait;
use futures_util::StreamExt;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use percent_encoding::percent_decode_str;
use ureq::http::header::RANGE;
use ureq::http::{Method, Uri};

/// The most that is read of the body of such a response.
const BODY_MAX: usize = 16 << 10;
/// The most characters of it that are shown.
const SHOWN_MAX: usize = 200;

/// A response with a status of failure.
#[derive(Debug, thiserror::Error)]
#[error("status {status} {said}")]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// The code that the store has for it, such as `ExpiredToken`.
    pub(crate) code: Option<String>,
    /// Whether it is about the object or an upload to it, and not about credentials.
    pub(crate) is_of_object: bool,
    said: String,
}

/// The answer to a request for a part is the whole object.
#[derive(Debug, thiserror::Error)]
#[error("the whole object was sent, not the part that was asked for")]
pub(crate) struct Whole;

/// A client whose answers are checked.
#[derive(Debug)]
pub(crate) struct Checking {
    client: HttpClient,
    /// Of the object, not encoded.
    path: String,
}

impl Checking {
    pub(crate) fn new(client: HttpClient, path: &str) -> Checking {
        Checking {
            client,
            path: path.to_owned(),
        }
    }

    fn is_of_object(&self, uri: &Uri) -> bool {
        let path: Vec<u8> = percent_decode_str(uri.path()).collect();
        path.ends_with(self.path.as_bytes())
    }
}

#[async_trait]
impl HttpService for Checking {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let is_of_part = request.headers().contains_key(RANGE);
        let is_of_object = self.is_of_object(request.uri());
        let is_of_upload = is_of_upload(request.uri());
        let is_put = request.method() == Method::PUT;
        let response = self.client.execute(request).await?;
        let status = response.status().as_u16();
        let is_left = match status {
            200 if is_of_part => {
                return Err(HttpError::new(HttpErrorKind::Unknown, Whole));
            }
            0..=399 => true,
            // An older service for credentials is asked after this answer of the newer one.
            403 if is_put && !is_of_object => true,
            401 | 403 | 404 | 409 | 412 => is_of_object && !is_of_upload,
            _ => false,
        };
        match is_left {
            true => Ok(response),
            false => Err(refusal(response, is_of_object).await),
        }
    }
}

/// Whether a request is a step of an upload in parts, whose answers `object_store` does not tell apart.
fn is_of_upload(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    let names = query.split('&').filter_map(|part| part.split('=').next());
    names
        .into_iter()
        .any(|name| matches!(name, "uploads" | "uploadId" | "comp"))
}

async fn refusal(response: HttpResponse, is_of_object: bool) -> HttpError {
    let (head, body) = response.into_parts();
    let body = beginning(body).await;
    let code = head.headers.get("x-ms-error-code");
    let code = code.and_then(|code| code.to_str().ok()).or_else(|| {
        let (_, rest) = body.split_once("<Code>")?;
        Some(rest.split_once("</Code>")?.0)
    });
    let status = head.status.as_u16();
    let kind = match status {
        500.. => HttpErrorKind::Request,
        _ => HttpErrorKind::Unknown,
    };
    let refusal = Refusal {
        status,
        code: code.map(str::to_owned),
        is_of_object,
        said: body.chars().take(SHOWN_MAX).collect(),
    };
    HttpError::new(kind, refusal)
}

/// The first bytes of a body, as far as they arrive.
async fn beginning(body: HttpResponseBody) -> String {
    let mut parts = body.bytes_stream();
    let mut bytes = Vec::new();
    while bytes.len() < BODY_MAX {
        match parts.next().await {
            Some(Ok(part)) => bytes.extend_from_slice(&part),
            _ => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;
    use crate::failure::{Attempt, Failure};

    #[derive(Debug)]
    struct Answering(u16, &'static str);

    #[async_trait]
    impl HttpService for Answering {
        async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            let mut response = HttpResponse::new(self.1.to_owned().into());
            *response.status_mut() = self.0.try_into().unwrap();
            Ok(response)
        }
    }

    /// The answer to a request, as `object_store` wraps it; `None` if it is left to it.
    fn asked(method: Method, at: &str, answer: Answering) -> Option<Attempt> {
        let checking = Checking::new(HttpClient::new(answer), "a b/disk.img");
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method;
        *request.uri_mut() = format!("http://host{at}").parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let reply = runtime.unwrap().block_on(checking.call(request));
        let source = Box::new(reply.err()?);
        Some(
            object_store::Error::Generic {
                store: "S3",
                source,
            }
            .into(),
        )
    }

    #[test]
    fn what_answers_mean() {
        const OBJECT: &str = "/bucket/a%20b/disk.img";
        const UPLOAD: &str = "/bucket/a%20b/disk.img?partNumber=1&uploadId=x";
        const ROLE: &str = "/latest/credentials";
        let answer = |method, at, status| asked(method, at, Answering(status, ""));
        for status in [200, 206, 304, 401, 403, 404, 409, 412] {
            assert!(answer(Method::GET, OBJECT, status).is_none(), "{status}");
        }
        assert!(answer(Method::PUT, ROLE, 403).is_none());
        for (at, status) in [(OBJECT, 500), (OBJECT, 503), (UPLOAD, 429), (ROLE, 408)] {
            let found = answer(Method::GET, at, status);
            assert!(matches!(found, Some(Attempt::Again(_))), "{status}");
        }
        type Is = fn(&Failure) -> bool;
        let cases: [(Method, &str, u16, Is); 8] = [
            (Method::GET, OBJECT, 400, |it| {
                matches!(it, Failure::Refused(_))
            }),
            (Method::GET, OBJECT, 416, |it| {
                matches!(it, Failure::Refused(_))
            }),
            (Method::GET, ROLE, 404, |it| {
                matches!(it, Failure::Refused(_))
            }),
            (Method::GET, ROLE, 403, |it| {
                matches!(it, Failure::Refused(_))
            }),
            (Method::PUT, UPLOAD, 403, |it| {
                matches!(it, Failure::Denied(_))
            }),
            (Method::PUT, UPLOAD, 404, |it| {
                matches!(it, Failure::NotFound)
            }),
            (Method::POST, UPLOAD, 409, |it| {
                matches!(it, Failure::Exists)
            }),
            (Method::POST, UPLOAD, 412, |it| {
                matches!(it, Failure::Replaced(_))
            }),
        ];
        for (method, at, status, is) in cases {
            match answer(method, at, status) {
                Some(Attempt::Final(failure)) => assert!(is(&failure), "{status}: {failure}"),
                other => panic!("{status}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_code_is_an_element_and_not_a_word() {
        let said = |text| asked(Method::GET, "/bucket/a%20b/disk.img", Answering(400, text));
        let expired = said("<Error><Code>ExpiredToken</Code><Message>late</Message></Error>");
        assert!(matches!(expired, Some(Attempt::Final(Failure::Denied(_)))));
        let other = said("<Error><Code>Other</Code><Message>no ExpiredToken</Message></Error>");
        assert!(matches!(other, Some(Attempt::Final(Failure::Refused(_)))));
    }
}
