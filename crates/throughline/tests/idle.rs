//! A volume that nobody uses costs nothing: its threads sleep. And what was done is durable in time without a
//! sync.

use std::time::{Duration, Instant};

use throughline::{OpenOptions, Volume, VolumeOptions};
use throughline_testkit::e2fs::mke2fs;

/// However slow the machine is.
const LONG: Duration = Duration::from_secs(90);

fn volume(options: &[&str], open: &OpenOptions) -> Option<(tempfile::TempDir, Volume)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    mke2fs(&path, "16M", options).then(|| (dir, open.open(&path).unwrap()))
}

/// Times that the library's threads of this process went to sleep, and how many threads there are.
fn sleeps() -> (u64, usize) {
    let mut all = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let text = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        if !text("comm").starts_with("tl-") {
            continue;
        }
        let status = text("status");
        let count = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
        };
        all.0 += count("voluntary_ctxt_switches:");
        all.1 += 1;
    }
    all
}

// One test: the threads of another would be counted too.
#[test]
fn changes_become_durable_in_time_and_then_threads_sleep() {
    // Looks every few milliseconds while there is something to look for.
    let mut open = OpenOptions::new();
    open.write(true);
    open.volume(VolumeOptions::new().durable_within(Duration::from_millis(200)));
    for options in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^has_journal"]] {
        let Some((_dir, volume)) = volume(options, &open) else {
            return;
        };
        let info = volume.info().unwrap();
        assert_eq!(info.dirty_age, Duration::from_millis(50));
        assert_eq!(info.commit_interval, Duration::from_millis(100));
        let file = volume.create_new("/file").unwrap();
        file.write_all_at(&[1; 100_000], 0).unwrap();
        let began = Instant::now();
        while volume.cache_state().throttle.dirty_bytes > 0 || volume.journal_counts().commits == 0
        {
            assert!(began.elapsed() < LONG, "nothing was written: {options:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        // The last commit may be of what the flusher entered. Then they sleep, one second without a move is
        // seen.
        let began = Instant::now();
        loop {
            let before = sleeps();
            assert!(before.1 > 0, "no threads are seen");
            std::thread::sleep(Duration::from_secs(1));
            if sleeps() == before {
                break;
            }
            assert!(began.elapsed() < LONG, "threads never rest: {options:?}");
        }
        drop(file);
        volume.close().unwrap();
    }
}
