//! Files without a name.

use super::Node;
use crate::error::Result;
use crate::metadata::Attributes;
use crate::ops;

impl Node {
    /// Creates a regular file without a name, with the attributes that a file in this directory would get
    /// (`O_TMPFILE`). It is freed with its last holder, and a crash leaves nothing of it. If it is
    /// `linkable`, [`Node::link`] can still give it a first name. Defaults of `attributes` are those of
    /// [`Node::create`].
    ///
    /// **Until it gets a name, it is freed with its last handle, or by a crash.**
    ///
    /// # Errors
    /// [`Reason::NotFound`](crate::Reason::NotFound) (this directory was removed),
    /// [`Reason::NotDir`](crate::Reason::NotDir), [`Reason::NoSpace`](crate::Reason::NoSpace),
    /// [`Reason::Permission`](crate::Reason::Permission) (an immutable directory),
    /// [`Reason::ReadOnly`](crate::Reason::ReadOnly); device errors.
    pub fn tmpfile(&self, attributes: &Attributes, linkable: bool) -> Result<Node> {
        ops::tmpfile(self, attributes, linkable).into_result()
    }
}
