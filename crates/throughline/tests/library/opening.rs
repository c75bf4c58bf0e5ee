//! On what volumes are opened, and for what: reading alone, descriptors, devices of one's own.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use throughline::{Device, Error, Memory, OpenOptions, Reason, Volume};
use throughline_testkit::e2fs::{assert_clean, mke2fs};

/// An image of 8 MiB in a folder; `None` where nobody can make one.
fn image() -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    mke2fs(&path, "8M", &["-t", "ext4"]).then_some((folder, path))
}

fn reason<T: std::fmt::Debug>(result: throughline::Result<T>) -> Reason {
    match result {
        Err(Error::Caller(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_written_unless_writing_is_requested() {
    let Some((folder, path)) = image() else {
        return;
    };
    let before = std::fs::read(&path).unwrap();
    let volume = OpenOptions::new().open(&path).unwrap();
    assert!(volume.is_read_only());
    assert_eq!(reason(volume.write("/file", "x")), Reason::ReadOnly);
    assert_eq!(reason(volume.create_dir("/d")), Reason::ReadOnly);
    volume.close().unwrap();
    assert!(std::fs::read(&path).unwrap() == before);

    let new = folder.path().join("new");
    let refused = OpenOptions::new().create(true).open_raw(&new);
    assert!(matches!(reason(refused), Reason::Invalid(_)));
    let refused = OpenOptions::new().truncate(true).open_raw(&path);
    assert!(matches!(reason(refused), Reason::Invalid(_)));
    assert!(!new.exists() && std::fs::read(&path).unwrap() == before);
    let raw = OpenOptions::new().open_raw(&path).unwrap();
    raw.write_all_at(b"x", 0).unwrap_err();
    raw.close().unwrap();
    assert!(std::fs::read(&path).unwrap() == before);
}

#[test]
fn descriptors_are_opened() {
    let Some((_folder, path)) = image() else {
        return;
    };
    let read = || File::open(&path).unwrap();
    let both = || File::options().read(true).write(true).open(&path).unwrap();
    let volume = OpenOptions::new().write(true).open_fd(both()).unwrap();
    volume.write("/file", "by descriptor").unwrap();
    volume.close().unwrap();
    let volume = OpenOptions::new().open_fd(read()).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"by descriptor");
    // A lock that the opener has taken is on it still: nobody else writes.
    assert!(matches!(
        reason(OpenOptions::new().write(true).open_fd(both())),
        Reason::Busy(_)
    ));
    volume.close().unwrap();
    match OpenOptions::new().write(true).open_fd(read()) {
        Err(Error::Open { source, .. }) => {
            assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
        }
        other => panic!("{other:?}"),
    }
    // A file without a name any more.
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&std::fs::read(&path).unwrap(), 0)
        .unwrap();
    let volume = OpenOptions::new().open_fd(file).unwrap();
    assert_eq!(volume.read("/file").unwrap(), b"by descriptor");
    let raw = OpenOptions::new().open_raw_fd(read()).unwrap();
    assert_eq!(raw.size().unwrap(), 8 << 20);
}

#[test]
fn volumes_in_memory() {
    let Some((folder, path)) = image() else {
        return;
    };
    let bytes = std::fs::read(&path).unwrap();
    let volume = Volume::in_memory(bytes.clone()).unwrap();
    volume.write("/file", vec![7; 100_000]).unwrap();
    assert_eq!(volume.read("/file").unwrap(), vec![7; 100_000]);
    volume.close().unwrap();

    let memory = Memory::from(bytes);
    let volume = OpenOptions::new()
        .write(true)
        .open_device(memory.clone())
        .unwrap();
    volume.write("/file", "kept").unwrap();
    volume.close().unwrap();
    let saved = folder.path().join("saved");
    std::fs::write(&saved, memory.to_vec()).unwrap();
    assert_clean(&saved);
    assert_eq!(
        Volume::open(&saved).unwrap().read("/file").unwrap(),
        b"kept"
    );
    assert!(matches!(
        Volume::in_memory(Vec::new()),
        Err(Error::Caller(Reason::NotExt(_)))
    ));
    assert!(matches!(
        Volume::in_memory(vec![7; 12_345]),
        Err(Error::Caller(Reason::NotExt(_)))
    ));
}

/// Memory that fails, or panics, when it is told to.
#[derive(Clone)]
struct Moody {
    memory: Memory,
    fails: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
    block: u32,
    queue_depth: u32,
}

impl Moody {
    fn new(bytes: Vec<u8>) -> Moody {
        Moody {
            memory: Memory::from(bytes),
            fails: Arc::default(),
            panics: Arc::default(),
            block: 512,
            queue_depth: 1,
        }
    }

    fn mood(&self) -> io::Result<()> {
        assert!(!self.panics.load(Ordering::Relaxed), "as told");
        match self.fails.load(Ordering::Relaxed) {
            true => Err(io::Error::from_raw_os_error(5)),
            false => Ok(()),
        }
    }
}

impl Device for Moody {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.mood()?;
        self.memory.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.mood()?;
        assert!(buf.len().is_multiple_of(self.block as usize));
        self.memory.write_all_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.mood()
    }

    fn queue_depth(&self) -> u32 {
        self.queue_depth
    }

    fn block_bytes(&self) -> u32 {
        self.block
    }

    fn name(&self) -> String {
        "moody".into()
    }
}

#[test]
fn errors_and_panics_of_a_device_are_errors_of_the_call() {
    for (how, queue_depth) in [("fails", 1), ("panics", 1), ("fails", 4), ("panics", 4)] {
        let device = Moody {
            queue_depth,
            ..Moody::new(vec![0; 1 << 20])
        };
        let mut options = OpenOptions::new();
        let raw = options.write(true).open_raw_device(device.clone()).unwrap();
        raw.write_all_at(b"before", 0).unwrap();
        raw.sync_all().unwrap();
        let switch = match how {
            "fails" => &device.fails,
            _ => &device.panics,
        };
        switch.store(true, Ordering::Relaxed);
        raw.write_all_at(b"after.", 0).unwrap();
        for _ in 0..2 {
            let error = raw.sync_all().unwrap_err();
            assert!(matches!(error, Error::Device(_)), "{how}: {error}");
        }
        switch.store(false, Ordering::Relaxed);
        raw.sync_all().unwrap();
        raw.close().unwrap();
        assert_eq!(&device.memory.to_vec()[..6], b"after.");
    }
}

/// Memory that answers a read of its second half when another one waits as well.
struct Pairs {
    memory: Memory,
    waiting: Mutex<u32>,
    more: Condvar,
}

impl Device for Pairs {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if offset >= self.len_bytes() / 2 {
            let mut waiting = self.waiting.lock().unwrap();
            *waiting += 1;
            self.more.notify_all();
            let limit = Duration::from_secs(60);
            let met = self.more.wait_timeout_while(waiting, limit, |it| *it < 2);
            if met.unwrap().1.timed_out() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        self.memory.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.memory.write_all_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn queue_depth(&self) -> u32 {
        4
    }
}

#[test]
fn a_device_with_a_queue_has_calls_in_progress_at_once() {
    let bytes: Vec<u8> = (0..16_u32 << 20).map(|at| (at >> 12) as u8).collect();
    let device = Pairs {
        memory: Memory::from(bytes.clone()),
        waiting: Mutex::new(0),
        more: Condvar::new(),
    };
    let raw = OpenOptions::new().open_raw_device(device).unwrap();
    let half = bytes.len() / 2;
    let mut back = vec![0; half];
    raw.read_exact_at(&mut back, half as u64).unwrap();
    assert!(back == bytes[half..]);
}

#[test]
fn blocks_of_a_device_are_kept_to() {
    let Some((_folder, path)) = image() else {
        return;
    };
    let mut device = Moody::new(vec![0; 1 << 20]);
    for odd in [0, 256, 1000] {
        device.block = odd;
        let refused = OpenOptions::new().open_raw_device(device.clone());
        assert!(matches!(refused, Err(Error::Open { .. })));
    }
    device = Moody::new(std::fs::read(&path).unwrap());
    device.block = 1024;
    let volume = OpenOptions::new()
        .write(true)
        .open_device(device.clone())
        .unwrap();
    assert!(format!("{volume:?}").contains("moody"));
    volume.write("/file", vec![1; 5000]).unwrap();
    volume.close().unwrap();
    let volume = Volume::in_memory(device.memory.to_vec()).unwrap();
    assert_eq!(volume.read("/file").unwrap(), vec![1; 5000]);
}
