//! Name and path lookup.
//!
//! Paths are bytes, like names on disk. Every path starts at the root of the volume or at one of its
//! directories, and never leaves the volume: `..` of the root is the root, and a symbolic link that starts
//! with `/` starts at the root of the volume. A walk follows at most [`MAX_LINKS`] symbolic links, so it
//! ends.

use std::sync::Arc;

use throughline_extfmt::InodeNumber;
use throughline_extfmt::inode::InodeFlags;

use crate::dir;
use crate::error::{Corrupt, Error, Reason, Result};
use crate::inode::{Inode, Inodes};
use crate::names::Names;

/// Longest name in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Maximum number of symbolic links in one walk.
pub const MAX_LINKS: u32 = 40;

/// How a symbolic link at the end of a path is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// Followed.
    Follow,
    /// Not followed, unless the path ends in `/`.
    NoFollow,
    /// Not followed: the name itself is changed. What is there may be anything, also if the path ends in `/`.
    Name,
}

/// The result of a path walk.
#[derive(Clone)]
pub struct Place {
    /// The directory of the last name; for a path without a last name (`/`, `a/..`) the directory itself.
    pub dir: Arc<Inode>,
    /// The last name: empty for the root; may be `.` or `..`.
    pub name: Vec<u8>,
    /// The path ended in `/`, so the name must be a directory or not exist.
    pub slash: bool,
    /// The inode, if it exists.
    pub inode: Option<Arc<Inode>>,
}

/// Checks that `name` is valid for a new entry.
///
/// # Errors
/// `NameTooLong`; `Exists` for `.` and `..`; `Invalid` for an empty name and for one that contains `/` or
/// NUL.
pub(crate) fn check_new_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    match name {
        b"." | b".." => Err(Reason::Exists.into()),
        _ => Ok(()),
    }
}

/// Checks that `name` can be looked up.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > MAX_NAME_BYTES {
        return Err(Reason::NameTooLong.into());
    }
    if name.is_empty() {
        return Err(Reason::Invalid("empty name").into());
    }
    if name.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(Reason::Invalid("a name must not contain a slash or NUL").into());
    }
    Ok(())
}

impl Names {
    /// The root directory.
    ///
    /// # Errors
    /// `Corrupt` if it is not a directory; errors of reading it.
    pub fn root(&self) -> Result<Arc<Inode>> {
        let root = self.inode(InodeNumber::ROOT)?;
        if root.is_dir() {
            return Ok(root);
        }
        Err(Error::corrupt("the root is not a directory").in_inode(InodeNumber::ROOT))
    }

    /// Looks up a name in `dir`; `.` and `..` are names too.
    ///
    /// # Errors
    /// `NotFound`, `NotDir`, `NameTooLong`; `Corrupt` if the name leads to an invalid inode.
    pub fn lookup(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        self.lookup_and(dir, name, |_| Ok(()))
    }

    /// As [`Names::lookup`], and [opens](crate::Attrs::open_inode) the inode before its name can be removed.
    ///
    /// # Errors
    /// The same; `NotFound` for `.` and `..` if the inode is being freed.
    pub fn lookup_open(&self, dir: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        self.lookup_and(dir, name, |inode| self.open_inode(inode))
    }

    /// Looks up a name and runs `and` while the name still exists.
    fn lookup_and(
        &self,
        dir: &Arc<Inode>,
        name: &[u8],
        and: impl FnOnce(&Inode) -> Result<()>,
    ) -> Result<Arc<Inode>> {
        check_name(name)?;
        if !dir.is_dir() {
            return Err(Reason::NotDir.into());
        }
        let inode = match name {
            b"." => dir.clone(),
            b".." => self.parent(dir)?,
            _ => {
                let _held = dir.dir_shared();
                let found = dir::nokey::lookup(self, dir, name)?.ok_or(Reason::NotFound)?;
                // Loaded under the lock: as long as the name exists, so does the inode.
                let inode = self.named_inode(dir, found.ino)?;
                and(&inode)?;
                return Ok(inode);
            }
        };
        and(&inode)?;
        Ok(inode)
    }

    /// The parent directory of `dir`; the root is its own parent.
    ///
    /// # Errors
    /// `NotFound` for a removed directory; `Corrupt` if `..` does not lead to a directory.
    pub fn parent(&self, dir: &Arc<Inode>) -> Result<Arc<Inode>> {
        if dir.ino == InodeNumber::ROOT {
            return Ok(dir.clone());
        }
        let held = dir.dir_shared();
        let parent = self.named_inode(dir, dir::parent(self, dir)?)?;
        drop(held);
        if parent.is_dir() {
            return Ok(parent);
        }
        Err(Error::corrupt(format!(
            "`..` is inode {}, which is not a directory",
            parent.ino
        ))
        .in_inode(dir.ino))
    }

    /// The inode with a number from outside, such as a file handle. An invalid number is not damage.
    ///
    /// # Errors
    /// `NotFound` if it does not exist, is free, has no name, or is reserved; `Corrupt` if the bitmap or the
    /// inode is damaged; device errors.
    pub fn inode_kept(&self, ino: InodeNumber) -> Result<Arc<Inode>> {
        let own = ino < self.geo.first_ino && ino != InodeNumber::ROOT;
        if own || self.geo.inode_place(ino).is_none() {
            return Err(Reason::NotFound.into());
        }
        // Check the bitmap first: an inode that was never used may not contain a valid image.
        if !self.is_inode_used(ino)? {
            return Err(Reason::NotFound.into());
        }
        let inode = self.inode(ino)?;
        let of_use = {
            let raw = inode.raw.read();
            raw.links_count() > 0 && !raw.flags().contains(InodeFlags::EA_INODE)
        };
        match of_use {
            true => Ok(inode),
            false => Err(Reason::NotFound.into()),
        }
    }

    /// The inode that an entry of `dir` names, on a volume open for reading only.
    ///
    /// # Errors
    /// As [`Names::lookup`].
    pub fn inode_listed(&self, dir: &Inode, ino: InodeNumber) -> Result<Arc<Inode>> {
        self.named_inode(dir, ino)
    }

    /// The inode that an entry of `dir` names.
    pub(crate) fn named_inode(&self, dir: &Inode, ino: InodeNumber) -> Result<Arc<Inode>> {
        let corrupt = |what: String| Error::corrupt(what).in_inode(dir.ino);
        if ino < self.geo.first_ino && ino != InodeNumber::ROOT {
            return Err(corrupt(format!(
                "a name leads to inode {ino}, which is a system inode"
            )));
        }
        match self.inode(ino) {
            Err(Error::Caller(Reason::NotFound)) => Err(corrupt(format!(
                "a name leads to inode {ino}, which is not in use"
            ))),
            Ok(inode) => check_named(self, dir, &inode).map(|()| inode),
            Err(error) => Err(error),
        }
    }

    /// The inode at the end of a path that starts at the root.
    ///
    /// # Errors
    /// `NotFound`, `NotDir`, `Loop`, `NameTooLong`, `Invalid` for a NUL byte; `Corrupt`; device errors.
    pub fn resolve(&self, path: &[u8], last: Last) -> Result<Arc<Inode>> {
        let place = self.place(path, last)?;
        place.inode.ok_or_else(|| Reason::NotFound.into())
    }

    /// Walks a path that starts at the root; all but its last name must exist.
    ///
    /// # Errors
    /// As [`Self::resolve`], but a missing last name is not an error.
    pub fn place(&self, path: &[u8], last: Last) -> Result<Place> {
        self.place_from(&self.root()?, path, last)
    }

    /// Walks a path that starts at `base`, or at the root if it starts with `/`.
    ///
    /// # Errors
    /// As [`Self::place`].
    pub fn place_from(&self, base: &Arc<Inode>, path: &[u8], last: Last) -> Result<Place> {
        if path.is_empty() {
            return Err(Reason::NotFound.into());
        }
        let mut walk = Walk {
            fs: self,
            at: base.clone(),
            rest: Rest::new(path),
            links_left: MAX_LINKS,
        };
        if walk.rest.is_absolute() {
            walk.at = self.root()?;
        }
        loop {
            if let Some(place) = walk.step(last)? {
                return Ok(place);
            }
        }
    }
}

/// Checks that an inode may have a name. On a damaged volume that has not been written to, a directory that
/// fails the check is counted as damage but remains accessible.
fn check_named(fs: &Inodes, dir: &Inode, inode: &Inode) -> Result<()> {
    let (links, flags) = {
        let raw = inode.raw.read();
        (raw.links_count(), raw.flags())
    };
    let why = if flags.contains(InodeFlags::EA_INODE) {
        // It would be locked as a file and as a value.
        "holds an attribute's value"
    } else if links == 0 {
        // The directory is locked, and a name and its link count change together.
        "has a link count of 0"
    } else {
        return Ok(());
    };
    let damage = Corrupt {
        inode: Some(dir.ino),
        block: None,
        what: format!("a name leads to inode {}, which {why}", inode.ino),
    };
    if inode.is_dir() && fs.is_as_found() {
        fs.count_damage(&damage);
        return Ok(());
    }
    Err(damage.into())
}

/// A walk in progress.
struct Walk<'a> {
    fs: &'a Names,
    at: Arc<Inode>,
    rest: Rest,
    links_left: u32,
}

impl Walk<'_> {
    /// Consumes one name of the path; returns `Some` at the end.
    fn step(&mut self, last: Last) -> Result<Option<Place>> {
        let Some(part) = self.rest.next() else {
            return Ok(Some(self.end(&[], false, Some(self.at.clone()))));
        };
        if !self.at.is_dir() {
            return Err(Reason::NotDir.into());
        }
        let Some(inode) = self.find(&part.name)? else {
            if part.last {
                return Ok(Some(self.end(&part.name, part.slash, None)));
            }
            return Err(Reason::NotFound.into());
        };
        let is_changed = part.last && last == Last::Name;
        let is_followed = !part.last || part.slash || last == Last::Follow;
        if inode.is_symlink() && is_followed && !is_changed {
            self.follow(&inode)?;
            return Ok(None);
        }
        if part.slash && !inode.is_dir() && !is_changed {
            return Err(Reason::NotDir.into());
        }
        if part.last && !matches!(part.name.as_slice(), b"." | b"..") {
            return Ok(Some(self.end(&part.name, part.slash, Some(inode))));
        }
        self.at = inode;
        if part.last {
            return Ok(Some(self.end(
                &part.name,
                part.slash,
                Some(self.at.clone()),
            )));
        }
        Ok(None)
    }

    fn find(&self, name: &[u8]) -> Result<Option<Arc<Inode>>> {
        match self.fs.lookup(&self.at, name) {
            Ok(inode) => Ok(Some(inode)),
            Err(Error::Caller(Reason::NotFound)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the link's name by its target.
    fn follow(&mut self, link: &Arc<Inode>) -> Result<()> {
        self.links_left = self.links_left.checked_sub(1).ok_or(Reason::Loop)?;
        let target = self.fs.read_link(link)?;
        if target.is_empty() {
            return Err(Reason::NotFound.into());
        }
        self.rest.put_before(&target);
        if self.rest.is_absolute() {
            self.at = self.fs.root()?;
        }
        Ok(())
    }

    fn end(&self, name: &[u8], slash: bool, inode: Option<Arc<Inode>>) -> Place {
        Place {
            dir: self.at.clone(),
            name: name.to_vec(),
            slash,
            inode,
        }
    }
}

/// One name of a path.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    name: Vec<u8>,
    /// Whether it is the last name.
    last: bool,
    /// Whether it is the last name and a slash follows.
    slash: bool,
}

/// The rest of a path.
struct Rest {
    bytes: Vec<u8>,
    at: usize,
}

impl Rest {
    fn new(path: &[u8]) -> Self {
        Self {
            bytes: path.to_vec(),
            at: 0,
        }
    }

    fn left(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn is_absolute(&self) -> bool {
        self.left().first() == Some(&b'/')
    }

    fn skip_slashes(&mut self) -> usize {
        let slashes = self.left().iter().take_while(|&&byte| byte == b'/').count();
        self.at += slashes;
        slashes
    }

    fn next(&mut self) -> Option<Part> {
        self.skip_slashes();
        let left = self.left();
        if left.is_empty() {
            return None;
        }
        let end = left
            .iter()
            .position(|&byte| byte == b'/')
            .unwrap_or(left.len());
        let name = left[..end].to_vec();
        self.at += end;
        let after = self.left();
        let last = after.iter().all(|&byte| byte == b'/');
        Some(Part {
            name,
            last,
            slash: last && !after.is_empty(),
        })
    }

    fn put_before(&mut self, target: &[u8]) {
        let mut bytes = Vec::with_capacity(target.len() + self.left().len());
        bytes.extend_from_slice(target);
        bytes.extend_from_slice(self.left());
        *self = Self { bytes, at: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> Vec<(String, bool, bool)> {
        let mut rest = Rest::new(path.as_bytes());
        std::iter::from_fn(|| rest.next())
            .map(|p| (String::from_utf8(p.name).expect("ASCII"), p.last, p.slash))
            .collect()
    }

    #[test]
    fn a_path_falls_into_its_names() {
        let plain = |name: &str| (name.to_owned(), false, false);
        let last = |name: &str| (name.to_owned(), true, false);
        assert_eq!(parts("/a//b/c"), [plain("a"), plain("b"), last("c")]);
        assert_eq!(parts("a/b//"), [plain("a"), ("b".to_owned(), true, true)]);
        assert_eq!(parts("///"), []);
        assert_eq!(parts(""), []);
    }

    #[test]
    fn a_link_takes_the_place_of_its_name() {
        let mut rest = Rest::new(b"a/b/");
        rest.next();
        rest.put_before(b"x/y");
        let names: Vec<_> = std::iter::from_fn(|| rest.next()).map(|p| p.name).collect();
        assert_eq!(names, [b"x".to_vec(), b"y".to_vec(), b"b".to_vec()]);
        let mut rest = Rest::new(b"a/");
        rest.next();
        rest.put_before(b"x");
        assert_eq!(
            rest.next(),
            Some(Part {
                name: b"x".to_vec(),
                last: true,
                slash: true
            })
        );
    }

    #[test]
    fn names_are_checked() {
        let long = [b'x'; 256];
        assert!(matches!(
            check_name(&long),
            Err(Error::Caller(Reason::NameTooLong))
        ));
        assert!(check_name(&long[..255]).is_ok());
        for bad in [&b""[..], b"a/b", b"a\0"] {
            assert!(
                matches!(check_name(bad), Err(Error::Caller(Reason::Invalid(_)))),
                "{bad:?}"
            );
        }
        assert!(matches!(
            check_new_name(b".."),
            Err(Error::Caller(Reason::Exists))
        ));
    }
}
