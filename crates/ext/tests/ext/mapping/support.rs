//! Images made by `mke2fs` and checked by `e2fsck` and `debugfs`, and files with a model of their contents.

use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::BlockDevice;
use throughline_ext::{Fallocate, Fs, Inode, NewInode, NewKind, OpenOptions};
use throughline_testkit::e2fs;

/// An image in a directory that is removed with it.
pub(crate) struct Image {
    path: PathBuf,
    dir: tempfile::TempDir,
}

impl Image {
    /// Makes an image; `None`, with a message on stderr, if there is no `mke2fs` or it does not support the
    /// options.
    pub(crate) fn make(size: &str, args: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("image");
        let made = e2fs::try_mke2fs(&path, size, args)?;
        if !made.status.success() {
            throughline_testkit::missing!("mke2fs {args:?}: {}", made.stderr);
            return None;
        }
        Some(Self { path, dir })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        let device = throughline_device::OpenOptions::new()
            .write(true)
            .direct(false)
            .open(&self.path);
        device.expect("the image opens")
    }

    pub(crate) fn open(&self) -> Fs {
        open(self.device()).expect("the volume opens")
    }

    /// A copy of the current image.
    pub(crate) fn copy(&self) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("image");
        std::fs::copy(&self.path, &path).expect("a copy");
        Self { path, dir }
    }

    /// Asserts that `e2fsck -fy` can repair it; a tree with a torn node takes two runs.
    pub(crate) fn repair(&self, what: &str) {
        for _ in 0..3 {
            let done = e2fs::e2fsck(&self.path, &["-fy"]);
            assert!(done.code() & !3 == 0, "{what}: {}", done.text());
            if done.status.success() {
                break;
            }
        }
        self.check(what);
    }

    /// Asserts that `e2fsck -fn` finds nothing.
    #[track_caller]
    pub(crate) fn check(&self, what: &str) {
        e2fs::assert_clean_after(&self.path, what);
    }

    /// A file's bytes as `debugfs` reads them.
    pub(crate) fn dump(&self, name: &str) -> Vec<u8> {
        let out = self.dir.path().join("dump");
        let request = format!("dump {name} {}", out.display());
        self.debugfs(&request);
        std::fs::read(&out).expect("a dump")
    }

    /// The output of a `debugfs` request.
    pub(crate) fn debugfs(&self, request: &str) -> String {
        e2fs::debugfs(&self.path, request)
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        let text = self.debugfs("stats -h");
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("Free blocks:"))
            .expect("a count");
        line.trim().parse().expect("a number")
    }
}

/// Opens a volume for writing.
pub(crate) fn open(device: Arc<dyn BlockDevice>) -> throughline_ext::Result<Fs> {
    let mut options = OpenOptions::default();
    options.write = true;
    options.use_reserved = Some(true);
    Fs::open(Arc::new(Disk::new(device).expect("a disk")), &options)
}

/// Creates a file in the root.
pub(crate) fn create(fs: &Fs, name: &str) -> Arc<Inode> {
    let root = fs.root().expect("the root");
    let new = NewInode {
        permissions: 0o644,
        uid: 0,
        gid: 0,
        umask: 0,
    };
    fs.create(&root, name.as_bytes(), NewKind::File, new)
        .expect("a new file")
}

/// Reads a whole file.
pub(crate) fn read_all(fs: &Fs, inode: &Inode, len: usize) -> Vec<u8> {
    let mut out = vec![0xEE; len + 7];
    let done = fs
        .read_at(inode, 0, &mut [IoSliceMut::new(&mut out)])
        .expect("a read");
    out.truncate(done);
    out
}

/// A small generator of random numbers (xorshift), so that a failing seed can be repeated.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            let word = self.below(u64::MAX) | 0x0101_0101_0101_0101;
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.truncate(len);
        out
    }
}

/// A file, and the contents that it must have.
pub(crate) struct Modelled {
    pub(crate) name: String,
    pub(crate) inode: Arc<Inode>,
    pub(crate) model: Vec<u8>,
    /// The maximum size.
    pub(crate) limit: usize,
    pub(crate) block: usize,
    pub(crate) extents: bool,
}

impl Modelled {
    /// One random operation on file and model.
    pub(crate) fn step(&mut self, fs: &Fs, random: &mut Random) {
        let aligned = random.chance(50);
        let round = |at: usize| {
            if aligned {
                at / self.block * self.block
            } else {
                at
            }
        };
        let offset = round(random.below(self.limit as u64) as usize);
        let most = if random.chance(20) {
            self.limit / 3
        } else {
            4 * self.block
        };
        let len = round(1 + random.below(most as u64) as usize)
            .max(1)
            .min(self.limit - offset);
        match random.below(100) {
            0..35 => self.write(fs, random, offset, len),
            35..42 => self.append(fs, random, len),
            42..52 => self.truncate(fs, offset),
            52..65 => self.fallocate(fs, Fallocate::PunchHole, offset, len),
            65..72 => self.fallocate(fs, Fallocate::ZeroRange, offset, len),
            72..76 => self.fallocate(fs, Fallocate::ZeroRangeKeepSize, offset, len),
            76..81 => self.fallocate(fs, Fallocate::Allocate, offset, len),
            81..84 => self.fallocate(fs, Fallocate::KeepSize, offset, len),
            84..88 => self.fallocate(fs, Fallocate::Collapse, offset, len),
            88..92 => self.fallocate(fs, Fallocate::Insert, offset, len),
            _ => self.read(fs, offset, len),
        }
    }

    fn write(&mut self, fs: &Fs, random: &mut Random, offset: usize, len: usize) {
        let bytes = random.bytes(len);
        let cut = random.below(len as u64 + 1) as usize;
        let bufs = [IoSlice::new(&bytes[..cut]), IoSlice::new(&bytes[cut..])];
        let done = fs
            .write_at(&self.inode, offset as u64, &bufs)
            .expect("a write");
        assert_eq!(done, len);
        self.model.resize(self.model.len().max(offset + len), 0);
        self.model[offset..offset + len].copy_from_slice(&bytes);
    }

    fn append(&mut self, fs: &Fs, random: &mut Random, len: usize) {
        if self.model.len() + len > self.limit {
            return;
        }
        let bytes = random.bytes(len);
        let (at, done) = fs
            .append(&self.inode, &[IoSlice::new(&bytes)])
            .expect("an append");
        assert_eq!((at, done), (self.model.len() as u64, len));
        self.model.extend_from_slice(&bytes);
    }

    fn truncate(&mut self, fs: &Fs, size: usize) {
        fs.truncate(&self.inode, size as u64).expect("a truncation");
        self.model.resize(size, 0);
    }

    fn read(&self, fs: &Fs, offset: usize, len: usize) {
        let mut out = vec![0xEE; len];
        let cut = len / 3;
        let (a, b) = out.split_at_mut(cut);
        let mut bufs = [IoSliceMut::new(a), IoSliceMut::new(b)];
        let done = fs
            .read_at(&self.inode, offset as u64, &mut bufs)
            .expect("a read");
        let expected =
            &self.model[offset.min(self.model.len())..(offset + len).min(self.model.len())];
        assert_eq!(done, expected.len());
        assert!(
            out[..done] == *expected,
            "{} differs within {offset}+{len}",
            self.name
        );
    }

    fn fallocate(&mut self, fs: &Fs, mode: Fallocate, offset: usize, len: usize) {
        use throughline_ext::{Error, Reason};
        let size = self.model.len();
        let aligned = offset.is_multiple_of(self.block) && len.is_multiple_of(self.block);
        let end = offset + len;
        let moves = match mode {
            Fallocate::Collapse => Some(aligned && end < size),
            Fallocate::Insert => Some(aligned && offset < size),
            _ => None,
        };
        if mode == Fallocate::Insert && size + len > self.limit {
            return;
        }
        let result = fs.fallocate(&self.inode, mode, offset as u64, len as u64);
        if !self.extents && mode != Fallocate::PunchHole {
            assert!(
                matches!(result, Err(Error::Unsupported(_))),
                "{mode:?}: {result:?}"
            );
            return;
        }
        if moves == Some(false) {
            assert!(
                matches!(result, Err(Error::Caller(Reason::Invalid(_)))),
                "{mode:?}: {result:?}"
            );
            return;
        }
        result.unwrap_or_else(|e| panic!("{mode:?} {offset}+{len} of {size}: {e}"));
        match mode {
            Fallocate::Allocate => self.model.resize(size.max(end), 0),
            Fallocate::KeepSize => {}
            Fallocate::PunchHole | Fallocate::ZeroRangeKeepSize => self.zero(offset, end),
            Fallocate::ZeroRange => {
                self.model.resize(size.max(end), 0);
                self.zero(offset, end);
            }
            Fallocate::Collapse => drop(self.model.drain(offset..end)),
            Fallocate::Insert => drop(self.model.splice(offset..offset, vec![0; len])),
        }
    }

    fn zero(&mut self, offset: usize, end: usize) {
        let size = self.model.len();
        self.model[offset.min(size)..end.min(size)].fill(0);
    }

    /// Compares the whole file with the model.
    pub(crate) fn verify(&self, fs: &Fs) {
        let all = read_all(fs, &self.inode, self.model.len());
        assert_eq!(all.len(), self.model.len(), "{}: size", self.name);
        if let Some(at) = (0..all.len()).find(|i| all[*i] != self.model[*i]) {
            panic!(
                "{} differs at {at} (block {}): {} is not {}",
                self.name,
                at / self.block,
                all[at],
                self.model[at]
            );
        }
        self.verify_seek(fs);
    }

    /// Checks that data and holes alternate up to the end, and that all bytes that are not zero are in
    /// data.
    fn verify_seek(&self, fs: &Fs) {
        let size = self.model.len() as u64;
        let mut at = 0;
        while at < size {
            let data = fs
                .seek_data(&self.inode, at)
                .expect("a seek")
                .unwrap_or(size);
            assert!(
                self.model[at as usize..data as usize]
                    .iter()
                    .all(|b| *b == 0),
                "data in a hole"
            );
            if data == size {
                break;
            }
            at = fs
                .seek_hole(&self.inode, data)
                .expect("a seek")
                .expect("a hole");
            assert!(at > data && at <= size);
        }
        assert_eq!(fs.seek_data(&self.inode, size).expect("a seek"), None);
        assert_eq!(fs.seek_hole(&self.inode, size).expect("a seek"), None);
    }
}
