//! What an image may name as its backing files, and how it names them.
//!
//! Invariants:
//! - A file or an object that is not allowed is not opened, whatever an image says.
//! - No credential is written into an image: of a URL, the query, the name of a user and the password are
//!   left out. The URL by which it is opened is that of its user ([`Backing`]).

use std::path::{Path, PathBuf};

/// The files that an image may name as its backing files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backing {
    allowed: Vec<PathBuf>,
}

impl<P: Into<PathBuf>> FromIterator<P> for Backing {
    fn from_iter<I: IntoIterator<Item = P>>(paths: I) -> Backing {
        let allowed = paths.into_iter().map(Into::into);
        Backing {
            allowed: allowed.collect(),
        }
    }
}

impl Backing {
    /// None.
    pub fn none() -> Backing {
        Backing::default()
    }

    /// Also this file, or all files below this directory.
    #[must_use]
    pub fn allow(mut self, path: impl Into<PathBuf>) -> Backing {
        self.allowed.push(path.into());
        self
    }

    /// The same, but each URL for which `whole` has the one with its query or password is replaced by that.
    #[must_use]
    pub fn with_whole(mut self, whole: impl Fn(&Path) -> Option<PathBuf>) -> Backing {
        for path in &mut self.allowed {
            if let Some(whole) = whole(path) {
                *path = whole;
            }
        }
        self
    }

    /// Whether this file or URL, named by an image, is one of them.
    pub fn may_open(&self, named: &Path) -> bool {
        match named.to_str().filter(|named| is_url(named)) {
            Some(url) => self.allows_url(url) || self.whole(url).is_some(),
            None => std::fs::canonicalize(named).is_ok_and(|file| self.allows(&file)),
        }
    }

    /// One of them that is this URL with a query or a password, which images do not keep.
    pub(crate) fn whole(&self, url: &str) -> Option<&str> {
        let bare = without_secrets(url);
        let mut allowed = self.allowed.iter().filter_map(|path| path.to_str());
        allowed.find(|it| is_url(it) && without_secrets(it) == bare && bare != **it)
    }

    /// Whether this URL, of something that is not a file, is one of them, or below one of them.
    pub(crate) fn allows_url(&self, url: &str) -> bool {
        let mut allowed = self.allowed.iter().filter_map(|path| path.to_str());
        allowed.any(|it| {
            let rest = url.strip_prefix(it);
            let below = rest.and_then(|rest| match it.ends_with('/') {
                true => Some(rest),
                false => rest.strip_prefix('/'),
            });
            // Something that a parser of URLs may understand as another place is not below this one.
            let is_plain = |part: &str| {
                let is_usual = |one: char| one.is_ascii_alphanumeric() || "._~+=@,:-".contains(one);
                !part.is_empty() && part != "." && part != ".." && part.chars().all(is_usual)
            };
            url == it || is_url(it) && below.is_some_and(|below| below.split('/').all(is_plain))
        })
    }

    /// Whether a file, named by its absolute path without symbolic links, is one of them.
    pub(crate) fn allows(&self, file: &Path) -> bool {
        let mut allowed = self.allowed.iter();
        allowed.any(|path| std::fs::canonicalize(path).is_ok_and(|path| file.starts_with(path)))
    }

    /// The same, of a file that does not exist.
    pub(crate) fn allows_missing(&self, named: &Path) -> bool {
        let Ok(named) = std::path::absolute(named) else {
            return false;
        };
        let mut allowed = self.allowed.iter();
        allowed.any(|path| std::path::absolute(path).is_ok_and(|path| named.starts_with(path)))
    }
}

/// Whether a name is that of something that is not a file.
pub(crate) fn is_url(name: &str) -> bool {
    let scheme = name.split_once("://").map_or("", |(scheme, _)| scheme);
    let is_usual = |one: char| one.is_ascii_alphanumeric() || "+-.".contains(one);
    !scheme.is_empty() && scheme.chars().all(is_usual)
}

/// A URL without what may be secret in it: a query, and a user's name and password.
pub(crate) fn without_secrets(url: &str) -> String {
    let address = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = address.split_once("://").unwrap_or_default();
    // More slashes than two are taken as two.
    let rest = rest.trim_start_matches(['/', '\\']);
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Where the backing file is that an image at `path` names: relative names begin in its folder.
pub(crate) fn backing_place(path: &Path, name: &str) -> PathBuf {
    if is_url(name) {
        return name.into();
    }
    let name = name.strip_prefix("file:").unwrap_or(name);
    match path.to_str().filter(|path| is_url(path)) {
        Some(_) if name.starts_with('/') => name.into(),
        Some(url) => {
            let address = url.split(['?', '#']).next().unwrap_or_default();
            let folder = address.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/{name}").into()
        }
        None => path.parent().unwrap_or(Path::new("")).join(name),
    }
}

/// An image needs a backing file that its user has not allowed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("it needs the backing file {}, which is not allowed", file.display())]
pub struct NotAllowed {
    /// That file.
    pub file: PathBuf,
}

/// The base of an overlay has a URL that is not kept as a whole, and its user has not named it.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "the URL of its base, {url}, was one with a query or a password, which an overlay does not keep"
)]
pub struct NotWhole {
    /// The rest of the URL.
    pub url: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_allowed_one_by_one_or_below_a_prefix() {
        let backing = Backing::from_iter(["s3://bucket/public", "s3://other/one.img", "/srv"]);
        for (url, allowed) in [
            ("s3://bucket/public/a.img", true),
            ("s3://bucket/public/a/b~1.img", true),
            ("s3://bucket/public", true),
            ("s3://other/one.img", true),
            ("s3://bucket/publics/a.img", false),
            ("s3://bucket/a.img", false),
            ("s3://other/two.img", false),
            ("S3://bucket/public/a.img", false),
            // What a parser of URLs makes another place of.
            ("s3://bucket/public/../secret", false),
            ("s3://bucket/public/%2e%2e/secret", false),
            ("s3://bucket/public/.\n./secret", false),
            ("s3://bucket/public\\..\\secret", false),
            ("s3://bucket/public/./a", false),
            ("s3://bucket/public//a", false),
            ("s3://bucket/public/a?versionId=1", false),
            ("/srv/a.img", false),
        ] {
            assert_eq!(backing.allows_url(url), allowed, "{url:?}");
        }
    }

    #[test]
    fn the_whole_url_is_that_of_the_user() {
        let backing = Backing::from_iter([
            "s3://bucket/k",
            "https://h/x",
            "https://h/x?sig=1",
            "https://u:p@h/y",
            "https://h/z?",
            "/srv?a",
        ]);
        for (url, whole) in [
            ("https://h/x", Some("https://h/x?sig=1")),
            ("https://h/x?sig=old", Some("https://h/x?sig=1")),
            ("https://h/y", Some("https://u:p@h/y")),
            ("https://h/z", Some("https://h/z?")),
            ("https://h/x/y", None),
            ("https://other/x", None),
            ("s3://bucket/k", None),
            ("/srv", None),
        ] {
            assert_eq!(backing.whole(url), whole, "{url}");
        }
    }

    #[test]
    fn no_secret_of_a_url_is_shown() {
        for (url, shown) in [
            ("https://u:p@h:8/k@1/x?sig=s#f", "https://h:8/k@1/x"),
            ("https:///u:p@h/k", "https://h/k"),
            ("s3://b/k", "s3://b/k"),
            ("s3://b", "s3://b"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    #[test]
    fn a_relative_name_is_beside_its_image() {
        for (image, name, place) in [
            ("s3://b/k/over.qcow2", "base.img", "s3://b/k/base.img"),
            (
                "https://h/k/over?sig=a/b",
                "base.img",
                "https://h/k/base.img",
            ),
            ("s3://b/over", "s3://c/base.img", "s3://c/base.img"),
            ("s3://b/over", "/srv/base.img", "/srv/base.img"),
            ("dir/over", "file:base.img", "dir/base.img"),
            ("over", "base.img", "base.img"),
            ("dir/over", "/srv/base.img", "/srv/base.img"),
            ("./s3://b/over", "base.img", "./s3://b/base.img"),
        ] {
            assert_eq!(
                backing_place(Path::new(image), name),
                Path::new(place),
                "{image}"
            );
        }
    }
}
