//! What a volume says of itself, and its label.

use std::path::PathBuf;
use std::time::Instant;

use throughline::{Error, OpenOptions, Reason};
use throughline_testkit::e2fs::{assert_clean, mke2fs, tool};

fn image(size: &str, options: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let options = [&["-t", "ext4"], options].concat();
    mke2fs(&path, size, &options).then_some((dir, path))
}

#[test]
fn status_shows_what_was_done() {
    let Some((_dir, path)) = image("32M", &[]) else {
        return;
    };
    let volume = OpenOptions::new()
        .write(true)
        .cache_bytes(Some(8 << 20))
        .open(&path)
        .unwrap();
    let file = volume.create_new("/file").unwrap();
    file.write_all_at(&[1; 1 << 20], 0).unwrap();
    let dirty = volume.status();
    assert!(dirty.dirty.bytes <= 1 << 20 && dirty.journal.running_age_ms.is_some());
    volume.sync().unwrap();
    drop(file);
    volume.close().unwrap();

    let volume = OpenOptions::new().write(true).open(&path).unwrap();
    let file = volume.open_file("/file").unwrap();
    let mut back = vec![0; 1 << 20];
    file.read_exact_at(&mut back, 0).unwrap();
    let cold = volume.status();
    assert!(cold.cache.miss_bytes > 0 && cold.cache.misses > 0);
    assert_eq!(cold.cache.miss_bytes + cold.cache.hit_bytes, 1 << 20);
    file.read_exact_at(&mut back, 0).unwrap();
    let warm = volume.status();
    assert_eq!(warm.cache.miss_bytes, cold.cache.miss_bytes);
    assert_eq!(warm.cache.hit_bytes, cold.cache.hit_bytes + (1 << 20));
    assert!(warm.cache.hits > cold.cache.hits);
    file.write_all_at(b"more", 0).unwrap();
    file.sync_all().unwrap();
    let after = volume.status();
    assert!(after.journal.has_log && after.journal.commits > 0);
    assert!(after.journal.log_used_bytes > 0 && after.journal.log_bytes > 0);
    assert_eq!(after.journal.running, after.journal.committed + 1);
    assert!(after.io.flushes > 0 && after.io.write_bytes > 0);
    assert_eq!(after.io.in_flight, 0);
    assert!(after.metadata.resident_bytes > 0 && after.metadata.inodes > 1);
    assert!(after.failing.is_none() && after.stopped.is_none() && !after.down);
    let json: serde_json::Value = serde_json::to_value(&after).unwrap();
    assert_eq!(json["cache"]["hit_bytes"], after.cache.hit_bytes);
    assert_eq!(json["journal"]["has_log"], true);
}

#[test]
fn a_label_is_kept_and_has_its_limits() {
    let Some((_dir, path)) = image("16M", &["-L", "before"]) else {
        return;
    };
    let volume = OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(volume.label(), b"before");
    let longest = b"sixteen bytes ok";
    volume.set_label(longest).unwrap();
    assert_eq!(volume.label(), longest);
    for bad in [&b"seventeen bytes !"[..], b"with\0in it"] {
        let refused = volume.set_label(bad);
        assert!(matches!(refused, Err(Error::Caller(Reason::Invalid(_)))));
    }
    assert_eq!(volume.status().label, "sixteen bytes ok");
    volume.close().unwrap();
    let shown = tool("dumpe2fs").arg("-h").arg(&path).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("sixteen bytes ok"), "{shown}");
    assert_clean(&path);
    let volume = OpenOptions::new().open(&path).unwrap();
    let refused = volume.set_label(b"no");
    assert!(matches!(refused, Err(Error::Caller(Reason::ReadOnly))));
}

/// Tens of thousands of dirty files are written in time that grows with their number, not with its square.
#[test]
fn many_small_files_are_written_back() {
    let soak = throughline_testkit::tier::soak();
    let files = if soak { 50_000 } else { 3000 };
    let Some((_dir, path)) = image("1G", &["-N", "80000"]) else {
        return;
    };
    let volume = OpenOptions::new()
        .write(true)
        .cache_bytes(Some(512 << 20))
        .open(&path)
        .unwrap();
    let began = Instant::now();
    for n in 0..files {
        if n % 1000 == 0 {
            let dir = format!("/{}", n / 1000);
            volume.create_dir(dir).unwrap();
        }
        let name = format!("/{}/{n}", n / 1000);
        let file = volume.create_new(name).unwrap();
        file.write_all_at(format!("{n}").repeat(300).as_bytes(), 0)
            .unwrap();
    }
    let (made, began) = (began.elapsed(), Instant::now());
    volume.sync().unwrap();
    println!(
        "{files} files: made in {made:?}, written in {:?}",
        began.elapsed()
    );
    assert_eq!(volume.status().dirty.bytes, 0);
    volume.close().unwrap();
    let volume = OpenOptions::new().open(&path).unwrap();
    for n in (0..files).step_by(97) {
        let file = volume.open_file(format!("/{}/{n}", n / 1000)).unwrap();
        let mut text = vec![0; file.size().unwrap() as usize];
        file.read_exact_at(&mut text, 0).unwrap();
        assert_eq!(text, format!("{n}").repeat(300).as_bytes());
    }
    assert_clean(&path);
}
