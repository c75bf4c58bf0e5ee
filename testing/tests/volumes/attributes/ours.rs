//! Our side: the same operations on [`Node`]s, as a server of requests would do them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;
use throughline::internal::OpenGranted;
use throughline::{
    Attributes, DeviceNumber, Error, File, FileOptions, FileType, InodeFlags, NewNode, Node,
    OpenFor, Reason, RenameMode, Volume,
};

use crate::attributes::op::{DIRS, How, NAMES, Op, Path, Want, When};
use crate::attributes::seen::{self, Kind, World};

/// A volume, and the file that is kept open.
pub(crate) struct Ours<'a> {
    volume: &'a Volume,
    kept: Option<(File, bool)>,
}

impl<'a> Ours<'a> {
    pub(crate) fn new(volume: &'a Volume) -> Self {
        Self { volume, kept: None }
    }

    fn dir(&self, path: &Path) -> throughline::Result<Node> {
        let root = self.volume.node("/")?;
        let Some(name) = path.dir else {
            return Ok(root);
        };
        let dir = root.lookup(name.as_bytes())?;
        // Symbolic links are dangling here.
        match dir.metadata()?.file_type() {
            FileType::Symlink => Err(Reason::NotFound.into()),
            FileType::Directory => Ok(dir),
            _ => Err(Reason::NotDir.into()),
        }
    }

    fn node(&self, path: &Path) -> throughline::Result<Node> {
        self.dir(path)?.lookup(path.name.as_bytes())
    }

    /// The current state.
    pub(crate) fn look(&self) -> World {
        let mut world = World::default();
        for dir in [None, Some(DIRS[0]), Some(DIRS[1])] {
            for name in NAMES {
                let path = Path { dir, name };
                if let Ok(node) = self.node(&path) {
                    world.0.insert(path, show(&node));
                }
            }
        }
        world
    }

    /// Flags and projects.
    pub(crate) fn flags_and_projects(&self) -> Vec<(String, u32, u32)> {
        let world = self.look();
        let shown = world.paths(&Kind::ALL).map(|path| {
            let node = self.node(path).expect("it was there");
            (path.text(), node.flags().bits(), node.project())
        });
        shown.collect()
    }

    /// Executes an operation.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<(), Errno> {
        self.done(op).map_err(|error| errno(&error))
    }

    fn done(&mut self, op: &Op) -> throughline::Result<()> {
        let writing = |append| Want {
            append,
            truncate: false,
        };
        match op {
            Op::File(path, mode) => self.make(path, NewNode::File, *mode),
            Op::Fifo(path) => self.make(path, NewNode::Fifo, 0o640),
            Op::Dir(path, mode) => self.make(path, NewNode::Directory, *mode & 0o1777),
            Op::Symlink(path) => self.make(path, NewNode::Symlink(b"nowhere"), 0),
            Op::Unlink(path) => self.dir(path)?.unlink(path.name.as_bytes()),
            Op::Rmdir(path) => self.dir(path)?.rmdir(path.name.as_bytes()),
            Op::Link(from, to) => {
                let node = self.node(from)?;
                self.dir(to)?.link(&node, to.name.as_bytes())
            }
            Op::Rename(from, to, how) => {
                let (old, new) = (self.dir(from)?, self.dir(to)?);
                old.rename(from.name.as_bytes(), &new, to.name.as_bytes(), mode(*how))
            }
            Op::Mode(path, mode) => self.set(path, Attributes::new().mode(*mode)),
            Op::Owner(path, uid, gid) => {
                let mut set = Attributes::new();
                if let Some(uid) = uid {
                    set = set.uid(*uid);
                }
                if let Some(gid) = gid {
                    set = set.gid(*gid);
                }
                // The kernel asks a server to drop setuid for every new owner.
                self.set(path, set.drop_privileges())
            }
            Op::Times(path, accessed, modified) => self.set_times(path, *accessed, *modified),
            Op::Flags(path, flags) => {
                let node = self.node(path)?;
                node.set_flags(node.flags() ^ InodeFlags::from_bits_retain(*flags))
            }
            Op::Project(path, project) => {
                // The same request sets the flags.
                let node = self.node(path)?;
                node.set_flags(node.flags())?;
                node.set_project(*project)
            }
            Op::Open(path, want) => self.open(path, *want).map(drop),
            Op::Write {
                path,
                append,
                offset,
                len,
            } => self.write(path, *append, *offset, *len),
            Op::Keep(path, append) => {
                self.kept = None;
                self.kept = Some((self.open(path, writing(*append))?, *append));
                Ok(())
            }
            Op::WriteKept(offset) => match &self.kept {
                Some((file, false)) => file.write_all_at(b"kept", *offset),
                Some((file, true)) => file.append(b"kept").map(drop),
                None => Ok(()),
            },
            Op::Truncate(path, append, len) => self.open(path, writing(*append))?.set_len(*len),
            Op::Allocate(path, append, mode, offset, len) => {
                let file = self.open(path, writing(*append))?;
                file.allocate(*mode, *offset, *len)
            }
            Op::Read(path) => {
                let file = self.node(path)?.open(&FileOptions::new())?;
                file.read_at(&mut [0; 16], 0).map(drop)
            }
            Op::List(path) => self.node(path)?.list(0).map(drop),
            Op::ReadLink(path) => self.node(path)?.read_link().map(drop),
            Op::Temporary(path) => self.temporary(path, true),
            Op::Lost(path) => self.temporary(path, false),
        }
    }

    fn make(&self, path: &Path, kind: NewNode<'_>, mode: u32) -> throughline::Result<()> {
        let attributes = Attributes::new().mode(mode);
        let dir = self.dir(path)?;
        dir.create(path.name.as_bytes(), kind, &attributes)
            .map(drop)
    }

    fn set(&self, path: &Path, attributes: Attributes) -> throughline::Result<()> {
        self.node(path)?.set_attributes(&attributes)
    }

    fn set_times(&self, path: &Path, accessed: When, modified: When) -> throughline::Result<()> {
        let node = self.node(path)?;
        let mut set = Attributes::new();
        set = match accessed {
            When::Omit => set,
            When::Now => set.accessed_now(),
            When::At(..) => set.accessed(time(accessed)),
        };
        set = match modified {
            When::Omit => set,
            When::Now => set.modified_now(),
            When::At(..) => set.modified(time(modified)),
        };
        // Then the kernel sends no request.
        if set.is_empty() {
            return Ok(());
        }
        node.set_attributes(&set)
    }

    fn open(&self, path: &Path, want: Want) -> throughline::Result<File> {
        let node = self.node(path)?;
        node.check_open(OpenFor {
            write: true,
            append: want.append,
            truncate: want.truncate,
        })?;
        let file = node.open(FileOptions::new().granted(true))?;
        if want.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }

    fn write(&self, path: &Path, append: bool, offset: u64, len: usize) -> throughline::Result<()> {
        let want = Want {
            append,
            truncate: false,
        };
        let file = self.open(path, want)?;
        let bytes = vec![7; len];
        match append {
            _ if len == 0 => Ok(()),
            true => file.append(&bytes).map(drop),
            false => file.write_all_at(&bytes, offset),
        }
    }

    fn temporary(&self, path: &Path, named: bool) -> throughline::Result<()> {
        let attributes = Attributes::new().mode(0o640);
        let node = self.dir(path)?.tmpfile(&attributes, true)?;
        let file = node.open(&FileOptions::new())?;
        file.write_all_at(b"temporary", 0)?;
        if named {
            self.dir(path)?.link(&node, path.name.as_bytes())?;
        }
        Ok(())
    }
}

fn mode(how: How) -> RenameMode {
    let whiteout = |replace| RenameMode::Whiteout {
        replace,
        uid: 0,
        gid: 0,
    };
    match how {
        How::Replace => RenameMode::Replace,
        How::NoReplace => RenameMode::NoReplace,
        How::Exchange => RenameMode::Exchange,
        How::Whiteout => whiteout(true),
        How::WhiteoutNoReplace => whiteout(false),
    }
}

fn time(when: When) -> SystemTime {
    let When::At(seconds, nanoseconds) = when else {
        return UNIX_EPOCH;
    };
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = match seconds < 0 {
        true => UNIX_EPOCH - whole,
        false => UNIX_EPOCH + whole,
    };
    base + Duration::from_nanos(nanoseconds.into())
}

/// Seconds and nanoseconds.
fn words(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs() as i64, after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => (-(before.as_secs() as i64), 0),
                nanos => (-(before.as_secs() as i64) - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

fn show(node: &Node) -> (u64, seen::Node, seen::Times) {
    let meta = node.metadata().expect("its attributes");
    let kind = match meta.file_type() {
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::CharDevice => Kind::Device,
        _ => Kind::File,
    };
    let device = meta
        .device()
        .map(|DeviceNumber { major, minor }| (major, minor));
    let seen = seen::Node {
        kind,
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        links: meta.nlink(),
        size: (kind == Kind::File).then(|| meta.len()),
        device,
        flags: Kind::FLAGGED.contains(&kind).then(|| node.flags().bits()),
    };
    let times = [meta.accessed(), meta.modified(), meta.changed()].map(words);
    (meta.ino(), seen, times)
}

/// The error number a server would answer.
fn errno(error: &Error) -> Errno {
    match error {
        Error::Caller(reason) => match reason {
            Reason::NotFound => Errno::NOENT,
            Reason::Exists => Errno::EXIST,
            Reason::NotDir => Errno::NOTDIR,
            Reason::IsDir => Errno::ISDIR,
            Reason::NotEmpty => Errno::NOTEMPTY,
            Reason::Permission => Errno::PERM,
            Reason::Invalid(_) => Errno::INVAL,
            Reason::CrossDevice => Errno::XDEV,
            Reason::Busy(_) => Errno::BUSY,
            other => panic!("{other}"),
        },
        Error::Unsupported(_) => Errno::OPNOTSUPP,
        other => panic!("{other}"),
    }
}
