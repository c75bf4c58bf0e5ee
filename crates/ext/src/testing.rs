//! Images for tests: made by `mke2fs`, judged by `e2fsck` and `dumpe2fs`.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use throughline_block::Disk;
use throughline_extfmt::{FsBlock, Superblock};
use throughline_testing::{Image as Medium, PowerDevice};
use throughline_testkit::e2fs;
use zerocopy::IntoBytes;

use crate::{Fs, OpenOptions};

/// Volume layouts that differ in what this half of the crate does: name, size, arguments of `mke2fs`.
pub(crate) const SHAPES: &[(&str, &str, &[&str])] = &[
    ("rev0", "16M", &["-r", "0", "-b", "1024"]),
    ("ext2-1k", "40M", &["-t", "ext2", "-b", "1024"]),
    ("ext2-4k", "300M", &["-t", "ext2", "-b", "4096"]),
    ("ext3", "64M", &["-t", "ext3", "-b", "1024"]),
    ("ext4", "300M", &["-t", "ext4", "-b", "4096"]),
    ("ext4-1k", "100M", &["-t", "ext4", "-b", "1024"]),
    ("ext4-2k-ragged", "33123k", &["-t", "ext4", "-b", "2048"]),
    ("ext4-64k", "300M", &["-t", "ext4", "-b", "65536"]),
    (
        "nojournal",
        "100M",
        &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    ),
    (
        "uninit_bg",
        "100M",
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
    ),
    (
        "32bit",
        "100M",
        &["-t", "ext4", "-b", "1024", "-O", "^64bit"],
    ),
    (
        "no-flex",
        "100M",
        &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"],
    ),
    (
        "meta_bg",
        "200M",
        &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"],
    ),
    (
        "sparse_super2",
        "100M",
        &["-t", "ext4", "-b", "1024", "-O", "sparse_super2"],
    ),
    (
        "packed",
        "200M",
        &["-t", "ext4", "-b", "1024", "-E", "packed_meta_blocks=1"],
    ),
    (
        "small-inodes",
        "64M",
        &["-t", "ext4", "-I", "128", "-b", "1024"],
    ),
    (
        "large-inodes",
        "64M",
        &["-t", "ext4", "-I", "1024", "-b", "4096"],
    ),
    (
        "csum_seed",
        "64M",
        &["-t", "ext4", "-O", "metadata_csum_seed"],
    ),
    ("orphan_file", "64M", &["-t", "ext4", "-O", "orphan_file"]),
    (
        "lazy",
        "100M",
        &["-t", "ext4", "-b", "1024", "-E", "lazy_itable_init=1"],
    ),
    (
        "bigalloc-1k-4k",
        "20M",
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"],
    ),
    (
        "bigalloc-4k-64k",
        "300M",
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"],
    ),
    (
        "few-inodes",
        "64M",
        &["-t", "ext4", "-b", "1024", "-N", "64"],
    ),
];

/// An image in a temporary directory, which is removed with it.
pub(crate) struct Image {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Image {
    /// Creates an image; `None`, with a message on stderr, if there is no `mke2fs` or it does not support the
    /// options.
    pub(crate) fn make(size: &str, args: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("image");
        let made = e2fs::try_mke2fs(&path, size, args)?;
        if !made.status.success() {
            throughline_testkit::missing!("mke2fs {args:?}: {}", made.stderr);
            return None;
        }
        Some(Self { path, _dir: dir })
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// A copy of the current image.
    pub(crate) fn copy(&self) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("image");
        std::fs::copy(&self.path, &path).expect("a copy");
        Self { path, _dir: dir }
    }

    pub(crate) fn disk(&self, write: bool) -> Arc<Disk> {
        let device = throughline_device::OpenOptions::new()
            .write(write)
            .direct(false)
            .open(&self.path);
        Arc::new(Disk::new(device.expect("the image opens")).expect("a disk"))
    }

    pub(crate) fn try_open(&self, options: &OpenOptions) -> crate::Result<Fs> {
        Fs::open(self.disk(options.write), options)
    }

    /// Opens for writing, with use of reserved blocks.
    pub(crate) fn open(&self) -> Fs {
        let options = OpenOptions {
            write: true,
            use_reserved: Some(true),
            ..OpenOptions::default()
        };
        self.try_open(&options).expect("the volume opens")
    }

    /// Replaces the contents of the image.
    pub(crate) fn hold(&self, medium: &Medium) {
        let file = std::fs::File::create(&self.path).expect("the image");
        file.set_len(medium.len_bytes()).expect("its length");
        medium.write_file(&file, None).expect("written");
    }

    /// Opens for writing with a small metadata cache, so that blocks are evicted soon.
    pub(crate) fn open_forgetful(&self) -> Fs {
        let options = OpenOptions {
            write: true,
            metadata_cache_bytes: 512 << 10,
            ..OpenOptions::default()
        };
        self.try_open(&options).expect("the volume opens")
    }

    /// Inverts a byte of a block on disk, bypassing the open volume. A cached copy that is not in use
    /// elsewhere is evicted first.
    pub(crate) fn spoil(&self, fs: &Fs, block: FsBlock, byte: u64) {
        forget_blocks(fs);
        let at = (block.0 << fs.geo.block_log) + byte;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)
            .expect("the image opens");
        let mut bytes = [0];
        file.read_exact_at(&mut bytes, at).expect("a byte");
        file.write_all_at(&[!bytes[0]], at).expect("another");
    }

    /// A block as it is on disk.
    pub(crate) fn block(&self, fs: &Fs, block: FsBlock) -> Vec<u8> {
        let mut bytes = vec![0; fs.geo.block_bytes as usize];
        let file = std::fs::File::open(&self.path).expect("the image opens");
        let read = file.read_exact_at(&mut bytes, block.0 << fs.geo.block_log);
        read.expect("a block");
        bytes
    }

    /// Asserts that `e2fsck -fn` finds nothing.
    #[track_caller]
    pub(crate) fn check(&self, what: &str) {
        e2fs::assert_clean_after(&self.path, what);
    }

    /// Repairs with `e2fsck -fy`; returns its output.
    #[track_caller]
    pub(crate) fn repair(&self) -> String {
        e2fs::repair(&self.path)
    }

    /// The output of a `debugfs` request.
    #[track_caller]
    pub(crate) fn debugfs(&self, request: &str) -> String {
        e2fs::debugfs(&self.path, request)
    }

    /// Changes the image with one run of `debugfs -w`.
    #[track_caller]
    pub(crate) fn debugfs_write_all(&self, requests: &[&str]) {
        e2fs::debugfs_write(&self.path, &requests.join("\n"));
    }

    /// Changes the superblock in place, and fixes its checksum.
    pub(crate) fn edit_super(&self, edit: impl FnOnce(&mut Superblock)) {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)
            .expect("the image opens");
        let mut bytes = [0; 1024];
        file.read_exact_at(&mut bytes, 1024)
            .expect("the superblock");
        let mut sb = Superblock::read(&bytes).expect("a superblock");
        edit(&mut sb);
        sb.update_checksum();
        file.write_all_at(sb.as_bytes(), 1024).expect("written");
    }

    /// A superblock field as shown by `dumpe2fs -h`.
    pub(crate) fn header(&self, name: &str) -> String {
        let text = e2fs::dumpe2fs(&self.path, &["-h"]);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
            .trim()
            .to_owned()
    }

    /// Free blocks and inodes from `dumpe2fs`: first from the superblock, then summed over the groups, which
    /// count in clusters.
    pub(crate) fn free_counts(&self) -> [(u64, u64); 2] {
        let text = e2fs::dumpe2fs(&self.path, &[]);
        let field = |name: &str| {
            let line = text
                .lines()
                .find(|line| line.starts_with(name))
                .expect(name);
            line.rsplit(' ')
                .next()
                .and_then(|n| n.parse().ok())
                .expect(name)
        };
        let bytes = |name: &str| -> u64 { self.header(name).parse().expect(name) };
        let blocks_of = |unit: &str| match unit {
            "clusters" => bytes("Cluster size") / bytes("Block size"),
            _ => 1,
        };
        let mut sums = (0, 0);
        for line in text
            .lines()
            .filter(|line| line.starts_with("  ") && line.contains(" free inodes, "))
        {
            let unit = if line.contains(" free clusters, ") {
                "clusters"
            } else {
                "blocks"
            };
            let words: Vec<&str> = line.split_whitespace().collect();
            let before = |word: &str| {
                let at = words
                    .windows(2)
                    .position(|pair| pair[0] == "free" && pair[1].starts_with(word));
                words[at.expect(word) - 1].parse::<u64>().expect(word)
            };
            sums.0 += before(unit) * blocks_of(unit);
            sums.1 += before("inodes");
        }
        [(field("Free blocks:"), field("Free inodes:")), sums]
    }
}

/// Reads enough to evict all clean, unpinned metadata blocks.
fn forget_blocks(fs: &Fs) {
    let last = fs.geo.blocks - 1;
    for block in last - 2048..last {
        fs.read(FsBlock(block)).expect("a block");
    }
}

/// Opens the volume for writing on a device that can simulate a power loss.
pub(crate) fn power_on(medium: &Medium) -> (Arc<PowerDevice>, crate::Result<Fs>) {
    let device = Arc::new(PowerDevice::new(medium.clone(), 1));
    let disk = Disk::new(Arc::clone(&device) as _).expect("a disk");
    let options = OpenOptions {
        write: true,
        use_reserved: Some(true),
        ..OpenOptions::default()
    };
    (device, Fs::open(Arc::new(disk), &options))
}

/// A small random number generator (xorshift), so that a failing seed can be repeated.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end.max(1)
    }
}
