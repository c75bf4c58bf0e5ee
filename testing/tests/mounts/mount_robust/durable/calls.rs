//! The calls that change something, and how it is seen that one took effect.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, XattrFlags, fallocate, linkat, mknodat,
};
use rustix::io::{ReadWriteFlags, pwritev2};
use throughline::{Dir, Result};
use throughline_device::AlignedBuf;

pub(super) const BLOCK: u64 = 4096;
/// The length of a cell's file.
pub(super) const LEN: u64 = 16 * BLOCK;
const OLD: u8 = b'o';
const NEW: u8 = b'n';
const TIME: Duration = Duration::from_secs(1_000_000);

/// What calls have in common as to when they are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Writes that take flags for one call (`RWF_DSYNC`).
    Write,
    /// Other writes through a descriptor.
    Copy,
    /// `fallocate`.
    Allocate,
    Truncate,
    /// Mode and owner.
    Owner,
    Times,
    Xattr,
    /// Names in a directory.
    Names,
}

/// The files of one call: `f`, open; `source`; in the directory `d`, `old` and `empty`.
pub(super) struct Cell {
    pub(super) dir: PathBuf,
    pub(super) file: File,
    /// What the file was opened with, and the flags of one write.
    pub(super) flags: OFlags,
    pub(super) once: ReadWriteFlags,
}

impl Cell {
    /// Makes the files, and opens none.
    pub(super) fn make(dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir.join("d/empty"))?;
        fs::write(dir.join("f"), vec![OLD; LEN as usize])?;
        fs::write(dir.join("source"), vec![NEW; LEN as usize])?;
        fs::write(dir.join("d/old"), "")?;
        Ok(set_xattr(&dir.join("f"), "user.old")?)
    }

    pub(super) fn open(dir: PathBuf, flags: OFlags, once: ReadWriteFlags) -> io::Result<Cell> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = options
            .custom_flags(flags.bits().cast_signed())
            .open(dir.join("f"))?;
        Ok(Cell {
            dir,
            file,
            flags,
            once,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn write(&self, at: u64) -> io::Result<()> {
        let mut bytes = AlignedBuf::zeroed(BLOCK as usize, BLOCK as usize);
        bytes.fill(NEW);
        let written = pwritev2(&self.file, &[IoSlice::new(&bytes)], at, self.once)?;
        assert_eq!(written as u64, BLOCK);
        Ok(())
    }

    fn allocate(&self, mode: FallocateFlags, at: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(&self.file, mode, at, len)?)
    }
}

fn set_xattr(path: &Path, name: &str) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path, name, b"value", XattrFlags::empty())
}

/// A file without a name, and then with one.
fn link_unnamed(cell: &Cell) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file = rustix::fs::open(cell.path("d"), flags, Mode::from_raw_mode(0o644))?;
    let named = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::SYMLINK_FOLLOW;
    Ok(linkat(CWD, named, CWD, cell.path("d/new"), follow)?)
}

/// What a volume shows of a cell after a crash.
pub(super) struct After<'a> {
    pub(super) root: &'a Dir,
    pub(super) dir: &'a str,
}

impl After<'_> {
    fn path(&self, name: &str) -> String {
        format!("/{}/{name}", self.dir)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.root.metadata(self.path("f"))?.len())
    }

    /// Whether these bytes of the file all have that value.
    fn holds(&self, from: u64, len: u64, byte: u8) -> Result<bool> {
        let bytes = self.root.read(self.path("f"))?;
        let range = from as usize..(from + len) as usize;
        Ok(bytes
            .get(range)
            .is_some_and(|all| all.iter().all(|it| *it == byte)))
    }

    fn has(&self, name: &str) -> Result<bool> {
        self.root.exists(self.path(name)).or(Ok(false))
    }

    fn has_link(&self, name: &str) -> Result<bool> {
        Ok(self.root.symlink_metadata(self.path(name)).is_ok())
    }

    fn has_xattr(&self, of: &str, name: &str) -> Result<bool> {
        Ok(self.root.xattrs(self.path(of))?.get(name)?.is_some())
    }
}

/// A call.
pub(super) struct Call {
    pub(super) name: &'static str,
    pub(super) sort: Sort,
    pub(super) act: fn(&Cell) -> io::Result<()>,
    /// Whether it took effect.
    pub(super) did: fn(&After<'_>) -> Result<bool>,
}

/// All calls. (FUSE passes on neither collapsing nor inserting.)
pub(super) fn calls() -> Vec<Call> {
    [data(), cuts(), attributes(), names()]
        .into_iter()
        .flatten()
        .map(|(name, sort, act, did)| Call {
            name,
            sort,
            act,
            did,
        })
        .collect()
}

type Row = (
    &'static str,
    Sort,
    fn(&Cell) -> io::Result<()>,
    fn(&After<'_>) -> Result<bool>,
);

fn data() -> Vec<Row> {
    use FallocateFlags as F;
    vec![
        (
            "write",
            Sort::Write,
            |cell| cell.write(0),
            |after| after.holds(0, BLOCK, NEW),
        ),
        (
            "append",
            Sort::Write,
            |cell| cell.write(LEN),
            |after| after.holds(LEN, BLOCK, NEW),
        ),
        (
            "copy_file_range",
            Sort::Copy,
            |cell| {
                let source = File::open(cell.path("source"))?;
                let (mut from, mut to) = (0, 0);
                let len = 2 * BLOCK as usize;
                let (from, to) = (Some(&mut from), Some(&mut to));
                let copied = rustix::fs::copy_file_range(source, from, &cell.file, to, len)?;
                assert_eq!(copied, len);
                Ok(())
            },
            |after| after.holds(0, 2 * BLOCK, NEW),
        ),
        (
            "sendfile",
            Sort::Copy,
            |cell| {
                let source = File::open(cell.path("source"))?;
                let sent = rustix::fs::sendfile(&cell.file, source, None, 2 * BLOCK as usize)?;
                assert_eq!(sent as u64, 2 * BLOCK);
                Ok(())
            },
            |after| after.holds(0, 2 * BLOCK, NEW),
        ),
        (
            "fallocate",
            Sort::Allocate,
            |cell| cell.allocate(F::empty(), LEN, LEN),
            |after| Ok(after.len()? == 2 * LEN),
        ),
        (
            "fallocate, size kept",
            Sort::Allocate,
            |cell| cell.allocate(F::KEEP_SIZE, LEN, LEN),
            |after| {
                let file = after.root.metadata(after.path("f"))?;
                Ok(file.blocks_512() >= 2 * LEN / 512)
            },
        ),
        (
            "zero range",
            Sort::Allocate,
            |cell| cell.allocate(F::ZERO_RANGE, 0, 2 * BLOCK),
            |after| after.holds(0, 2 * BLOCK, 0),
        ),
        (
            "zero range, unaligned",
            Sort::Allocate,
            |cell| cell.allocate(F::ZERO_RANGE, 100, 2 * BLOCK),
            |after| after.holds(100, 2 * BLOCK, 0),
        ),
        (
            "zero range, size kept",
            Sort::Allocate,
            |cell| cell.allocate(F::ZERO_RANGE | F::KEEP_SIZE, 0, 2 * BLOCK),
            |after| after.holds(0, 2 * BLOCK, 0),
        ),
        (
            "punch",
            Sort::Allocate,
            |cell| cell.allocate(F::PUNCH_HOLE | F::KEEP_SIZE, 0, 2 * BLOCK),
            |after| after.holds(0, 2 * BLOCK, 0),
        ),
        (
            "punch, unaligned",
            Sort::Allocate,
            |cell| cell.allocate(F::PUNCH_HOLE | F::KEEP_SIZE, 100, 100),
            |after| after.holds(100, 100, 0),
        ),
    ]
}

fn cuts() -> Vec<Row> {
    vec![
        (
            "ftruncate",
            Sort::Truncate,
            |cell| cell.file.set_len(BLOCK),
            |after| Ok(after.len()? == BLOCK),
        ),
        (
            "ftruncate to more",
            Sort::Truncate,
            |cell| cell.file.set_len(2 * LEN),
            |after| Ok(after.len()? == 2 * LEN),
        ),
        (
            "truncate",
            Sort::Truncate,
            |cell| {
                OpenOptions::new()
                    .write(true)
                    .open(cell.path("f"))?
                    .set_len(0)
            },
            |after| Ok(after.len()? == 0),
        ),
        (
            "open with O_TRUNC",
            Sort::Truncate,
            |cell| {
                let mut options = OpenOptions::new();
                options.write(true).truncate(true);
                options.custom_flags(cell.flags.bits().cast_signed());
                options.open(cell.path("f")).map(drop)
            },
            |after| Ok(after.len()? == 0),
        ),
    ]
}

fn attributes() -> Vec<Row> {
    vec![
        (
            "chmod",
            Sort::Owner,
            |cell| fs::set_permissions(cell.path("f"), PermissionsExt::from_mode(0o600)),
            |after| Ok(after.root.metadata(after.path("f"))?.mode() & 0o777 == 0o600),
        ),
        (
            "chown",
            Sort::Owner,
            |cell| chown(cell.path("f"), Some(7), Some(8)),
            |after| Ok(after.root.metadata(after.path("f"))?.uid() == 7),
        ),
        (
            "utimens",
            Sort::Times,
            |cell| cell.file.set_modified(SystemTime::UNIX_EPOCH + TIME),
            |after| {
                let modified = after.root.metadata(after.path("f"))?.modified();
                Ok(modified == SystemTime::UNIX_EPOCH + TIME)
            },
        ),
        (
            "setxattr",
            Sort::Xattr,
            |cell| Ok(set_xattr(&cell.path("f"), "user.new")?),
            |after| after.has_xattr("f", "user.new"),
        ),
        (
            "removexattr",
            Sort::Xattr,
            |cell| Ok(rustix::fs::removexattr(cell.path("f"), "user.old")?),
            |after| Ok(!after.has_xattr("f", "user.old")?),
        ),
        (
            "setxattr of a directory",
            Sort::Xattr,
            |cell| Ok(set_xattr(&cell.path("d"), "user.new")?),
            |after| after.has_xattr("d", "user.new"),
        ),
    ]
}

fn names() -> Vec<Row> {
    vec![
        (
            "create",
            Sort::Names,
            |cell| File::create(cell.path("d/new")).map(drop),
            |after| after.has("d/new"),
        ),
        (
            "mkdir",
            Sort::Names,
            |cell| fs::create_dir(cell.path("d/new")),
            |after| after.has("d/new"),
        ),
        (
            "mknod",
            Sort::Names,
            |cell| {
                let mode = Mode::from_raw_mode(0o644);
                Ok(mknodat(CWD, cell.path("d/new"), FileType::Fifo, mode, 0)?)
            },
            |after| after.has("d/new"),
        ),
        (
            "symlink",
            Sort::Names,
            |cell| symlink("nowhere", cell.path("d/new")),
            |after| after.has_link("d/new"),
        ),
        (
            "link",
            Sort::Names,
            |cell| fs::hard_link(cell.path("f"), cell.path("d/new")),
            |after| after.has("d/new"),
        ),
        (
            "link of an unnamed file",
            Sort::Names,
            link_unnamed,
            |after| after.has("d/new"),
        ),
        (
            "rename",
            Sort::Names,
            |cell| fs::rename(cell.path("d/old"), cell.path("d/new")),
            |after| Ok(after.has("d/new")? && !after.has("d/old")?),
        ),
        (
            "rename over a file",
            Sort::Names,
            |cell| fs::rename(cell.path("source"), cell.path("d/old")),
            |after| Ok(after.root.metadata(after.path("d/old"))?.len() == LEN),
        ),
        (
            "unlink",
            Sort::Names,
            |cell| fs::remove_file(cell.path("d/old")),
            |after| Ok(!after.has("d/old")?),
        ),
        (
            "rmdir",
            Sort::Names,
            |cell| fs::remove_dir(cell.path("d/empty")),
            |after| Ok(!after.has("d/empty")?),
        ),
    ]
}
