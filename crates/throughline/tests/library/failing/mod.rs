//! Volumes in memory whose device fails on demand.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use throughline::{Device, Memory, OpenOptions, Volume, VolumeOptions};
use throughline_testkit::e2fs::mke2fs;

/// An image in memory that fails writes and flushes on demand.
#[derive(Clone)]
struct Failing {
    memory: Memory,
    fails: Arc<AtomicBool>,
}

impl Failing {
    fn done(&self, done: io::Result<()>) -> io::Result<()> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(io::Error::other("on demand")),
            false => done,
        }
    }
}

impl Device for Failing {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.done(self.memory.write_all_at(buf, offset))
    }

    fn flush(&self) -> io::Result<()> {
        self.done(self.memory.flush())
    }
}

/// A new volume, opened for writing, and the switch that makes its device fail; `None` where mke2fs cannot be
/// run.
pub(crate) fn volume_with(options: &VolumeOptions) -> Option<(Volume, Arc<AtomicBool>)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    if !mke2fs(&path, "16M", &["-t", "ext4"]) {
        return None;
    }
    let fails = Arc::new(AtomicBool::new(false));
    let device = Failing {
        memory: Memory::from(std::fs::read(path).unwrap()),
        fails: Arc::clone(&fails),
    };
    let mut open = OpenOptions::new();
    let volume = open.write(true).volume(options).open_device(device);
    let volume = volume.unwrap();
    Some((volume, fails))
}
