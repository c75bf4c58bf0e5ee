//! A descriptor that another process opened, locked and passed to us is used with its lock.

use crate::common;

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{buffer, read, write};
use throughline_device::{BlockDevice, LockMode, OpenOptions};

const LEN: u64 = 1 << 20;

/// A file, and an open descriptor of it as it would be passed to us.
struct Given {
    file: File,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Given {
    fn new(options: &mut fs::OpenOptions) -> Given {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        File::create(&path).unwrap().set_len(LEN).unwrap();
        Given {
            file: options.open(&path).unwrap(),
            path,
            _folder: folder,
        }
    }

    fn locked(kind: i32, range: std::ops::Range<u64>) -> Given {
        let given = Given::new(File::options().read(true).write(true));
        assert!(lock(&given.file, kind, range), "no conflicting lock");
        given
    }

    /// The path that names the descriptor.
    fn name(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Whether another open of the file by its own path could lock it for writing.
    fn is_free(&self) -> bool {
        let other = File::options().read(true).write(true).open(&self.path);
        lock(&other.unwrap(), libc::F_WRLCK, 0..0)
    }
}

/// Takes an open-file-description lock on a range of bytes; an empty range means all. `false` on a conflict.
fn lock(file: &File, kind: i32, range: std::ops::Range<u64>) -> bool {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
    wanted.l_type = kind as libc::c_short;
    wanted.l_start = range.start as i64;
    wanted.l_len = (range.end - range.start) as i64;
    // SAFETY: the descriptor is open, and the kernel only reads `wanted`.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const wanted) == 0 }
}

fn open(path: impl AsRef<Path>, begin_bytes: u64) -> io::Result<Arc<dyn BlockDevice>> {
    OpenOptions::new()
        .write(true)
        .lock(LockMode::Exclusive)
        .begin_bytes(begin_bytes)
        .open(path)
}

#[track_caller]
fn is_busy(opened: io::Result<Arc<dyn BlockDevice>>) {
    let refused = opened.err().expect("it is locked");
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    let us = format!("in use by this process ({})", std::process::id());
    assert!(refused.to_string().contains(&us), "{refused}");
}

#[test]
fn its_lock_is_ours_and_stays() {
    let given = Given::locked(libc::F_WRLCK, 0..0);
    is_busy(open(&given.path, 0));
    let device = open(given.name(), 0).unwrap();
    let mut memory = buffer(&*device, 4096);
    memory.fill(7);
    write(&mut *device.open_queue().unwrap(), 8192, &memory).unwrap();
    assert!(
        fs::read(&given.path).unwrap()[8192..12288]
            .iter()
            .all(|byte| *byte == 7)
    );
    // A second user is refused, also one that got the same descriptor.
    is_busy(open(given.name(), 0));
    is_busy(open(&given.path, 0));
    drop(device);
    assert!(
        !given.is_free(),
        "the lock stays with the original descriptor"
    );
    for _ in 0..20 {
        drop(open(given.name(), 0).unwrap());
    }
    // The lock outlives the original descriptor as long as the device is open.
    let name = given.name();
    let device = open(&name, 0).unwrap();
    let Given {
        file,
        path,
        _folder,
    } = given;
    drop(file);
    is_busy(open(&path, 0));
    drop(device);
    drop(open(&path, 0).unwrap());
}

#[test]
fn a_lock_on_a_part_of_the_file_is_for_that_part() {
    let half = LEN / 2;
    let given = Given::locked(libc::F_WRLCK, half..LEN);
    // Another open file has a shared lock on the first half.
    let other = File::open(&given.path).unwrap();
    assert!(lock(&other, libc::F_RDLCK, 0..half));
    drop(open(given.name(), half).unwrap());
    is_busy(open(given.name(), 0));
    drop(other);
    drop(open(given.name(), 0).unwrap());
}

#[test]
fn a_lock_for_reading_is_enough_to_read() {
    let given = Given::locked(libc::F_RDLCK, 0..0);
    let reader = || OpenOptions::new().lock(LockMode::Shared).open(given.name());
    let readers = [reader().unwrap(), reader().unwrap()];
    is_busy(open(given.name(), 0));
    drop(readers);
    drop(open(given.name(), 0).unwrap());
    // The exclusive lock stays on the descriptor: it belongs to the process that passed it.
    let other = File::open(&given.path).unwrap();
    assert!(!lock(&other, libc::F_RDLCK, 0..0));
}

#[test]
fn flags_and_offset_of_the_descriptor_are_its_own() {
    for options in [
        File::options().append(true).read(true),
        File::options().read(true),
        File::options().write(true),
    ] {
        let mut given = Given::new(options);
        let position = io::Seek::seek(&mut given.file, io::SeekFrom::Start(777)).unwrap();
        let flags = rustix::fs::fcntl_getfl(&given.file).unwrap();
        let device = open(given.name(), 0).unwrap();
        let mut memory = buffer(&*device, 4096);
        memory.fill(9);
        let mut queue = device.open_queue().unwrap();
        write(&mut *queue, 4096, &memory).unwrap();
        memory.fill(0);
        read(&mut *queue, 4096, &mut memory).unwrap();
        assert!(memory.iter().all(|byte| *byte == 9));
        let content = fs::read(&given.path).unwrap();
        assert_eq!(
            (content.len() as u64, content[4096], content[0]),
            (LEN, 9, 0)
        );
        assert_eq!(rustix::fs::fcntl_getfl(&given.file).unwrap(), flags);
        assert_eq!(
            io::Seek::stream_position(&mut given.file).unwrap(),
            position
        );
    }
}

#[test]
fn descriptors_that_are_not_files_are_refused() {
    let (pipe, _end) = io::pipe().unwrap();
    let socket = std::os::unix::net::UnixStream::pair().unwrap().0;
    for number in [pipe.as_raw_fd(), socket.as_raw_fd(), 1 << 20] {
        let refused = open(format!("/dev/fd/{number}"), 0).err().expect("no file");
        assert_ne!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    }
}
