//! The operations and their random generation.

use throughline::Fallocate;

use crate::attributes::seen::{Kind, World};

/// A name in the root, or one in a directory of the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path {
    pub(crate) dir: Option<&'static str>,
    pub(crate) name: &'static str,
}

impl Path {
    /// As a program would write it, relative to the root.
    pub(crate) fn text(&self) -> String {
        match self.dir {
            Some(dir) => format!("{dir}/{}", self.name),
            None => self.name.to_owned(),
        }
    }
}

/// What [`Op::Rename`] does if the name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Replace,
    NoReplace,
    Exchange,
    Whiteout,
    WhiteoutNoReplace,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Omit,
    Now,
    /// Seconds since 1970, and nanoseconds.
    At(i64, u32),
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) append: bool,
    pub(crate) truncate: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    File(Path, u32),
    Dir(Path, u32),
    Symlink(Path),
    Fifo(Path),
    Unlink(Path),
    Rmdir(Path),
    Link(Path, Path),
    Rename(Path, Path, How),
    Mode(Path, u32),
    Owner(Path, Option<u32>, Option<u32>),
    Times(Path, When, When),
    /// Toggles flags.
    Flags(Path, u32),
    Project(Path, u32),
    Open(Path, Want),
    Write {
        path: Path,
        append: bool,
        offset: u64,
        len: usize,
    },
    /// Opens a file for writing, for [`Op::WriteKept`].
    Keep(Path, bool),
    WriteKept(u64),
    Truncate(Path, bool, u64),
    Allocate(Path, bool, Fallocate, u64, u64),
    Read(Path),
    List(Path),
    ReadLink(Path),
    /// An unnamed file that is linked as this path.
    Temporary(Path),
    /// An unnamed file in the directory of this path that is never linked.
    Lost(Path),
}

/// The directories' names come last.
pub(crate) const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "p", "q"];
pub(crate) const DIRS: [&str; 2] = ["p", "q"];

const SYNC: u32 = 0x8;
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
/// Flags to toggle; those with most effect appear more often. They include flags that cannot be set and ones
/// that do not exist. (Not extents and journalled data, which the kernel converts.)
const FLAGS: [u32; 20] = [
    IMMUTABLE,
    IMMUTABLE,
    IMMUTABLE,
    APPEND,
    APPEND,
    APPEND,
    SYNC,
    0x40,
    0x80,
    0x1,
    0x2,
    0x4,
    0x8000,
    0x1_0000,
    0x2_0000,
    0x2000_0000,
    0x1000,
    0x4_0000,
    0x4000_0000,
    0x8000_0000,
];

/// Draws operations.
pub(crate) struct Player {
    random: fastrand::Rng,
    begun: usize,
    /// Whether files have extents. (Without extents, the kernel changes times even when it refuses to
    /// allocate.)
    extents: bool,
}

impl Player {
    pub(crate) fn new(seed: u64, extents: bool) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            begun: 0,
            extents,
        }
    }

    fn any<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.random.usize(..of.len())]
    }

    fn path(&mut self) -> Path {
        let dir = match self.random.u8(..3) {
            0 => None,
            _ => Some(self.any(&DIRS)),
        };
        Path {
            dir,
            name: self.any(&NAMES),
        }
    }

    /// A path of one of these kinds, if there is one.
    fn of(&mut self, world: &World, kinds: &[Kind]) -> Option<Path> {
        let fit: Vec<&Path> = world.paths(kinds).collect();
        self.random.choice(fit).cloned()
    }

    fn when(&mut self) -> When {
        match self.random.u8(..4) {
            0 => When::Omit,
            1 => When::Now,
            2 => When::At(self.random.i64(-2_147_483_648..900_000_000), 123_456_789),
            _ => When::At(
                self.any(&[-5_000_000_000, 0, 4_000_000_000, 15_032_385_536]),
                5,
            ),
        }
    }

    /// The next operation, one that makes sense in this state.
    pub(crate) fn next(&mut self, world: &World) -> Op {
        // Directories first.
        if let Some(name) = DIRS.get(self.begun) {
            self.begun += 1;
            return Op::Dir(Path { dir: None, name }, 0o755);
        }
        loop {
            if let Some(op) = self.draw(world) {
                return op;
            }
        }
    }

    fn draw(&mut self, world: &World) -> Option<Op> {
        let file = [Kind::File];
        let path = self.path();
        let modes = [0o755, 0o6755, 0o4711, 0o2644, 0o1777, 0o600, 0o2775];
        Some(match self.random.u8(..100) {
            0..9 => Op::File(path, self.any(&modes)),
            9..13 => Op::Dir(path, self.any(&modes)),
            13..15 => Op::Symlink(path),
            15..17 => Op::Fifo(path),
            17..22 => Op::Unlink(path),
            22..24 => Op::Rmdir(path),
            24..29 => Op::Link(self.of(world, &Kind::ALL)?, path),
            29..41 => self.rename(world, path)?,
            41..45 => Op::Mode(self.of(world, &Kind::NO_LINK)?, self.any(&modes)),
            45..49 => {
                let (uid, gid) = (
                    self.any(&[None, Some(0), Some(70_000)]),
                    self.any(&[None, Some(5)]),
                );
                Op::Owner(self.of(world, &Kind::ALL)?, uid, gid)
            }
            49..54 => Op::Times(self.of(world, &Kind::ALL)?, self.when(), self.when()),
            54..66 => Op::Flags(self.of(world, &Kind::FLAGGED)?, self.any(&FLAGS)),
            66..68 => Op::Project(self.of(world, &Kind::FLAGGED)?, self.random.u32(..3)),
            68..72 => {
                let want = Want {
                    append: self.random.bool(),
                    truncate: self.random.bool(),
                };
                Op::Open(self.of(world, &file)?, want)
            }
            72..78 => Op::Write {
                path: self.of(world, &file)?,
                append: self.random.bool(),
                offset: self.random.u64(..9000),
                len: self.any(&[0, 1, 700, 5000]),
            },
            78..80 => Op::Keep(self.of(world, &file)?, self.random.bool()),
            80..83 => Op::WriteKept(self.random.u64(..6000)),
            83..86 => Op::Truncate(
                self.of(world, &file)?,
                self.random.bool(),
                self.random.u64(..9000),
            ),
            86..89 => self.allocate(world)?,
            89..92 => Op::Read(self.of(world, &file)?),
            92..94 => Op::List(self.of(world, &[Kind::Dir])?),
            94..96 => Op::ReadLink(self.of(world, &[Kind::Symlink])?),
            96..99 => Op::Temporary(path),
            _ => Op::Lost(path),
        })
    }

    fn rename(&mut self, world: &World, to: Path) -> Option<Op> {
        let how = self.any(&[
            How::Replace,
            How::Replace,
            How::NoReplace,
            How::Exchange,
            How::Whiteout,
            How::WhiteoutNoReplace,
        ]);
        let to = match self.random.bool() {
            true => self.of(world, &Kind::ALL).unwrap_or(to),
            false => to,
        };
        Some(Op::Rename(self.of(world, &Kind::ALL)?, to, how))
    }

    fn allocate(&mut self, world: &World) -> Option<Op> {
        let modes = [
            Fallocate::PunchHole,
            Fallocate::Allocate,
            Fallocate::KeepSize,
            Fallocate::ZeroRange,
        ];
        let mode = match self.extents {
            true => self.any(&modes),
            false => Fallocate::PunchHole,
        };
        let (offset, len) = (self.random.u64(..9000), self.random.u64(1..9000));
        Some(Op::Allocate(
            self.of(world, &[Kind::File])?,
            self.random.bool(),
            mode,
            offset,
            len,
        ))
    }
}
