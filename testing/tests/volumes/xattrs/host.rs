//! The kernel's side: a mounted image.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode as Bits, OFlags, XattrFlags};
use rustix::io::Errno;

use crate::xattrs::act::{Act, Kind, Mode, Outcome};
use crate::xattrs::{Seen, Side};

/// See the head of this file.
pub(crate) struct Host {
    root: PathBuf,
}

impl Host {
    pub(crate) fn new(root: &Path) -> Host {
        Host { root: root.into() }
    }

    fn create(&self, path: &Path, kind: Kind, mode: u32) -> Outcome {
        let bits = Bits::from_raw_mode(mode);
        match kind {
            Kind::File => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                rustix::fs::open(path, flags, bits).map(drop)
            }
            Kind::Dir => rustix::fs::mkdir(path, bits),
            Kind::Fifo => rustix::fs::mknodat(CWD, path, FileType::Fifo, bits, 0),
            Kind::Symlink => rustix::fs::symlink("target", path),
        }
    }
}

impl Side for Host {
    fn act(&mut self, act: &Act) -> Outcome {
        match act {
            Act::Create(path, kind, mode, umask) => {
                // This is the only test of its process, so no other thread creates files meanwhile.
                let before = rustix::process::umask(Bits::from_raw_mode(*umask));
                let done = self.create(&self.root.join(path), *kind, *mode);
                rustix::process::umask(before);
                done
            }
            Act::Remove(path, is_dir) => {
                let path = self.root.join(path);
                let flags = if *is_dir {
                    AtFlags::REMOVEDIR
                } else {
                    AtFlags::empty()
                };
                rustix::fs::unlinkat(CWD, path, flags)
            }
            Act::Chmod(path, mode) => {
                let path = self.root.join(path);
                if std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink()) {
                    return Ok(());
                }
                rustix::fs::chmod(path, Bits::from_raw_mode(*mode))
            }
            Act::Chown(path, uid) => {
                let uid = rustix::fs::Uid::from_raw(*uid);
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(CWD, self.root.join(path), Some(uid), None, flags)
            }
            Act::Set(path, name, value, mode) => {
                let flags = match mode {
                    Mode::Either => XattrFlags::empty(),
                    Mode::Create => XattrFlags::CREATE,
                    Mode::Replace => XattrFlags::REPLACE,
                };
                rustix::fs::lsetxattr(self.root.join(path), name.as_str(), value, flags)
            }
            Act::Take(path, name) => rustix::fs::lremovexattr(self.root.join(path), name.as_str()),
        }
    }

    fn see(&mut self, paths: &[String]) -> Seen {
        use std::os::unix::fs::MetadataExt;
        let mut seen = Seen::new();
        for path in paths {
            let at = self.root.join(path);
            let Ok(meta) = std::fs::symlink_metadata(&at) else {
                continue;
            };
            let mut names = vec![0; 1 << 16];
            let len = rustix::fs::llistxattr(&at, &mut names[..]).expect("names");
            let mut attributes = BTreeMap::new();
            for name in names[..len]
                .split(|byte| *byte == 0)
                .filter(|name| !name.is_empty())
            {
                let name = String::from_utf8(name.to_vec()).expect("UTF-8");
                let mut value = vec![0; 1 << 16];
                match rustix::fs::lgetxattr(&at, name.as_str(), &mut value[..]) {
                    Ok(len) => drop(attributes.insert(name, value[..len].to_vec())),
                    Err(Errno::NODATA) => {}
                    Err(error) => panic!("the kernel's {name} of {path}: {error}"),
                }
            }
            seen.insert(path.clone(), (meta.mode() & 0o7777, attributes));
        }
        seen
    }
}
