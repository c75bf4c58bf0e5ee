//! Our engine, by its public face.

use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throughline::{Attributes, DeviceNumber, Dir, FileType, NewNode, Result, Volume};

use crate::matrix::fs::{FileSystem, Stat, Step, data};

impl FileSystem for Volume {
    fn list(&mut self, dir: &str) -> Vec<String> {
        let entries = self
            .read_dir(dir)
            .unwrap_or_else(|e| panic!("read_dir {dir}: {e}"));
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.unwrap_or_else(|e| panic!("read_dir {dir}: {e}"));
            let name = entry.file_name().into_string();
            names.push(name.unwrap_or_else(|name| panic!("{name:?} in {dir} is not UTF-8")));
        }
        names.retain(|name| dir != "/" || name != "lost+found");
        names.sort();
        names
    }

    fn stat(&mut self, path: &str) -> Stat {
        let meta = self
            .symlink_metadata(path)
            .unwrap_or_else(|e| panic!("metadata {path}: {e}"));
        let kind = meta.file_type();
        Stat {
            kind,
            mode: meta.mode(),
            uid: meta.uid(),
            gid: meta.gid(),
            links: meta.nlink(),
            len: if kind.is_file() || kind.is_symlink() {
                meta.len()
            } else {
                0
            },
            device: meta.device().map(|device| (device.major, device.minor)),
            modified: from_system_time(meta.modified()),
        }
    }

    fn read(&mut self, path: &str, offset: u64, to: &mut [u8]) -> usize {
        let read = || -> Result<usize> {
            let file = self.open_file(path)?;
            let mut done = 0;
            loop {
                let rest = to.get_mut(done..).unwrap_or_default();
                match file.read_at(rest, offset + done as u64)? {
                    0 => return Ok(done),
                    n => done += n,
                }
            }
        };
        let mut read = read;
        read().unwrap_or_else(|e| panic!("read {path} at {offset}: {e}"))
    }

    fn read_link(&mut self, path: &str) -> String {
        let target = Dir::read_link(self, path).unwrap_or_else(|e| panic!("read_link {path}: {e}"));
        String::from_utf8_lossy(target.as_os_str().as_bytes()).into_owned()
    }

    fn apply(&mut self, step: &Step) {
        change(self, step).unwrap_or_else(|e| panic!("{step:?}: {e}"));
    }
}

fn change(volume: &Volume, step: &Step) -> Result<()> {
    match step {
        Step::Dir(path) => volume
            .make_node(path, NewNode::Directory, &Attributes::new().mode(0o755))
            .map(drop),
        Step::File(path) => volume
            .make_node(path, NewNode::File, &Attributes::new().mode(0o644))
            .map(drop),
        Step::Write {
            path,
            offset,
            seed,
            len,
        } => volume
            .open_file(path)?
            .write_all_at(&data(*seed, *len), *offset),
        Step::Truncate(path, len) => volume.open_file(path)?.set_len(*len),
        Step::Allocate(path, mode, offset, len) => {
            volume.open_file(path)?.allocate(*mode, *offset, *len)
        }
        Step::Symlink { target, link } => volume.symlink(target, link),
        Step::Link { from, to } => volume.hard_link(from, to),
        Step::Node(path, kind, (major, minor)) => {
            let device = DeviceNumber {
                major: *major,
                minor: *minor,
            };
            let kind = match kind {
                FileType::CharDevice => NewNode::CharDevice(device),
                FileType::BlockDevice => NewNode::BlockDevice(device),
                FileType::Fifo => NewNode::Fifo,
                _ => NewNode::Socket,
            };
            let attributes = Attributes::new().mode(0o644);
            volume.make_node(path, kind, &attributes).map(drop)
        }
        Step::Unlink(path) => volume.remove_file(path),
        Step::Rmdir(path) => volume.remove_dir(path),
        Step::Rename(from, to, mode) => volume.rename_with(from, to, *mode),
        Step::Attributes(path, mode, uid, gid) => {
            volume.set_symlink_attributes(path, &Attributes::new().mode(*mode).uid(*uid).gid(*gid))
        }
        Step::Modified(path, time) => {
            volume.set_symlink_attributes(path, &Attributes::new().modified(to_system_time(*time)))
        }
    }
}

fn to_system_time((seconds, nanoseconds): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 {
        UNIX_EPOCH - whole
    } else {
        UNIX_EPOCH + whole
    };
    base + Duration::from_nanos(nanoseconds.into())
}

fn from_system_time(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (after.as_secs().cast_signed(), after.subsec_nanos()),
        Err(before) => {
            let before = before.duration();
            let up = u64::from(before.subsec_nanos() > 0);
            (
                -(before.as_secs() + up).cast_signed(),
                (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000,
            )
        }
    }
}
