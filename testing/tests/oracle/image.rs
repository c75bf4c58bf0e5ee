//! Images made by `mke2fs`, over the features of the format.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline_device::{BlockDevice, MemoryDevice, Op, Segment, scope};
use throughline_testing::model::Bounds;
use throughline_testkit::{e2fs, program};

use super::external;

/// One shape of a volume.
pub struct Shape {
    /// Its name in messages.
    pub name: &'static str,
    /// Arguments of `mke2fs`.
    pub mke2fs: &'static str,
    /// Size in MiB.
    pub mib: u64,
    /// Arguments of a `tune2fs` afterwards; none if empty.
    pub tune2fs: &'static str,
    /// Whether the root, and so every directory, matches names without case.
    pub folds: bool,
    /// Size of a journal on a device of its own, in MiB; 0: it is inside, or there is none.
    pub journal_mib: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of a cluster.
    pub cluster_bytes: u64,
    /// Whether files have extents.
    pub extents: bool,
    /// Whether inodes store nanoseconds.
    pub nanoseconds: bool,
    /// The highest offset written to in a file.
    pub far_bytes: u64,
}

/// A shape with the usual bounds.
pub const fn shape(
    name: &'static str,
    block_bytes: u64,
    extents: bool,
    mke2fs: &'static str,
) -> Shape {
    let mib = if block_bytes > 4096 { 96 } else { 24 };
    Shape {
        name,
        mke2fs,
        mib,
        tune2fs: "",
        folds: false,
        journal_mib: 0,
        block_bytes,
        cluster_bytes: block_bytes,
        extents,
        nanoseconds: true,
        far_bytes: 3 << 30,
    }
}

impl Shape {
    const fn small_inodes(mut self) -> Self {
        self.nanoseconds = false;
        self
    }

    const fn near(mut self) -> Self {
        self.far_bytes = (2 << 30) - 65536;
        self
    }

    /// Sets its size.
    pub const fn mib(mut self, mib: u64) -> Self {
        self.mib = mib;
        self
    }

    /// Sets the bytes of its clusters.
    pub const fn clusters(mut self, cluster_bytes: u64) -> Self {
        self.cluster_bytes = cluster_bytes;
        self
    }

    const fn tuned(mut self, tune2fs: &'static str) -> Self {
        self.tune2fs = tune2fs;
        self
    }

    const fn folding(mut self) -> Self {
        self.folds = true;
        self
    }

    const fn journal_of(mut self, mib: u64) -> Self {
        self.journal_mib = mib;
        self
    }

    /// What the driver may do to it.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            block_bytes: self.block_bytes,
            cluster_bytes: self.cluster_bytes,
            far_bytes: self.far_bytes,
            long_bytes: 700 << 10,
            extents: self.extents,
            nanoseconds: self.nanoseconds,
            folds: self.folds,
            exclusive: true,
            mixed: false,
        }
    }
}

/// The features of the format, each at least once, and the defaults of each generation.
pub const SHAPES: &[Shape] = &[
    shape("ext4 4k", 4096, true, "-t ext4"),
    shape("ext4 1k", 1024, true, "-t ext4"),
    shape("ext4 2k", 2048, true, "-t ext4"),
    shape("ext3 1k", 1024, false, "-t ext3 -I 256"),
    shape("ext3 4k", 4096, false, "-t ext3 -I 128").small_inodes(),
    shape("ext2 revision 0", 1024, false, "-t ext2 -r 0")
        .small_inodes()
        .near(),
    shape("ext2 1k", 1024, false, "-t ext2 -I 128").small_inodes(),
    shape("ext2 4k", 4096, false, "-t ext2"),
    shape("bare ext2", 1024, false, "-t ext2 -O none -I 128")
        .small_inodes()
        .near(),
    shape(
        "ext2 no filetype",
        2048,
        false,
        "-t ext2 -O ^filetype,^dir_index",
    ),
    shape("ext2 64k", 65536, false, "-t ext2"),
    shape("inline_data 1k", 1024, true, "-t ext4 -O inline_data"),
    shape(
        "inline_data 4k",
        4096,
        true,
        "-t ext4 -O inline_data -I 512",
    ),
    shape(
        "inline_data without extents",
        1024,
        false,
        "-t ext4 -O inline_data,^extent,^64bit",
    ),
    shape(
        "no checksums",
        1024,
        true,
        "-t ext4 -O ^metadata_csum,^uninit_bg",
    ),
    shape(
        "uninit_bg",
        1024,
        true,
        "-t ext4 -O ^metadata_csum,uninit_bg",
    ),
    shape(
        "uninit_bg 4k 64bit",
        4096,
        true,
        "-t ext4 -O ^metadata_csum,uninit_bg,64bit",
    ),
    shape(
        "metadata_csum without extents",
        1024,
        false,
        "-t ext4 -O ^extent,^64bit,metadata_csum",
    ),
    shape("not 64bit", 4096, true, "-t ext4 -O ^64bit"),
    shape(
        "meta_bg",
        1024,
        true,
        "-t ext4 -O meta_bg,^resize_inode -g 1024",
    ),
    shape("no flex_bg", 1024, true, "-t ext4 -O ^flex_bg -g 2048"),
    shape("flex groups of 4", 1024, true, "-t ext4 -G 4 -g 2048"),
    shape(
        "sparse_super2",
        1024,
        true,
        "-t ext4 -O sparse_super2,^resize_inode -g 4096",
    ),
    shape(
        "no sparse_super",
        1024,
        true,
        "-t ext4 -O ^sparse_super,^resize_inode -g 4096",
    ),
    shape("large_dir", 1024, true, "-t ext4 -O large_dir"),
    shape("no dir_index", 1024, true, "-t ext4 -O ^dir_index"),
    shape("no dir_nlink", 1024, true, "-t ext4 -O ^dir_nlink"),
    shape("hash tea", 1024, true, "-t ext4").tuned("-E hash_alg=tea"),
    shape("hash legacy", 1024, true, "-t ext4").tuned("-E hash_alg=legacy"),
    shape("inodes of 128", 4096, true, "-t ext4 -I 128").small_inodes(),
    shape("inodes of 1024", 4096, true, "-t ext4 -I 1024"),
    shape(
        "no huge_file, no large_file",
        1024,
        true,
        "-t ext4 -O ^huge_file,^large_file",
    )
    .near(),
    shape("orphan_file", 1024, true, "-t ext4 -O orphan_file"),
    shape(
        "csum_seed, project, stable",
        1024,
        true,
        "-t ext4 -O metadata_csum_seed,project,stable_inodes,ea_inode",
    ),
    shape(
        "quota",
        1024,
        true,
        "-t ext4 -O quota,project,ea_inode -E quotatype=usrquota:grpquota:prjquota",
    ),
    shape("mmp", 1024, true, "-t ext4 -O mmp -E mmp_update_interval=1"),
    shape("fast_commit", 1024, true, "-t ext4 -O fast_commit").mib(32),
    shape("no journal", 4096, true, "-t ext4 -O ^has_journal"),
    shape("ext4 64k", 65536, true, "-t ext4").mib(160),
    shape("few inodes", 1024, true, "-t ext4 -N 64"),
    shape("tiny", 1024, true, "-t ext4 -O ^has_journal").mib(2),
    shape("tiny ext2", 1024, false, "-t ext2").mib(2),
];

/// Shapes of later features: `bigalloc`, names without case, volumes that may have encrypted or verified
/// files, and journals outside. They are apart so that a seed keeps its shape of [`SHAPES`].
pub const LATER: &[Shape] = &[
    shape(
        "bigalloc 4k in 16k",
        4096,
        true,
        "-t ext4 -O bigalloc -C 16384",
    )
    .clusters(16384),
    shape(
        "bigalloc 4k in 64k",
        4096,
        true,
        "-t ext4 -O bigalloc -C 65536",
    )
    .clusters(65536)
    .mib(64),
    shape(
        "bigalloc 1k in 4k",
        1024,
        true,
        "-t ext4 -O bigalloc,inline_data -C 4096",
    )
    .clusters(4096),
    shape(
        "bigalloc 1k in 16k",
        1024,
        true,
        "-t ext4 -O bigalloc,ea_inode -C 16384",
    )
    .clusters(16384)
    .mib(32),
    shape(
        "bigalloc 1k in 64k",
        1024,
        true,
        "-t ext4 -O bigalloc,^has_journal,^metadata_csum,^flex_bg -C 65536",
    )
    .clusters(65536)
    .mib(64),
    shape("casefold", 1024, true, "-t ext4 -O casefold").folding(),
    shape(
        "casefold strict, inline_data",
        4096,
        true,
        "-t ext4 -O casefold,inline_data,^metadata_csum -E encoding_flags=strict",
    )
    .folding(),
    shape("encrypt, verity", 1024, true, "-t ext4 -O encrypt,verity"),
    shape(
        "encrypt, casefold, verity",
        1024,
        true,
        "-t ext4 -O encrypt,casefold,verity,project,quota",
    )
    .folding(),
    shape("journal outside", 1024, true, "-t ext4 -O ^has_journal").journal_of(2),
    shape(
        "journal outside 4k",
        4096,
        true,
        "-t ext4 -O ^has_journal,quota",
    )
    .journal_of(8),
    shape(
        "journal outside, no extents",
        1024,
        false,
        "-t ext3 -I 256 -O ^has_journal",
    )
    .journal_of(2),
];

/// A shape of the tables.
pub fn shape_of(name: &str) -> &'static Shape {
    let mut shapes = SHAPES.iter().chain(LATER);
    let found = shapes.find(|shape| shape.name == name);
    found.expect("a shape of the tables")
}

/// Whether e2fsprogs is installed; prints what is missing.
pub fn tools() -> bool {
    e2fs::is_there()
}

/// A scratch file for passing images to and from the tools.
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// The directory of scratch files.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// The file with the journal of the image, if that is outside.
    fn journal_path(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// An image of a shape, in a file; a journal outside in another one.
    pub fn make(&self, shape: &Shape) -> PathBuf {
        let path = self.path();
        let _ = std::fs::remove_file(&path);
        let block_bytes = shape.block_bytes.to_string();
        let mut arguments = vec!["-m", "0", "-b", &block_bytes];
        arguments.extend(shape.mke2fs.split(' '));
        assert!(e2fs::mke2fs(&path, &format!("{}m", shape.mib), &arguments));
        if !shape.tune2fs.is_empty() {
            let mut tune = e2fs::tool("tune2fs");
            tune.args(shape.tune2fs.split(' ')).arg(&path);
            program::run(&mut tune, e2fs::LIMIT).good(shape.name);
        }
        if shape.folds {
            e2fs::set_casefold(&path, "/");
        }
        if shape.journal_mib > 0 {
            let journal = self.journal_path();
            let _ = std::fs::remove_file(&journal);
            let size = format!("{}m", shape.journal_mib);
            e2fs::add_journal_device(&path, &journal, &size, shape.block_bytes);
        }
        path
    }

    /// The same, loaded into a device in memory; a journal outside is behind the volume.
    pub fn device(&self, shape: &Shape) -> Arc<dyn BlockDevice> {
        let mut bytes = std::fs::read(self.make(shape)).unwrap();
        if shape.journal_mib > 0 {
            bytes.extend(std::fs::read(self.journal_path()).unwrap());
        }
        load(&bytes)
    }

    /// What `e2fsck` has left in the scratch file.
    pub fn repaired(&self) -> Arc<dyn BlockDevice> {
        let mut bytes = std::fs::read(self.path()).unwrap();
        if let Some(begin) = external::journal_begin(&bytes[1024..]) {
            bytes.truncate(begin as usize);
            bytes.extend(std::fs::read(self.journal_path()).unwrap());
        }
        load(&bytes)
    }

    /// Runs `e2fsck` with `arguments` on the content of `device`; returns its exit code and output.
    pub fn e2fsck(&self, device: &dyn BlockDevice, arguments: &[&str]) -> (i32, String) {
        let path = self.path();
        let bytes = bytes_of(device);
        let begin = external::journal_begin(&bytes[1024..]);
        let (volume, journal) = bytes.split_at(begin.map_or(bytes.len(), |begin| begin as usize));
        std::fs::write(&path, volume).unwrap();
        let place = begin.map(|_| self.journal_path());
        if let Some(place) = &place {
            std::fs::write(place, journal).unwrap();
        }
        let ran = external::e2fsck(&path, place.as_deref(), arguments);
        (ran.code(), ran.text())
    }

    /// `e2fsck -fn` must find nothing.
    pub fn check(&self, device: &dyn BlockDevice) -> Result<(), String> {
        match self.e2fsck(device, &["-fn"]) {
            (0, _) => Ok(()),
            (code, printed) => Err(format!("e2fsck -fn exited with {code}: {printed}")),
        }
    }
}

const PIECE: usize = 256 << 10;

/// A device in memory with this content. Zeros take no memory.
pub fn load(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(bytes.len() as u64);
    let mut queue = device.open_queue().unwrap();
    let zeroes = vec![0; PIECE];
    let mut done = Vec::new();
    scope(&mut *queue, |scope| {
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            if piece != &zeroes[..piece.len()] {
                scope.submit(
                    0,
                    Op::Write,
                    (index * PIECE) as u64,
                    [Segment::Write(piece)],
                    false,
                );
                scope.reap(1, &mut done);
            }
        }
    });
    assert!(done.iter().all(|one| one.result.is_ok()));
    Arc::new(device)
}

/// A device in memory with the content of a sparse file, which may be far longer than memory.
pub fn load_sparse(path: &Path) -> Arc<dyn BlockDevice> {
    let file = std::fs::File::open(path).unwrap();
    let len = file.metadata().unwrap().len();
    let device = MemoryDevice::new(len);
    let mut queue = device.open_queue().unwrap();
    let mut done = Vec::new();
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while let Ok(data) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        at = data / PIECE as u64 * PIECE as u64;
        let here = piece.len().min((len - at) as usize);
        file.read_exact_at(&mut piece[..here], at).unwrap();
        scope(&mut *queue, |scope| {
            scope.submit(0, Op::Write, at, [Segment::Write(&piece[..here])], false);
            scope.reap(1, &mut done);
        });
        at += here as u64;
    }
    assert!(done.iter().all(|one| one.result.is_ok()));
    Arc::new(device)
}

/// The whole content of `device`.
pub fn bytes_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len_bytes() as usize];
    let mut queue = device.open_queue().unwrap();
    let mut done = Vec::new();
    scope(&mut *queue, |scope| {
        for (index, piece) in bytes.chunks_mut(PIECE).enumerate() {
            scope.submit(
                0,
                Op::Read,
                (index * PIECE) as u64,
                [Segment::Read(piece)],
                false,
            );
            scope.reap(1, &mut done);
        }
    });
    assert!(done.iter().all(|one| one.result.is_ok()));
    bytes
}

/// Writes the content of `device` to a file.
pub fn save(device: &dyn BlockDevice, path: &Path) {
    std::fs::write(path, bytes_of(device)).unwrap();
}
