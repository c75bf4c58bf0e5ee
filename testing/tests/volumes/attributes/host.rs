//! The kernel's side.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path as HostPath, PathBuf};
use std::process::Command;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, IFlags, Mode, OFlags, RenameFlags, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
};
use rustix::io::Errno;
use throughline::Fallocate;

use crate::attributes::op::{DIRS, How, NAMES, Op, Path, Want, When};
use crate::attributes::seen::{Kind, Node, World};

/// A directory of the host.
pub(crate) struct Host {
    root: PathBuf,
    kept: Option<File>,
}

type Done = Result<(), Errno>;

impl Host {
    pub(crate) fn new(root: &HostPath) -> Self {
        Self {
            root: root.to_owned(),
            kept: None,
        }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.text())
    }

    /// The current state. Nothing is read, so no access time changes.
    pub(crate) fn look(&self) -> World {
        let mut world = World::default();
        for dir in [None, Some(DIRS[0]), Some(DIRS[1])] {
            for name in NAMES {
                let path = Path { dir, name };
                let Ok(meta) = fs::symlink_metadata(self.at(&path)) else {
                    continue;
                };
                let node = self.node(&path, &meta);
                let times = [
                    (meta.atime(), meta.atime_nsec() as u32),
                    (meta.mtime(), meta.mtime_nsec() as u32),
                    (meta.ctime(), meta.ctime_nsec() as u32),
                ];
                world.0.insert(path, (meta.ino(), node, times));
            }
        }
        world
    }

    fn node(&self, path: &Path, meta: &fs::Metadata) -> Node {
        let kind = meta.file_type();
        let kind = match () {
            () if kind.is_dir() => Kind::Dir,
            () if kind.is_symlink() => Kind::Symlink,
            () if kind.is_fifo() => Kind::Fifo,
            () if kind.is_char_device() => Kind::Device,
            () => Kind::File,
        };
        let flagged = Kind::FLAGGED.contains(&kind);
        let device = || {
            let number = meta.rdev();
            (rustix::fs::major(number), rustix::fs::minor(number))
        };
        Node {
            kind,
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
            links: meta.nlink() as u32,
            size: (kind == Kind::File).then_some(meta.len()),
            device: (kind == Kind::Device).then(device),
            flags: flagged.then(|| self.flags(path).expect("its flags").bits()),
        }
    }

    fn flags(&self, path: &Path) -> rustix::io::Result<IFlags> {
        let file = rustix::fs::open(self.at(path), OFlags::RDONLY, Mode::empty())?;
        rustix::fs::ioctl_getflags(file)
    }

    fn open(&self, path: &Path, want: Want) -> Result<File, Errno> {
        let opened = OpenOptions::new()
            .write(!want.append)
            .append(want.append)
            .truncate(want.truncate && !want.append)
            .custom_flags(if want.truncate {
                OFlags::TRUNC.bits() as i32
            } else {
                0
            })
            .open(self.at(path));
        opened.map_err(errno)
    }

    /// Executes an operation.
    pub(crate) fn apply(&mut self, op: &Op) -> Done {
        let writing = |append| Want {
            append,
            truncate: false,
        };
        match op {
            Op::File(path, mode) => self.make(path, FileType::RegularFile, *mode),
            Op::Fifo(path) => self.make(path, FileType::Fifo, 0o640),
            Op::Dir(path, mode) => {
                rustix::fs::mkdir(self.at(path), Mode::from_raw_mode(*mode & 0o1777))
            }
            Op::Symlink(path) => rustix::fs::symlink("nowhere", self.at(path)),
            Op::Unlink(path) => rustix::fs::unlink(self.at(path)),
            Op::Rmdir(path) => rustix::fs::rmdir(self.at(path)),
            Op::Link(from, to) => {
                rustix::fs::linkat(CWD, self.at(from), CWD, self.at(to), AtFlags::empty())
            }
            Op::Rename(from, to, how) => self.rename(from, to, *how),
            Op::Mode(path, mode) => rustix::fs::chmod(self.at(path), Mode::from_raw_mode(*mode)),
            Op::Owner(path, uid, gid) => rustix::fs::chownat(
                CWD,
                self.at(path),
                uid.map(Uid::from_raw),
                gid.map(Gid::from_raw),
                AtFlags::SYMLINK_NOFOLLOW,
            ),
            Op::Times(path, accessed, modified) => self.set_times(path, *accessed, *modified),
            Op::Flags(path, flags) => self.turn(path, *flags),
            Op::Project(path, project) => self.set_project(path, *project),
            Op::Open(path, want) => self.open(path, *want).map(drop),
            Op::Write {
                path,
                append,
                offset,
                len,
            } => {
                let file = self.open(path, writing(*append))?;
                file.write_all_at(&vec![7; *len], *offset).map_err(errno)
            }
            Op::Keep(path, append) => {
                self.kept = None;
                self.kept = Some(self.open(path, writing(*append))?);
                Ok(())
            }
            Op::WriteKept(offset) => match &self.kept {
                Some(file) => file.write_all_at(b"kept", *offset).map_err(errno),
                None => Ok(()),
            },
            Op::Truncate(path, append, len) => {
                let file = self.open(path, writing(*append))?;
                file.set_len(*len).map_err(errno)
            }
            Op::Allocate(path, append, mode, offset, len) => {
                let file = self.open(path, writing(*append))?;
                rustix::fs::fallocate(file, allocation(*mode), *offset, *len)
            }
            Op::Read(path) => {
                let mut file = File::open(self.at(path)).map_err(errno)?;
                file.read(&mut [0; 16]).map(drop).map_err(errno)
            }
            Op::List(path) => fs::read_dir(self.at(path))
                .map_err(errno)
                .map(|all| all.for_each(drop)),
            Op::ReadLink(path) => fs::read_link(self.at(path)).map(drop).map_err(errno),
            Op::Temporary(path) => self.temporary(path, true),
            Op::Lost(path) => self.temporary(path, false),
        }
    }

    fn make(&self, path: &Path, kind: FileType, mode: u32) -> Done {
        rustix::fs::mknodat(CWD, self.at(path), kind, Mode::from_raw_mode(mode), 0)
    }

    fn rename(&self, from: &Path, to: &Path, how: How) -> Done {
        let flags = match how {
            How::Replace => RenameFlags::empty(),
            How::NoReplace => RenameFlags::NOREPLACE,
            How::Exchange => RenameFlags::EXCHANGE,
            How::Whiteout => RenameFlags::WHITEOUT,
            How::WhiteoutNoReplace => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
        };
        rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags)
    }

    fn set_times(&self, path: &Path, accessed: When, modified: When) -> Done {
        let spec = |when| match when {
            When::Omit => (0, UTIME_OMIT),
            When::Now => (0, UTIME_NOW),
            When::At(seconds, nanoseconds) => (seconds, nanoseconds.into()),
        };
        let [last_access, last_modification] = [accessed, modified]
            .map(spec)
            .map(|(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec });
        let times = Timestamps {
            last_access,
            last_modification,
        };
        rustix::fs::utimensat(CWD, self.at(path), &times, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn turn(&self, path: &Path, flags: u32) -> Done {
        let file = rustix::fs::open(self.at(path), OFlags::RDONLY, Mode::empty())?;
        let now = rustix::fs::ioctl_getflags(&file)?.bits();
        rustix::fs::ioctl_setflags(file, IFlags::from_bits_retain(now ^ flags))
    }

    /// `chattr` does not report the error number.
    fn set_project(&self, path: &Path, project: u32) -> Done {
        let done = Command::new("chattr")
            .args(["-p", &project.to_string()])
            .arg(self.at(path))
            .output()
            .expect("chattr runs");
        match done.status.success() {
            true => Ok(()),
            false => Err(Errno::OPNOTSUPP),
        }
    }

    /// An unnamed file in the directory of a path, optionally linked as that path.
    fn temporary(&self, path: &Path, named: bool) -> Done {
        let dir = self.root.join(path.dir.unwrap_or("."));
        let flags = OFlags::WRONLY | OFlags::TMPFILE;
        let file = rustix::fs::open(dir, flags, Mode::from_raw_mode(0o640))?;
        rustix::io::write(&file, b"temporary")?;
        if named {
            rustix::fs::linkat(&file, "", CWD, self.at(path), AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }
}

fn allocation(mode: Fallocate) -> FallocateFlags {
    match mode {
        Fallocate::Allocate => FallocateFlags::empty(),
        Fallocate::KeepSize => FallocateFlags::KEEP_SIZE,
        Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        _ => FallocateFlags::ZERO_RANGE,
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).expect("an error of the system")
}
