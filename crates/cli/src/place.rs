//! What an argument refers to: a place in an image, a host path or a stream.
//!
//! The rule is the same for every command:
//!
//! 1. `-` is standard input or output.
//! 2. `LEFT:/path` is a place in an image if `LEFT` exists on the host and is not a directory, or is
//!    `IMAGE@PARTITION` of such an image ([`crate::image_name`]). If several `:/` qualify, the first wins.
//! 3. Otherwise, `LEFT:/path` is a host path if the directory `LEFT:` exists on the host.
//! 4. Otherwise, the first `:/` separates image and path (and opening reports that there is no such image).
//! 5. Everything else, including `./a:b`, is a host path.
//!
//! In the name of an object (`s3://bucket/disk.img:/path`), the `:/` after its scheme does not count.
//!
//! In a shell ([`Base`]), 1 and 2 apply; `host:PATH` is a host path, and everything else is in the shell's
//! image.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::image_name::ImageName;
use crate::objects;
use crate::text::quote;

/// A place that a command reads from or writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path inside an image; the path is absolute.
    Image {
        /// The image on the host.
        image: PathBuf,
        /// The absolute path inside it.
        path: PathBuf,
    },
    /// A path on the host.
    Host(PathBuf),
    /// Standard input or output.
    Stream,
}

thread_local! {
    /// Image and current directory of the shell that this thread runs.
    static BASE: RefCell<Option<(PathBuf, PathBuf)>> = const { RefCell::new(None) };
}

/// The image and directory for paths without an image. They apply until this value is dropped.
pub(crate) struct Base;

impl Base {
    /// Sets the image and directory for this thread.
    pub(crate) fn enter(image: PathBuf, dir: PathBuf) -> Base {
        BASE.set(Some((image, dir)));
        Base
    }

    /// Changes the directory.
    pub(crate) fn set_dir(dir: PathBuf) {
        BASE.with_borrow_mut(|base| {
            if let Some((_, here)) = base {
                *here = dir;
            }
        });
    }

    /// The current directory; `/` if no shell is running.
    pub(crate) fn dir() -> PathBuf {
        BASE.with_borrow(|base| base.as_ref().map(|(_, dir)| dir.clone()))
            .unwrap_or_else(|| PathBuf::from("/"))
    }

    /// The image and directory for a prompt, as `image:/dir`.
    pub(crate) fn shown() -> String {
        BASE.with_borrow(|base| {
            base.as_ref().map(|(image, dir)| {
                format!("{}:{}", objects::shown(image).display(), dir.display())
            })
        })
        .unwrap_or_default()
    }

    /// Parses a path without an image, if a shell is running.
    fn place(argument: &OsStr) -> Option<Place> {
        if argument.is_empty() {
            return None;
        }
        BASE.with_borrow(|base| {
            let (image, dir) = base.as_ref()?;
            Some(match argument.as_bytes().strip_prefix(b"host:") {
                Some(path) => Place::Host(OsStr::from_bytes(path).into()),
                None => Place::Image {
                    image: image.clone(),
                    path: dir.join(argument),
                },
            })
        })
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        BASE.set(None);
    }
}

impl Place {
    /// Parses an argument by the rule at the top of this module.
    pub(crate) fn parse(argument: &OsStr) -> Place {
        match Place::parse_named(argument) {
            Place::Host(_) => Base::place(argument),
            Place::Image { image, .. } if !ImageName::exists(&image) => Base::place(argument),
            _ => None,
        }
        .unwrap_or_else(|| Place::parse_named(argument))
    }

    /// Parses an argument without the shell's image and directory: a path without an image is a host path or
    /// plain text.
    pub(crate) fn parse_named(argument: &OsStr) -> Place {
        if argument == "-" {
            return Place::Stream;
        }
        let bytes = argument.as_bytes();
        let scheme_bytes = objects::scheme_bytes(bytes);
        let splits = || {
            bytes
                .windows(2)
                .enumerate()
                .filter(move |(at, two)| *at > scheme_bytes && *two == b":/")
        };
        let left = |at: usize| Path::new(OsStr::from_bytes(&bytes[..at]));
        let is_dir = |path: &Path| std::fs::metadata(path).map(|meta| meta.is_dir());
        let image = splits()
            .map(|(at, _)| at)
            .find(|at| ImageName::exists(left(*at)));
        if let Some(at) = image {
            return Place::split(bytes, at);
        }
        let literal =
            splits().any(|(at, _)| matches!(is_dir(left(at.saturating_add(1))), Ok(true)));
        match splits().next() {
            Some((at, _)) if !literal => Place::split(bytes, at),
            _ => Place::Host(PathBuf::from(argument)),
        }
    }

    fn split(bytes: &[u8], at: usize) -> Place {
        let (image, rest) = bytes.split_at(at);
        Place::Image {
            image: OsString::from_vec(image.to_vec()).into(),
            path: OsString::from_vec(rest[1..].to_vec()).into(),
        }
    }

    /// The place `name` below this one. A stream has nothing below it and is returned unchanged.
    pub(crate) fn join(&self, name: &OsStr) -> Place {
        match self {
            Place::Image { image, path } => Place::Image {
                image: image.clone(),
                path: path.join(name),
            },
            Place::Host(path) => Place::Host(path.join(name)),
            Place::Stream => Place::Stream,
        }
    }

    /// The place as it is printed: without credentials.
    pub(crate) fn to_shown(&self) -> OsString {
        match self {
            Place::Image { image, path } if objects::is_object(image) => Place::Image {
                image: objects::shown(image),
                path: path.clone(),
            }
            .to_argument(),
            other => other.to_argument(),
        }
    }

    /// The place as written on the command line, as bytes.
    pub(crate) fn to_argument(&self) -> OsString {
        match self {
            Place::Image { image, path } => {
                let mut whole = image.clone().into_os_string();
                whole.push(":");
                whole.push(path);
                whole
            }
            Place::Host(path) => path.clone().into_os_string(),
            Place::Stream => OsString::from("-"),
        }
    }
}

/// An argument of a command line.
impl From<OsString> for Place {
    fn from(argument: OsString) -> Place {
        Place::parse(&argument)
    }
}

/// Quoted, for messages, without credentials.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(self.to_shown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Place {
        Place::parse(OsStr::new(text))
    }

    fn image(image: &str, path: &str) -> Place {
        Place::Image {
            image: image.into(),
            path: path.into(),
        }
    }

    #[test]
    fn streams_and_plain_host_paths() {
        assert_eq!(parse("-"), Place::Stream);
        for host in ["./a:b", "a:b", "/x/y", "a:", ":/x", "", "./-"] {
            assert_eq!(parse(host), Place::Host(host.into()), "{host}");
        }
    }

    #[test]
    fn the_first_split_wins_when_nothing_exists() {
        assert_eq!(parse("no-such.img:/a:/b"), image("no-such.img", "/a:/b"));
        assert_eq!(parse("/no/such.img:/"), image("/no/such.img", "/"));
    }

    #[test]
    #[cfg(feature = "remote")]
    fn objects_are_images() {
        assert_eq!(
            parse("s3://b/k.img:/etc/x"),
            image("s3://b/k.img", "/etc/x")
        );
        assert_eq!(
            parse("s3://b/k.img@2:/etc"),
            image("s3://b/k.img@2", "/etc")
        );
        assert_eq!(
            parse("http://h:80/k:/a:/b"),
            image("http://h:80/k", "/a:/b")
        );
        assert_eq!(parse("s3://b/k.img"), Place::Host("s3://b/k.img".into()));
        assert_eq!(parse("/s3://b"), image("/s3", "//b"), "not a scheme");
    }

    #[test]
    fn an_existing_file_on_the_left_is_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("odd:");
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join("disk"), b"").unwrap();
        let base = dir.path().to_str().unwrap();
        // `odd:` is a directory and `odd` does not exist: a host path.
        assert_eq!(
            parse(&format!("{base}/odd:/plain")),
            Place::Host(odd.join("plain"))
        );
        // but the file below it is an image.
        assert_eq!(
            parse(&format!("{base}/odd:/disk:/etc")),
            image(&format!("{base}/odd:/disk"), "/etc")
        );
        std::fs::write(dir.path().join("odd"), b"").unwrap();
        assert_eq!(
            parse(&format!("{base}/odd:/plain")),
            image(&format!("{base}/odd"), "/plain")
        );
    }
}
