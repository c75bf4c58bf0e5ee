//! Extended attributes: set by the kernel or by `debugfs`, preserved by us under other changes, removed with
//! their files.

use std::collections::BTreeMap;

use rustix::fs::XattrFlags;

use crate::matrix::fs::data;
use crate::matrix::kernel::Mount;
use crate::matrix::tool::Image;
use crate::matrix::tree::Shape;

/// Value by path and attribute name.
pub(crate) type Attributes = BTreeMap<(String, String), Vec<u8>>;

/// Attributes of several sizes: in the inode, in a block, and, with `ea_inode`, `large` ones in their own
/// inodes.
fn wanted(paths: &[&str], shape: &Shape, features: &[String], large: &[usize]) -> Attributes {
    let mut attributes = Attributes::new();
    if !features.iter().any(|name| name == "ext_attr") {
        throughline_testkit::left_out!("the volume has no extended attributes");
        return attributes;
    }
    let block = shape.block_bytes as usize;
    let mut sizes = vec![("tiny".to_owned(), 5), ("block".to_owned(), block / 4)];
    if features.iter().any(|name| name == "ea_inode") {
        sizes.extend(large.iter().map(|len| (format!("large{len}"), *len)));
    }
    for path in paths {
        for (name, len) in &sizes {
            let key = ((*path).to_owned(), format!("user.{name}"));
            attributes.insert(key, data(*len as u64, *len));
        }
    }
    attributes
}

/// The kernel sets attributes in the tree `/b`; equal ones may share a block.
pub(crate) fn set(mount: &Mount, shape: &Shape, features: &[String]) -> Attributes {
    let many = "/b/many/name16nnnnnnnnnnnnnnnn";
    let paths = [
        "/b/sizes/0",
        "/b/sizes/1",
        "/b/sizes/61440",
        "/b/holes/sparse",
        "/b/nested",
        many,
    ];
    let attributes = wanted(
        &paths,
        shape,
        features,
        &[3 * shape.block_bytes as usize / 2, 9000],
    );
    for ((path, name), value) in &attributes {
        rustix::fs::setxattr(mount.host(path), name.as_str(), value, XattrFlags::empty())
            .unwrap_or_else(|e| panic!("the kernel's setxattr {name} of {path}: {e}"));
    }
    attributes
}

/// Checks that the kernel finds all of them.
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

/// `debugfs` sets attributes in the tree `/a`: on files that remain, which are returned, and on one that will
/// be removed.
pub(crate) fn set_by_debugfs(image: &Image, shape: &Shape, features: &[String]) -> Attributes {
    let going = "/a/sizes/backwards";
    let paths = [
        "/a/sizes/0",
        "/a/sizes/61",
        "/a/holes/comb",
        "/a/nested",
        going,
    ];
    // debugfs reads at most one block of a value.
    let mut attributes = wanted(&paths, shape, features, &[shape.block_bytes as usize]);
    let mut requests = String::new();
    for (index, ((path, name), value)) in attributes.iter().enumerate() {
        let from = image.sibling(&format!("value{index}"));
        std::fs::write(&from, value).expect("a file for a value");
        requests += &format!("ea_set -f {} {path} {name}\n", from.display());
    }
    image.debugfs(true, &requests);
    // debugfs does not count the blocks of values in their own inodes.
    image.repair();
    image.check("after debugfs set attributes");
    attributes.retain(|(path, _), _| path != going);
    attributes
}

/// Checks that `debugfs` finds all of them.
pub(crate) fn compare_by_debugfs(image: &Image, attributes: &Attributes) {
    for ((path, name), value) in attributes {
        let to = image.sibling("value");
        image.debugfs(
            false,
            &format!("ea_get -f {} {path} {name}\n", to.display()),
        );
        let found =
            std::fs::read(&to).unwrap_or_else(|e| panic!("debugfs ea_get {name} of {path}: {e}"));
        assert!(
            found == *value,
            "debugfs finds another value of {name} of {path}"
        );
        std::fs::remove_file(to).expect("the value was just read");
    }
}
