//! Images made once per process, and a device in memory that fails on demand.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use throughline::{Device, Memory};
use throughline_locks::Mutex;
use throughline_testkit::e2fs::mke2fs;

/// The kinds of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// ext4 with a journal and metadata checksums, 4 MiB.
    Ext4,
    /// ext2 without journal, checksums or hashed directories, 4 MiB.
    Ext2,
    /// ext4 with projects.
    Projects,
    /// 256 KiB and 16 inodes, so that it is soon full.
    Small,
    /// ext4 with multiple-mount protection.
    Mmp,
}

impl Kind {
    fn arguments(self) -> (&'static [&'static str], &'static str) {
        match self {
            Kind::Ext4 => (&["-t", "ext4"], "4M"),
            Kind::Ext2 => (&["-t", "ext2", "-O", "^dir_index"], "4M"),
            Kind::Projects => (&["-t", "ext4", "-O", "project"], "4M"),
            Kind::Small => (&["-t", "ext2", "-N", "16", "-m", "0"], "256K"),
            Kind::Mmp => (&["-t", "ext4", "-O", "mmp"], "4M"),
        }
    }

    /// The image's bytes; `None` if `mke2fs` is missing.
    fn image(self) -> Option<&'static [u8]> {
        static IMAGES: [OnceLock<Option<Vec<u8>>>; 5] = [const { OnceLock::new() }; 5];
        IMAGES[self as usize].get_or_init(|| self.make()).as_deref()
    }

    fn make(self) -> Option<Vec<u8>> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        let (features, size) = self.arguments();
        let arguments = [&["-b", "1024", "-I", "256"], features].concat();
        mke2fs(&path, size, &arguments).then(|| std::fs::read(&path).expect("the image"))
    }
}

/// The calls that fail. Their error is the host's, so no caller may receive it.
#[derive(Default)]
struct Failing {
    reads: AtomicBool,
    writes: AtomicBool,
    /// Reads of these offsets fail.
    reads_of: Mutex<Vec<u64>>,
}

/// See the head of this file. Clones share the bytes and the faults.
#[derive(Clone)]
pub(super) struct Faulty {
    memory: Memory,
    failing: Arc<Failing>,
}

impl Faulty {
    /// A new volume; `None`, after a message, if `mke2fs` is missing.
    pub(super) fn new(kind: Kind) -> Option<Faulty> {
        Some(Faulty::of(kind.image()?.to_vec()))
    }

    /// A device with this content.
    pub(super) fn of(image: Vec<u8>) -> Faulty {
        Faulty {
            memory: Memory::from(image),
            failing: Arc::default(),
        }
    }

    /// Sets whether reads fail.
    pub(super) fn fail_reads(&self, fail: bool) {
        self.failing.reads.store(fail, Ordering::SeqCst);
    }

    /// Makes reads of these offsets fail.
    pub(super) fn fail_reads_of(&self, bytes: Vec<usize>) {
        *self.failing.reads_of.lock() = bytes.into_iter().map(|at| at as u64).collect();
    }

    /// Sets whether writes and flushes fail.
    pub(super) fn fail_writes(&self, fail: bool) {
        self.failing.writes.store(fail, Ordering::SeqCst);
    }

    /// The bytes on the device.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        self.memory.to_vec()
    }

    fn check(failing: &AtomicBool) -> io::Result<()> {
        match failing.load(Ordering::SeqCst) {
            true => Err(io::Error::from_raw_os_error(
                rustix::io::Errno::IO.raw_os_error(),
            )),
            false => Ok(()),
        }
    }
}

impl Device for Faulty {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        Faulty::check(&self.failing.reads)?;
        let read = offset..offset + buf.len() as u64;
        if self
            .failing
            .reads_of
            .lock()
            .iter()
            .any(|byte| read.contains(byte))
        {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.memory.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        Faulty::check(&self.failing.writes)?;
        self.memory.write_all_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        Faulty::check(&self.failing.writes)
    }
}
