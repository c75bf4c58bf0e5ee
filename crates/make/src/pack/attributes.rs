//! Where the extended attributes of an inode go: into the inode while they fit, else into its block.

use throughline_extfmt::acl::Acl;
use throughline_extfmt::inline_data;
use throughline_extfmt::xattr::{self, Attribute, INDEX_ACL_ACCESS, INDEX_ACL_DEFAULT, Value};

use super::tree::NodeId;
use super::walk::Walk;
use crate::error::Result;

/// The attributes of an inode.
#[derive(Default)]
pub(crate) struct Lists {
    pub(crate) body: Vec<Attribute>,
    pub(crate) block: Vec<Attribute>,
}

/// The attributes of a node as the format names them, in an order that does not depend on the source's.
///
/// # Errors
/// A name or a list of access rights that the format does not have.
pub(crate) fn read(walk: &Walk<'_>, node: NodeId) -> Result<Vec<Attribute>> {
    let mut list = Vec::new();
    for (full, bytes) in walk.tree.xattrs(node) {
        let shown = String::from_utf8_lossy(full);
        let split = xattr::split_name(full).filter(|(index, name)| {
            name.len() <= 255
                && (*index, *name) != (inline_data::XATTR_NAME_INDEX, inline_data::XATTR_NAME)
        });
        let (name_index, name) = split.ok_or_else(|| {
            walk.refused(
                node,
                &format!("ext file systems have no attribute {shown:?}"),
            )
        })?;
        let value = match name_index {
            INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT => match Acl::from_user(bytes) {
                Ok(None) => continue,
                Ok(Some(acl)) => acl.to_disk(),
                Err(_) => return Err(walk.refused(node, &format!("{shown} is not well formed"))),
            },
            _ => bytes.to_vec(),
        };
        list.push(Attribute {
            name_index,
            name: name.to_vec(),
            value: Value::Bytes(value),
        });
    }
    list.sort_by(|a, b| (a.name_index, &a.name).cmp(&(b.name_index, &b.name)));
    Ok(list)
}

/// Divides attributes among an inode's area of `body_bytes` and a block. `None`: they do not fit.
pub(crate) fn divide(list: Vec<Attribute>, body_bytes: usize, block_bytes: usize) -> Option<Lists> {
    let mut lists = Lists::default();
    for attribute in list {
        lists.body.push(attribute);
        if !xattr::ibody_fits(&lists.body, body_bytes) {
            lists.block.extend(lists.body.pop());
        }
    }
    (lists.block.is_empty() || xattr::block_fits(&lists.block, block_bytes, 0)).then_some(lists)
}

/// The attribute with the bytes of a file that `i_block` does not hold, if the file has its data in its
/// inode.
pub(crate) fn inline(rest: &[u8]) -> Attribute {
    Attribute {
        name_index: inline_data::XATTR_NAME_INDEX,
        name: inline_data::XATTR_NAME.to_vec(),
        value: Value::Bytes(rest.to_vec()),
    }
}
