//! The requests that change something, and the tree that they change.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags, Timespec,
    Timestamps, XattrFlags,
};

/// Every name that exists in the tree or is made by a request, parents first.
pub(crate) const NAMES: &[&str] = &[
    "",
    "dir",
    "dir/file",
    "dir/new",
    "dir/moved",
    "empty",
    "other-dir",
    "other-dir/name",
    "file",
    "hard",
    "second",
    "link",
    "new",
    "moved",
    "sparse",
    "source",
];

/// A request.
pub(crate) struct Request {
    pub(crate) name: &'static str,
    /// Opens what the request needs, before anything fails.
    pub(crate) prepare: fn(&Path) -> Option<File>,
    pub(crate) act: fn(&Path, Option<&File>) -> io::Result<()>,
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Makes the tree.
pub(crate) fn tree(root: &Path) {
    for dir in ["dir", "empty", "other-dir"] {
        fs::create_dir(root.join(dir)).expect("a directory");
    }
    for (name, len) in [
        ("dir/file", 5000),
        ("other-dir/name", 300),
        ("file", 20_000),
        ("hard", 700),
        ("source", 12_288),
    ] {
        fs::write(root.join(name), bytes(len, len as u64)).expect("a file");
    }
    fs::hard_link(root.join("hard"), root.join("second")).expect("a link");
    symlink("file", root.join("link")).expect("a symbolic link");
    let sparse = File::create(root.join("sparse")).expect("a file");
    for at in [0, 50_000, 100_000, 150_000] {
        sparse.write_all_at(&bytes(9000, at), at).expect("a write");
    }
    let set = |value: &[u8]| {
        let file = root.join("file");
        rustix::fs::setxattr(file, "user.old", value, XattrFlags::empty()).expect("an attribute");
    };
    set(&bytes(300, 7));
    let mode = fs::Permissions::from_mode(0o6755);
    fs::set_permissions(root.join("file"), mode).expect("a mode");
}

fn nothing(_: &Path) -> Option<File> {
    None
}

fn opened(root: &Path, name: &str, flags: OFlags) -> Option<File> {
    let fd = rustix::fs::open(root.join(name), flags, Mode::empty());
    Some(fd.expect("opened").into())
}

fn to_write(root: &Path) -> Option<File> {
    opened(root, "file", OFlags::WRONLY)
}

fn to_read_and_write(root: &Path) -> Option<File> {
    opened(root, "file", OFlags::RDWR)
}

fn sparse(root: &Path) -> Option<File> {
    opened(root, "sparse", OFlags::RDWR)
}

fn file(file: Option<&File>) -> &File {
    file.expect("it was prepared")
}

fn rename(root: &Path, from: &str, to: &str, flags: RenameFlags) -> io::Result<()> {
    let (from, to) = (root.join(from), root.join(to));
    Ok(rustix::fs::renameat_with(CWD, from, CWD, to, flags)?)
}

fn node(root: &Path, kind: FileType) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0o644);
    let device = rustix::fs::makedev(1, 3);
    Ok(rustix::fs::mknodat(
        CWD,
        root.join("dir/new"),
        kind,
        mode,
        device,
    )?)
}

fn set(root: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::setxattr(
        root.join("file"),
        name,
        value,
        XattrFlags::empty(),
    )?)
}

fn allocate(on: Option<&File>, mode: FallocateFlags, at: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file(on), mode, at, len)?)
}

/// `FS_IOC_FSSETXATTR` and `FS_IOC_SETVERSION`.
const SET_XATTR: u32 = 0x401c_5820;
const SET_VERSION: u32 = 0x4008_7602;
/// `FS_XFLAG_NODUMP`.
const NO_DUMP: u32 = 0x80;

/// Makes an ioctl whose argument is these numbers. No crate without `unsafe` makes it, so Perl is used; its
/// exit status is the errno.
fn ioctl(file: &File, command: u32, argument: &[u32]) -> io::Result<()> {
    const PERL: &str = "my $argument = pack 'L*', @ARGV[1..$#ARGV];\
        ioctl STDIN, $ARGV[0], $argument or exit $!";
    let numbers = argument.iter().map(u32::to_string);
    let status = Command::new("perl")
        .args(["-e", PERL, &command.to_string()])
        .args(numbers)
        .stdin(file.try_clone()?)
        .status()
        .expect("perl runs");
    match status.code() {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => panic!("perl: {status}"),
    }
}

/// `system.posix_acl_access` with an entry for user 42.
fn acl() -> Vec<u8> {
    let mut acl = 2_u32.to_ne_bytes().to_vec();
    for (tag, access, id) in [
        (1, 7, u32::MAX),
        (2, 6, 42),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 4, u32::MAX),
    ] {
        acl.extend_from_slice(&u16::to_ne_bytes(tag));
        acl.extend_from_slice(&u16::to_ne_bytes(access));
        acl.extend_from_slice(&id.to_ne_bytes());
    }
    acl
}

macro_rules! requests {
    ($($name:literal: $prepare:expr, |$root:pat_param, $file:pat_param| $act:expr;)*) => {
        /// All of them.
        pub(crate) const REQUESTS: &[Request] = &[$(Request {
            name: $name,
            prepare: $prepare,
            act: |$root, $file| $act,
        },)*];
    };
}

requests! {
    "create": nothing, |root, _| File::create_new(root.join("dir/new")).map(drop);
    "mknod a file": nothing, |root, _| node(root, FileType::RegularFile);
    "mknod a fifo": nothing, |root, _| node(root, FileType::Fifo);
    "mknod a device": nothing, |root, _| node(root, FileType::CharacterDevice);
    "mkdir": nothing, |root, _| fs::create_dir(root.join("dir/new"));
    "symlink": nothing, |root, _| symlink("short", root.join("dir/new"));
    "symlink to a long target": nothing, |root, _| symlink("long/".repeat(40), root.join("dir/new"));
    "link": nothing, |root, _| fs::hard_link(root.join("file"), root.join("dir/new"));
    "tmpfile and link": nothing, |root, _| {
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        let made: File = rustix::fs::open(root.join("dir"), flags, Mode::from_raw_mode(0o600))?.into();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&made));
        let follow = AtFlags::SYMLINK_FOLLOW;
        Ok(rustix::fs::linkat(CWD, path, CWD, root.join("dir/new"), follow)?)
    };
    "unlink": nothing, |root, _| fs::remove_file(root.join("dir/file"));
    "unlink an open file": to_read_and_write, |root, _| fs::remove_file(root.join("file"));
    "unlink one of two": nothing, |root, _| fs::remove_file(root.join("hard"));
    "unlink a symlink": nothing, |root, _| fs::remove_file(root.join("link"));
    "rmdir": nothing, |root, _| fs::remove_dir(root.join("empty"));
    "rename": nothing, |root, _| rename(root, "file", "moved", RenameFlags::empty());
    "rename across": nothing, |root, _| rename(root, "file", "dir/moved", RenameFlags::empty());
    "rename over a file": nothing, |root, _| rename(root, "file", "dir/file", RenameFlags::empty());
    "rename over one of two": nothing, |root, _| rename(root, "dir/file", "hard", RenameFlags::empty());
    "rename a directory": nothing, |root, _| rename(root, "other-dir", "dir/moved", RenameFlags::empty());
    "rename over a directory": nothing, |root, _| rename(root, "other-dir", "empty", RenameFlags::empty());
    "rename noreplace": nothing, |root, _| rename(root, "file", "moved", RenameFlags::NOREPLACE);
    "rename exchange": nothing, |root, _| rename(root, "file", "dir/file", RenameFlags::EXCHANGE);
    "rename exchange with a directory": nothing,
        |root, _| rename(root, "dir/file", "other-dir", RenameFlags::EXCHANGE);
    "rename whiteout": nothing, |root, _| rename(root, "file", "dir/moved", RenameFlags::WHITEOUT);
    "chmod": nothing, |root, _| fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o600));
    "chmod a directory": nothing,
        |root, _| fs::set_permissions(root.join("dir"), fs::Permissions::from_mode(0o700));
    "chown": nothing, |root, _| std::os::unix::fs::chown(root.join("file"), Some(42), Some(43));
    "utimens": nothing, |root, _| {
        let time = Timespec { tv_sec: 1_000_000, tv_nsec: 7 };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(rustix::fs::utimensat(CWD, root.join("file"), &times, AtFlags::empty())?)
    };
    "truncate": nothing, |root, _| truncate(root, 51_111);
    "truncate to nothing": nothing, |root, _| truncate(root, 0);
    "truncate to more": nothing, |root, _| truncate(root, 300_000);
    "ftruncate": sparse, |_, on| file(on).set_len(3333);
    "open with O_TRUNC": nothing, |root, _| File::create(root.join("file")).map(drop);
    "write": to_write, |_, on| file(on).write_all_at(&bytes(3000, 1), 5000);
    "write past the end": to_write, |_, on| file(on).write_all_at(&bytes(30_000, 1), 19_000);
    "write through the kernel's cache": to_read_and_write,
        |_, on| file(on).write_all_at(&bytes(9000, 1), 15_000);
    "write synchronously": |root| opened(root, "file", OFlags::RDWR | OFlags::SYNC),
        |_, on| file(on).write_all_at(&bytes(9000, 1), 15_000);
    "write directly": |root| opened(root, "file", OFlags::RDWR | OFlags::DIRECT),
        |_, on| file(on).write_all_at(&bytes(8192, 1), 16_384);
    "append": |root| opened(root, "file", OFlags::WRONLY | OFlags::APPEND), |_, on| {
        use std::io::Write;
        file(on).write_all(&bytes(3000, 1))
    };
    "write into holes": sparse, |_, on| file(on).write_all_at(&bytes(40_000, 1), 70_000);
    "fallocate": sparse, |_, on| allocate(on, FallocateFlags::empty(), 10_000, 250_000);
    "fallocate and keep the size": sparse, |_, on| allocate(on, FallocateFlags::KEEP_SIZE, 100_000, 150_000);
    "punch": sparse,
        |_, on| allocate(on, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 3000, 100_000);
    "zero a range": sparse, |_, on| allocate(on, FallocateFlags::ZERO_RANGE, 3000, 250_000);
    // Where the target may be mapped for writing, the kernel copies by itself.
    "copy a range": |root| opened(root, "sparse", OFlags::WRONLY), |root, on| {
        let source = File::open(root.join("source"))?;
        let (mut from, mut to) = (0, 49_152);
        let done = rustix::fs::copy_file_range(source, Some(&mut from), file(on), Some(&mut to), 12_288)?;
        match done {
            12_288 => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    };
    "setxattr": nothing, |root, _| set(root, "user.new", b"a value");
    "setxattr, replace": nothing, |root, _| set(root, "user.old", b"another");
    "setxattr with a large value": nothing, |root, _| set(root, "user.new", &bytes(600, 3));
    "setxattr of an ACL": nothing, |root, _| set(root, "system.posix_acl_access", &acl());
    "removexattr": nothing, |root, _| Ok(rustix::fs::removexattr(root.join("file"), "user.old")?);
    "ioctl of flags": to_read_and_write, |_, on| {
        let flags = rustix::fs::ioctl_getflags(file(on))?;
        Ok(rustix::fs::ioctl_setflags(file(on), flags | IFlags::NODUMP)?)
    };
    "ioctl of flags and project": to_read_and_write, |_, on| {
        // `struct fsxattr`: flags, extent size, extents, project, extent size of copies, padding.
        let fields = [NO_DUMP, 0, 0, 42, 0, 0, 0];
        ioctl(file(on), SET_XATTR, &fields)
    };
    // `_IOW('v', 2, long)` has 8 bytes, of which the first four are used.
    "ioctl of the version and fsync": to_read_and_write, |_, on| {
        ioctl(file(on), SET_VERSION, &[77, 0])?;
        file(on).sync_all()
    };
    "write and fsync": to_write, |_, on| {
        file(on).write_all_at(&bytes(3000, 1), 19_000)?;
        file(on).sync_all()
    };
    "fsync of a directory": |root| opened(root, "dir", OFlags::RDONLY), |root, on| {
        fs::create_dir(root.join("dir/new"))?;
        file(on).sync_all()
    };
    "open for a new file": nothing, |root, _| {
        let mut options = OpenOptions::new();
        let made = options.read(true).write(true).create(true).mode(0o640).open(root.join("new"))?;
        made.write_all_at(&bytes(5000, 4), 0)
    };
}

fn truncate(root: &Path, len: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(root.join("sparse"))?;
    file.set_len(len)
}
