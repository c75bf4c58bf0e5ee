//! [`DirBuilder`]: creates directories with attributes, or with all parents.

use std::path::{Component, Path};

use throughline_ext::Reason;

use super::Dir;
use crate::error::{Error, Result};
use crate::metadata::Attributes;
use crate::node::NewNode;

/// Creates directories, like `std::fs::DirBuilder`. [`Dir::create_dir`] and [`Dir::create_dir_all`] need no
/// builder.
///
/// ```no_run
/// use throughline::{Attributes, DirBuilder, OpenOptions};
///
/// # fn main() -> throughline::Result<()> {
/// let volume = OpenOptions::new().write(true).open("disk.img")?;
/// let private = Attributes::new().mode(0o700);
/// DirBuilder::new().recursive(true).attributes(private).create(&volume, "/root/.ssh")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct DirBuilder {
    recursive: bool,
    attributes: Attributes,
}

impl DirBuilder {
    /// The defaults: one directory, with mode 0o777.
    pub fn new() -> DirBuilder {
        DirBuilder::default()
    }

    /// Creates missing parents too. An existing directory is then not an error.
    pub fn recursive(&mut self, recursive: bool) -> &mut Self {
        self.recursive = recursive;
        self
    }

    /// Attributes of every new directory.
    pub fn attributes(&mut self, attributes: Attributes) -> &mut Self {
        self.attributes = attributes;
        self
    }

    /// Creates the directory, by a path in a volume or relative to a directory, and opens it.
    ///
    /// **Until a sync or the next commit, a crash undoes it, as a whole or in part** ([what is
    /// durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// As [`Dir::create_dir`] and [`Dir::create_dir_all`], depending on the options.
    pub fn create(&self, dir: &Dir, path: impl AsRef<Path>) -> Result<Dir> {
        if !self.recursive {
            let node = dir.make_node(path, NewNode::Directory, &self.attributes)?;
            return Dir::of(node);
        }
        let mut dir = dir.clone();
        for part in path.as_ref().components() {
            dir = match part {
                Component::Normal(name) => self.open_or_make(&dir, name.as_ref())?,
                Component::CurDir => continue,
                other => dir.open_dir(other)?,
            };
        }
        Ok(dir)
    }

    fn open_or_make(&self, dir: &Dir, name: &Path) -> Result<Dir> {
        match dir.open_dir(name) {
            Err(Error::Caller(Reason::NotFound)) => {}
            opened => return opened,
        }
        match dir.make_node(name, NewNode::Directory, &self.attributes) {
            // Another thread created it in the meantime.
            Err(Error::Caller(Reason::Exists)) => dir.open_dir(name),
            made => Dir::of(made?),
        }
    }
}
