//! How a partition of an image is named: `IMAGE@PARTITION`, by number, label or UUID.
//!
//! A file whose whole name is that comes first, so no name of a file needs to be escaped.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::objects;

/// A file or block device, and the partition in it that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageName {
    pub(crate) file: PathBuf,
    pub(crate) partition: Option<String>,
}

impl ImageName {
    /// What a name refers to. What does not exist is taken as the name of a file.
    pub(crate) fn of(name: &Path) -> ImageName {
        let whole = ImageName {
            file: name.to_owned(),
            partition: None,
        };
        if !objects::is_object(name) && name.symlink_metadata().is_ok() {
            return whole;
        }
        let bytes = name.as_os_str().as_bytes();
        if objects::is_object(name) {
            return of_object(bytes).unwrap_or(whole);
        }
        let splits = (1..bytes.len()).rev().filter(|at| bytes[*at] == b'@');
        let mut found = splits.filter_map(|at| {
            let file = PathBuf::from(OsStr::from_bytes(&bytes[..at]));
            let partition = std::str::from_utf8(&bytes[at + 1..]).ok()?;
            let fits = is_file_or_device(&file) && !partition.is_empty();
            fits.then(|| ImageName {
                file,
                partition: Some(partition.to_owned()),
            })
        });
        found.next().unwrap_or(whole)
    }

    /// Whether it names a partition of a disk with partitions. If not, a name with `@` may be that of a new
    /// file.
    pub(crate) fn is_partition(&self) -> bool {
        self.partition.is_some()
            && throughline::partitions(&self.file).is_ok_and(|table| table.is_some())
    }

    /// Whether a name refers to an image that exists, or to a partition in one.
    pub(crate) fn exists(name: &Path) -> bool {
        let file = ImageName::of(name).file;
        objects::is_object(&file) || is_file_or_device(&file)
    }
}

/// The last `@` after the last `/` separates an object and a partition; `%40` is one in a name.
fn of_object(bytes: &[u8]) -> Option<ImageName> {
    let last = bytes.iter().rposition(|byte| *byte == b'/')?;
    let at = bytes
        .iter()
        .rposition(|byte| *byte == b'@')
        .filter(|at| *at > last)?;
    let partition = std::str::from_utf8(&bytes[at + 1..]).ok()?;
    Some(ImageName {
        file: PathBuf::from(OsStr::from_bytes(&bytes[..at])),
        partition: (!partition.is_empty()).then(|| partition.to_owned()),
    })
}

fn is_file_or_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_before_partitions() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["disk", "disk@2", "a@b"] {
            std::fs::write(at(name), "").unwrap();
        }
        std::fs::create_dir(at("folder")).unwrap();
        for (name, file, partition) in [
            ("disk", "disk", None),
            ("disk@1", "disk", Some("1")),
            ("disk@2", "disk@2", None),
            ("disk@2@3", "disk@2", Some("3")),
            ("disk@label=a@b", "disk", Some("label=a@b")),
            ("a@b@root", "a@b", Some("root")),
            ("disk@", "disk@", None),
            ("folder@1", "folder@1", None),
            ("none@1", "none@1", None),
        ] {
            let found = ImageName::of(&at(name));
            assert_eq!(found.file, at(file), "{name}");
            assert_eq!(found.partition.as_deref(), partition, "{name}");
        }
        if cfg!(feature = "remote") {
            let found = ImageName::of(Path::new("https://u:p@h/d.img@label=root"));
            assert_eq!(found.file, Path::new("https://u:p@h/d.img"));
            assert_eq!(found.partition.as_deref(), Some("label=root"));
            assert_eq!(ImageName::of(Path::new("https://u:p@h/d")).partition, None);
        }
        assert!(ImageName::exists(&at("disk@1")));
        assert!(!ImageName::exists(&at("folder@1")));
    }
}
