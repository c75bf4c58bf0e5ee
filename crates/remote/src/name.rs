//! [`ObjectName`]: the URL of an object.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use url::Url;

/// The schemes, in lower case.
const SCHEMES: [&str; 5] = ["s3", "gs", "az", "https", "http"];

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

/// A text of others in which all URLs are without what may be secret in them.
pub(crate) fn without_secrets(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let begin = rest.get(..at).unwrap_or_default();
        let begin = begin.trim_end_matches(|one: char| one.is_ascii_alphanumeric());
        clean.push_str(begin);
        let tail = rest.get(begin.len()..).unwrap_or_default();
        let is_end = |one: char| one.is_whitespace() || matches!(one, '"' | '\'' | '<' | '>' | ')');
        let (address, after) = tail.split_at(tail.find(is_end).unwrap_or(tail.len()));
        match Url::parse(address) {
            Ok(url) => clean.push_str(&shown(&url)),
            Err(_) => clean.push_str("(address)"),
        }
        rest = after;
    }
    clean.push_str(rest);
    clean
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
}
