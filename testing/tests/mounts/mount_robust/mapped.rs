//! Stores through a mapping on a volume without space for them. FUSE has no request by which the kernel could
//! ask for space when a page is first stored to (the kernel's ext4 gives SIGBUS there). So the program learns
//! of it from each `fsync` and `msync`, until the bytes are stored, written again or removed; and an unmount
//! fails.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use throughline_testing::{DiskImage, Mounted, program};

use crate::mount_robust::work::{e2fsck, wait_until};
use crate::oracle::seeds::soak;

/// Free blocks of 4 KiB while the mapping is stored to.
const FREE: u64 = 4;
/// Not a measurement: limit for one program.
const LIMIT: Duration = Duration::from_secs(60);

/// How a program learns that its bytes have no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Msync,
    Fsync,
    /// The file is opened again.
    Opened,
    /// The kernel has forgotten the file, and its pages.
    Forgotten,
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Room,
    Truncated,
    Punched,
    Written,
}

const WAYS: [Way; 4] = [Way::Msync, Way::Fsync, Way::Opened, Way::Forgotten];
const ENDS: [End; 4] = [End::Room, End::Truncated, End::Punched, End::Written];

/// Stores `byte` to the whole file through a mapping. Returns whether the commands after it succeeded.
fn store(path: &Path, len: u64, byte: u8, then: &[&str]) -> bool {
    let mut command = Command::new("xfs_io");
    let map = format!("mmap -rw 0 {len}");
    let store = format!("mwrite -S {byte} 0 {len}");
    for step in [map.as_str(), store.as_str()].iter().chain(then) {
        command.arg("-c").arg(step);
    }
    let ran = program::run(command.arg(path), LIMIT);
    let refused = ran.text().contains("No space left");
    assert!(ran.status.success() != refused, "{}", ran.text());
    ran.status.success()
}

fn errno(result: io::Result<()>) -> Option<Errno> {
    result.err().and_then(|error| Errno::from_io_error(&error))
}

/// Fills the volume except for [`FREE`] blocks.
fn fill(root: &Path) {
    let path = root.join("filler");
    let mut file = File::create(&path).expect("a file");
    let piece = vec![5; 256 << 10];
    while file.write_all(&piece).is_ok() {}
    let end = file.seek(SeekFrom::End(0)).expect("its size");
    file.sync_all().expect("accepted data has its space");
    file.set_len(end - FREE * 4096).expect("four blocks less");
    file.sync_all().expect("a sync");
}

fn make_room(root: &Path) {
    let path = root.join("filler");
    std::fs::remove_file(&path).expect("a removal");
    wait_until("there is space", || {
        let space = rustix::fs::statvfs(root).expect("the volume's space");
        space.f_bavail * space.f_frsize > 2 << 20
    });
}

fn forget() {
    std::fs::write("/proc/sys/vm/drop_caches", "3").expect("dropped caches");
}

/// One file is stored to and reported in one way, and ends in each.
fn reported(root: &Path, way: Way, end: End, len: u64, is_kept: bool) {
    let path = root.join("mapped");
    let file = File::create(&path).expect("a file");
    file.set_len(len).expect("a hole");
    file.sync_all().expect("a sync");
    drop(file);
    fill(root);
    let what = format!("{way:?}, {end:?}, {len} bytes");
    match way {
        // The kernel itself reports the first refusal. The second sync is the server's alone.
        Way::Msync => assert!(
            !store(&path, len, b'A', &["msync -s", "msync -s"]),
            "{what}"
        ),
        Way::Fsync => assert!(!store(&path, len, b'A', &["fsync", "fdatasync"]), "{what}"),
        Way::Opened => assert!(store(&path, len, b'A', &[]), "{what}"),
        Way::Forgotten => {
            store(&path, len, b'A', &["fsync"]);
            forget();
        }
    }
    let file = File::options().read(true).write(true).open(&path);
    let file = file.expect("the file");
    for _ in 0..2 {
        assert_eq!(errno(file.sync_all()), Some(Errno::NOSPC), "{what}");
        assert_eq!(errno(file.sync_data()), Some(Errno::NOSPC), "{what}");
    }
    let has = |byte: u8| {
        let mut bytes = Vec::new();
        let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.expect("its bytes");
        bytes.len() as u64 == len && bytes.iter().all(|found| *found == byte)
    };
    if is_kept {
        assert!(has(b'A'), "{what}");
    }
    match end {
        End::Room => make_room(root),
        End::Truncated => file.set_len(0).expect("a truncation"),
        End::Punched => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, flags, 0, len).expect("a hole");
        }
        End::Written => {
            make_room(root);
            file.write_all_at(&vec![b'B'; len as usize], 0)
                .expect("a write");
        }
    }
    match (end, is_kept) {
        (End::Room, false) => {
            assert_eq!(errno(file.sync_all()), Some(Errno::NOSPC), "{what}");
            assert!(
                store(&path, len, b'A', &["msync -s"]),
                "{what}: stored again"
            );
        }
        _ => file
            .sync_all()
            .unwrap_or_else(|error| panic!("{what}: {error}")),
    }
    drop(file);
    forget();
    match end {
        End::Room => assert!(has(b'A'), "{what}"),
        End::Punched => assert!(has(0), "{what}"),
        End::Written => assert!(has(b'B'), "{what}"),
        End::Truncated => assert_eq!(std::fs::metadata(&path).expect("its size").len(), 0),
    }
    std::fs::remove_file(&path).expect("a removal");
    let _ = std::fs::remove_file(root.join("filler"));
}

fn all(options: &str, len: u64, is_kept: bool) {
    if !Mounted::possible()
        || !program::has(&["xfs_io", "e2fsck"])
        || !crate::mount_robust::work::root("dropping the kernel's caches needs root")
    {
        return;
    }
    let Some(image) = DiskImage::make("-t ext4 -m 0 -b 4096", "8m") else {
        return;
    };
    for way in WAYS {
        let mounted = Mounted::new(image.path(), options);
        for end in ENDS {
            reported(mounted.root(), way, end, len, is_kept);
        }
        mounted.unmount();
        e2fsck(image.path()).expect("sound");
    }
}

#[test]
fn stores_without_space_are_reported_until_they_are_on_the_device() {
    all("", 64 << 10, true);
}

#[test]
fn the_same_where_the_kernel_caches_writes() {
    all("with=writeback_cache", 64 << 10, true);
}

/// The cache is so small that not all can be kept until there is space.
#[test]
fn stores_that_cannot_be_kept_are_reported_until_they_are_stored_again() {
    all("cache_size=2M", 1 << 20, false);
}

#[test]
fn an_unmount_fails_that_loses_what_was_stored() {
    if !Mounted::possible() || !program::has(&["xfs_io", "e2fsck"]) {
        return;
    }
    let Some(image) = DiskImage::make("-t ext4 -m 0 -b 4096", "8m") else {
        return;
    };
    for options in ["", "cache_size=2M"] {
        let mounted = Mounted::new(image.path(), options);
        let path = mounted.path("mapped");
        let len = 1 << 20;
        File::create(&path)
            .and_then(|file| file.set_len(len))
            .expect("a file");
        fill(mounted.root());
        assert!(store(&path, len, b'A', &[]), "nothing waits for it");
        let (status, log) = mounted.end();
        assert!(
            !status.success(),
            "bytes were lost, and no error was reported"
        );
        assert!(
            log.contains("is lost") && log.contains("no space left"),
            "{log}"
        );
        let mounted = Mounted::new(image.path(), "");
        std::fs::remove_file(mounted.path("mapped")).expect("a removal");
        std::fs::remove_file(mounted.path("filler")).expect("a removal");
        mounted.unmount();
        e2fsck(image.path()).expect("sound");
    }
}

/// Kills of the server; in the long test, as many as the issue asks for.
const KILLS: u64 = 4;
const LONG_KILLS: u64 = 50;
const RECORD: u64 = 64 << 10;
const META: u64 = 4096;
const RECORDS: u64 = 40;

/// Commits a record as a database with a writable mapping does (LMDB): the record, msync, the page that
/// refers to it, msync. Returns whether all of it returned 0.
fn commit(path: &Path, record: u64) -> bool {
    let (at, byte) = (2 * META + record * RECORD, record + 1);
    let mut command = Command::new("xfs_io");
    for step in [
        format!("mmap -rw 0 {}", 2 * META + RECORDS * RECORD),
        format!("mwrite -S {byte} {at} {RECORD}"),
        "msync -s".to_owned(),
        format!("mwrite -S {byte} {} {META}", record % 2 * META),
        "msync -s".to_owned(),
    ] {
        command.arg("-c").arg(step);
    }
    let ran = program::run(command.arg(path), LIMIT);
    ran.status.success() && !ran.text().contains("No space left")
}

/// Every commit that returned 0 is there after the server was killed, however full the volume was.
#[test]
fn commits_to_a_mapped_database_survive_kills_while_the_volume_is_full() {
    if !Mounted::possible() || !program::has(&["xfs_io", "e2fsck"]) {
        return;
    }
    let kills = if soak() { LONG_KILLS } else { KILLS };
    let mut random = fastrand::Rng::with_seed(38);
    let (mut refused, mut committed) = (0, 0);
    let mut image = None;
    let mut known = 0;
    for kill in 0..kills {
        if known == RECORDS || image.is_none() {
            image = DiskImage::make("-t ext4 -m 0 -b 4096", "8m");
            known = 0;
        }
        let Some(image) = &image else { return };
        let mounted = Mounted::new(image.path(), "");
        let database = mounted.path("database");
        if known == 0 {
            let made = File::create(&database);
            let sized = made.and_then(|file| file.set_len(2 * META + RECORDS * RECORD));
            sized.expect("a database");
        }
        fill(mounted.root());
        let filler = File::options().write(true).open(mounted.path("filler"));
        let filler = filler.expect("the filler");
        let until = (known + random.u64(1..=15)).min(RECORDS);
        while known < until {
            if commit(&database, known) {
                known += 1;
                committed += 1;
                continue;
            }
            refused += 1;
            let size = filler.metadata().expect("its size").len();
            let less = random.u64(1..=24) * 4096;
            filler
                .set_len(size.saturating_sub(less))
                .expect("some room");
        }
        if random.bool() {
            // One that may be on its way.
            commit(&database, known.min(RECORDS - 1));
        }
        drop(filler);
        mounted.kill9();
        let mounted = Mounted::new(image.path(), "");
        let bytes = std::fs::read(mounted.path("database")).expect("the database");
        for record in 0..known {
            let at = (2 * META + record * RECORD) as usize;
            let found = &bytes[at..at + RECORD as usize];
            let wrong = found
                .iter()
                .filter(|byte| u64::from(**byte) != record + 1)
                .count();
            assert_eq!(wrong, 0, "bytes of record {record} after kill {kill}");
        }
        std::fs::remove_file(mounted.path("filler")).expect("a removal");
        mounted.unmount();
        e2fsck(image.path()).expect("sound");
    }
    println!("{kills} kills: {committed} commits returned 0, {refused} were refused");
    assert!(refused > 0, "the volume was never full");
}
