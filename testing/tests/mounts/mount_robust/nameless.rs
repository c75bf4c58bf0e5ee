//! Names that lead to an inode whose link count is 0. The kernel treats them as damage. No call may hang, and
//! reading changes nothing.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use throughline_testing::{DiskImage, Mount, Mounted, program};

use crate::mount_robust::work::debugfs_write;

/// Every lookup reaches the server.
const ASKED: &str = "without=entry_cache,without=readdirplus";

/// `f1`, `f3` are sound; `f2` and `hard` are one file, and `dir` is a directory, whose counts are 0.
fn image() -> Option<DiskImage> {
    let possible = Mounted::possible() && program::has(&["debugfs", "e2fsck"]);
    let image = possible
        .then(|| DiskImage::make("-t ext4 -b 1024", "16m"))
        .flatten()?;
    let mounted = Mounted::new(image.path(), "");
    for name in ["f1", "f2", "f3"] {
        std::fs::write(mounted.path(name), name).expect("a file");
    }
    std::fs::hard_link(mounted.path("f2"), mounted.path("hard")).expect("a name");
    std::fs::create_dir(mounted.path("dir")).expect("a directory");
    mounted.unmount();
    for name in ["f2", "dir"] {
        debugfs_write(&image, &format!("set_inode_field {name} links_count 0"));
    }
    Some(image)
}

/// For each name in the root: its inode number, or the error of its lookup.
fn seen(root: &Path) -> BTreeMap<String, Result<u64, Option<i32>>> {
    let names = std::fs::read_dir(root).expect("the root");
    let names = names.map(|entry| entry.expect("a name").file_name());
    names
        .map(|name| {
            let meta = std::fs::symlink_metadata(root.join(&name));
            let led = meta.map(|meta| meta.ino()).map_err(|e| e.raw_os_error());
            (name.to_string_lossy().into_owned(), led)
        })
        .collect()
}

#[test]
fn a_look_at_an_inode_without_names_ends_and_frees_nothing() {
    let Some(image) = image() else { return };
    let ino_of = |request: &str| image.debugfs(&format!("{request}\ntesti <13>\ntesti <15>"));
    let before = ino_of("stat <13>\nstat <15>");
    assert!(before.contains("Links: 0"), "{before}");
    let kernel = Mount::or_skip(image.path(), false).map(|kernel| seen(kernel.root()));
    for options in [format!("ro,{ASKED}"), ASKED.to_owned()] {
        let mounted = Mounted::new(image.path(), &options);
        let first = seen(mounted.root());
        let damaged = Err(Some(Errno::UCLEAN.raw_os_error()));
        for name in ["f2", "hard"] {
            assert_eq!(first.get(name), Some(&damaged), "{name}: {first:?}");
        }
        // Mounted read-only, a directory is readable whatever its count is: `debugfs` also reads them.
        let is_read = options.starts_with("ro");
        let dir = if is_read { Ok(15) } else { damaged };
        assert_eq!(first.get("dir"), Some(&dir), "{first:?}");
        // Again, after all cached state of the first time is gone.
        assert_eq!(seen(mounted.root()), first);
        let removed = std::fs::remove_file(mounted.path("hard")).map_err(|e| e.raw_os_error());
        assert!(removed.is_err(), "{removed:?}");
        if let Some(kernel) = kernel.as_ref().filter(|_| !is_read) {
            assert_eq!(&first, kernel);
        }
        let (_, log) = mounted.end();
        assert!(log.contains("has a link count of 0"), "{log}");
        assert_eq!(ino_of("stat <13>\nstat <15>"), before);
    }
}
