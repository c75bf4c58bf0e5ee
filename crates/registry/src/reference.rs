//! Names of images in registries: `HOST:PORT/PATH:TAG` or `HOST:PORT/PATH@DIGEST`.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Kind, Result};

/// What a name without a host belongs to, and the host that serves it.
pub(crate) const DOCKER_IO: &str = "docker.io";
const DOCKER_IO_SERVER: &str = "registry-1.docker.io";
/// Longer names are not allowed by the specification.
const NAME_MAX: usize = 255;
const TAG_MAX: usize = 128;

/// The name of an image. `debian:13` is `docker.io/library/debian:13`, as for Docker; without a tag and a
/// digest, the tag is `latest`. With both, the digest counts.
///
/// ```
/// let reference: throughline_registry::Reference = "debian:13".parse()?;
/// assert_eq!(reference.to_string(), "docker.io/library/debian:13");
/// # Ok::<(), throughline_registry::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    host: String,
    name: String,
    tag: String,
    digest: Option<String>,
}

impl Reference {
    /// The registry, as it is named: with a port, if that is given.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The path in the registry.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The digest, if one is given.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// What a manifest is asked for by: the digest or the tag.
    pub(crate) fn manifest(&self) -> &str {
        self.digest.as_deref().unwrap_or(&self.tag)
    }

    /// The host that serves it.
    pub(crate) fn server(&self) -> &str {
        match &*self.host {
            DOCKER_IO => DOCKER_IO_SERVER,
            host => host,
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.name)?;
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => write!(f, ":{}", self.tag),
        }
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Reference> {
        let wrong = |why: &str| {
            let text =
                format!("'{text}' is no name of an image ([HOST/]NAME[:TAG|@DIGEST]): {why}");
            Error::new(Kind::Reference, text)
        };
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(wrong("the digest is not sha256: and 64 digits"));
        }
        let (host, path) = match rest.split_once('/') {
            Some((host, path)) if is_host(host) => (host, path),
            _ => (DOCKER_IO, rest),
        };
        let (path, tag) = match path.rsplit_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (path, None),
        };
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong("the tag has letters that no tag has, or too many"));
        }
        if !path.split('/').all(is_component) || path.len() > NAME_MAX {
            return Err(wrong(
                "names are of lower-case letters, digits, and . _ - between them",
            ));
        }
        if !host.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']' | b'_')
        }) {
            return Err(wrong("the host is none"));
        }
        let host = match host {
            "index.docker.io" | DOCKER_IO_SERVER => DOCKER_IO,
            other => other,
        };
        let name = match (host, path.contains('/')) {
            (DOCKER_IO, false) => format!("library/{path}"),
            _ => path.to_owned(),
        };
        Ok(Reference {
            host: host.to_owned(),
            name,
            tag: tag.unwrap_or("latest").to_owned(),
            digest: digest.map(str::to_owned),
        })
    }
}

/// As Docker has it: `foo/bar` is a path, `foo.example/bar`, `foo:5000/bar` and `localhost/bar` have a host.
fn is_host(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost"
}

fn is_component(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(first, last)| is_letter(*first) && is_letter(*last))
        && bytes
            .iter()
            .all(|&byte| is_letter(byte) || matches!(byte, b'.' | b'_' | b'-'))
}

fn is_tag(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=TAG_MAX).contains(&text.len())
        && is_letter(text.as_bytes()[0])
        && text
            .bytes()
            .all(|byte| is_letter(byte) || matches!(byte, b'.' | b'-'))
}

/// Whether this is a digest that can be verified.
pub(crate) fn is_digest(text: &str) -> bool {
    let digits = match text.split_once(':') {
        Some(("sha256", digits)) if digits.len() == 64 => digits,
        Some(("sha512", digits)) if digits.len() == 128 => digits,
        _ => return false,
    };
    digits
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_docker() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (text, full) in [
            ("debian", "docker.io/library/debian:latest"),
            ("debian:13", "docker.io/library/debian:13"),
            ("a/b:c", "docker.io/a/b:c"),
            ("docker.io/debian", "docker.io/library/debian:latest"),
            ("index.docker.io/a/b", "docker.io/a/b:latest"),
            ("localhost/a", "localhost/a:latest"),
            ("localhost:5000/a:b", "localhost:5000/a:b"),
            ("[::1]:5000/a/b__c", "[::1]:5000/a/b__c:latest"),
            ("ghcr.io/a/b-c/d.e:V1.0_x-y", "ghcr.io/a/b-c/d.e:V1.0_x-y"),
            (&format!("q.io/a:t@{digest}"), &format!("q.io/a@{digest}")),
        ] {
            let parsed: Reference = text.parse().expect(text);
            assert_eq!(parsed.to_string(), full, "{text}");
        }
        for wrong in [
            "",
            ":13",
            "a:",
            "A",
            "a//b",
            "/a",
            "a/",
            "a@sha256:00",
            "a:b:c",
            "a/../b",
            "-a",
            "a b",
            "h.io/",
            "a@b@c",
            "http://a/b",
        ] {
            let error = wrong.parse::<Reference>().expect_err(wrong);
            assert_eq!(error.kind(), Kind::Reference, "{wrong}");
        }
        let server = |text: &str| text.parse::<Reference>().unwrap().server().to_owned();
        assert_eq!(server("debian"), "registry-1.docker.io");
        assert_eq!(server("localhost:1/a"), "localhost:1");
    }
}
