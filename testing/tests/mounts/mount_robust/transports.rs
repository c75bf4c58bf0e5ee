//! The two transports of a mount: `/dev/fuse`, and io_uring where the kernel allows it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};
use throughline_device::Background;
use throughline_testing::sectors::filled;
use throughline_testing::transport::{DEV_FUSE, IO_URING, io_uring_is_on};
use throughline_testing::{DiskImage, Mounted};

use crate::mount_robust::work::{self, wait_until};

const THREADS: u64 = 6;
const FILES: u64 = 40;

fn image() -> Option<DiskImage> {
    let possible = Mounted::possible();
    possible
        .then(|| DiskImage::make("-t ext4", "256m"))
        .flatten()
}

/// What the status says of the transport.
pub(crate) fn transport(mounted: &Mounted) -> serde_json::Value {
    let status: serde_json::Value = serde_json::from_str(&mounted.status()).expect("JSON");
    status["transport"].clone()
}

/// The transport that was asked for serves, if the kernel has it; else the other.
#[test]
fn the_status_says_which_transport_serves() {
    let Some(image) = image() else { return };
    let over_rings = io_uring_is_on();
    for (options, over_rings) in [
        ("without=io_uring", false),
        ("with=io_uring", over_rings),
        ("ro,with=io_uring", over_rings),
    ] {
        let mounted = Mounted::new(image.path(), options);
        let transport = transport(&mounted);
        let kind = if over_rings { "io_uring" } else { "/dev/fuse" };
        assert_eq!(transport["kind"], kind, "{options}");
        let queues = transport["queues"].as_u64().expect("a number");
        assert_eq!(queues > 0, over_rings, "{transport}");
        // A queue gets a thread with its first request: only one may have had any.
        let most = transport["max_threads"].as_u64().expect("a number");
        let threads = transport["threads"].as_u64().expect("a number");
        assert!((1..=most).contains(&threads), "{transport}");
        assert!(transport["max_memory_bytes"].as_u64() > Some(1 << 20));
        mounted.unmount();
    }
}

/// The threads of rings have the policy `SCHED_IDLE` while requests follow one another, if they may return
/// from it and it is not switched off.
#[test]
fn the_status_says_how_many_threads_have_the_idle_policy() {
    if !io_uring_is_on() {
        return;
    }
    let Some(image) = image() else { return };
    let may = match Background::new() {
        Ok(_) => true,
        Err(error) => {
            throughline_testkit::left_out!("SCHED_IDLE for the threads of a mount: {error}");
            false
        }
    };
    for (options, expected) in [
        ("with=io_uring", may),
        ("with=io_uring,without=idle_policy", false),
        ("without=io_uring,without=idle_policy", false),
    ] {
        let mounted = Mounted::new(image.path(), options);
        let mut looks = 0;
        let idle = || {
            // With other names each time, which the kernel does not know yet.
            looks += 1;
            for name in 0..50 {
                assert!(!mounted.path(&format!("{looks}-{name}")).exists());
            }
            let transport = transport(&mounted);
            let idle = transport["idle_policy_threads"].as_u64().expect("a number");
            assert!(Some(idle) <= transport["threads"].as_u64(), "{transport}");
            idle > 0
        };
        match expected {
            true => wait_until(&format!("{options}: no thread has the policy"), idle),
            false => assert!(
                !std::iter::repeat_with(idle).take(50).any(|has| has),
                "{options}"
            ),
        }
        mounted.unmount();
    }
}

/// Requests of all kinds and sizes by several threads, on all processors.
#[test]
fn io_uring_carries_requests_of_all_sizes() {
    if !io_uring_is_on() {
        return;
    }
    let Some(image) = image() else { return };
    let mounted = Mounted::new(image.path(), IO_URING);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let root = mounted.path(&format!("thread-{thread}"));
            scope.spawn(move || files(&root, thread));
        }
    });
    let transport = transport(&mounted);
    assert!(
        transport["threads"].as_u64() < transport["max_threads"].as_u64(),
        "{transport}"
    );
    for thread in 0..THREADS {
        let root = mounted.path(&format!("thread-{thread}"));
        let names = std::fs::read_dir(&root).expect("a directory").count() as u64;
        assert_eq!(names, FILES);
        std::fs::remove_dir_all(&root).expect("removed");
    }
    mounted.unmount();
    work::e2fsck(image.path()).expect("sound");
}

/// Threads that change a file at the same time: more than there are threads to serve them.
const CHANGERS: u64 = 400;

/// Changes for which the kernel drops pages wait for each other, however many they are; none is refused.
#[test]
fn no_change_of_a_cached_file_is_refused() {
    let Some(image) = image() else { return };
    for transport in [IO_URING, DEV_FUSE] {
        if transport == IO_URING && !io_uring_is_on() {
            continue;
        }
        let mounted = Mounted::new(image.path(), transport);
        let path = mounted.path("file");
        std::fs::write(&path, filled(1 << 20, 0, 0, 1)).expect("a file");
        std::thread::scope(|scope| {
            for thread in 0..CHANGERS {
                let path = &path;
                scope.spawn(move || {
                    let file = File::options().read(true).write(true).open(path);
                    let file = file.expect("the file");
                    let mut page = [0; 4096];
                    let at = thread % 256 * 4096;
                    file.read_at(&mut page, at).expect("read");
                    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    fallocate(&file, how, at, 4096).expect("punched");
                    file.write_all_at(&page, at).expect("written");
                });
            }
        });
        mounted.unmount();
        work::e2fsck(image.path()).expect("sound");
    }
}

/// Creates, writes, reads and renames files of 0 to 3 MiB in a new directory.
fn files(root: &Path, seed: u64) {
    std::fs::create_dir(root).expect("a directory");
    for number in 0..FILES {
        let path = root.join(format!("file-{number}"));
        let len = [0, 1, 4095, 4097, 70_000, 1 << 20, 3 << 20][number as usize % 7];
        let bytes = filled(len, seed, number, 1);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .expect("a new file");
        file.write_all(&bytes).expect("written");
        file.seek(SeekFrom::Start(0)).expect("a seek");
        let mut back = Vec::new();
        file.read_to_end(&mut back).expect("read");
        assert!(back == bytes, "file {number} of {seed}");
        drop(file);
        let name = format!("{}-{number}", "long".repeat(50));
        let long = root.join(&name);
        std::fs::rename(&path, &long).expect("renamed");
        assert!(std::fs::metadata(&path).is_err());
        direct(&long, &bytes);
        let value = vec![number as u8; 600];
        rustix::fs::setxattr(&long, "user.value", &value, rustix::fs::XattrFlags::CREATE)
            .expect("an attribute");
        let mut back = [0; 1000];
        let len = rustix::fs::getxattr(&long, "user.value", &mut back[..]).expect("an attribute");
        assert!(back[..len] == value);
    }
}

/// Reads the file anew, past the kernel's cache.
fn direct(path: &Path, bytes: &[u8]) {
    let file = File::options()
        .read(true)
        .custom_flags(libc_o_direct())
        .open(path)
        .expect("a file");
    let mut back = throughline_device::AlignedBuf::zeroed(4 << 20, 4096);
    let mut at = 0;
    loop {
        let read = file.read_at(&mut back[at..], at as u64).expect("read");
        at += read;
        if read == 0 || at % 4096 != 0 {
            break;
        }
    }
    assert_eq!(at, bytes.len());
    assert!(back[..at] == *bytes);
}

fn libc_o_direct() -> i32 {
    rustix::fs::OFlags::DIRECT.bits() as i32
}
