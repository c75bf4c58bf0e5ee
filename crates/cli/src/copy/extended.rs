//! Extended attributes and POSIX ACLs: read from a source, set on a target.
//!
//! On both sides, an ACL is an attribute `system.posix_acl_…` in the format of the system calls. ACLs belong
//! to the permissions: they are copied if the permissions are. If the source has none, the target gets none,
//! whatever it inherited from its directory. The other attributes are added to those of the target.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use throughline::archive::host_tree::{Attributes, Held};
use throughline::{Error, FileType, Node, Reason};
use throughline_forms::acl::{ACCESS, DEFAULT};

use super::{Preserve, Xattrs};
use crate::problem::{Problem, Result};

/// Attributes that are meaningless on another file system, as `/etc/xattr.conf` lists them for cp. `*`
/// matches any suffix.
const PASSED_OVER: [&str; 7] = [
    "afs.*",
    "security.evm",
    "system.nfs4_acl",
    "system.nfs4acl",
    "trusted.SGI_*",
    "user.Beagle.*",
    "xfsroot.*",
];

/// An object with attributes, on either side.
pub(crate) enum Holder<'a> {
    /// An inode of the host.
    Host(Attributes<'a>),
    /// One that is held for them.
    Held(Held),
    /// A directory of the host.
    Folder(Arc<OwnedFd>),
    /// An inode of an image.
    Node(Node),
}

/// The attributes to copy from a source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extended {
    /// The ACLs of the copy; `None` to remove one.
    lists: Vec<(&'static [u8], Option<Vec<u8>>)>,
    /// Names and values of the other attributes.
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An attribute that could not be set on a target.
pub(crate) struct Refused {
    pub(crate) name: Vec<u8>,
    pub(crate) problem: Problem,
}

impl Extended {
    /// Reads the attributes of `source` that are to be copied.
    pub(crate) fn read(
        source: &Holder<'_>,
        kind: FileType,
        preserve: Preserve,
    ) -> Result<Extended> {
        let mut read = Extended::default();
        let names = source.names()?;
        if preserve.mode && kind != FileType::Symlink {
            let kinds = match kind {
                FileType::Directory => &[ACCESS, DEFAULT][..],
                _ => &[ACCESS],
            };
            for kind in kinds.iter().copied() {
                let list = match names.iter().any(|name| name == kind) {
                    true => source.get(kind)?,
                    false => None,
                };
                read.lists.push((kind, list));
            }
        }
        if preserve.xattrs != Xattrs::No {
            for name in names.into_iter().filter(|name| is_kept(name)) {
                // It may have been removed between the two calls.
                if let Some(value) = source.get(&name)? {
                    read.attributes.push((name, value));
                }
            }
        }
        Ok(read)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.attributes.is_empty()
    }

    /// Sets the ACLs of a target, and removes those that the source does not have.
    pub(crate) fn give_lists(&self, target: &Holder<'_>) -> Result<()> {
        for (kind, list) in &self.lists {
            let done = match list {
                Some(list) => target.set(kind, list),
                None => target.remove(kind),
            };
            done.map_err(|problem| Problem {
                reason: format!("ACL: {}", problem.reason),
                ..problem
            })?;
        }
        Ok(())
    }

    /// Sets the other attributes of a target. Returns those that could not be set.
    pub(crate) fn give_attributes(&self, target: &Holder<'_>) -> Vec<Refused> {
        let give = |(name, value): &(Vec<u8>, Vec<u8>)| {
            let problem = target.set(name, value).err()?;
            Some(Refused {
                name: name.clone(),
                problem,
            })
        };
        self.attributes.iter().filter_map(give).collect()
    }
}

/// Whether this attribute is copied.
fn is_kept(name: &[u8]) -> bool {
    let is = |pattern: &&str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == pattern.as_bytes(),
    };
    name != ACCESS && name != DEFAULT && !PASSED_OVER.iter().any(is)
}

/// What has the attributes.
enum Side<'a> {
    Host(Attributes<'a>),
    Image(&'a Node),
}

impl Holder<'_> {
    fn side(&self) -> Side<'_> {
        match self {
            Holder::Host(attributes) => Side::Host(*attributes),
            Holder::Held(held) => Side::Host(held.attributes()),
            Holder::Folder(dir) => Side::Host(Attributes::Open(dir.as_fd())),
            Holder::Node(node) => Side::Image(node),
        }
    }

    /// The names of all attributes; none if attributes are not supported.
    fn names(&self) -> Result<Vec<Vec<u8>>> {
        match self.side() {
            Side::Host(host) => or_none(host.names(), Vec::new()),
            Side::Image(node) => Ok(node.xattrs().names()?),
        }
    }

    /// The value, if the attribute exists.
    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.side() {
            Side::Host(host) => or_none(host.get(name), None),
            Side::Image(node) => Ok(node.xattrs().get(name)?),
        }
    }

    fn set(&self, name: &[u8], value: &[u8]) -> Result<()> {
        match self.side() {
            Side::Host(host) => host.set(name, value).map_err(problem),
            Side::Image(node) => {
                let set = node.xattrs().set(name, value);
                set.map_err(|error| match error {
                    Error::Caller(Reason::NoSpace) => no_room(error),
                    other => other.into(),
                })
            }
        }
    }

    /// Removes an attribute, if it exists.
    fn remove(&self, name: &[u8]) -> Result<()> {
        match self.side() {
            Side::Host(host) => or_none(host.remove(name), ()),
            Side::Image(node) => {
                let attributes = node.xattrs();
                match attributes.get(name) {
                    Ok(None) | Err(Error::Unsupported(_)) => Ok(()),
                    Ok(Some(_)) => Ok(attributes.remove(name)?),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }
}

/// The result of a read, or `none` if there can be no attributes: the file system does not support them, or
/// `/proc`, which is needed to reach them, is not mounted.
fn or_none<T>(read: rustix::io::Result<T>, none: T) -> Result<T> {
    match read {
        Err(Errno::NOTSUP | Errno::NOSYS) => Ok(none),
        other => other.map_err(problem),
    }
}

fn problem(errno: Errno) -> Problem {
    let problem = Problem::from(errno);
    match errno {
        Errno::NOTSUP | Errno::NOSYS => Problem {
            errno: Some(Errno::OPNOTSUPP),
            ..problem
        },
        _ => problem,
    }
}

/// Adds a hint: too little room for attributes does not mean that the image is full.
pub(crate) fn no_room(error: Error) -> Problem {
    Problem::from(error).with_next(
        "the attributes of a file share one block, unless the image has the feature ea_inode \
         ('tune2fs -O ea_inode IMAGE')",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_without_meaning_elsewhere_are_skipped() {
        for name in [
            "user.a",
            "trusted.a",
            "security.evm2",
            "security.selinux",
            "user.beagle.x",
        ] {
            assert!(is_kept(name.as_bytes()), "{name}");
        }
        for name in ["security.evm", "trusted.SGI_ACL", "user.Beagle.x"] {
            assert!(!is_kept(name.as_bytes()), "{name}");
        }
        assert!(!is_kept(ACCESS) && !is_kept(DEFAULT));
    }
}
