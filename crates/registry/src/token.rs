//! Tokens, as registries give them out for a user or for anyone
//! (<https://distribution.github.io/distribution/spec/auth/token/>).

use serde::Deserialize;

use crate::address::{encoded, is_url};
use crate::challenge::Challenge;
use crate::credentials::Credentials;
use crate::error::{Error, Kind, Result, shown};
use crate::http::{Answer, Failed, Http, host, once};
use crate::retry::Tries;

/// A token with what is around it is not larger.
const ANSWER_MAX: u64 = 1 << 20;
/// What is said of us to a server of tokens.
const CLIENT: &str = "throughline";

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// Gets a token for what the challenge asks for.
pub(crate) fn token(
    http: &Http,
    challenge: &Challenge,
    scope: &str,
    credentials: Option<&Credentials>,
    tries: &mut Tries<'_>,
) -> Result<String> {
    let realm = challenge.get("realm").unwrap_or_default();
    if !is_url(realm) {
        let text = "the registry asks for a token, and does not say where to get it";
        return Err(Error::new(Kind::Damaged, text));
    }
    let service = challenge.get("service").unwrap_or_default();
    let scope = challenge.get("scope").unwrap_or(scope);
    let answer = tries.ask(|| match credentials {
        Some(Credentials::IdentityToken(token)) => http.post(
            realm,
            &[
                ("grant_type", "refresh_token"),
                ("service", service),
                ("client_id", CLIENT),
                ("scope", scope),
                ("refresh_token", token),
            ],
        ),
        Some(Credentials::Password { .. }) | None => {
            let separator = if realm.contains('?') { '&' } else { '?' };
            let mut url = format!("{realm}{separator}scope={}", encoded(scope));
            if !service.is_empty() {
                url += &format!("&service={}", encoded(service));
            }
            let basic = credentials.and_then(Credentials::basic);
            http.get(&url, &[], basic.as_deref())
        }
    })?;
    let status = answer.status;
    let from = host(realm);
    if status != 200 {
        let said = said(answer);
        let what = match credentials {
            Some(_) => "does not accept the credentials",
            None => "gives no token without credentials",
        };
        return Err(Error::new(
            Kind::Unauthorized,
            format!("{from} {what} (status {status}{said})"),
        ));
    }
    let bytes = once(answer.bytes(ANSWER_MAX, "a token"))?;
    let token = serde_json::from_slice::<Token>(&bytes).ok();
    let token = token.and_then(|token| token.token.or(token.access_token));
    token
        .filter(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()))
        .ok_or_else(|| {
            let text = format!("{from} answered with something that is no token");
            Error::new(Kind::Damaged, text)
        })
}

/// What the body of an error says, for a message.
pub(crate) fn said(answer: Answer) -> String {
    #[derive(Deserialize)]
    struct Errors {
        #[serde(default)]
        errors: Vec<One>,
        #[serde(default)]
        details: String,
    }
    #[derive(Deserialize)]
    struct One {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let bytes: std::result::Result<_, Failed> = answer.bytes(ANSWER_MAX, "an error");
    let parsed = bytes
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Errors>(&bytes).ok());
    let Some(errors) = parsed else {
        return String::new();
    };
    let text = match errors.errors.first() {
        Some(one) if one.message.is_empty() => &one.code,
        Some(one) => &one.message,
        None => &errors.details,
    };
    match shown(text) {
        text if text.is_empty() => text,
        text => format!(": {text}"),
    }
}
