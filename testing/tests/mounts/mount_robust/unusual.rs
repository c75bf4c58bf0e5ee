//! Volumes of unusual kinds and states, compared with the kernel's ext4 on the same image.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::XattrFlags;
use throughline_testing::{DiskImage, Mount, Mounted, program};

use crate::mount_robust::work::{debugfs_write, e2fsck};

/// Whether mounts or tools for the comparison are missing.
fn skipped() -> bool {
    !Mounted::possible() || !program::has(&["debugfs", "e2fsck"])
}

/// The result of `work` on the kernel's mount of one copy and on our mount of another, each with its image
/// afterwards. `None` if the kernel does not mount it.
fn on_both<T>(
    image: &DiskImage,
    work: impl Fn(&Path) -> T,
) -> Option<((T, DiskImage), (T, DiskImage))> {
    let (theirs, ours) = (image.copy(), image.copy());
    let kernel = Mount::or_skip(theirs.path(), true)?;
    let wanted = work(kernel.root());
    kernel.close();
    let mounted = Mounted::new(ours.path(), "");
    let found = work(mounted.root());
    mounted.unmount();
    Some(((wanted, theirs), (found, ours)))
}

fn with_errno<T>(result: io::Result<T>) -> Result<T, Option<i32>> {
    result.map_err(|error| error.raw_os_error())
}

#[test]
fn inline_data_counts_as_space() {
    let recipe = "-t ext4 -I 256 -O inline_data";
    let Some(image) = (!skipped())
        .then(|| DiskImage::make(recipe, "16m"))
        .flatten()
    else {
        return;
    };
    let sizes = [0_usize, 1, 59, 60, 61, 100, 120, 5000];
    let Some(kernel) = Mount::or_skip(image.path(), true) else {
        return;
    };
    for size in sizes {
        std::fs::write(kernel.path(&format!("f{size}")), vec![1; size]).expect("a file");
    }
    std::os::unix::fs::symlink("t".repeat(100), kernel.path("link")).expect("a link");
    std::fs::create_dir(kernel.path("dir")).expect("a directory");
    kernel.close();
    let seen = |root: &Path| {
        let files = sizes.iter().map(|size| format!("f{size}"));
        let names = files.chain(["link".to_owned(), "dir".to_owned()]);
        let blocks = |name: String| {
            let meta = std::fs::symlink_metadata(root.join(&name)).expect("its attributes");
            (name, meta.blocks())
        };
        names.map(blocks).collect::<Vec<_>>()
    };
    let kernel = Mount::or_skip(image.path(), false).expect("it was mounted before");
    let wanted = seen(kernel.root());
    kernel.close();
    assert!(wanted.contains(&("f60".to_owned(), 1)), "{wanted:?}");
    let mounted = Mounted::new(image.path(), "");
    assert_eq!(seen(mounted.root()), wanted);
    mounted.unmount();
    e2fsck(image.path()).expect("sound");
}

#[test]
fn a_volume_without_a_journal_that_was_not_closed_is_written_as_the_kernel_does() {
    let Some(image) = (!skipped())
        .then(|| DiskImage::make("-t ext2", "16m"))
        .flatten()
    else {
        return;
    };
    debugfs_write(&image, "set_super_value state 0");
    let work = |root: &Path| with_errno(std::fs::write(root.join("new"), "written"));
    let Some(((wanted, theirs), (found, ours))) = on_both(&image, work) else {
        return;
    };
    assert_eq!((wanted, found), (Ok(()), Ok(())));
    // Only e2fsck may mark the volume as clean.
    let state = |image: &DiskImage| {
        let output = image.debugfs("show_super_stats -h");
        let line = output
            .lines()
            .find(|line| line.starts_with("Filesystem state:"));
        line.map(str::to_owned)
    };
    let left = state(&theirs).expect("a state");
    assert!(left.contains("not clean"), "{left}");
    assert_eq!(state(&ours), Some(left));
    e2fsck(ours.path()).expect("sound all the same");
    let mounted = Mounted::new(ours.path(), "");
    assert!(
        mounted.log().contains("not closed cleanly"),
        "{}",
        mounted.log()
    );
    mounted.unmount();
}

#[test]
fn a_damaged_inode_bitmap_costs_its_group() {
    // 16 groups; the root is in the first.
    let recipe = "-t ext4 -b 1024 -g 1024";
    let Some(image) = (!skipped())
        .then(|| DiskImage::make(recipe, "16m"))
        .flatten()
    else {
        return;
    };
    let output = image.debugfs("show_super_stats");
    let at = output.split("inode bitmap at ").nth(1).expect("a bitmap");
    let digits: String = at.chars().take_while(char::is_ascii_digit).collect();
    let block: u64 = digits.parse().expect("its block");
    let bytes = File::options()
        .write(true)
        .open(image.path())
        .expect("the image");
    bytes
        .write_all_at(&[0; 1024], block * 1024)
        .expect("damage");
    let work = |root: &Path| {
        let file = with_errno(std::fs::write(root.join("file"), "new"));
        let dir = with_errno(std::fs::create_dir(root.join("dir")));
        let below = with_errno(std::fs::write(root.join("dir/file"), "new"));
        let read = with_errno(std::fs::read(root.join("dir/file")));
        let removed = with_errno(std::fs::remove_file(root.join("file")));
        (file, dir, below, read, removed)
    };
    let Some(((wanted, _), (found, _))) = on_both(&image, work) else {
        return;
    };
    assert_eq!(wanted.0, Ok(()));
    assert_eq!(found, wanted);
}

#[test]
fn the_first_attribute_makes_revision_0_one_with_features() {
    let Some(image) = (!skipped())
        .then(|| DiskImage::make("-t ext2 -r 0", "16m"))
        .flatten()
    else {
        return;
    };
    let value = |path: &Path| {
        let mut value = [0; 16];
        let read = rustix::fs::getxattr(path, "user.name", &mut value[..]);
        read.map(|len| value[..len].to_vec())
    };
    let work = |root: &Path| {
        let path = root.join("file");
        std::fs::write(&path, "with an attribute").expect("a file");
        let none = value(&path);
        let set = rustix::fs::setxattr(&path, "user.name", b"value", XattrFlags::empty());
        (none, set, value(&path))
    };
    let Some(((wanted, theirs), (found, ours))) = on_both(&image, work) else {
        return;
    };
    assert_eq!(wanted.1, Ok(()));
    assert_eq!(found, wanted);
    let kind = |image: &DiskImage| {
        let output = image.debugfs("show_super_stats -h");
        let of_kind = [
            "Filesystem revision",
            "Filesystem features",
            "First inode",
            "Inode size",
        ];
        let lines = output
            .lines()
            .filter(|line| of_kind.iter().any(|word| line.starts_with(word)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(kind(&ours), kind(&theirs));
    e2fsck(ours.path()).expect("sound");
    if let Some(kernel) = Mount::or_skip(ours.path(), false) {
        assert_eq!(value(&kernel.path("file")), Ok(b"value".to_vec()));
    }
}
