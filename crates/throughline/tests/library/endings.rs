//! What becomes of what was accepted and not synced: handles dropped, panics, processes that end. The page of
//! the crate has the
//! table that this is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, panic};

use throughline::{Device, Memory, OpenOptions, Volume};
use throughline_testkit::e2fs::{assert_clean, mke2fs};

/// Says to this test, started anew as a process, on what image to work; and how to end.
const IMAGE: &str = "THROUGHLINE_ENDINGS_IMAGE";
const ENDING: &str = "THROUGHLINE_ENDINGS_HOW";

/// An image of 16 MiB in a folder; `None` where nobody can make one.
fn image(options: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    mke2fs(&path, "16M", options).then_some((folder, path))
}

fn open(path: &Path) -> Volume {
    OpenOptions::new().write(true).open(path).unwrap()
}

fn bytes() -> Vec<u8> {
    (0..3_000_001_u32).map(|at| (at % 249) as u8).collect()
}

#[test]
fn dropped_handles_lose_nothing() {
    for options in [&["-t", "ext4"][..], &["-t", "ext2"]] {
        let Some((_folder, path)) = image(options) else {
            return;
        };
        let volume = open(&path);
        let file = volume.create_new("/file").unwrap();
        file.write_all_at(&bytes(), 0).unwrap();
        drop(volume); // the file is a handle of it too
        drop(file);
        assert_clean(&path);
        let volume = Volume::open(&path).unwrap();
        assert!(volume.read("/file").unwrap() == bytes());
    }
}

#[test]
fn a_panic_that_unwinds_makes_durable_what_was_accepted() {
    let Some((_folder, path)) = image(&["-t", "ext4"]) else {
        return;
    };
    let (theirs, content) = (path.clone(), bytes());
    let ended = std::thread::spawn(move || {
        let volume = open(&theirs);
        volume.create_dir("/dir").unwrap();
        let file = volume.create_new("/dir/file").unwrap();
        file.write_all_at(&content, 0).unwrap();
        panic!("of the program");
    });
    assert!(ended.join().is_err());
    // It is as after a crash at that moment, all of it synced.
    let report = OpenOptions::new().recover(&path).unwrap();
    assert!(!report.done.is_empty() && report.clean, "{report:?}");
    assert_clean(&path);
    let volume = Volume::open(&path).unwrap();
    assert!(volume.read("/dir/file").unwrap() == bytes());
}

#[test]
fn a_panic_writes_back_plain_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("raw");
    let theirs = path.clone();
    let ended = std::thread::spawn(move || {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .open_raw(&theirs);
        file.unwrap().write_all_at(&bytes(), 0).unwrap();
        let file = OpenOptions::new().write(true).open_raw(&theirs).unwrap();
        file.append_all(b"more").unwrap();
        panic!("of the program");
    });
    assert!(ended.join().is_err());
    let found = std::fs::read(&path).unwrap();
    assert!(found == [bytes(), b"more".to_vec()].concat());
}

/// Memory that refuses writes when it is told to.
#[derive(Clone)]
struct Refusing {
    memory: Memory,
    refuses: Arc<AtomicBool>,
}

impl Device for Refusing {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        match self.refuses.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(5)),
            false => self.memory.write_all_at(buf, offset),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }
}

#[test]
fn a_panic_does_not_write_to_a_stopped_volume() {
    let Some((folder, path)) = image(&["-t", "ext4"]) else {
        return;
    };
    let device = Refusing {
        memory: Memory::from(std::fs::read(&path).unwrap()),
        refuses: Arc::default(),
    };
    let volume = OpenOptions::new()
        .write(true)
        .open_device(device.clone())
        .unwrap();
    volume.write("/synced", bytes()).unwrap();
    volume.sync().unwrap();
    device.refuses.store(true, Ordering::Relaxed);
    volume.create_dir("/lost").unwrap();
    volume.sync().unwrap_err();
    assert!(volume.stopped().is_some());
    device.refuses.store(false, Ordering::Relaxed);
    let before = device.memory.to_vec();
    let unwound = panic::catch_unwind(panic::AssertUnwindSafe(move || {
        let _last = volume;
        panic!("of the program");
    }));
    assert!(unwound.is_err() && device.memory.to_vec() == before);
    let saved = folder.path().join("saved");
    std::fs::write(&saved, before).unwrap();
    OpenOptions::new().recover(&saved).unwrap();
    assert_clean(&saved);
    let volume = Volume::open(&saved).unwrap();
    assert!(volume.read("/synced").unwrap() == bytes());
    assert!(!volume.exists("/lost").unwrap());
}

/// The process of the test below.
#[test]
fn a_process_that_ends() {
    let Some(image) = std::env::var_os(IMAGE) else {
        return;
    };
    let volume = open(Path::new(&image));
    volume.write("/synced", bytes()).unwrap();
    volume.sync().unwrap();
    volume.write("/accepted", bytes()).unwrap();
    match std::env::var(ENDING).as_deref() {
        Ok("exit") => std::process::exit(0),
        Ok("abort") => std::process::abort(),
        Ok("forget") => std::mem::forget(volume),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_process_that_ends_keeps_what_was_synced() {
    for ending in ["exit", "abort", "forget"] {
        let Some((_folder, path)) = image(&["-t", "ext4"]) else {
            return;
        };
        let process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "endings::a_process_that_ends"])
            .envs([(IMAGE, path.as_os_str()), (ENDING, ending.as_ref())])
            .output()
            .unwrap();
        assert_eq!(process.status.success(), ending != "abort", "{process:?}");
        let report = OpenOptions::new().recover(&path).unwrap();
        assert!(report.clean, "{ending}: {report:?}");
        assert_clean(&path);
        let volume = Volume::open(&path).unwrap();
        assert!(volume.read("/synced").unwrap() == bytes(), "{ending}");
        // In part or not at all, but for its bytes: nothing else is there.
        if volume.exists("/accepted").unwrap() {
            let found = volume.read("/accepted").unwrap();
            assert!(bytes().starts_with(&found), "{ending}");
        }
    }
}
