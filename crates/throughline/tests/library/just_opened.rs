//! Threads that set to work on a volume at the moment it was opened: each bitmap is read for the first time
//! while another thread changes it. Nobody may take that for damage, and no block or inode may be counted
//! twice.

use std::sync::Barrier;

use throughline::{OpenOptions, Volume};
use throughline_testkit::e2fs::{assert_clean, mke2fs};

const THREADS: usize = 4;
const ROUNDS: usize = 60;
const FILES: usize = 12;

/// What one thread does in its directory: files of the round before go or become shorter, new ones come.
fn work(volume: &Volume, thread: usize, round: usize) {
    let dir = volume.open_dir(format!("/{thread}")).unwrap();
    for file in 0..FILES {
        let (old, new) = (
            format!("{}-{file}", round.wrapping_sub(1)),
            format!("{round}-{file}"),
        );
        if round > 0 {
            if (file + thread).is_multiple_of(3) {
                dir.open_file(&old).unwrap().set_len(1500).unwrap();
            }
            dir.remove_file(&old).unwrap();
        }
        let made = dir.create_new(&new).unwrap();
        made.write_all_at(&[file as u8; 3000], 0).unwrap();
        if file % 4 == thread {
            made.sync_all().unwrap();
        }
    }
}

fn rounds(options: &[&str], reopen: &OpenOptions) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    // One group, so that all threads want the same bitmaps.
    let made = [&["-b", "1024", "-N", "512"], options].concat();
    if !mke2fs(&path, "7M", &made) {
        return;
    }
    let volume = OpenOptions::new().write(true).open(&path).unwrap();
    for thread in 0..THREADS {
        volume.create_dir(format!("/{thread}")).unwrap();
    }
    volume.close().unwrap();
    for round in 0..ROUNDS {
        let volume = reopen.open(&path).unwrap();
        let start = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (volume, start) = (&volume, &start);
                scope.spawn(move || {
                    start.wait();
                    work(volume, thread, round);
                });
            }
        });
        assert!(volume.stopped().is_none(), "{options:?}, round {round}");
        assert_eq!(volume.info().unwrap().error_count, 0, "round {round}");
        volume.close().unwrap();
        assert_clean(&path);
    }
}

#[test]
fn with_a_journal() {
    rounds(&["-t", "ext4"], OpenOptions::new().write(true));
}

#[test]
fn without_a_journal() {
    rounds(
        &["-t", "ext4", "-O", "^has_journal"],
        OpenOptions::new().write(true),
    );
}
