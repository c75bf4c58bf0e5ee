//! Extended attributes: set by the kernel, kept by us whatever else we change.

use std::collections::BTreeMap;

use rustix::fs::XattrFlags;

use crate::fs::data;
use crate::kernel::Mount;
use crate::tree::Shape;

/// Path and name of an attribute, to its value.
pub(crate) type Attributes = BTreeMap<(String, String), Vec<u8>>;

/// Sets attributes of several sizes in the tree `/b`: in the inode, in a block (shared by two files), and, with
/// `ea_inode`, in inodes of their own.
pub(crate) fn set(mount: &Mount, shape: &Shape, features: &[String]) -> Attributes {
    let mut attributes = Attributes::new();
    if !features.iter().any(|name| name == "ext_attr") {
        eprintln!("skipped: extended attributes, which this volume has not");
        return attributes;
    }
    let block = shape.block_bytes as usize;
    let mut sizes = vec![("tiny", 5), ("block", block / 4)];
    if features.iter().any(|name| name == "ea_inode") {
        sizes.extend([("large", 3 * block / 2), ("larger", 9_000)]);
    }
    for path in [
        "/b/sizes/0",
        "/b/sizes/1",
        "/b/sizes/61440",
        "/b/holes/sparse",
        "/b/nested",
        "/b/many/name16nnnnnnnnnnnnnnnn",
    ] {
        for (name, len) in &sizes {
            let (full, value) = (format!("user.{name}"), data(*len as u64, *len));
            rustix::fs::setxattr(mount.host(path), full.as_str(), &value, XattrFlags::empty())
                .unwrap_or_else(|e| panic!("the kernel's setxattr {full} of {path}: {e}"));
            attributes.insert((path.into(), full), value);
        }
    }
    attributes
}

/// All are still there.
pub(crate) fn compare(mount: &Mount, attributes: &Attributes) {
    for ((path, name), value) in attributes {
        let mut found = vec![0; 1 << 16];
        let n =
            rustix::fs::getxattr(mount.host(path), name.as_str(), &mut found).unwrap_or_else(|e| {
                panic!("the kernel's getxattr {name} of {path}, after our changes: {e}")
            });
        assert!(found[..n] == value[..], "{name} of {path} has changed");
    }
}
