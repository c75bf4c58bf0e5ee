//! A signal while programs are at work: the server ends, and what they were told was written is in the image, which is closed.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;

use super::{image, mounted, signal, skipped, wait, wait_gone};

const WRITERS: usize = 3;
const PIECE: usize = 4096;
/// Pieces that are written before the signal comes.
const PIECES: u64 = 400;

/// Byte `at` of a writer's file.
fn byte(writer: usize, at: usize) -> u8 {
    (at / 7 + writer * 31) as u8
}

/// Appends pieces, with a commit now and then and names besides, until an error comes: how many bytes were taken.
fn write(writer: usize, path: &Path, written: &AtomicU64) -> usize {
    let mut taken = 0;
    let Ok(mut file) = File::create(path) else {
        return 0;
    };
    for round in 0.. {
        let piece: Vec<u8> = (taken..taken + PIECE).map(|at| byte(writer, at)).collect();
        let synced = match round % 16 {
            7 => file.sync_all(),
            _ => Ok(()),
        };
        let name = path.with_extension((round % 8).to_string());
        let named = match round % 2 {
            0 => fs::write(&name, b"small"),
            _ => fs::remove_file(path.with_extension(((round - 1) % 8).to_string())),
        };
        if synced.is_err() || named.is_err() || file.write_all(&piece).is_err() {
            break;
        }
        taken += PIECE;
        written.fetch_add(1, Ordering::Relaxed);
    }
    taken
}

#[test]
fn a_signal_under_load_loses_nothing_that_was_written() {
    if skipped() {
        return;
    }
    for ending in [Signal::TERM, Signal::INT] {
        let image = image();
        let point = mounted(&image, "");
        let pid = point.pid();
        let written = AtomicU64::new(0);
        let paths: Vec<PathBuf> = (0..WRITERS)
            .map(|writer| point.path(&format!("file-{writer}")))
            .collect();
        let taken: Vec<usize> = std::thread::scope(|scope| {
            let writers: Vec<_> = paths
                .iter()
                .enumerate()
                .map(|(writer, path)| {
                    let written = &written;
                    scope.spawn(move || write(writer, path, written))
                })
                .collect();
            wait("the writers are at work", || {
                written.load(Ordering::Relaxed) >= PIECES
                    || writers.iter().all(|writer| writer.is_finished())
            });
            signal(pid, ending);
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .collect()
        });
        wait_gone(pid);
        assert!(!point.is_mounted());
        image.assert_clean();
        let features = image.debugfs("stats -h");
        assert!(!features.contains("needs_recovery"), "{features}");
        assert!(written.load(Ordering::Relaxed) >= PIECES);
        for (writer, taken) in taken.into_iter().enumerate() {
            let found = image.contents(&format!("/file-{writer}"));
            assert!(found.len() >= taken, "{} of {taken} bytes", found.len());
            let mut bytes = found.iter().enumerate();
            assert!(bytes.all(|(at, found)| *found == byte(writer, at)));
        }
    }
}
