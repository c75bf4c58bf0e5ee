//! Block devices, by the kernel's device numbers.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// A device number as in tracepoints: 12 bits of major number, 20 bits of minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Dev(pub(super) u32);

impl Dev {
    /// Returns `None` if a number has too many bits.
    pub(super) fn new(major: u32, minor: u32) -> Option<Dev> {
        (major < 1 << 12 && minor < 1 << 20).then_some(Dev(major << 20 | minor))
    }

    /// Its numbers, such as `7:0`.
    pub(super) fn numbers(self) -> String {
        format!("{}:{}", self.0 >> 20, self.0 & ((1 << 20) - 1))
    }

    /// Its directory in sysfs; `None` if there is no such device.
    fn folder(self) -> Option<PathBuf> {
        std::fs::canonicalize(format!("/sys/dev/block/{}", self.numbers())).ok()
    }

    /// Its name, such as `loop0`; its numbers if it has no name.
    pub(super) fn name(self) -> String {
        let folder = self.folder();
        let name = folder.as_deref().and_then(Path::file_name);
        name.map_or_else(
            || self.numbers(),
            |name| name.to_string_lossy().into_owned(),
        )
    }

    /// The disk of a partition, which receives the requests; the device itself if it is not a partition.
    pub(super) fn disk(self) -> Dev {
        let whole = || -> Option<Dev> {
            let folder = self.folder()?;
            folder.join("partition").exists().then_some(())?;
            let text = std::fs::read_to_string(folder.parent()?.join("dev")).ok()?;
            let (major, minor) = text.trim().split_once(':')?;
            Dev::new(major.parse().ok()?, minor.parse().ok()?)
        };
        whole().unwrap_or(self)
    }

    /// The device meant by a path: a block device, or the device of the file system that contains a file or
    /// directory.
    ///
    /// # Errors
    /// If the path does not exist, or its file system has no device of its own.
    pub(super) fn of(path: &Path) -> Result<Dev> {
        let cannot = |why: String| Error::new(format!("cannot trace {}: {why}", path.display()));
        let found = std::fs::metadata(path).map_err(|error| cannot(error.to_string()))?;
        let number = match found.file_type().is_block_device() {
            true => found.rdev(),
            false => found.dev(),
        };
        let dev = Dev::new(rustix::fs::major(number), rustix::fs::minor(number));
        dev.filter(|dev| dev.folder().is_some()).ok_or_else(|| {
            cannot("its file system has no block device of its own; name the device".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        let dev = Dev::new(259, 7).expect("a device");
        assert_eq!((dev.0, dev.numbers().as_str()), (259 << 20 | 7, "259:7"));
        assert_eq!(Dev::new(4096, 0), None);
        let none = Dev::new(4095, 1_048_575).expect("a number");
        assert_eq!((none.name().as_str(), none.disk()), ("4095:1048575", none));
        assert!(Dev::of(Path::new("/no/such")).is_err());
        assert!(Dev::of(Path::new("/proc")).is_err());
    }
}
