//! [`File`], an open regular file of a volume.

use std::fmt;
use std::fs::Permissions;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::SystemTime;

use throughline_device::Op;
use throughline_ext::{Inode, Reason};

use crate::call::traced;
use crate::error::Result;
use crate::handle::Handle;
use crate::metadata::{Attributes, FileType, Metadata};
use crate::mode::{FileOptions, Mode};
use crate::node::Node;
use crate::ops;
use crate::volume::Volume;
use crate::xattrs::Xattrs;

/// An open regular file of a volume; [`Handle`] has the I/O calls.
pub struct File {
    node: Node,
    handle: Handle,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("ino", &self.node.ino())
            .field("direct", &self.is_direct())
            .finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn of(node: Node, mode: Mode) -> Result<File> {
        match node.file_type()? {
            FileType::File if node.fs().is_encrypted(node.inode()) => Err(Reason::NoKey.into()),
            FileType::File => Ok(File::on(node, mode)),
            FileType::Directory => Err(Reason::IsDir.into()),
            _ => Err(Reason::Invalid("not a regular file").into()),
        }
    }

    fn on(node: Node, mode: Mode) -> File {
        File {
            handle: Handle::new(Arc::clone(node.held()) as _, node.volume().disk(), mode),
            node,
        }
    }

    pub(crate) fn inode(&self) -> &Inode {
        self.node.inode()
    }

    /// See [`ops::write_back`].
    pub(crate) fn write_back(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let file = self.node.held().buffered()?;
        let write = || Ok(file.write_back(offset, bytes)?);
        traced(
            self.node.volume().disk(),
            Op::Write,
            |()| bytes.len(),
            write,
        )
    }

    pub(crate) fn node_ref(&self) -> &Node {
        &self.node
    }

    /// Another handle on the same file with the same options. Both share one position for `Read`, `Write` and
    /// `Seek`, as with `std::fs::File`.
    ///
    /// # Errors
    /// None at present.
    pub fn try_clone(&self) -> Result<File> {
        Ok(File {
            node: self.node.clone(),
            handle: self.handle.share(),
        })
    }

    /// Another handle on the same file, for example a direct one beside a buffered one. Options for creating
    /// or truncating the file are ignored.
    ///
    /// # Errors
    /// None at present.
    pub fn reopen(&self, options: &FileOptions) -> Result<File> {
        Ok(File::on(self.node.clone(), options.mode()))
    }

    /// Its extended attributes and access control lists.
    pub fn xattrs(&self) -> Xattrs {
        self.node.xattrs()
    }

    /// The file's inode.
    pub fn node(&self) -> Node {
        self.node.clone()
    }

    /// The volume that contains the file.
    pub fn volume(&self) -> &Volume {
        self.node.volume()
    }

    /// The file's metadata.
    ///
    /// # Errors
    /// Damage.
    pub fn metadata(&self) -> Result<Metadata> {
        self.node.metadata()
    }

    /// Sets attributes.
    ///
    /// **Until a sync or the next commit, a crash undoes it** ([what is durable](crate#what-is-durable)).
    ///
    /// # Errors
    /// [`Reason::Permission`] for an immutable or append-only file, [`Reason::ReadOnly`]; device errors.
    pub fn set_attributes(&self, attributes: &Attributes) -> Result<()> {
        ops::set_attributes(&self.node, attributes).into_result()
    }

    /// Sets the permission bits, as `std::fs::File::set_permissions`. **Until a sync or the next commit, the
    /// change is lost if the process ends or the machine fails.**
    ///
    /// # Errors
    /// As [`File::set_attributes`].
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        self.set_attributes(&Attributes::new().mode(permissions.mode() & 0o7777))
    }

    /// Sets the modification time, as `std::fs::File::set_modified`. **Until a sync or the next commit, the
    /// change is lost if the process ends or the machine fails.**
    ///
    /// # Errors
    /// As [`File::set_attributes`].
    pub fn set_modified(&self, time: SystemTime) -> Result<()> {
        self.set_attributes(&Attributes::new().modified(time))
    }
}

impl Deref for File {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}
