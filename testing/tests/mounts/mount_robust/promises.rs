//! What is durable when a call returns, or after the commit interval, one promise at a time: the server is
//! killed right afterwards.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use throughline_testing::sectors::filled;
use throughline_testing::{DiskImage, Mounted, View};

use crate::mount_robust::work::{PATIENCE, e2fsck};

/// An image that is mounted again after each kill.
struct Victim {
    image: DiskImage,
    options: &'static str,
}

impl Victim {
    fn new(options: &'static str) -> Option<Victim> {
        let possible = Mounted::possible();
        let image = possible
            .then(|| DiskImage::make("-t ext4", "64m"))
            .flatten()?;
        Some(Victim { image, options })
    }

    /// Runs `work` on a mount and kills the server; then `judge` checks what a new mount shows. The result
    /// of `work`, such as open files, is kept until the kill.
    #[track_caller]
    fn survives<T>(&self, what: &str, work: impl FnOnce(&Path) -> T, judge: impl FnOnce(&Path)) {
        let mut mounted = Mounted::new(self.image.path(), self.options);
        let kept = work(mounted.root());
        mounted.kill();
        drop(kept);
        drop(mounted);
        let mounted = Mounted::new(self.image.path(), self.options);
        judge(mounted.root());
        mounted.unmount();
        e2fsck(self.image.path()).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
}

fn write(path: &Path, bytes: &[u8]) -> File {
    let mut file = File::create(path).expect("a file");
    file.write_all(bytes).expect("a write");
    file
}

fn sync_dir(dir: &Path) {
    let dir = File::open(dir).expect("a directory");
    dir.sync_all().expect("its sync");
}

#[track_caller]
fn holds(path: &Path, bytes: &[u8]) {
    let found = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(found == bytes, "{}: wrong bytes", path.display());
}

#[test]
fn a_synced_file_has_its_name_and_data() {
    let Some(victim) = Victim::new("") else {
        return;
    };
    let bytes = filled(300 << 10, 1, 0, 1);
    victim.survives(
        "made in a new directory and synced",
        |root| {
            let dir = root.join("one/two/three");
            std::fs::create_dir_all(&dir).expect("directories");
            let file = write(&dir.join("file"), &bytes);
            file.sync_all().expect("a sync");
            file
        },
        |root| holds(&root.join("one/two/three/file"), &bytes),
    );
    victim.survives(
        "renamed, linked and synced",
        |root| {
            let old = root.join("one/two/three/file");
            std::fs::rename(&old, root.join("renamed")).expect("a rename");
            std::fs::hard_link(root.join("renamed"), root.join("one/linked")).expect("a link");
            let file = File::open(root.join("renamed")).expect("the file");
            file.sync_all().expect("a sync");
        },
        |root| {
            holds(&root.join("renamed"), &bytes);
            holds(&root.join("one/linked"), &bytes);
            assert!(!root.join("one/two/three/file").exists());
        },
    );
    let newer = filled(64 << 10, 1, 4096, 2);
    victim.survives(
        "overwritten, lengthened and fdatasynced",
        |root| {
            let file = OpenOptions::new().write(true).open(root.join("renamed"));
            let file = file.expect("the file");
            file.write_all_at(&newer, 4096).expect("a write");
            file.write_all_at(&newer, 1 << 20).expect("a write");
            file.sync_data().expect("a sync");
            file
        },
        |root| {
            let mut whole = bytes.clone();
            whole[4096..][..newer.len()].copy_from_slice(&newer);
            whole.resize(1 << 20, 0);
            whole.extend_from_slice(&newer);
            holds(&root.join("renamed"), &whole);
        },
    );
}

#[test]
fn a_synced_directory_has_its_names() {
    let Some(victim) = Victim::new("") else {
        return;
    };
    let names = |root: &Path| {
        let mut names: Vec<String> = std::fs::read_dir(root.join("dir"))
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().into_string())
            .map(|name| name.expect("plain names"))
            .collect();
        names.sort();
        names
    };
    let seen = RefCell::new(Vec::new());
    victim.survives(
        "made, renamed and removed in a directory",
        |root| {
            let dir = root.join("dir");
            std::fs::create_dir(&dir).expect("a directory");
            sync_dir(&dir);
            for number in 0..60 {
                drop(write(&dir.join(format!("file-{number}")), b"not synced"));
            }
            std::fs::create_dir(dir.join("below")).expect("a directory");
            symlink("nowhere", dir.join("symbolic")).expect("a symbolic link");
            std::fs::hard_link(dir.join("file-1"), dir.join("hard")).expect("a link");
            std::fs::rename(dir.join("file-2"), dir.join("file-3")).expect("a rename");
            std::fs::remove_file(dir.join("file-4")).expect("a removal");
            sync_dir(&dir);
            *seen.borrow_mut() = names(root);
        },
        |root| {
            let seen = seen.borrow();
            assert_eq!(seen.len(), 61, "{seen:?}");
            assert_eq!(names(root), *seen);
        },
    );
    victim.survives(
        "all removed",
        |root| {
            std::fs::remove_dir_all(root.join("dir")).expect("a removal");
            sync_dir(root);
        },
        |root| assert!(!root.join("dir").exists()),
    );
}

/// `O_SYNC` and `O_DSYNC`, also with `O_APPEND`, through the kernel's cache and bypassing it.
#[test]
fn a_synchronous_write_is_there() {
    let Some(victim) = Victim::new("") else {
        return;
    };
    let flags = [
        OFlags::SYNC,
        OFlags::DSYNC,
        OFlags::SYNC | OFlags::DIRECT,
        OFlags::DSYNC | OFlags::APPEND,
    ];
    let name = |number: usize, read: bool| format!("file-{number}-{read}");
    let each = || (0..flags.len()).flat_map(|number| [(number, true), (number, false)]);
    let bytes = filled(20 << 10, 5, 0, 9);
    victim.survives(
        "written synchronously",
        |root| {
            let write = |(number, read): (usize, bool)| {
                let file = OpenOptions::new()
                    .write(true)
                    .read(read)
                    .create(true)
                    .custom_flags(flags[number].bits().cast_signed())
                    .open(root.join(name(number, read)))
                    .expect("a file");
                for (index, part) in bytes.chunks(4096).enumerate() {
                    file.write_all_at(part, index as u64 * 4096)
                        .expect("a write");
                }
                file
            };
            each().map(write).collect::<Vec<_>>()
        },
        |root| each().for_each(|(number, read)| holds(&root.join(name(number, read)), &bytes)),
    );
}

#[test]
fn the_options_sync_and_dirsync_make_changes_durable_at_once() {
    let bytes = filled(200 << 10, 3, 0, 4);
    if let Some(victim) = Victim::new("sync") {
        victim.survives(
            "written with -o sync",
            |root| write(&root.join("file"), &bytes),
            |root| holds(&root.join("file"), &bytes),
        );
    }
    let Some(victim) = Victim::new("dirsync") else {
        return;
    };
    victim.survives(
        "names made with -o dirsync",
        |root| {
            std::fs::create_dir(root.join("dir")).expect("a directory");
            drop(write(&root.join("dir/old"), b""));
            std::fs::rename(root.join("dir/old"), root.join("dir/new")).expect("a rename");
            symlink("there", root.join("dir/link")).expect("a link");
            std::fs::remove_dir(root.join("lost+found")).expect("a removal");
        },
        |root| {
            let names: Vec<_> = View::of(root).entries().keys().cloned().collect();
            let names: Vec<_> = names.iter().map(|n| String::from_utf8_lossy(n)).collect();
            assert_eq!(names, ["", "dir", "dir/link", "dir/new"]);
        },
    );
}

/// `sync(2)` does not reach a FUSE server, so data must become durable by its age: with `commit=1`,
/// everything is durable soon although no program syncs. A copy of the image, opened for reading while the
/// mount is idle, shows whether it is.
#[test]
fn unsynced_data_becomes_durable_with_age() {
    let Some(victim) = Victim::new("commit=1") else {
        return;
    };
    let bytes = filled(3 << 20, 8, 0, 2);
    let mut took = Duration::ZERO;
    victim.survives(
        "left alone with commit=1",
        |root| {
            std::fs::create_dir(root.join("dir")).expect("a directory");
            let file = write(&root.join("dir/open"), &bytes);
            drop(write(&root.join("dir/old"), &bytes));
            std::fs::rename(root.join("dir/old"), root.join("closed")).expect("a rename");
            let begin = Instant::now();
            while !durable(&victim.image, &["dir/open", "closed"], &bytes) {
                assert!(begin.elapsed() < PATIENCE, "not durable in {PATIENCE:?}");
                std::thread::sleep(Duration::from_millis(100));
            }
            took = begin.elapsed();
            file
        },
        |root| {
            holds(&root.join("dir/open"), &bytes);
            holds(&root.join("closed"), &bytes);
            assert!(!root.join("dir/old").exists());
        },
    );
    eprintln!("with commit=1, durable after {took:?}");
}

/// Whether files hold `bytes` in the current image. A copy taken while the image is being written may not
/// be a valid volume.
fn durable(image: &DiskImage, paths: &[&str], bytes: &[u8]) -> bool {
    let copy = image.copy();
    let volume = throughline::OpenOptions::new().open(copy.path());
    let Ok(volume) = volume else { return false };
    let holds = |path: &&str| {
        let mut found = vec![0; bytes.len()];
        let file = volume.open_file(format!("/{path}"));
        file.is_ok_and(|file| file.read_exact_at(&mut found, 0).is_ok() && found == bytes)
    };
    paths.iter().all(holds)
}
