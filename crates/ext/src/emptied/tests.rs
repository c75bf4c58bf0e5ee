//! Deferred truncations ended by several threads at once.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::testing::Image;
use crate::{Fs, NewInode, NewKind, OpenOptions};

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

/// Returns whether the truncation was deferred when the file was removed.
fn empty_and_remove(fs: &Fs) -> bool {
    let root = fs.root().expect("the root");
    let new = NewInode {
        permissions: 0o600,
        uid: 0,
        gid: 0,
        umask: 0,
    };
    let file = fs
        .create(&root, b"file", NewKind::File, new)
        .expect("create");
    fs.write_at(&file, 0, &[IoSlice::new(&[7; 3000])])
        .expect("write");
    crate::coherent::flush(&file, crate::coherent::ALL).expect("flush");
    fs.truncate(&file, 0).expect("truncate");
    let is_held = file.emptied.is_some();
    fs.unlink(&root, b"file").expect("unlink");
    is_held
}
