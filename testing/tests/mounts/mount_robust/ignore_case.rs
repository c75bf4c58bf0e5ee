//! A directory that ignores case, through the mount. The kernel caches names by their bytes: no spelling of a
//! name may be stale after another one was made, removed or renamed.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{IFlags, OFlags};
use throughline_testing::{DiskImage, Mounted};

use crate::mount_robust::work::e2fsck;

/// `FS_CASEFOLD_FL`.
const IGNORES_CASE: IFlags = IFlags::from_bits_retain(0x4000_0000);

fn set_ignores_case(dir: &Path) -> rustix::io::Result<()> {
    let dir = File::open(dir).expect("it opens");
    let flags = rustix::fs::ioctl_getflags(&dir)?;
    rustix::fs::ioctl_setflags(&dir, flags | IGNORES_CASE)
}

fn is_missing(path: &Path) -> bool {
    matches!(fs::symlink_metadata(path), Err(error) if error.kind() == ErrorKind::NotFound)
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).expect("it exists").ino()
}

#[test]
fn no_spelling_of_a_name_is_stale() {
    if !Mounted::possible() {
        return;
    }
    for options in ["", "small_files", "without=direct_io"] {
        let Some(image) = DiskImage::make("-t ext4 -b 1024 -O casefold", "32m") else {
            return;
        };
        let mounted = Mounted::new(image.path(), options);
        let dir = mounted.root().join("dir");
        fs::create_dir(&dir).expect("a directory");
        let spelled = |name: &str| dir.join(name);
        let all = ["straße", "STRASSE", "Strasse"].map(spelled);
        // Missing names are known before the directory ignores case, and after.
        assert!(all.iter().all(|path| is_missing(path)));
        set_ignores_case(&dir).expect("it is empty");
        for round in 0..3 {
            assert!(all.iter().all(|path| is_missing(path)), "round {round}");
            let [first, second, third] = [0, 1, 2].map(|at| &all[(round + at) % 3]);
            fs::write(first, "first").expect("a new file");
            let ino = inode(first);
            assert!(all.iter().all(|path| inode(path) == ino), "round {round}");
            let exclusive = File::options().write(true).create_new(true).open(second);
            assert_eq!(
                exclusive.expect_err("it exists").kind(),
                ErrorKind::AlreadyExists
            );
            assert!(fs::create_dir(third).is_err());
            fs::write(third, "third").expect("the same file");
            assert_eq!(fs::read(second).expect("the same file"), b"third");
            let listed: Vec<_> = fs::read_dir(&dir)
                .expect("it is listed")
                .flatten()
                .collect();
            assert_eq!(listed.len(), 1, "round {round}");
            assert_eq!(listed[0].file_name(), first.file_name().expect("a name"));
            // Removed under another name.
            fs::remove_file(second).expect("removed");
            assert!(all.iter().all(|path| is_missing(path)), "round {round}");
            // Renamed away under another name, and back.
            fs::write(third, "third").expect("a new file");
            assert!(all.iter().all(|path| path.exists()), "round {round}");
            fs::rename(first, spelled("Other")).expect("renamed");
            assert!(all.iter().all(|path| is_missing(path)), "round {round}");
            assert_eq!(fs::read(spelled("OTHER")).expect("there"), b"third");
            fs::write(first, "replaced").expect("a new file");
            fs::rename(spelled("oTHER"), second).expect("replaced");
            assert!(
                all.iter()
                    .all(|path| fs::read(path).expect("there") == b"third")
            );
            assert!(is_missing(&spelled("Other")));
            fs::remove_file(third).expect("removed");
        }
        // Directories, one of them the working directory of a shell.
        fs::create_dir(spelled("Sub")).expect("a directory");
        fs::write(spelled("SUB/file"), "").expect("it is inherited");
        assert!(spelled("sub/FILE").exists());
        let held = rustix::fs::open(spelled("sub"), OFlags::PATH, rustix::fs::Mode::empty());
        fs::remove_file(spelled("sUb/File")).expect("removed");
        fs::remove_dir(spelled("suB")).expect("empty");
        drop(held);
        assert!(is_missing(&spelled("Sub")) && is_missing(&spelled("SUB")));
        for at in 0..500 {
            fs::write(spelled(&format!("Many-{at}")), "").expect("a new file");
        }
        for at in 0..500 {
            assert!(spelled(&format!("mANY-{at}")).exists());
            fs::remove_file(spelled(&format!("MANY-{at}"))).expect("removed");
            assert!(is_missing(&spelled(&format!("Many-{at}"))));
        }
        assert!(set_ignores_case(mounted.root()).is_err(), "it is not empty");
        mounted.unmount();
        e2fsck(image.path()).expect("sound");
    }
}
