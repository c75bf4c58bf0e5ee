//! The flusher's list of dirty files: none is lost or listed twice, and streams notify it once.

use std::sync::Arc;

use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::mpsc;
use shuttle::thread;

use crate::every_schedule;
use crate::file_state::FileState;

#[test]
fn a_dirty_file_is_always_written_in_the_end() {
    every_schedule(|| {
        let (file, dirty) = (Arc::new(FileState::default()), Arc::new(AtomicU64::new(0)));
        let (to, from) = mpsc::channel();
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (file, dirty, to) = (Arc::clone(&file), Arc::clone(&dirty), to.clone());
                thread::spawn(move || {
                    for _ in 0..2 {
                        dirty.fetch_add(1, Ordering::Relaxed);
                        if file.enlist() {
                            to.send(()).expect("the flusher is there");
                        }
                    }
                })
            })
            .collect();
        drop(to);
        let mut written = 0;
        // Ends when the writers are gone and no message is left.
        while from.recv().is_ok() {
            loop {
                written += dirty.swap(0, Ordering::Relaxed);
                if file.delist(|| dirty.load(Ordering::Relaxed) > 0) {
                    break;
                }
            }
        }
        for writer in writers {
            writer.join().expect("no thread panics");
        }
        assert_eq!(written, 4, "a dirty file is unknown to the flusher");
    });
}

#[test]
fn a_file_is_listed_once() {
    every_schedule(|| {
        let file = Arc::new(FileState::default());
        let first = {
            let file = Arc::clone(&file);
            thread::spawn(move || file.enlist())
        };
        let second = file.enlist();
        assert!(first.join().expect("no thread panics") != second);
        assert!(!file.delist(|| true), "still dirty: stays listed");
        assert!(!file.enlist());
        assert!(file.delist(|| false));
        assert!(file.enlist());
    });
}

#[test]
fn streams_notify_once_until_they_are_read() {
    let test = || {
        let file = FileState::default();
        let passed = || file.take_passed().into_iter().collect::<Vec<_>>();
        assert!(file.stream_passed(0..3));
        assert!(!file.stream_passed(0..8), "not read yet");
        assert!(!file.stream_passed(20..30), "another stream");
        assert_eq!(passed(), [0..8, 20..30]);
        assert_eq!(passed(), []);
        assert!(file.stream_passed(0..2), "a stream that restarted");
        assert!(file.start(5..6));
        assert!(!file.start(1..2));
        assert_eq!(
            file.take_started().into_iter().collect::<Vec<_>>(),
            [5..6, 1..2]
        );
    };
    shuttle::check_random_with_seed(test, 1, 1);
}
