//! Files without a name.

use super::Node;
use crate::error::Result;
use crate::metadata::Attributes;

impl Node {
    /// Makes a regular file without a name, as one in this directory would be (`O_TMPFILE`). It goes with its last holder,
    /// and a crash leaves nothing of it; where it is `linkable`, [`Node::link`] may give it its first name before.
    /// What `attributes` do not name: as [`Node::create`].
    ///
    /// # Errors
    /// [`Reason::NotFound`](crate::Reason::NotFound) (this directory was removed),
    /// [`Reason::NotDir`](crate::Reason::NotDir), [`Reason::NoSpace`](crate::Reason::NoSpace),
    /// [`Reason::Permission`](crate::Reason::Permission) (an immutable directory),
    /// [`Reason::ReadOnly`](crate::Reason::ReadOnly); the device's.
    pub fn tmpfile(&self, attributes: &Attributes, linkable: bool) -> Result<Node> {
        let new = self.new_inode(attributes);
        let inode = self.fs().tmpfile(self.inode(), new, linkable)?;
        Node::new(&self.held.volume, inode)
    }
}
