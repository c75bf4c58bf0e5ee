//! Encrypted directories without their key: names and links look as in the kernel, and can be looked up. The
//! kernel makes the image and is the reference.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use throughline_testing::{DiskImage, Mount, Mounted, program};

use crate::mount_robust::work::{PATIENCE, e2fsck};

/// Lets the kernel encrypt a new directory; `None` if it or `xfs_io` cannot.
fn encrypt(root: &Path, dir: &Path, key: &Path) -> Option<()> {
    let mut command = Command::new("xfs_io");
    let key = Stdio::from(File::open(key).expect("the key"));
    let added = program::run_on(command.args(["-c", "add_enckey"]).arg(root), key, PATIENCE);
    let policy = added.stdout.split_whitespace().last()?.to_owned();
    std::fs::create_dir(dir).expect("a directory");
    let mut command = Command::new("xfs_io");
    command
        .arg("-c")
        .arg(format!("set_encpolicy {policy}"))
        .arg(dir);
    let set = program::run(&mut command, PATIENCE);
    (set.status.success() && set.stderr.is_empty() && set.stdout.is_empty()).then_some(())
}

/// A directory of one block with files, links and a directory, and one of many blocks: `large`.
fn populate(root: &Path, key: &Path) -> Option<()> {
    let dir = root.join("one");
    encrypt(root, &dir, key)?;
    for len in [1, 15, 16, 17, 31, 32, 33, 64, 140, 150, 160, 200, 254, 255] {
        let name = "n".repeat(len);
        std::fs::write(dir.join(&name), &name).expect("a file");
    }
    for len in [1, 20, 40, 57, 58, 59, 100, 500, 900] {
        let link = dir.join(format!("link-{len}"));
        std::os::unix::fs::symlink("t".repeat(len), link).expect("a link");
    }
    std::fs::create_dir(dir.join("below")).expect("a directory");
    std::fs::write(dir.join("below/file"), "of a directory below").expect("a file");
    let large = root.join("large");
    encrypt(root, &large, key)?;
    for number in 0..150 {
        std::fs::write(large.join(format!("short-{number}")), "").expect("a file");
        std::fs::write(large.join(format!("{number}-{}", "long".repeat(50))), "").expect("a file");
    }
    Some(())
}

pub(crate) fn image(recipe: &str) -> Option<DiskImage> {
    if !Mounted::possible() || !program::has(&["xfs_io", "e2fsck"]) {
        return None;
    }
    let image = DiskImage::make(recipe, "32m")?;
    let key = image.sibling("key");
    std::fs::write(&key, [7; 64]).expect("a key");
    let kernel = Mount::or_skip(image.path(), true)?;
    let possible = populate(kernel.root(), &key);
    kernel.close();
    if possible.is_none() {
        throughline_testkit::left_out!("the kernel, or xfs_io, does not encrypt directories");
    }
    possible.map(|()| image)
}

/// What is visible of a file: inode number, mode, size, links, and target.
pub(crate) type Seen = (u64, u32, u64, u64, Option<PathBuf>);

/// Everything that a listing shows below a directory, each entry looked up by its listed name.
fn seen(dir: &Path, at: &Path, all: &mut BTreeMap<PathBuf, Seen>) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name();
        let (path, at) = (dir.join(&name), at.join(&name));
        let meta = std::fs::symlink_metadata(&path)?;
        let target = meta
            .is_symlink()
            .then(|| std::fs::read_link(&path))
            .transpose()?;
        all.insert(
            at.clone(),
            (meta.ino(), meta.mode(), meta.len(), meta.nlink(), target),
        );
        if meta.is_dir() {
            seen(&path, &at, all)?;
        }
    }
    Ok(())
}

pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = BTreeMap::new();
    seen(root, Path::new(""), &mut all).expect("all of it can be listed and looked up");
    all
}

/// Names that do not exist, or existed in another form: the errors of looking them up and removing them.
fn answers(root: &Path, shown: &OsStr) -> Vec<Result<(), Option<i32>>> {
    let errno_of = |result: io::Result<()>| result.map_err(|e| e.raw_os_error());
    let mut changed = shown.to_string_lossy().into_owned();
    changed.pop();
    let names = [
        OsString::from("a"),
        "no form".into(),
        "n".repeat(200).into(),
        changed.into(),
    ];
    let there = [shown.to_owned()];
    names
        .iter()
        .chain(&there)
        .map(|name| root.join("one").join(name))
        .flat_map(|path| {
            [
                errno_of(std::fs::symlink_metadata(&path).map(drop)),
                errno_of(std::fs::remove_file(&path)),
                errno_of(File::open(&path).map(drop)),
            ]
        })
        .collect()
}

#[test]
fn encrypted_names_are_shown_and_looked_up_as_the_kernel_does() {
    for recipe in [
        "-t ext4 -b 1024 -O encrypt",
        "-t ext4 -b 4096 -O encrypt,^metadata_csum",
        "-t ext4 -b 1024 -O encrypt,^dir_index",
    ] {
        let Some(image) = image(recipe) else { return };
        let Some(kernel) = Mount::or_skip(image.path(), false) else {
            return;
        };
        let wanted = tree(kernel.root());
        assert!(wanted.len() > 300, "{recipe}: {}", wanted.len());
        let one = wanted
            .keys()
            .find(|path| path.starts_with("one/"))
            .expect("a name");
        let shown = one.file_name().expect("a name");
        let refused = answers(kernel.root(), shown);
        kernel.close();
        let mounted = Mounted::new(image.path(), "ro");
        let found = tree(mounted.root());
        for (path, seen) in &wanted {
            assert_eq!(found.get(path), Some(seen), "{recipe}: {}", path.display());
        }
        assert_eq!(found.len(), wanted.len(), "{recipe}");
        assert_eq!(answers(mounted.root(), shown), refused, "{recipe}");
        mounted.unmount();
        e2fsck(image.path()).expect("sound");
    }
}
