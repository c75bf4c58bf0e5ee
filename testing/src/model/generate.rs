//! Random operations chosen from the current tree: mostly valid ones, some invalid.

use fastrand::Rng;

use super::hot::Hot;
use super::op::{Data, Op, Path};
use super::subject::{FallocateMode, FileKind, Form, Handle, RenameMode};
use super::tree::{Body, Id, ROOT, Tree};

/// The emphasis of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// All operations.
    Mixed,
    /// Names: large directories, long names, renames.
    Names,
    /// Writes, reads and truncates.
    Data,
    /// `fallocate` in all its modes.
    Extents,
    /// Many files of a few bytes.
    Small,
    /// Few files and few offsets, through handles of all kinds.
    Hot,
}

impl Profile {
    /// The profiles that are useful with direct handles only.
    pub const ALL: [Self; 5] = [
        Self::Mixed,
        Self::Names,
        Self::Data,
        Self::Extents,
        Self::Small,
    ];
}

/// Capabilities of the file system under test.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Bytes of a cluster, which is what a file is given and what a collapse or insert is aligned to; those
    /// of a block without `bigalloc`.
    pub cluster_bytes: u64,
    /// The highest offset that is occasionally written to.
    pub far_bytes: u64,
    /// Maximum length of one write or allocation, in bytes.
    pub long_bytes: u64,
    /// Whether files have extents; otherwise `fallocate` may be refused as unsupported.
    pub extents: bool,
    /// Whether times have nanoseconds.
    pub nanoseconds: bool,
    /// Whether names are matched without case. All names are then text (`e2fsck` 1.47 cannot hash others),
    /// and no two differ in case only.
    pub folds: bool,
    /// Whether the volume is used exclusively: its root is the tree's root, and "no space" can be checked.
    pub exclusive: bool,
    /// Whether handles of all kinds and their calls are used; otherwise only direct ones.
    pub mixed: bool,
}

/// Letters that folding changes, of up to three bytes in either case.
const FOLDED: [&str; 9] = ["q", "é", "e\u{301}", "ß", "ς", "ж", "ǆ", "각", "\u{ad}"];
/// Maximum number of directories in a tree.
const MAX_DIRS: usize = 40;
/// Maximum depth of a tree.
const MAX_DEPTH: usize = 7;

pub(super) struct Generator {
    pub(super) random: Rng,
    profile: Profile,
    bounds: Bounds,
    serial: u64,
    hot: Option<Hot>,
}

impl Generator {
    pub(super) fn new(seed: u64, profile: Profile, bounds: Bounds) -> Self {
        Self {
            random: Rng::with_seed(seed),
            profile,
            bounds,
            serial: 0,
            hot: bounds.mixed.then(|| Hot::new(seed, profile, bounds)),
        }
    }

    /// The next operation. Mixed handles do not change the other choices for the same seed.
    pub(super) fn next(&mut self, tree: &Tree) -> Op {
        let hot = self.hot.as_mut().and_then(|hot| hot.next(tree));
        let op = hot.unwrap_or_else(|| self.plain(tree));
        match &mut self.hot {
            Some(hot) => hot.through_some_handle(op),
            None => op,
        }
    }

    fn plain(&mut self, tree: &Tree) -> Op {
        let [make, remove, rename, data, shape, look, attributes, keep] = match self.profile {
            Profile::Mixed => [20, 12, 10, 20, 10, 15, 6, 6],
            Profile::Names => [45, 18, 20, 3, 1, 10, 2, 1],
            Profile::Data => [4, 2, 1, 45, 15, 25, 2, 6],
            Profile::Extents => [4, 2, 1, 25, 45, 15, 2, 6],
            Profile::Small => [30, 15, 8, 25, 8, 10, 2, 2],
            Profile::Hot => [4, 6, 3, 45, 15, 25, 2, 6],
        };
        let weights = [make, remove, rename, data, shape, look, attributes, keep];
        let sum: u32 = weights.iter().sum();
        let mut pick = self.random.u32(..sum);
        let class = weights
            .iter()
            .position(|weight| match pick.checked_sub(*weight) {
                Some(rest) => {
                    pick = rest;
                    false
                }
                None => true,
            });
        match class {
            Some(0) => self.make(tree),
            Some(1) => self.remove(tree),
            Some(2) => self.rename(tree),
            Some(3) => self.data(tree),
            Some(4) => self.shape(tree),
            Some(5) => self.look(tree),
            Some(6) => self.attributes(tree),
            _ => self.keep(tree),
        }
    }

    /// Permission bits without set-uid and set-gid, which writes and owner changes modify.
    fn mode(&mut self) -> u32 {
        self.random.u32(..0o2000)
    }

    fn dir(&mut self, tree: &Tree) -> Id {
        // One directory gets most names, so that it becomes large.
        if self.profile == Profile::Names && self.random.u8(..3) > 0 {
            return ROOT;
        }
        let dirs = tree.dirs();
        dirs[self.random.usize(..dirs.len())]
    }

    /// A name: short and probably taken, new, long, or of arbitrary bytes.
    fn name(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let long = if self.profile == Profile::Names { 5 } else { 1 };
        match random.u32(..20) {
            0..8 => format!("n{}", random.u32(..60)).into_bytes(),
            8 if self.bounds.folds => {
                self.serial += 1;
                let mut name = format!("{}-", self.serial);
                for _ in 0..random.usize(1..80) {
                    name.push_str(FOLDED[random.usize(..FOLDED.len())]);
                }
                name.into_bytes()
            }
            8 => (0..random.usize(1..256))
                .map(|_| byte_of_name(random.u8(..)))
                .collect(),
            n if n < 9 + long => {
                let len = random.usize(100..=255);
                let mut name = format!("{}-", random.u64(..)).into_bytes();
                name.resize(len, b'a' + random.u8(..26));
                name
            }
            _ => {
                self.serial += 1;
                format!("file-{}-{:x}", self.serial, random.u16(..)).into_bytes()
            }
        }
    }

    fn new_path(&mut self, tree: &Tree) -> Path {
        let mut path = tree.path_of_dir(self.dir(tree));
        if self.random.u16(..300) == 0 {
            path.extend(b"/missing");
        }
        path.push(b'/');
        match self.random.u16(..300) {
            0 => path.resize(path.len() + 256, b'x'),
            _ => path.extend(self.name()),
        }
        Path(path)
    }

    /// The path of an existing file for which `wanted` is true, if found within a few tries; else of any
    /// file.
    fn some_path(&mut self, tree: &Tree, wanted: impl Fn(&Body) -> bool) -> Path {
        if self.random.u16(..200) == 0 {
            return self.new_path(tree);
        }
        let mut found = Path(b"/".to_vec());
        for _ in 0..12 {
            let dir = self.dir(tree);
            let entries = tree.entries(dir);
            if entries.is_empty() {
                continue;
            }
            let at = self.random.usize(..entries.len());
            let Some((name, id)) = entries.iter().nth(at) else {
                continue;
            };
            let mut path = tree.path_of_dir(dir);
            path.push(b'/');
            path.extend(name);
            found = Path(path);
            if wanted(&tree.node(*id).body) {
                break;
            }
        }
        found
    }

    fn file_path(&mut self, tree: &Tree) -> Path {
        self.some_path(tree, |body| matches!(body, Body::File(_)))
    }

    fn make(&mut self, tree: &Tree) -> Op {
        let path = self.new_path(tree);
        let mode = self.mode();
        let depth = path.0.iter().filter(|byte| **byte == b'/').count();
        match self.random.u8(..20) {
            0..3 if tree.dirs().len() < MAX_DIRS && depth < MAX_DEPTH => Op::Mkdir(path, mode),
            3 | 4 => Op::Symlink(path, self.target()),
            5 => {
                let kinds = [
                    FileKind::Fifo,
                    FileKind::Socket,
                    FileKind::CharDevice,
                    FileKind::BlockDevice,
                ];
                let kind = kinds[self.random.usize(..kinds.len())];
                let numbers = match kind {
                    FileKind::CharDevice | FileKind::BlockDevice => {
                        (self.random.u32(..4096), self.random.u32(..1 << 20))
                    }
                    _ => (0, 0),
                };
                Op::Mknod(path, kind, mode, numbers)
            }
            6 | 7 => {
                let from = self.some_path(tree, |body| !matches!(body, Body::Dir(..)));
                Op::Link(from, path)
            }
            _ => Op::Create(path, mode),
        }
    }

    /// The target of a symbolic link: stored in the inode, in a block, or just at the limit.
    fn target(&mut self) -> Path {
        let most = self.bounds.block_bytes.min(4096) as usize;
        let len = match self.random.u8(..4) {
            0 => self.random.usize(1..60),
            1 => self.random.usize(56..64),
            2 => self.random.usize(60..400),
            _ => self.random.usize(400..most),
        };
        Path((0..len).map(|_| byte_of_name(self.random.u8(..))).collect())
    }

    fn remove(&mut self, tree: &Tree) -> Op {
        let dir = self.random.u8(..6) == 0;
        let path = if dir {
            // Preferably empty directories.
            self.some_path(
                tree,
                |body| matches!(body, Body::Dir(entries, _) if entries.is_empty()),
            )
        } else {
            self.some_path(tree, |body| !matches!(body, Body::Dir(..)))
        };
        match path.0.as_slice() {
            // For other operations it is an ordinary directory.
            b"/" if !self.bounds.exclusive => Op::Stat(path),
            _ if dir => Op::Rmdir(path),
            _ => Op::Unlink(path),
        }
    }

    fn rename(&mut self, tree: &Tree) -> Op {
        let from = self.some_path(tree, |_| true);
        let to = if self.random.bool() {
            self.new_path(tree)
        } else {
            self.some_path(tree, |_| true)
        };
        let mode = match self.random.u8(..6) {
            0 => RenameMode::NoReplace,
            1 | 2 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        if from.0 == b"/" || to.0 == b"/" {
            return Op::Stat(from);
        }
        Op::Rename(from, to, mode)
    }

    /// An offset near the file's end or data, or anywhere.
    fn offset(&mut self, len: u64) -> u64 {
        let block = self.bounds.block_bytes;
        let offset = match self.random.u8(..20) {
            0..7 => self.random.u64(..=len),
            7..12 => len,
            12..15 => self.random.u64(..=len) / block * block,
            15..18 => len.saturating_add(self.random.u64(..20 * block)),
            18 => self.random.u64(..8 << 20),
            _ => self.random.u64(..self.bounds.far_bytes),
        };
        offset.min(self.bounds.far_bytes)
    }

    fn len(&mut self) -> u64 {
        let block = self.bounds.block_bytes;
        match self.random.u8(..20) {
            _ if self.profile == Profile::Small => self.random.u64(1..300),
            0..8 => self.random.u64(1..500),
            8..15 => self.random.u64(1..6 * block),
            15..18 => self.random.u64(1..5) * block,
            _ => self.random.u64(1..=self.bounds.long_bytes),
        }
    }

    fn file_len(tree: &Tree, path: &Path) -> u64 {
        tree.find(&path.0)
            .map_or(0, |id| match &tree.node(id).body {
                Body::File(content) => content.len(),
                _ => 0,
            })
    }

    fn data(&mut self, tree: &Tree) -> Op {
        let path = self.file_path(tree);
        let size = Self::file_len(tree, &path);
        match self.random.u8(..10) {
            0 => Op::Truncate(path, self.offset(size)),
            _ => {
                let data = Data {
                    len: self.len() as usize,
                    seed: self.random.u64(..),
                };
                Op::Write(
                    path,
                    Handle::default(),
                    Form::default(),
                    self.offset(size),
                    data,
                )
            }
        }
    }

    fn shape(&mut self, tree: &Tree) -> Op {
        let path = self.file_path(tree);
        let size = Self::file_len(tree, &path);
        let modes = [
            FallocateMode::Allocate,
            FallocateMode::KeepSize,
            FallocateMode::PunchHole,
            FallocateMode::PunchHole,
            FallocateMode::ZeroRange,
            FallocateMode::Collapse,
            FallocateMode::Insert,
        ];
        let mode = modes[self.random.usize(..modes.len())];
        let (mut offset, mut len) = (self.offset(size), self.len());
        if matches!(mode, FallocateMode::Collapse | FallocateMode::Insert)
            && self.random.u8(..10) > 0
        {
            let cluster = self.bounds.cluster_bytes;
            offset = self.random.u64(..=size) / cluster * cluster;
            len = len.next_multiple_of(cluster);
        }
        if self.random.u8(..4) == 0 {
            Op::Truncate(path, offset)
        } else {
            Op::Fallocate(path, mode, offset, len)
        }
    }

    fn look(&mut self, tree: &Tree) -> Op {
        match self.random.u8(..12) {
            0..4 => {
                let path = self.file_path(tree);
                let size = Self::file_len(tree, &path);
                Op::Read(
                    path,
                    Handle::default(),
                    self.offset(size),
                    self.len() as usize,
                )
            }
            4 | 5 => {
                let path = self.file_path(tree);
                let size = Self::file_len(tree, &path);
                Op::Seek(path, self.random.u64(..=size))
            }
            6 | 7 => Op::Stat(self.some_path(tree, |_| true)),
            8 => Op::Stat(self.new_path(tree)),
            9 => Op::ReadLink(self.some_path(tree, |body| matches!(body, Body::Symlink(_)))),
            10 => Op::ReadDir(self.some_path(tree, |body| matches!(body, Body::Dir(..)))),
            _ if self.random.u8(..4) == 0 => Op::Reopen,
            _ => Op::Sync,
        }
    }

    fn attributes(&mut self, tree: &Tree) -> Op {
        let path = self.some_path(tree, |body| !matches!(body, Body::Symlink(_)));
        match self.random.u8(..3) {
            0 => Op::SetAttributes(path, Some(self.mode()), None),
            1 => Op::SetAttributes(
                path,
                None,
                Some((self.random.u32(..), self.random.u32(..70_000))),
            ),
            _ => {
                let nanoseconds = if self.bounds.nanoseconds {
                    self.random.u32(..1_000_000_000)
                } else {
                    0
                };
                Op::SetModified(path, (self.random.i64(0..1 << 31), nanoseconds))
            }
        }
    }

    fn keep(&mut self, tree: &Tree) -> Op {
        let Some(id) = tree.kept[0] else {
            return Op::Keep(0, self.file_path(tree), Handle::default());
        };
        let size = match &tree.node(id).body {
            Body::File(content) => content.len(),
            _ => 0,
        };
        match self.random.u8(..6) {
            0 => Op::Keep(0, self.file_path(tree), Handle::default()),
            1 => Op::CloseKept(0),
            2 | 3 => Op::ReadKept(0, self.offset(size), self.len() as usize),
            _ => {
                let data = Data {
                    len: self.len() as usize,
                    seed: self.random.u64(..),
                };
                Op::WriteKept(0, Form::default(), self.offset(size), data)
            }
        }
    }
}

/// A byte that is allowed in a name.
fn byte_of_name(byte: u8) -> u8 {
    match byte {
        0 | b'/' => b'.' + 30,
        other => other,
    }
}
