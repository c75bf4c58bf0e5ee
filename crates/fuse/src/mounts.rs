//! The kernel's list of mounts. No file system is accessed, so a dead mount does not block.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use throughline_device::{other_namespaces, unescaped};

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mount {
    /// The kernel's mount ID, unique while the mount exists.
    pub id: u64,
    /// The device number in the kernel's encoding: the name of a FUSE connection.
    pub connection: u32,
    /// The mount point.
    pub point: PathBuf,
    /// `fuse.throughline`, `ext4`, …
    pub fs_type: String,
    /// The source shown in the list.
    pub source: OsString,
    /// The options of the mount point: `rw,nosuid,…`.
    pub point_options: String,
    /// It propagates to other mount namespaces.
    pub shared: bool,
    /// The options of the file system, not of the mount point: `rw,user_id=0,…`.
    pub options: String,
}

impl Mount {
    /// Whether it is a FUSE mount.
    pub fn is_fuse(&self) -> bool {
        ["fuse", "fuseblk"].contains(&self.fs_type.split('.').next().unwrap_or_default())
    }

    /// The user ID that mounted it, for a FUSE mount.
    pub fn user(&self) -> Option<u32> {
        self.number("user_id=")
    }

    /// The group ID of that user.
    pub fn group(&self) -> Option<u32> {
        self.number("group_id=")
    }

    /// The sysfs directory with the kernel's readahead and write-back settings of a FUSE mount.
    pub(crate) fn queue(&self) -> PathBuf {
        let (major, minor) = (self.connection >> 20, self.connection & 0xf_ffff);
        let suffix = match self.fs_type.starts_with("fuseblk") {
            true => "-fuseblk",
            false => "",
        };
        PathBuf::from(format!("/sys/class/bdi/{major}:{minor}{suffix}"))
    }

    fn number(&self, name: &str) -> Option<u32> {
        let mut options = self.options.split(',');
        options.find_map(|option| option.strip_prefix(name)?.parse().ok())
    }
}

/// All mounts of this mount namespace. Mounts on one mount point are in the order in which they were made.
///
/// # Errors
/// If `/proc/self/mountinfo` cannot be read.
pub fn all() -> io::Result<Vec<Mount>> {
    let list = std::fs::read("/proc/self/mountinfo").map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(error.kind(), "/proc is not mounted"),
        _ => error,
    })?;
    Ok(list.split(|byte| *byte == b'\n').filter_map(line).collect())
}

/// Of each other mount namespace that has a mount of this connection, the first process that may be looked
/// at, as `process 12 (sh)`.
pub fn elsewhere(connection: u32) -> Vec<String> {
    let having = other_namespaces().filter(|(_, list)| {
        let mut mounts = list.split(|byte| *byte == b'\n').filter_map(line);
        mounts.any(|mount| mount.connection == connection)
    });
    having.map(|(process, _)| process).collect()
}

/// The mount that is visible at a mount point: the last one mounted there. The path must be absolute and
/// without symbolic links, as [`resolve`] returns it.
///
/// # Errors
/// As [`all`].
pub fn at(point: &Path) -> io::Result<Option<Mount>> {
    let mut mounts = all()?;
    mounts.retain(|mount| mount.point == point);
    Ok(mounts.pop())
}

/// An ID of the mount that is visible at a mount point, which the kernel never gives to another mount, as it
/// soon does with [`Mount::id`]. `None` before Linux 6.8. The kernel answers without a request to the server.
pub(crate) fn unique_id(point: &Path) -> Option<u64> {
    const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(CWD, point, flags, MNT_ID_UNIQUE).ok()?;
    (found.stx_mask & MNT_ID_UNIQUE.bits() != 0).then_some(found.stx_mnt_id)
}

/// The absolute path of a mount point, without symbolic links. Also works for a dead mount.
///
/// # Errors
/// Those of path resolution.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let whole = std::fs::canonicalize(path);
    let (Err(_), Some(parent), Some(name)) = (&whole, path.parent(), path.file_name()) else {
        return whole;
    };
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let place = std::fs::canonicalize(parent)?.join(name);
    match at(&place)? {
        Some(_) => Ok(place),
        None => whole,
    }
}

/// Whether this process may mount without a helper: as root, also in a user namespace with its own mounts.
pub fn may_mount() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Parses `36 35 98:0 /root /point rw,noatime shared:1 - fuse.x source rw,user_id=0`: fields, any number of
/// tags, a dash, fields.
fn line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = text(fields.next()?).parse().ok()?;
    let device = text(fields.nth(1)?);
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    let point = PathBuf::from(unescaped(fields.nth(1)?));
    let point_options = text(fields.next()?);
    let mut tags = fields.by_ref().take_while(|field| *field != b"-");
    let shared = tags.any(|tag| tag.starts_with(b"shared:"));
    tags.for_each(drop);
    let fs_type = text(fields.next()?);
    let source = unescaped(fields.next()?);
    let options = fields.next().map(text).unwrap_or_default();
    Some(Mount {
        id,
        connection: major.checked_shl(20)? | minor,
        point,
        fs_type,
        source,
        point_options,
        shared,
        options,
    })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let mount = line(
            b"36 35 0:51 / /mnt/a\\040b\\134 rw,nosuid shared:7 master:1 - fuse.throughline /img\\0401 \
              rw,user_id=1000,group_id=100,allow_other",
        )
        .unwrap();
        assert_eq!((mount.id, mount.connection), (36, 51));
        assert_eq!(mount.point, Path::new("/mnt/a b\\"));
        assert_eq!(mount.source, "/img 1");
        assert!(mount.is_fuse());
        assert_eq!(mount.point_options, "rw,nosuid");
        assert!(mount.shared);
        assert_eq!((mount.user(), mount.group()), (Some(1000), Some(100)));

        let root = line(b"1 0 8:1 / / rw - ext4 /dev/root rw").unwrap();
        assert!(!root.is_fuse() && !root.shared);
        assert_eq!(root.user(), None);
        for short in ["", "x", "1 2 3", "36 35 0:51 / /mnt rw shared:7"] {
            assert_eq!(line(short.as_bytes()), None, "{short}");
        }
    }

    #[test]
    fn something_is_mounted_at_the_root() {
        assert!(at(Path::new("/")).unwrap().is_some());
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().canonicalize().unwrap();
        assert_eq!(at(&place).unwrap(), None);
        assert_eq!(resolve(folder.path()).unwrap(), place);
        assert!(resolve(&place.join("none")).is_err());
    }
}
