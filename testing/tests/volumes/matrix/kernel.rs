//! The kernel's ext4 on a loop device, if this process is root.
//!
//! A mount ends with its guard, also when a test panics; the loop device is released with the mount.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, RenameFlags, Timespec, Timestamps};
use throughline::{Fallocate, FileType, RenameMode};

use crate::matrix::fs::{FileSystem, Stat, Step, data};
use crate::matrix::tool::Image;

/// A host directory as the root of a file system.
pub(crate) struct HostDir(pub(crate) PathBuf);

/// A mounted image.
pub(crate) struct Mount {
    root: HostDir,
    mount: throughline_testing::Mount,
}

/// Whether the kernel can take part; if not, prints the reason to stderr.
pub(crate) fn may_mount() -> bool {
    let may = throughline_testkit::kernel::may_use_loops();
    if !may {
        throughline_testkit::missing!("root and loop devices are required");
    }
    may
}

impl Mount {
    /// Mounts an image. Returns the output of `mount` if that fails.
    pub(crate) fn new(image: &Image, writable: bool) -> Result<Self, String> {
        let mount = throughline_testing::Mount::new(Path::new(image.name()), writable)?;
        let root = HostDir(mount.root().to_owned());
        Ok(Self { root, mount })
    }

    /// The host path of a path on the volume.
    pub(crate) fn host(&self, path: &str) -> PathBuf {
        self.root.host(path)
    }

    /// Unmounts. Afterwards all data is in the image.
    pub(crate) fn close(self) {
        self.mount.close();
    }
}

impl FileSystem for Mount {
    fn list(&mut self, dir: &str) -> Vec<String> {
        self.root.list(dir)
    }

    fn stat(&mut self, path: &str) -> Stat {
        self.root.stat(path)
    }

    fn read(&mut self, path: &str, offset: u64, to: &mut [u8]) -> usize {
        self.root.read(path, offset, to)
    }

    fn read_link(&mut self, path: &str) -> String {
        self.root.read_link(path)
    }

    fn apply(&mut self, step: &Step) {
        self.root.apply(step);
    }
}

impl HostDir {
    fn host(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }
}

impl FileSystem for HostDir {
    fn list(&mut self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.host(dir))
            .unwrap_or_else(|e| panic!("the kernel's read_dir {dir}: {e}"));
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.retain(|name| dir != "/" || name != "lost+found");
        names.sort();
        names
    }

    fn stat(&mut self, path: &str) -> Stat {
        let meta = fs::symlink_metadata(self.host(path))
            .unwrap_or_else(|e| panic!("the kernel's lstat {path}: {e}"));
        let kind = match rustix::fs::FileType::from_raw_mode(meta.mode()) {
            rustix::fs::FileType::RegularFile => FileType::File,
            rustix::fs::FileType::Directory => FileType::Directory,
            rustix::fs::FileType::Symlink => FileType::Symlink,
            rustix::fs::FileType::Fifo => FileType::Fifo,
            rustix::fs::FileType::Socket => FileType::Socket,
            rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
            rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
            other => panic!("{path} is of kind {other:?}"),
        };
        let device = (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        );
        Stat {
            kind,
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            links: meta.nlink() as u32,
            len: if kind.is_file() || kind.is_symlink() {
                meta.len()
            } else {
                0
            },
            device: Some(device).filter(|_| kind.is_device()),
            modified: (meta.mtime(), meta.mtime_nsec() as u32),
        }
    }

    fn read(&mut self, path: &str, offset: u64, to: &mut [u8]) -> usize {
        let file =
            File::open(self.host(path)).unwrap_or_else(|e| panic!("the kernel's open {path}: {e}"));
        let mut done = 0;
        loop {
            match file.read_at(&mut to[done..], offset + done as u64) {
                Ok(0) => return done,
                Ok(n) => done += n,
                Err(e) => panic!("the kernel's read {path} at {offset}: {e}"),
            }
        }
    }

    fn read_link(&mut self, path: &str) -> String {
        let target = fs::read_link(self.host(path))
            .unwrap_or_else(|e| panic!("the kernel's readlink {path}: {e}"));
        target.into_os_string().into_string().expect("UTF-8")
    }

    fn apply(&mut self, step: &Step) {
        change(self, step).unwrap_or_else(|e| panic!("the kernel's {step:?}: {e}"));
    }
}

fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn change(mount: &HostDir, step: &Step) -> std::io::Result<()> {
    let write = |path: &str| File::options().write(true).open(mount.host(path));
    match step {
        Step::Dir(path) => {
            fs::create_dir(mount.host(path))?;
            set_mode(&mount.host(path), 0o755)
        }
        Step::File(path) => {
            File::create_new(mount.host(path))?;
            set_mode(&mount.host(path), 0o644)
        }
        Step::Write {
            path,
            offset,
            seed,
            len,
        } => write(path)?.write_all_at(&data(*seed, *len), *offset),
        Step::Truncate(path, len) => write(path)?.set_len(*len),
        Step::Allocate(path, mode, offset, len) => Ok(rustix::fs::fallocate(
            write(path)?,
            allocate_flags(*mode),
            *offset,
            *len,
        )?),
        Step::Symlink { target, link } => symlink(target, mount.host(link)),
        Step::Link { from, to } => fs::hard_link(mount.host(from), mount.host(to)),
        Step::Node(path, kind, device) => make_node(&mount.host(path), *kind, *device),
        Step::Unlink(path) => fs::remove_file(mount.host(path)),
        Step::Rmdir(path) => fs::remove_dir(mount.host(path)),
        Step::Rename(from, to, mode) => {
            let flags = match mode {
                RenameMode::NoReplace => RenameFlags::NOREPLACE,
                RenameMode::Exchange => RenameFlags::EXCHANGE,
                RenameMode::Replace => RenameFlags::empty(),
                RenameMode::Whiteout { replace: true, .. } => RenameFlags::WHITEOUT,
                RenameMode::Whiteout { .. } => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
            };
            Ok(rustix::fs::renameat_with(
                CWD,
                mount.host(from),
                CWD,
                mount.host(to),
                flags,
            )?)
        }
        Step::Attributes(path, mode, uid, gid) => {
            let host = mount.host(path);
            lchown(&host, Some(*uid), Some(*gid))?;
            if fs::symlink_metadata(&host)?.is_symlink() {
                Ok(())
            } else {
                set_mode(&host, *mode)
            }
        }
        Step::Modified(path, (seconds, nanoseconds)) => {
            let time = Timespec {
                tv_sec: *seconds,
                tv_nsec: (*nanoseconds).into(),
            };
            let times = Timestamps {
                last_access: time,
                last_modification: time,
            };
            Ok(rustix::fs::utimensat(
                CWD,
                mount.host(path),
                &times,
                AtFlags::SYMLINK_NOFOLLOW,
            )?)
        }
    }
}

fn allocate_flags(mode: Fallocate) -> FallocateFlags {
    match mode {
        Fallocate::Allocate => FallocateFlags::empty(),
        Fallocate::KeepSize => FallocateFlags::KEEP_SIZE,
        Fallocate::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        Fallocate::ZeroRange => FallocateFlags::ZERO_RANGE,
        Fallocate::ZeroRangeKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        Fallocate::Collapse => FallocateFlags::COLLAPSE_RANGE,
        Fallocate::Insert => FallocateFlags::INSERT_RANGE,
    }
}

fn make_node(path: &Path, kind: FileType, (major, minor): (u32, u32)) -> std::io::Result<()> {
    let (kind, device) = match kind {
        FileType::Fifo => (rustix::fs::FileType::Fifo, 0),
        FileType::Socket => (rustix::fs::FileType::Socket, 0),
        FileType::CharDevice => (
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::makedev(major, minor),
        ),
        FileType::BlockDevice => (
            rustix::fs::FileType::BlockDevice,
            rustix::fs::makedev(major, minor),
        ),
        other => panic!("{other:?} is no node"),
    };
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o644), device)?;
    set_mode(path, 0o644)
}
