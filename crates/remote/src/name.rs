//! [`ObjectName`]: the URL of an object.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use url::Url;

use crate::secrets;

/// The schemes, in lower case.
const SCHEMES: [&str; 5] = ["s3", "gs", "az", "https", "http"];

/// What stands for a query that is not shown.
const HIDDEN: &str = "...";

/// The URL of an object. It is shown without a query and without a user's name and password, as these hold
/// credentials.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectName {
    url: Url,
}

/// A text that does not name an object.
#[derive(Clone, Debug, thiserror::Error)]
#[error("not the name of an object: write s3://BUCKET/KEY, gs://, az:// or https://")]
pub struct NotAnObject;

impl ObjectName {
    /// The length of the scheme and its `://` at the beginning of a name; `None` if it is no name of an
    /// object.
    pub fn scheme_bytes(name: &[u8]) -> Option<usize> {
        let schemes = SCHEMES.iter();
        let mut lengths = schemes.filter_map(|scheme| {
            let (begin, rest) = name.split_at_checked(scheme.len())?;
            let is_it = begin.eq_ignore_ascii_case(scheme.as_bytes()) && rest.starts_with(b"://");
            is_it.then(|| scheme.len().saturating_add(3))
        });
        lengths.next()
    }

    /// The object that a path names; `None` for a path on the host.
    ///
    /// # Errors
    /// [`NotAnObject`] if it begins as the name of an object, but is none.
    pub fn of_path(path: &Path) -> Option<Result<ObjectName, NotAnObject>> {
        use std::os::unix::ffi::OsStrExt;

        let bytes = path.as_os_str().as_bytes();
        ObjectName::scheme_bytes(bytes)?;
        let text = std::str::from_utf8(bytes).map_err(|_| NotAnObject);
        Some(text.and_then(str::parse))
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Its URL with the secrets that the environment has for it, if this one is that without.
    pub fn whole(&self) -> Option<String> {
        let whole = secrets::whole(self).ok()?;
        (whole != *self).then(|| whole.url.to_string())
    }

    /// Whether it has what is not shown of it.
    pub(crate) fn has_secret(&self) -> bool {
        has_secret(&self.url)
    }
}

impl FromStr for ObjectName {
    type Err = NotAnObject;

    fn from_str(text: &str) -> Result<ObjectName, NotAnObject> {
        ObjectName::scheme_bytes(text.as_bytes()).ok_or(NotAnObject)?;
        let mut url = Url::parse(text).map_err(|_| NotAnObject)?;
        url.set_fragment(None);
        let has_key = !url.path().trim_matches('/').is_empty();
        match url.host_str() {
            Some(host) if !host.is_empty() && has_key => Ok(ObjectName { url }),
            _ => Err(NotAnObject),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.url))
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A URL without what may be secret in it.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Neither fails for a URL with a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.to_string()
}

fn has_secret(url: &Url) -> bool {
    let has_query = |query: &str| !query.is_empty() && query != HIDDEN;
    !url.username().is_empty() || url.password().is_some() || url.query().is_some_and(has_query)
}

/// Where the URL begins whose `://` is at this place of a text.
fn beginning(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    let is_of_scheme = |one: char| one.is_ascii_alphanumeric() || "+-.".contains(one);
    before.trim_end_matches(is_of_scheme).len()
}

/// A text for people in which no URL has what may be secret in it. A URL ends there where a word does.
pub fn without_secrets(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, tail) = rest.split_at(beginning(rest, at));
        clean.push_str(before);
        let is_end = |one: char| one.is_whitespace() || matches!(one, '"' | '\'' | '<' | '>' | ')');
        let (address, after) = tail.split_at(tail.find(is_end).unwrap_or(tail.len()));
        match Url::parse(address) {
            Ok(url) if has_secret(&url) => clean.push_str(&shown(&url)),
            Err(_) if address.contains(['@', '?']) => clean.push_str("(address)"),
            _ => clean.push_str(address),
        }
        rest = after;
    }
    clean.push_str(rest);
    clean
}

/// A word of a command line without what may be secret in URLs, wherever these are in it; `None` if there is
/// nothing. All behind a `?` is left out, as a query may hold anything.
pub fn word_without_secrets(word: &str) -> Option<String> {
    let first = word.find("://")?;
    let query = word
        .get(first..)?
        .find('?')
        .map(|at| first.saturating_add(at));
    let (mut rest, query) = word.split_at(query.unwrap_or(word.len()));
    let mut clean = String::with_capacity(word.len());
    let mut is_changed = !matches!(query.strip_prefix('?'), None | Some("" | HIDDEN));
    while let Some(at) = rest.find("://") {
        let begin = beginning(rest, at);
        let address = rest.get(begin..).unwrap_or_default();
        if address.contains('@') && Url::parse(address).is_err() {
            // Such as a password with a slash: where it ends is not known.
            clean.push_str(rest.get(..begin).unwrap_or_default());
            clean.push_str("(address)");
            return Some(clean);
        }
        let (before, tail) = rest.split_at(at.saturating_add(3));
        clean.push_str(before);
        // More slashes than two are taken as two.
        let tail = tail.trim_start_matches(['/', '\\']);
        let (authority, after) = tail.split_at(tail.find(['/', '\\', '#']).unwrap_or(tail.len()));
        let host = authority.rsplit_once('@');
        is_changed |= host.is_some();
        clean.push_str(host.map_or(authority, |(_, host)| host));
        rest = after;
    }
    clean.push_str(rest);
    if !query.is_empty() {
        clean.push('?');
        clean.push_str(HIDDEN);
    }
    is_changed.then_some(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_what_is_shown_of_them() {
        for (text, shown) in [
            ("s3://bucket/a/b.img", "s3://bucket/a/b.img"),
            ("S3://bucket/k", "s3://bucket/k"),
            ("https://u:secret@host:81/x?sig=secret", "https://host:81/x"),
            ("http://127.0.0.1:9/x#part", "http://127.0.0.1:9/x"),
        ] {
            let name: ObjectName = text.parse().unwrap();
            assert_eq!(name.to_string(), shown);
            assert!(!format!("{name:?}").contains("secret"));
        }
        for none in [
            "s3://",
            "s3://bucket",
            "s3:/bucket/k",
            "file:///x",
            "/a/s3://b/c",
            "disk.img",
        ] {
            assert!(none.parse::<ObjectName>().is_err(), "{none}");
        }
    }

    #[test]
    fn secrets_of_urls_in_a_text_are_left_out() {
        let text =
            "failed for url (https://u:p@host/k?sig=secret): \"http://h/x?a=secret\" at 12:30";
        let clean = without_secrets(text);
        assert_eq!(
            clean,
            "failed for url (https://host/k): \"http://h/x\" at 12:30"
        );
    }

    #[test]
    fn texts_without_secrets_stay_as_they_are() {
        for text in [
            "give the whole URL: --backing 'https://host/x?...'",
            "https://host and S3://bucket/k, docker://name",
            "s3://:/ is no name",
        ] {
            assert_eq!(without_secrets(text), text);
        }
    }

    #[test]
    fn words_of_a_command_line_hold_no_secret() {
        for (word, shown) in [
            ("https://h/x?sig=s", "https://h/x?..."),
            ("https://h/x?sig=s:/etc/motd", "https://h/x?..."),
            ("https://u:s@h:8/x@2:/etc", "https://h:8/x@2:/etc"),
            ("https://token-s@h/x", "https://h/x"),
            ("HTTPS:///u:s@h/x", "HTTPS://h/x"),
            ("https://u:s)'\" s@h/x", "https://h/x"),
            ("https://u:s/s@h/x", "(address)"),
            ("--backing=https://h/x?s", "--backing=https://h/x?..."),
            (
                "ro,backing=https://u:s@h/x,backing=https://v:s@h/y?s,allow_other",
                "ro,backing=https://h/x,backing=https://h/y?...",
            ),
        ] {
            assert_eq!(word_without_secrets(word).as_deref(), Some(shown), "{word}");
            assert_eq!(
                word_without_secrets(shown),
                None,
                "{shown} is shown as it is"
            );
        }
        for word in [
            "disk.img:/a?b@c",
            "https://h/x@2:/etc",
            "s3://b/k?",
            "https://h:80/k",
            "https://",
            "-o",
        ] {
            assert_eq!(word_without_secrets(word), None, "{word}");
        }
    }
}
