//! The examples, run: each is a module here, with its `main` beside what it does.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use throughline::{OpenOptions, Volume};
use throughline_testkit::e2fs::{assert_clean, mke2fs};

#[path = "../examples/eight_threads.rs"]
mod eight_threads;
#[path = "../examples/encrypted_device.rs"]
mod encrypted_device;
#[path = "../examples/filled_image.rs"]
mod filled_image;
#[path = "../examples/log_store.rs"]
mod log_store;
#[path = "../examples/memory_device.rs"]
mod memory_device;
#[path = "../examples/streaming_copy.rs"]
mod streaming_copy;

/// Says to this test, started anew as a process, on what image to work.
const IMAGE: &str = "THROUGHLINE_EXAMPLES_IMAGE";

/// An image in a folder; `None` where nobody can make one.
fn image(size: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    mke2fs(&path, size, &["-t", "ext4"]).then_some((folder, path))
}

#[test]
fn an_image_in_memory_is_saved() {
    let Some((folder, path)) = image("8M") else {
        return;
    };
    let (before, saved) = (std::fs::read(&path).unwrap(), folder.path().join("saved"));
    let names = memory_device::run(&path, &saved).unwrap();
    assert!(names.contains(&"hello".to_owned()));
    assert_clean(&saved);
    let volume = Volume::open(&saved).unwrap();
    assert_eq!(volume.read_to_string("/hello").unwrap(), "from memory\n");
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn an_encrypted_volume_is_read_with_its_key_alone() {
    let Some((folder, path)) = image("8M") else {
        return;
    };
    let sealed = folder.path().join("sealed");
    let secret = encrypted_device::run(&path, &sealed, &[7; 64].map(|byte| byte + 1)).unwrap();
    assert_eq!(secret, "attack at dawn");
    let bytes = std::fs::read(&sealed).unwrap();
    assert!(
        !bytes
            .windows(secret.len())
            .any(|at| at == secret.as_bytes())
    );
    assert!(
        OpenOptions::new().open(&sealed).is_err(),
        "no volume without the key"
    );
}

#[test]
fn an_image_is_filled_with_the_same_bytes_twice() {
    let folder = tempfile::tempdir().unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let once = filled_image::run(time).unwrap();
    let again = filled_image::run(time).unwrap();
    let differ = once
        .iter()
        .zip(&again)
        .position(|(one, other)| one != other);
    assert_eq!(differ, None, "the first byte that differs");
    let later = filled_image::run(time + Duration::from_secs(1)).unwrap();
    assert!(later != once, "the clock is what it says");
    let filled = folder.path().join("filled");
    std::fs::write(&filled, &once).unwrap();
    assert_clean(&filled);
    let volume = Volume::in_memory(once).unwrap();
    let file = volume.metadata("/data/3/101").unwrap();
    assert_eq!((file.len(), file.modified()), (10_100, time));
    assert_eq!(file.created(), Some(time));
}

#[test]
fn a_file_streams_into_an_image() {
    let Some((folder, path)) = image("64M") else {
        return;
    };
    let source = folder.path().join("source");
    let bytes: Vec<u8> = (0..20_000_001_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(&source, &bytes).unwrap();
    let copied = streaming_copy::run(&source, &path, Path::new("/copy")).unwrap();
    assert_eq!(copied, 20_000_001);
    assert_clean(&path);
    assert!(Volume::open(&path).unwrap().read("/copy").unwrap() == bytes);
}

#[test]
fn eight_threads_work_in_one_volume() {
    let Some((_folder, path)) = image("32M") else {
        return;
    };
    assert_eq!(eight_threads::run(&path).unwrap(), (401, 400));
    assert_clean(&path);
}

fn value(key: u64) -> Vec<u8> {
    key.to_le_bytes().repeat(key as usize % 50)
}

/// The process of the test below: puts from eight threads, and says so, until it is killed.
#[test]
fn the_store_as_a_process() {
    let Some(image) = std::env::var_os(IMAGE) else {
        return;
    };
    let volume = OpenOptions::new().write(true).open(image).unwrap();
    let store = log_store::Store::open(&volume).unwrap();
    let put = |thread: u64| {
        for number in 0.. {
            let key = thread << 32 | number;
            store.put(key, &value(key)).unwrap();
            println!("put {key}");
        }
    };
    let put = &put;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || put(thread));
        }
    });
}

/// Starts the store as a process, and kills it when it has said `puts` puts; returns their keys, those of its
/// last words too.
fn killed_after(puts: usize, image: &Path) -> BTreeSet<u64> {
    let mut store = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_store_as_a_process", "--nocapture"])
        .env(IMAGE, image)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(store.stdout.take().unwrap()).lines();
    let mut put = BTreeSet::new();
    for line in lines {
        // The harness writes to the same line.
        if let Some((_, key)) = line.unwrap().split_once("put ") {
            put.insert(key.parse().unwrap());
        }
        if put.len() == puts {
            store.kill().unwrap(); // SIGKILL
        }
    }
    assert!(!store.wait().unwrap().success());
    assert!(put.len() >= puts, "{}", put.len());
    put
}

#[test]
fn values_put_in_the_store_survive_kill_9() {
    let Some((_folder, path)) = image("64M") else {
        return;
    };
    let mut put = BTreeSet::new();
    for puts in [1, 100, 37] {
        put.extend(killed_after(puts, &path));
        let volume = OpenOptions::new().write(true).open(&path).unwrap();
        {
            let store = log_store::Store::open(&volume).unwrap();
            for key in &put {
                assert_eq!(store.get(*key).unwrap(), Some(value(*key)), "{key}");
            }
            store.put(u64::MAX, b"mine").unwrap();
            let mine = store.get(u64::MAX).unwrap();
            assert_eq!(mine.as_deref(), Some(&b"mine"[..]));
            assert_eq!(store.get(u64::MAX - 1).unwrap(), None);
        }
        volume.close().unwrap();
        assert_clean(&path);
    }
}

/// An example is a page that a reader takes in at once.
#[test]
fn examples_are_short() {
    const MAX_LINES: usize = 80;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= MAX_LINES, "{}: {lines} lines", path.display());
        count += 1;
    }
    assert!(count >= 5);
}
