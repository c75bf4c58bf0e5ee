//! Finds what in the kernel uses a file or a block device: a loop device, a mounted file system, a stacked
//! device, or swap.
//!
//! No lock shows these users. sysfs and procfs show them to every user, with one gap: the backing file of a
//! loop device is given as a path, which may not resolve here (the file was removed, or is in another mount
//! namespace). Then the loop device itself is queried, which needs root. Other loop devices are not opened,
//! because an open device cannot be detached; but those over the file of one that is to be written are opened
//! for a moment, to see whether a process has claimed them.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, major, makedev, minor};
use rustix::io::Errno;
use rustix::ioctl;

use super::lock::{ANY, RETRIES, RETRY_INTERVAL, holder_of_lock};
use super::mounted;

/// `LOOP_GET_STATUS64` of linux/loop.h: fills a `loop_info64`.
const LOOP_GET_STATUS64: ioctl::Opcode = 0x4C05;
/// A `loop_info64` in words: device and inode of the file are the first two.
const LOOP_INFO_WORDS: usize = 29;
/// Retries while an unused loop device may be in the process of being detached.
const IDLE_WAITS: u32 = 5;
/// The most levels of stacked devices that are followed.
const MAX_STACK: usize = 8;

/// A user of a file or block device in the kernel, and how to end that use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelHolder {
    who: String,
    next: String,
    waits: u32,
}

impl KernelHolder {
    /// What to do, for example `unmount it: umount /mnt`.
    pub fn next(&self) -> &str {
        &self.next
    }

    /// The number of retries that are worthwhile because the use may end by itself.
    pub(super) fn waits(&self) -> u32 {
        self.waits
    }

    pub(super) fn unknown() -> KernelHolder {
        KernelHolder {
            who: "the kernel uses it (mounted, or part of another device)".into(),
            next: "'lsblk' and 'cat /proc/swaps' show by what".into(),
            waits: 0,
        }
    }
}

/// `it is attached to /dev/loop3, and it is mounted at /mnt`.
impl fmt::Display for KernelHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.who)
    }
}

/// The error inside an [`io::Error`](std::io::Error) if a file or device is not opened for writing because
/// the kernel uses it.
#[derive(Clone, Debug)]
pub struct HeldByKernel {
    pub(super) path: PathBuf,
    pub(super) by: KernelHolder,
}

impl HeldByKernel {
    /// The user in the kernel.
    pub fn by(&self) -> &KernelHolder {
        &self.by
    }
}

/// `disk.img is in use: it is attached to /dev/loop3, and it is mounted at /mnt`.
impl fmt::Display for HeldByKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is in use: {}", self.path.display(), self.by)
    }
}

impl std::error::Error for HeldByKernel {}

/// What in the kernel uses the file or device at `path`; `None` if no user is visible.
pub fn kernel_holder(path: &Path) -> Option<KernelHolder> {
    of(&fs::metadata(path).ok()?)
}

/// As [`kernel_holder`], for a file with this metadata.
pub(super) fn of(wanted: &Metadata) -> Option<KernelHolder> {
    if wanted.file_type().is_block_device() {
        let used = Block::of(wanted.rdev())?.use_of_it();
        return used.or_else(|| of_loop_over(wanted));
    }
    of_loop_over(wanted).or_else(|| swap(wanted.dev(), |found| id(found) == id(wanted)))
}

/// The loop device to which a file or block device is attached.
pub(super) fn of_loop_over(wanted: &Metadata) -> Option<KernelHolder> {
    let backing = Backing {
        id: id(wanted),
        device: wanted.file_type().is_block_device().then(|| wanted.rdev()),
        len_bytes: Some(wanted.len()).filter(|_| wanted.is_file()),
    };
    Some(loops_over(backing).next()?.as_loop())
}

/// The user of another loop device over the same bytes as this open loop device, or partition of one.
pub(super) fn of_other_loop(node: &File) -> Option<KernelHolder> {
    let ours = Block::of(node.metadata().ok()?.rdev())?;
    let backing = Backing {
        id: backing_id(node)?,
        device: None,
        len_bytes: None,
    };
    let whole = ours.whole();
    let bytes = ours.bytes_of_backing();
    let name = whole.backing_path().unwrap_or_default();
    let others = loops_over(backing).filter(|other| {
        let theirs = other.bytes_of_backing();
        other.folder.file_name() != whole.folder.file_name()
            && theirs.start < bytes.end
            && bytes.start < theirs.end
    });
    let (other, user) = others.into_iter().find_map(|other| {
        let user = other.claimed()?;
        Some((other, user))
    })?;
    let (file, other) = (name.display(), other.node());
    Some(KernelHolder {
        who: format!(
            "its backing file {file} is also attached to {other}, and {}",
            user.who
        ),
        ..user
    })
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// A block device, by its directory in sysfs.
struct Block {
    folder: PathBuf,
}

impl Block {
    fn of(device: u64) -> Option<Block> {
        let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        let folder = Path::new(&link).canonicalize().ok()?;
        Some(Block { folder })
    }

    /// `/dev/sda1`.
    fn node(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        // sysfs writes `!` for `/` in names.
        format!("/dev/{}", name.to_string_lossy().replace('!', "/"))
    }

    fn device(&self) -> Option<u64> {
        let text = self.word("dev")?;
        let (major, minor) = text.split_once(':')?;
        Some(makedev(major.parse().ok()?, minor.parse().ok()?))
    }

    fn word(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.folder.join(name)).ok()?;
        Some(text.trim_ascii_end().to_owned())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.word(name)?.parse().ok()
    }

    /// The device itself, its partitions, and the disk that it is a partition of.
    fn and_parts(&self) -> Vec<Block> {
        let inside = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let inside = inside.map(|entry| Block {
            folder: entry.path(),
        });
        let mut all: Vec<Block> = inside.filter(Block::is_part).collect();
        if self.is_part() {
            all.push(self.whole());
        }
        let folder = self.folder.clone();
        all.insert(0, Block { folder });
        all
    }

    /// The devices stacked on it.
    fn holders(&self) -> Vec<Block> {
        let links = fs::read_dir(self.folder.join("holders"));
        let links = links.into_iter().flatten().flatten();
        let folders = links.filter_map(|link| link.path().canonicalize().ok());
        folders.map(|folder| Block { folder }).collect()
    }

    /// What uses it.
    fn use_of_it(&self) -> Option<KernelHolder> {
        self.used(MAX_STACK)
    }

    fn used(&self, depth: usize) -> Option<KernelHolder> {
        let parts = self.and_parts();
        let devices: Vec<u64> = parts.iter().filter_map(Block::device).collect();
        let held = |who: String, next: String| KernelHolder {
            who,
            next,
            waits: 0,
        };
        if let Some(place) = mounted::place(&devices) {
            let next = format!("unmount it: umount {}", place.point);
            return Some(held(format!("it is mounted at {place}"), next));
        }
        if let Some(swap) = swap(0, |found| devices.contains(&found.rdev())) {
            return Some(swap);
        }
        let above = parts.iter().flat_map(Block::holders).next()?;
        let node = match above.word("dm/name") {
            Some(name) => format!("/dev/mapper/{name}"),
            None => above.node(),
        };
        let who = format!("it is part of {node}");
        Some(match above.used(depth.checked_sub(1)?) {
            Some(user) => held(format!("{who}: {}", user.who), user.next),
            None => held(who, format!("remove {node} first")),
        })
    }

    /// The disk that it is a partition of, or itself.
    fn whole(&self) -> Block {
        let disk = self.folder.parent().filter(|_| self.is_part());
        Block {
            folder: disk.unwrap_or(&self.folder).to_owned(),
        }
    }

    fn is_part(&self) -> bool {
        self.folder.join("partition").exists()
    }

    /// The bytes of its backing file that a loop device, or a partition of one, is.
    fn bytes_of_backing(&self) -> Range<u64> {
        let sectors = |name| self.number(name).unwrap_or_default().saturating_mul(512);
        let offset = self.whole().number("loop/offset").unwrap_or_default();
        let start = offset.saturating_add(sectors("start"));
        start..start.saturating_add(sectors("size"))
    }

    /// What uses this loop device, in the kernel or by a claim (`O_EXCL`).
    fn claimed(&self) -> Option<KernelHolder> {
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // A claim may be as short as this one.
        for _ in 0..=IDLE_WAITS {
            if let Some(user) = self.use_of_it() {
                return Some(user);
            }
            match rustix::fs::open(self.node(), flags, Mode::empty()) {
                Err(Errno::BUSY) => {}
                // Not visible from here, or free.
                _ => return None,
            }
            if let Some(who) = self.and_parts().iter().find_map(Block::process) {
                return Some(KernelHolder {
                    who: format!("that is in use by {who}"),
                    next: format!("end that use, then detach it: losetup -d {}", self.node()),
                    waits: 0,
                });
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
        Some(KernelHolder {
            who: "that is in use by another process".into(),
            next: format!("end that use, then detach it: losetup -d {}", self.node()),
            waits: 0,
        })
    }

    /// The process that has a lock on it.
    fn process(&self) -> Option<String> {
        // Not opened for I/O: then it could not be detached.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        holder_of_lock(
            rustix::fs::open(self.node(), flags, Mode::empty()).ok()?,
            ANY,
        )
    }

    /// This loop device as the user of a file.
    fn as_loop(&self) -> KernelHolder {
        let node = self.node();
        match self.use_of_it() {
            Some(user) => KernelHolder {
                who: format!("it is attached to {node}, and {}", user.who),
                ..user
            },
            None => KernelHolder {
                // With autoclear, an unused loop device is about to be detached. A device being detached may
                // no longer report autoclear.
                waits: match self.number("loop/autoclear") {
                    Some(1) => RETRIES,
                    _ => IDLE_WAITS,
                },
                who: format!("it is attached to {node}"),
                next: format!("detach it: losetup -d {node}"),
            },
        }
    }

    /// The path that sysfs gives for the backing file of a loop device.
    fn backing_path(&self) -> Option<PathBuf> {
        let text = fs::read(self.folder.join("loop/backing_file")).ok()?;
        let path = text.strip_suffix(b"\n").unwrap_or(&text);
        Some(OsStr::from_bytes(path).into())
    }

    /// Whether a backing file of this length is long enough for this loop device.
    fn fits(&self, len_bytes: u64) -> bool {
        let offset = self.number("loop/offset").unwrap_or_default();
        let sectors = self.number("size").unwrap_or_default();
        offset.saturating_add(sectors.saturating_mul(512)) <= len_bytes
    }

    /// Whether the loop device itself reports a file with this identity as its backing file.
    fn reports_backing_file(&self, wanted: (u64, u64)) -> bool {
        let nonblock = OFlags::NONBLOCK.bits().cast_signed();
        let opened = File::options()
            .read(true)
            .custom_flags(nonblock)
            .open(self.node());
        opened.is_ok_and(|node| backing_id(&node) == Some(wanted))
    }
}

/// A file or block device to which loop devices may be attached.
#[derive(Clone, Copy)]
struct Backing {
    id: (u64, u64),
    /// The number of a block device, which may have several nodes.
    device: Option<u64>,
    /// The length of a file, if it is known.
    len_bytes: Option<u64>,
}

/// The loop devices that are attached to it.
fn loops_over(wanted: Backing) -> impl Iterator<Item = Block> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let loops = devices.filter(|entry| entry.file_name().as_bytes().starts_with(b"loop"));
    let loops = loops.map(|entry| Block {
        folder: entry.path(),
    });
    loops.filter(move |block| {
        let Some(path) = block.backing_path() else {
            return false;
        };
        match listed(&path, wanted.id.0) {
            Some(found) if found.file_type().is_block_device() => {
                wanted.device == Some(found.rdev())
            }
            Some(found) if id(&found) == wanted.id => true,
            // The path resolves here to another file that fits, so that one is the backing file.
            Some(found) if block.fits(found.len()) => false,
            _ => {
                wanted.len_bytes.is_none_or(|len| block.fits(len))
                    && block.reports_backing_file(wanted.id)
            }
        }
    })
}

/// Device and inode of the backing file of an open loop device, as in `stat`.
fn backing_id(node: &File) -> Option<(u64, u64)> {
    // SAFETY: LOOP_GET_STATUS64 fills a `loop_info64`, which has that size.
    let get = unsafe { ioctl::Getter::<LOOP_GET_STATUS64, [u64; LOOP_INFO_WORDS]>::new() };
    // SAFETY: it writes only that memory; other devices return ENOTTY.
    let info = unsafe { ioctl::ioctl(node, get) }.ok()?;
    // The kernel packs the device number into 32 bits.
    let packed = info[0] as u32;
    let (major, minor) = (
        (packed >> 8) & 0xfff,
        (packed & 0xff) | ((packed >> 12) & 0xf_ff00),
    );
    Some((makedev(major, minor), info[1]))
}

/// The backing file of an open loop device, if its path resolves to it here.
pub(super) fn backing_file(node: &File) -> Option<(PathBuf, File)> {
    let path = Block::of(node.metadata().ok()?.rdev())?
        .whole()
        .backing_path()?;
    let wanted = backing_id(node)?;
    let found = listed(&path, wanted.0)?;
    let file = (id(&found) == wanted).then(|| File::open(&path).ok())??;
    (id(&file.metadata().ok()?) == wanted).then_some((path, file))
}

/// What a path in one of the kernel's lists names; `None` if that is not visible from here, or takes a
/// request to a server in user space ([`mounted::listed`]).
fn listed(path: &Path, own: u64) -> Option<Metadata> {
    File::from(mounted::listed(path, own)?).metadata().ok()
}

/// The kernel as the user of a swap file, in the file system `own`, or device for which `is_it` is true.
fn swap(own: u64, is_it: impl Fn(&Metadata) -> bool) -> Option<KernelHolder> {
    let list = fs::read("/proc/swaps").ok()?;
    let mut lines = list.split(|byte| *byte == b'\n').skip(1);
    let path = lines.find_map(|line| {
        let path = PathBuf::from(mounted::unescaped(line.split(|byte| *byte == b' ').next()?));
        listed(&path, own)
            .is_some_and(|found| is_it(&found))
            .then_some(path)
    })?;
    Some(KernelHolder {
        who: "it is in use as swap".into(),
        next: format!("disable that: swapoff {}", path.display()),
        waits: 0,
    })
}
