//! The tree that fills every volume, and its changes: each step is applied to a file system and to the
//! expectation.

use throughline::{Fallocate, FileType, RenameMode};

use crate::matrix::expected::Expected;
use crate::matrix::fs::{FileSystem, Step};

/// Capacity and features of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) block_bytes: u64,
    /// Bytes of a cluster; of a block without `bigalloc`.
    pub(crate) cluster_bytes: u64,
    /// Files have extents: all of `fallocate` works.
    pub(crate) extents: bool,
    /// Names in the large directory.
    pub(crate) names: usize,
    /// Files may have 2 GiB or more.
    pub(crate) large_file: bool,
    /// Times that an inode cannot hold are clamped: the kernel does so except for revision 0.
    pub(crate) late_times: bool,
    /// Size of the largest file that is not sparse, in bytes.
    pub(crate) big_bytes: usize,
}

/// Modification times; those past 2038, for which not every inode has room, are last.
const TIMES: [(i64, u32); 8] = [
    (0, 0),
    (1_700_000_000, 123_456_789),
    (-1, 5),
    (-2_000_000_000, 999_999_999),
    (1_900_000_000, 500),
    (2_208_988_800, 1),
    (4_294_967_296, 999_999_999),
    (14_999_999_999, 500_000_000),
];

/// A file system and its expected state.
pub(crate) struct Pair<'a> {
    pub(crate) fs: &'a mut dyn FileSystem,
    pub(crate) expected: &'a mut Expected,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(fs: &'a mut dyn FileSystem, expected: &'a mut Expected) -> Self {
        Self { fs, expected }
    }

    pub(crate) fn step(&mut self, step: Step) {
        self.fs.apply(&step);
        self.expected.apply(&step);
    }

    fn write(&mut self, path: &str, offset: u64, len: usize) {
        let seed = path.bytes().fold(offset, |sum, byte| {
            sum.wrapping_mul(131).wrapping_add(byte.into())
        });
        self.step(Step::Write {
            path: path.into(),
            offset,
            seed,
            len,
        });
    }

    fn file(&mut self, path: &str, len: usize) {
        self.step(Step::File(path.into()));
        self.write(path, 0, len);
    }

    /// Sets the time of everything that changed, including directories.
    pub(crate) fn set_changed_times(&mut self, shape: &Shape) {
        let times = if shape.late_times {
            TIMES.len()
        } else {
            TIMES.len() - 3
        };
        for (index, path) in self.expected.without_time().into_iter().enumerate() {
            let (seconds, nanoseconds) = TIMES[index % times];
            self.step(Step::Modified(path, (seconds + index as i64, nanoseconds)));
        }
    }

    /// Fills the new directory `top`.
    pub(crate) fn build(&mut self, top: &str, shape: &Shape) {
        self.step(Step::Dir(top.into()));
        self.many(&format!("{top}/many"), shape.names);
        self.nested(&format!("{top}/nested"));
        self.sizes(&format!("{top}/sizes"), shape);
        self.holes(&format!("{top}/holes"), shape);
        self.links(&format!("{top}/links"));
        self.nodes(&format!("{top}/nodes"));
        self.set_changed_times(shape);
    }

    fn many(&mut self, dir: &str, names: usize) {
        self.step(Step::Dir(dir.into()));
        for index in 0..names {
            let path = many_name(dir, index);
            self.step(Step::File(path.clone()));
            if index % 16 == 0 {
                self.write(&path, 0, 1 + index % 150);
            }
        }
    }

    fn nested(&mut self, dir: &str) {
        let mut path = dir.to_owned();
        self.step(Step::Dir(path.clone()));
        for depth in 0..12 {
            path = format!("{path}/depth {depth}");
            self.step(Step::Dir(path.clone()));
            self.file(&format!("{path}/ä file"), depth * 37);
        }
        for (index, mode) in [0o700, 0o1777, 0o2755, 0o000, 0o555]
            .into_iter()
            .enumerate()
        {
            let path = format!("{dir}/mode{index}");
            self.step(Step::Dir(path.clone()));
            self.step(Step::Attributes(
                path,
                mode,
                70_000 + index as u32,
                4_000_000_000,
            ));
        }
        for index in 0..40 {
            self.step(Step::Dir(format!("{dir}/sub{index}")));
        }
    }

    fn sizes(&mut self, dir: &str, shape: &Shape) {
        self.step(Step::Dir(dir.into()));
        let block = shape.block_bytes as usize;
        for len in [
            0,
            1,
            59,
            60,
            61,
            100,
            159,
            160,
            161,
            700,
            block - 1,
            block,
            block + 1,
            60 << 10,
            shape.big_bytes,
        ] {
            let path = format!("{dir}/{len}");
            if !self.expected.exists(&path) {
                self.file(&path, len);
            }
        }
        // In pieces, last pieces first: holes that are filled, extents that merge.
        self.step(Step::File(format!("{dir}/backwards")));
        for piece in (0..40).rev() {
            self.write(&format!("{dir}/backwards"), piece * 3000, 3000);
        }
        for (index, mode) in [0o4755, 0o2711, 0o6755, 0o1644, 0o000]
            .into_iter()
            .enumerate()
        {
            let path = format!("{dir}/mode{index}");
            self.file(&path, 10);
            self.step(Step::Attributes(
                path,
                mode,
                65_536 + index as u32,
                65_535 - index as u32,
            ));
        }
    }

    fn holes(&mut self, dir: &str, shape: &Shape) {
        self.step(Step::Dir(dir.into()));
        let sparse = format!("{dir}/sparse");
        self.file(&sparse, 100);
        for offset in [300 << 10, (9 << 20) + 1, 70 << 20] {
            self.write(&sparse, offset, 5000);
        }
        self.step(Step::Truncate(sparse, (71 << 20) + 17));
        // Every second block: enough extents for a tree of two levels.
        let comb = format!("{dir}/comb");
        self.step(Step::File(comb.clone()));
        for tooth in 0..(shape.big_bytes as u64 / shape.block_bytes / 8).min(500) {
            self.write(&comb, tooth * 2 * shape.block_bytes, 8);
        }
        if shape.large_file {
            let large = format!("{dir}/large");
            self.file(&large, 10);
            self.write(&large, (5 << 30) - 1000, 1000);
        }
        let punched = format!("{dir}/punched");
        self.file(&punched, 200_000);
        self.step(Step::Allocate(
            punched,
            Fallocate::PunchHole,
            10_000,
            150_000,
        ));
        if shape.extents {
            self.allocated(dir, shape.block_bytes);
            self.moved(dir, shape.cluster_bytes);
        }
    }

    fn allocated(&mut self, dir: &str, block: u64) {
        let allocated = format!("{dir}/allocated");
        self.step(Step::File(allocated.clone()));
        self.step(Step::Allocate(
            allocated.clone(),
            Fallocate::Allocate,
            0,
            40 * block,
        ));
        self.write(&allocated, 7 * block + 3, block as usize);
        let kept = format!("{dir}/kept");
        self.file(&kept, 1000);
        self.step(Step::Allocate(kept, Fallocate::KeepSize, 0, 20 * block));
        let zeroed = format!("{dir}/zeroed");
        self.file(&zeroed, 20 * block as usize);
        self.step(Step::Allocate(
            zeroed.clone(),
            Fallocate::ZeroRange,
            block + 5,
            10 * block,
        ));
        self.step(Step::Allocate(
            zeroed,
            Fallocate::ZeroRange,
            19 * block,
            3 * block,
        ));
    }

    fn moved(&mut self, dir: &str, block: u64) {
        for (name, mode) in [
            ("collapsed", Fallocate::Collapse),
            ("inserted", Fallocate::Insert),
        ] {
            let path = format!("{dir}/{name}");
            self.file(&path, 20 * block as usize + 77);
            self.step(Step::Allocate(path.clone(), mode, 3 * block, 4 * block));
            self.step(Step::Allocate(path, mode, block, 2 * block));
        }
    }

    fn links(&mut self, dir: &str) {
        self.step(Step::Dir(dir.into()));
        for len in [1, 30, 59, 60, 61, 150, 500, 1000] {
            let target = "target/".repeat(143)[..len].to_owned();
            let link = format!("{dir}/symbolic {len}");
            self.step(Step::Symlink {
                target,
                link: link.clone(),
            });
            self.step(Step::Attributes(link, 0o777, 80_000, len as u32));
        }
        self.file(&format!("{dir}/original"), 5000);
        self.step(Step::Dir(format!("{dir}/other")));
        for index in 0..5 {
            let to = format!("{dir}/{}hard{index}", ["", "other/"][index % 2]);
            self.step(Step::Link {
                from: format!("{dir}/original"),
                to,
            });
        }
    }

    fn nodes(&mut self, dir: &str) {
        self.step(Step::Dir(dir.into()));
        let kinds = [FileType::CharDevice, FileType::BlockDevice];
        for (index, numbers) in [(1, 3), (8, 255), (7, 256), (259, 0), (4095, 1_048_575)]
            .into_iter()
            .enumerate()
        {
            self.step(Step::Node(
                format!("{dir}/device{index}"),
                kinds[index % 2],
                numbers,
            ));
        }
        self.step(Step::Node(format!("{dir}/fifo"), FileType::Fifo, (0, 0)));
        self.step(Step::Node(
            format!("{dir}/socket"),
            FileType::Socket,
            (0, 0),
        ));
        self.step(Step::Attributes(format!("{dir}/fifo"), 0o600, 1, 2));
    }

    /// Changes what [`Pair::build`] created in `top`; call each `round` once.
    pub(crate) fn change(&mut self, top: &str, round: usize, shape: &Shape) {
        self.change_many(&format!("{top}/many"), round, shape.names);
        self.change_names(top, round);
        self.change_contents(&format!("{top}/sizes"), round, shape);
        self.change_holes(&format!("{top}/holes"), round, shape);
        for path in [
            "links/other/hard1",
            "links/hard2",
            "nodes/socket",
            "links/symbolic 1000",
        ] {
            let path = format!("{top}/{path}");
            if self.expected.exists(&path) {
                self.step(Step::Unlink(path));
            }
        }
        self.set_changed_times(shape);
    }

    /// Every third name is removed, some of the rest get longer ones, and new ones take the space.
    fn change_many(&mut self, dir: &str, round: usize, names: usize) {
        for index in 0..names {
            let path = many_name(dir, index);
            if !self.expected.exists(&path) {
                continue;
            }
            if index % 3 == round % 3 {
                self.step(Step::Unlink(path));
            } else if index % 7 == round % 7 {
                self.step(Step::Rename(
                    path,
                    format!("{dir}/renamed{round}-{index}-{}", "r".repeat(60)),
                    RenameMode::NoReplace,
                ));
            }
        }
        for index in 0..names / 6 {
            self.step(Step::File(format!("{dir}/new{round}-{index}")));
        }
    }

    fn change_names(&mut self, top: &str, round: usize) {
        let (replaced, exchanged) = (
            format!("{top}/sizes/replaced{round}"),
            format!("{top}/sizes/exchanged{round}"),
        );
        self.file(&replaced, 9000);
        self.file(&exchanged, 300);
        self.step(Step::Rename(
            exchanged.clone(),
            replaced.clone(),
            RenameMode::Replace,
        ));
        self.step(Step::Rename(
            replaced,
            format!("{top}/nested/sub{round}"),
            RenameMode::Exchange,
        ));
        // A directory renamed over an empty one, and one moved to another parent.
        let (from, over) = (
            format!("{top}/nested/sub{}", 10 + round),
            format!("{top}/nested/sub{}", 20 + round),
        );
        self.file(&format!("{from}/inside"), 10);
        self.step(Step::Rename(from, over.clone(), RenameMode::Replace));
        self.step(Step::Rename(
            over,
            format!("{top}/links/moved{round}"),
            RenameMode::Replace,
        ));
        self.step(Step::Rmdir(format!("{top}/nested/sub{}", 30 + round)));
        if round == 0 {
            let (deep, other) = (
                format!("{top}/nested/depth 0/depth 1/depth 2"),
                format!("{top}/links/other"),
            );
            self.step(Step::Rename(deep, other, RenameMode::Exchange));
        }
    }

    fn change_contents(&mut self, dir: &str, round: usize, shape: &Shape) {
        let block = shape.block_bytes;
        let big = format!("{dir}/{}", shape.big_bytes);
        self.write(&big, 12_345 + round as u64, 100_000);
        self.write(&big, 0, 1);
        self.step(Step::Truncate(
            big.clone(),
            shape.big_bytes as u64 / 2 + 1 - round as u64,
        ));
        self.step(Step::Truncate(big, shape.big_bytes as u64));
        for (name, to) in [
            (60, 61),
            (61, 59),
            (160, 30_000),
            (100, 0),
            (700, 2 * block + 5),
            (60 << 10, block - 1),
        ] {
            let path = format!("{dir}/{name}");
            self.step(Step::Truncate(path.clone(), to + round as u64));
            self.write(&path, to + 2 * round as u64, 20);
        }
        for name in [0, 1, 59, block - 1, block, block + 1] {
            let path = format!("{dir}/{name}");
            let end = self.expected.stat_len(&path);
            self.write(&path, end, 333); // at the end
            self.write(&path, end / 2, 11);
        }
        let backwards = format!("{dir}/backwards");
        if self.expected.exists(&backwards) {
            self.step(Step::Unlink(backwards));
        }
        self.file(&format!("{dir}/fresh{round}"), 77_777);
    }

    fn change_holes(&mut self, dir: &str, round: usize, shape: &Shape) {
        let block = shape.block_bytes;
        for (name, offset) in [
            ("sparse", 4 << 20),
            ("comb", 3 * block),
            ("punched", 50_000),
        ] {
            self.write(
                &format!("{dir}/{name}"),
                offset + 1000 * round as u64,
                20_000,
            );
        }
        self.step(Step::Truncate(
            format!("{dir}/sparse"),
            (10 << 20) - round as u64 * 100_000,
        ));
        self.step(Step::Allocate(
            format!("{dir}/comb"),
            Fallocate::PunchHole,
            2 * block,
            5 * block + 9,
        ));
        if shape.extents {
            self.write(
                &format!("{dir}/allocated"),
                20 * block + round as u64 * block,
                10,
            );
            self.write(
                &format!("{dir}/kept"),
                2 * block + round as u64,
                3 * block as usize,
            );
            self.step(Step::Truncate(format!("{dir}/inserted"), 9 * block + 1));
            self.write(&format!("{dir}/collapsed"), 0, 5 * block as usize);
        }
    }
}

/// Names of different lengths.
fn many_name(dir: &str, index: usize) -> String {
    format!("{dir}/name{index}{}", "n".repeat(index * 7 % 48))
}
