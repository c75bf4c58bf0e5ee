//! Deferred truncations ended by several threads at once, and by changes of directories.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::volume::Next;
use crate::inode::Inode;
use crate::testing::Image;
use crate::{Attributes, Fs, NewInode, NewKind, OpenOptions, RenameMode};

const ROUNDS: usize = 1500;

/// Files are truncated and removed while other threads carry out the deferred truncations. A file that is
/// freed meanwhile is not an error.
#[test]
fn a_file_may_be_freed_while_its_truncation_is_carried_out() {
    let Some(image) = Image::make("24M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let options = OpenOptions {
        write: true,
        ..OpenOptions::default()
    };
    let fs = Arc::new(image.try_open(&options).expect("the volume opens"));
    fs.enable_deferred_truncation();
    let ended = AtomicBool::new(false);
    let held = std::thread::scope(|scope| {
        let others = [0, 1].map(|_| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    fs.finish_emptied()?;
                    std::thread::yield_now();
                }
                crate::Result::Ok(())
            })
        });
        let held = (0..ROUNDS).filter(|_| empty_and_remove(&fs)).count();
        ended.store(true, Ordering::Relaxed);
        for other in others {
            other.join().expect("no panic").expect("all is carried out");
        }
        held
    });
    assert!(held > 0, "no truncation was held back");
    assert_eq!(fs.emptied.blocks(), 0, "what is done is counted");
    assert!(!fs.emptied.is_any(), "what is done is kept");
    fs.shut_down().expect("shut down");
    fs.check_counts().expect("counts");
    drop(fs);
    image.check("emptied and removed");
}

/// Whoever rewrites a file has the whole time for it, although another has truncated it just before; but the
/// disk does not keep the old contents for ever.
#[test]
fn a_file_that_is_truncated_again_gets_more_time_but_not_for_ever() {
    let Some(image) = Image::make("24M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let options = OpenOptions {
        write: true,
        ..OpenOptions::default()
    };
    let fs = Arc::new(image.try_open(&options).expect("the volume opens"));
    fs.enable_deferred_truncation();
    let age = fs.cache.writeback().age();
    let root = fs.root().expect("the root");
    let before = Instant::now();
    let file = emptied(&fs, &root);
    let between = Instant::now();
    fs.truncate(&file, 0).expect("truncate");
    let due = || match fs.emptied.next(before) {
        Next::At(due) => due,
        Next::Now(_) | Next::Nothing => panic!("one truncation is deferred"),
    };
    assert!(due() >= between + age, "as long as from the second one on");
    fs.emptied.add_again(file.ino, before + age * 10, age);
    let last = due();
    assert!(last >= before + age * 2 && last <= between + age * 2);
    fs.shut_down().expect("shut down");
    drop(fs);
    image.check("truncated again");
}

/// A directory that gets wider rights or another place shows the files below it to others.
#[test]
fn a_published_directory_holds_no_truncation() {
    let Some(image) = Image::make("24M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let options = OpenOptions {
        write: true,
        ..OpenOptions::default()
    };
    let fs = Arc::new(image.try_open(&options).expect("the volume opens"));
    fs.enable_deferred_truncation();
    let root = fs.root().expect("the root");
    let dir = |name: &[u8]| fs.create(&root, name, NewKind::Dir, NEW).expect("mkdir");
    let (public, private) = (dir(b"public"), dir(b"private"));
    let allow = |mode| {
        let set = Attributes {
            permissions: Some(mode),
            ..Attributes::default()
        };
        fs.set_attributes(&private, &set).expect("chmod");
    };
    allow(0o700);
    let file = emptied(&fs, &private);
    allow(0o500);
    assert!(file.emptied.is_some(), "fewer rights");
    allow(0o750);
    assert!(!file.emptied.is_some(), "more rights");
    let file = emptied(&fs, &private);
    fs.open_inode(&file).expect("open");
    allow(0o755);
    assert!(!file.emptied.is_some(), "more rights, an open file");
    fs.close_inode(&file).expect("close");
    let file = emptied(&fs, &private);
    let rename = |from, to, name: &[u8]| {
        fs.rename(from, b"private", to, name, RenameMode::Replace)
            .expect("a rename");
    };
    rename(&root, &root, b"other");
    assert!(!file.emptied.is_some(), "renamed in its directory");
    fs.rename(&root, b"other", &root, b"private", RenameMode::Replace)
        .expect("back");
    let file = emptied(&fs, &private);
    rename(&root, &public, b"private");
    assert!(!file.emptied.is_some(), "moved");
    fs.shut_down().expect("shut down");
    fs.check_counts().expect("counts");
    drop(fs);
    image.check("directories of emptied files");
}

const NEW: NewInode = NewInode {
    permissions: 0o600,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// A new file with a deferred truncation.
fn emptied(fs: &Fs, dir: &Arc<Inode>) -> Arc<Inode> {
    let name = format!("file{}", fs.journal.committed().0);
    let file = fs
        .create(dir, name.as_bytes(), NewKind::File, NEW)
        .expect("create");
    fs.write_at(&file, 0, &[IoSlice::new(&[7; 3000])])
        .expect("write");
    fs.sync_file(&file).expect("sync");
    fs.truncate(&file, 0).expect("truncate");
    file
}

/// Returns whether the truncation was deferred when the file was removed.
fn empty_and_remove(fs: &Fs) -> bool {
    let root = fs.root().expect("the root");
    let file = fs
        .create(&root, b"file", NewKind::File, NEW)
        .expect("create");
    fs.write_at(&file, 0, &[IoSlice::new(&[7; 3000])])
        .expect("write");
    crate::coherent::flush(&file, crate::coherent::ALL).expect("flush");
    fs.truncate(&file, 0).expect("truncate");
    let is_held = file.emptied.is_some();
    fs.unlink(&root, b"file").expect("unlink");
    is_held
}
