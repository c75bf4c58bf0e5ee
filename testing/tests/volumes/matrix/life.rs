//! The life of one volume: filled and changed by us, checked by e2fsck, debugfs and the kernel; changed and
//! filled by the kernel, read and changed by us.

use throughline::Volume;
use throughline_testkit::tier::pick;

use crate::matrix::attributes::Attributes;
use crate::matrix::expected::Expected;
use crate::matrix::fs::{Step, compare};
use crate::matrix::kernel::{self, Mount};
use crate::matrix::tool::{self, Image};
use crate::matrix::tree::{Pair, Shape};
use crate::matrix::{attributes, debugfs};

/// How much a volume is filled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// 3000 names in one directory, files up to 5 MiB.
    Full,
    /// For volumes with few inodes or blocks.
    Small,
}

/// Makes the volume and runs all stages.
pub(crate) fn run(args: &[&str], size: &str, load: Load) {
    run_made(|| Image::make(args, size), load);
}

/// As [`run`], for a volume that needs more than `mke2fs`. `make` may be called twice.
pub(crate) fn run_made(make: impl Fn() -> Option<Image>, load: Load) {
    if !tool::has_tools() {
        return;
    }
    let Some(image) = make() else { return };
    image.check("as mke2fs made it");
    let mut volume = image
        .open_writable()
        .expect("the new volume opens for writing");
    let info = volume.info().expect("what the volume is");
    let shape = Shape {
        cluster_bytes: image.cluster_bytes(info.block_bytes.into()),
        ..shape(&info.features, info.block_bytes, load)
    };
    let owner = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let mut expected = Expected::new(info.inode_bytes, owner);

    Pair::new(&mut volume, &mut expected).build("/a", &shape);
    close(volume, "after it was filled");
    image.check("after we filled it");
    let attributes = attributes::set_by_debugfs(&image, &shape, &info.features);
    let mut volume = image.open_writable().expect("it opens again");
    compare("read again by us", &mut expected, &mut volume);
    Pair::new(&mut volume, &mut expected).change("/a", 0, &shape);
    compare("before it is closed", &mut expected, &mut volume);
    close(volume, "after it was changed");
    image.check("after we changed it");
    debugfs::compare("changed by us", &image, &mut expected);
    attributes::compare_by_debugfs(&image, &attributes);
    with_kernel(&image, &make, &mut expected, &shape, &info.features);
}

/// Mounts the volume. If that fails, prints to stderr that this kernel does not even mount a new one of its
/// kind.
fn mount(image: &Image, make: impl Fn() -> Option<Image>, writable: bool) -> Option<Mount> {
    let why = match Mount::new(image, writable) {
        Ok(mount) => return Some(mount),
        Err(why) => why,
    };
    match Mount::new(&make().expect("what was made once"), writable) {
        Ok(_) => panic!("the kernel does not mount what we changed: {why}"),
        Err(why) => throughline_testkit::left_out!(
            "this kernel does not mount such volumes (for writing: {writable}): {why}"
        ),
    }
    None
}

/// The kernel's part, if it supports this volume at all.
fn with_kernel(
    image: &Image,
    make: impl Fn() -> Option<Image>,
    expected: &mut Expected,
    shape: &Shape,
    features: &[String],
) {
    if !kernel::may_mount() {
        return;
    }
    let Some(mut mounted) = mount(image, &make, false) else {
        return;
    };
    compare("changed by us, read by the kernel", expected, &mut mounted);
    mounted.close();
    if features.iter().any(|name| name == "mmp") && !tool::soak() {
        throughline_testkit::left_out!(
            "the kernel's writing with mmp, which waits for long (THROUGHLINE_SOAK=1 does it)"
        );
        return;
    }

    let Some(mut mounted) = mount(image, &make, true) else {
        return;
    };
    Pair::new(&mut mounted, expected).build("/b", shape);
    Pair::new(&mut mounted, expected).change("/a", 1, shape);
    let mut attributes = attributes::set(&mounted, shape, features);
    Pair::new(&mut mounted, expected).set_changed_times(shape);
    mounted.close();
    image.check("after the kernel wrote it");
    let mut volume = image
        .open_read_only()
        .expect("we open what the kernel wrote");
    compare("written by the kernel, read by us", expected, &mut volume);
    close(volume, "after it was read");

    let mut volume = image
        .open_writable()
        .expect("we open what the kernel wrote for writing");
    Pair::new(&mut volume, expected).change("/b", 0, shape);
    Pair::new(&mut volume, expected).change("/a", 2, shape);
    remove(
        &mut Pair::new(&mut volume, expected),
        "/b/many",
        &mut attributes,
    );
    Pair::new(&mut volume, expected).set_changed_times(shape);
    close(volume, "after the kernel's tree was changed");
    image.check("after we changed what the kernel wrote");
    let mut mounted = Mount::new(image, false).expect("the kernel mounts it again");
    compare(
        "the kernel's tree, changed by us, read by the kernel",
        expected,
        &mut mounted,
    );
    attributes::compare(&mounted, &attributes);
}

/// Removes a directory and its contents.
fn remove(pair: &mut Pair<'_>, dir: &str, attributes: &mut Attributes) {
    for path in pair.expected.under(dir).into_iter().rev() {
        let directory = pair.expected.stat_kind(&path).is_dir();
        pair.step(if directory {
            Step::Rmdir(path)
        } else {
            Step::Unlink(path)
        });
    }
    pair.step(Step::Rmdir(dir.into()));
    attributes.retain(|(path, _), _| pair.expected.exists(path));
}

pub(crate) fn close(volume: Volume, when: &str) {
    volume
        .close()
        .unwrap_or_else(|e| panic!("closing {when}: {e}"));
}

fn shape(features: &[String], block_bytes: u32, load: Load) -> Shape {
    let has = |name: &str| features.iter().any(|feature| feature == name);
    let (names, big_bytes) = match load {
        Load::Full => (pick(600, 3000, 3000), 5 << 20),
        Load::Small => (300, 1 << 20),
    };
    Shape {
        block_bytes: block_bytes.into(),
        cluster_bytes: block_bytes.into(),
        extents: has("extent"),
        names,
        large_file: has("large_file"),
        late_times: !features.is_empty(),
        big_bytes,
    }
}
