//! Where an argument points: into an image, at a host path, or at a stream.
//!
//! The rule, the same for every command:
//!
//! 1. `-` is standard input or output.
//! 2. `LEFT:/path` is a place in an image when `LEFT` names something on the host that is not a
//!    directory. Where several `:/` fit, the first wins.
//! 3. Otherwise, `LEFT:/path` is a host path when the directory `LEFT:` exists on the host.
//! 4. Otherwise, the first `:/` splits image and path (and opening says that there is no such image).
//! 5. Everything else, `./a:b` among it, is a host path.
//!
//! In a shell ([`Base`]) 1 and 2 hold; `host:PATH` is a host path, and everything else is in the shell's image.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

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
    /// Where the shell that this thread runs is.
    static BASE: RefCell<Option<(PathBuf, PathBuf)>> = const { RefCell::new(None) };
}

/// The image and the directory that paths without an image begin at, while this lives.
pub(crate) struct Base;

impl Base {
    /// From here on, in this thread.
    pub(crate) fn enter(image: PathBuf, dir: PathBuf) -> Base {
        BASE.set(Some((image, dir)));
        Base
    }

    /// Another directory.
    pub(crate) fn set_dir(dir: PathBuf) {
        BASE.with_borrow_mut(|base| {
            if let Some((_, here)) = base {
                *here = dir;
            }
        });
    }

    /// The directory; that of a shell's beginning without one.
    pub(crate) fn dir() -> PathBuf {
        BASE.with_borrow(|base| base.as_ref().map(|(_, dir)| dir.clone()))
            .unwrap_or_else(|| PathBuf::from("/"))
    }

    /// `image:/dir`, for a prompt.
    pub(crate) fn shown() -> String {
        BASE.with_borrow(|base| {
            base.as_ref()
                .map(|(image, dir)| format!("{}:{}", image.display(), dir.display()))
        })
        .unwrap_or_default()
    }

    /// A path that names no image, if there is a shell.
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
    /// Reads an argument by the rule at the top of this module.
    pub(crate) fn parse(argument: &OsStr) -> Place {
        match Place::parse_named(argument) {
            Place::Host(_) => Base::place(argument),
            Place::Image { image, .. } if !image.exists() => Base::place(argument),
            _ => None,
        }
        .unwrap_or_else(|| Place::parse_named(argument))
    }

    /// The same where a path without an image is one of the host, or text, in a shell too.
    pub(crate) fn parse_named(argument: &OsStr) -> Place {
        if argument == "-" {
            return Place::Stream;
        }
        let bytes = argument.as_bytes();
        let splits = || {
            bytes
                .windows(2)
                .enumerate()
                .filter(|(at, two)| *at > 0 && *two == b":/")
        };
        let left = |at: usize| Path::new(OsStr::from_bytes(&bytes[..at]));
        let is_dir = |path: &Path| std::fs::metadata(path).map(|meta| meta.is_dir());
        let image = splits()
            .map(|(at, _)| at)
            .find(|at| matches!(is_dir(left(*at)), Ok(false)));
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

    /// The same place with `name` below it; a stream has nothing below it and stays as it is.
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

    /// The place as it would be written on the command line, as bytes.
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

/// Quoted, for messages.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote(self.to_argument()))
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
    fn an_existing_file_on_the_left_is_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("odd:");
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join("disk"), b"").unwrap();
        let base = dir.path().to_str().unwrap();
        // `odd:` is a directory and `odd` is nothing: a host path.
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
