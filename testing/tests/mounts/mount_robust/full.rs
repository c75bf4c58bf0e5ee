//! No space: in the volume, and below the image. A writer gets an error, durable data stays, and space is
//! available again after a removal.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use tempfile::TempDir;
use throughline_testing::sectors::filled;
use throughline_testing::{DiskImage, Mount, Mounted, program};
use throughline_testkit::e2fs;

use crate::mount_robust::work::{e2fsck, root, wait_until};

const PIECE: usize = 256 << 10;

/// Writes and syncs a file before the volume fills up; it must keep its contents.
fn promise(root: &Path) -> Vec<u8> {
    let bytes = filled(400 << 10, 77, 0, 1);
    let mut file = File::create(root.join("promised")).expect("a file");
    file.write_all(&bytes).expect("a write");
    file.sync_all().expect("a sync");
    bytes
}

#[track_caller]
fn kept(root: &Path, bytes: &[u8]) {
    let found = std::fs::read(root.join("promised")).expect("the synced file");
    assert!(found == bytes, "the synced file has changed");
}

/// Writes to a new file until an error occurs. Returns the file, the error, and the number of pieces
/// written.
fn fill(path: &Path, most: u64) -> (File, Option<io::Error>, u64) {
    let file = File::create(path).expect("a file");
    for piece in 0..most {
        let at = piece * PIECE as u64;
        if let Err(error) = file.write_all_at(&filled(PIECE, 5, at, 1), at) {
            return (file, Some(error), piece);
        }
    }
    (file, None, most)
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

#[test]
fn a_full_volume_fails_the_write_and_keeps_accepted_data() {
    if !Mounted::possible() {
        return;
    }
    let Some(image) = DiskImage::make("-t ext4 -m 0 -b 4096", "24m") else {
        return;
    };
    let mounted = Mounted::new(image.path(), "");
    let promised = promise(mounted.root());
    let (file, error, taken) = fill(&mounted.path("large"), 1000);
    let error = error.expect("24 MiB have no space for 250");
    assert_eq!(errno(&error), Some(Errno::NOSPC), "{error}");
    file.sync_all().expect("accepted data has its space");
    let preallocated = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 64 << 20);
    assert_eq!(preallocated, Err(Errno::NOSPC));
    kept(mounted.root(), &promised);
    drop(file);
    // After the removal, the space is available again as soon as the kernel forgets the inode, which it
    // does in the background. No sync is needed.
    std::fs::remove_file(mounted.path("large")).expect("a removal");
    wait_until("the space is available again", || {
        let space = rustix::fs::statvfs(mounted.root()).expect("the volume's space");
        space.f_bavail * space.f_frsize > (taken - 4) * PIECE as u64
    });
    let (file, error, again) = fill(&mounted.path("second"), taken - 4);
    assert!(error.is_none(), "{error:?} after {again} of {taken} pieces");
    file.sync_all().expect("a sync");
    drop(file);
    mounted.unmount();
    e2fsck(image.path()).expect("sound");
    let mounted = Mounted::new(image.path(), "ro");
    kept(mounted.root(), &promised);
    let second = std::fs::read(mounted.path("second")).expect("the file");
    assert!(second == filled(again as usize * PIECE, 5, 0, 1));
    mounted.unmount();
}

#[test]
fn creating_without_inodes_or_room_for_names_reports_no_space() {
    if !Mounted::possible() {
        return;
    }
    let Some(image) = DiskImage::make("-t ext4 -m 0 -b 1024 -N 64", "8m") else {
        return;
    };
    let mounted = Mounted::new(image.path(), "");
    let promised = promise(mounted.root());
    let name = |number: u32| mounted.path(&format!("file-{number}"));
    let mut made = 0;
    let error = loop {
        assert!(made < 1000, "64 inodes are enough for {made} files");
        match File::create_new(name(made)) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(errno(&error), Some(Errno::NOSPC), "{error}");
    let refused = std::fs::create_dir(mounted.path("dir")).expect_err("no inode for it");
    assert_eq!(errno(&refused), Some(Errno::NOSPC), "{refused}");
    std::fs::remove_file(name(0)).expect("a removal");
    // As above.
    wait_until("an inode is available again", || {
        File::create_new(name(0)).is_ok()
    });
    kept(mounted.root(), &promised);
    mounted.unmount();
    e2fsck(image.path()).expect("sound");
}

/// Clients that find no space: more than the mount ever has threads.
const CLIENTS: usize = 300;
/// Requests of other programs.
const ANSWERED: u64 = 300;
const REQUEST_WAITS: Duration = Duration::from_millis(100);

/// A request that finds no space waits for the freeing of an unnamed file. Here that file stays open, and
/// other requests must not wait.
#[test]
fn waiters_for_space_do_not_block_others() {
    if !Mounted::possible() {
        return;
    }
    let Some(image) = DiskImage::make("-t ext4 -m 0 -b 4096", "24m") else {
        return;
    };
    let mounted = Mounted::new(image.path(), "");
    let promised = promise(mounted.root());
    let writers: Vec<File> = (0..CLIENTS)
        .map(|client| File::create(mounted.path(&format!("client-{client}"))).expect("a file"))
        .collect();
    let (held, error, _) = fill(&mounted.path("held"), 1000);
    assert_eq!(error.and_then(|e| errno(&e)), Some(Errno::NOSPC));
    std::fs::remove_file(mounted.path("held")).expect("a removal");
    let (waited, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let write = |file: &File| {
        while !over.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let refused = file.write_all_at(&[1; PIECE], 0).expect_err("no space");
            assert_eq!(errno(&refused), Some(Errno::NOSPC), "{refused}");
            if begun.elapsed() > REQUEST_WAITS {
                waited.fetch_add(1, Ordering::Relaxed);
            } else {
                // Enough others wait. Without this pause, refused clients would only use up processor time.
                std::thread::sleep(REQUEST_WAITS);
            }
        }
    };
    // If all clients could wait at the same time, each in a thread of the mount, another program would be
    // answered only after many of their waits have ended.
    let ended = std::thread::scope(|scope| {
        writers
            .iter()
            .for_each(|file| drop(scope.spawn(|| write(file))));
        wait_until("a request has waited", || {
            waited.load(Ordering::Relaxed) > 0
        });
        let before = waited.load(Ordering::Relaxed);
        for _ in 0..ANSWERED {
            rustix::fs::statvfs(mounted.root()).expect("the volume's space");
            kept(mounted.root(), &promised);
        }
        let ended = waited.load(Ordering::Relaxed) - before;
        over.store(true, Ordering::Relaxed);
        ended
    });
    assert!(
        ended <= ANSWERED,
        "{ended} waits ended until others got {ANSWERED} answers"
    );
    drop((held, writers));
    mounted.unmount();
    e2fsck(image.path()).expect("sound");
}

/// A small file system on the host, with less space than the image on it may need.
enum Below {
    /// Can be enlarged.
    Tmpfs(TempDir),
    /// The kernel's ext4 on a loop device; removing a file makes more space available.
    Kernel { mount: Mount, _image: DiskImage },
}

impl Below {
    fn tmpfs() -> Option<Below> {
        let dir = TempDir::new().expect("a directory");
        let mounted = mount(
            "none",
            dir.path(),
            "tmpfs",
            MountFlags::empty(),
            c"size=12m",
        );
        match mounted {
            Ok(()) => Some(Below::Tmpfs(dir)),
            Err(why) => {
                throughline_testkit::missing!("no tmpfs can be mounted: {why}");
                None
            }
        }
    }

    fn kernel() -> Option<Below> {
        let image = DiskImage::make("-t ext4 -m 0", "40m")?;
        let mount = Mount::or_skip(image.path(), true)?;
        // About 12 MiB stay free.
        std::fs::write(mount.path("filler"), filled(18 << 20, 1, 0, 1)).expect("a filler");
        Some(Below::Kernel {
            mount,
            _image: image,
        })
    }

    fn image(&self) -> PathBuf {
        match self {
            Below::Tmpfs(dir) => dir.path().join("image"),
            Below::Kernel { mount, .. } => mount.path("image"),
        }
    }

    /// Makes more space available.
    fn grow(&self) {
        match self {
            Below::Tmpfs(dir) => {
                mount_remount(dir.path(), MountFlags::empty(), c"size=200m").expect("a larger one");
            }
            Below::Kernel { mount, .. } => {
                std::fs::remove_file(mount.path("filler")).expect("a removal");
            }
        }
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        if let Below::Tmpfs(dir) = self {
            let _ = unmount(dir.path(), UnmountFlags::DETACH);
        }
    }
}

/// What is on the small file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upon {
    Image,
    /// The overlay of an image that is elsewhere.
    Overlay,
}

/// What happens after programs got the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// There is room while the mount goes on.
    Room,
    /// It is unmounted without room.
    Unmounted,
    Killed,
}

fn the_disk_below_fills(below: &Below, upon: Upon, after: After) {
    let small = below.image();
    let _ = std::fs::remove_file(&small);
    let elsewhere = TempDir::new().expect("a directory");
    let (image, options) = match upon {
        Upon::Image => (small, String::new()),
        Upon::Overlay => (
            elsewhere.path().join("image"),
            format!("overlay={}", small.display()),
        ),
    };
    let arguments = ["-t", "ext4", "-m", "0", "-J", "size=4"];
    assert!(e2fs::mke2fs(&image, "32m", &arguments));
    let mut mounted = Mounted::new(&image, &options);
    let promised = promise(mounted.root());
    let (file, error, taken) = fill(&mounted.path("large"), 20 * 4);
    let synced = file.sync_all();
    let first_error = error.or(synced.err()).expect("20 MiB do not fit below");
    let full = Some(Errno::NOSPC);
    assert_eq!(errno(&first_error), full, "after {taken} pieces");
    // Each sync returns the error until one succeeds.
    let again = file.sync_all().expect_err("the data cannot be written");
    assert_eq!(errno(&again), full, "{again}");
    kept(mounted.root(), &promised);
    match after {
        After::Room => {
            below.grow();
            file.sync_all().expect("there is room");
            let large = std::fs::read(mounted.path("large")).expect("the file");
            assert!(large == filled(large.len(), 5, 0, 1) && large.len() >= taken as usize * PIECE);
            std::fs::create_dir(mounted.path("dir")).expect("changes go on");
            drop(file);
            mounted.unmount();
        }
        After::Unmounted => {
            drop(file);
            let (status, log) = mounted.end();
            assert!(!status.success(), "lost data is an error of the server");
            assert!(!log.contains("panicked") && !log.is_empty(), "{log}");
            below.grow();
        }
        After::Killed => {
            mounted.kill();
            drop((file, mounted));
            below.grow();
        }
    }
    let mounted = Mounted::new(&image, &options);
    kept(mounted.root(), &promised);
    std::fs::write(mounted.path("more"), "more").expect("changes go on");
    mounted.unmount();
    if upon == Upon::Image {
        e2fsck(&image).expect("sound without a repair");
    }
}

fn each_way(below: fn() -> Option<Below>) {
    for upon in [Upon::Image, Upon::Overlay] {
        for after in [After::Room, After::Unmounted, After::Killed] {
            let Some(below) = below() else { return };
            eprintln!("{upon:?}, {after:?}");
            the_disk_below_fills(&below, upon, after);
        }
    }
}

#[test]
fn a_full_tmpfs_below_the_image_is_reported() {
    if !Mounted::possible()
        || !program::has(&["mke2fs", "e2fsck"])
        || !root("mounting tmpfs needs root")
    {
        return;
    }
    each_way(Below::tmpfs);
}

#[test]
fn a_full_file_system_below_the_image_is_reported() {
    if !Mounted::possible() || !program::has(&["mke2fs", "e2fsck"]) {
        return;
    }
    each_way(Below::kernel);
}

/// The host promises room for each write, and refuses the one that it has none for.
#[test]
fn with_allocate_a_full_host_fails_the_write() {
    if !Mounted::possible()
        || !program::has(&["mke2fs", "e2fsck"])
        || !root("mounting tmpfs needs root")
    {
        return;
    }
    for below in [Below::tmpfs, Below::kernel] {
        let Some(below) = below() else { return };
        let image = below.image();
        let arguments = ["-t", "ext4", "-m", "0", "-J", "size=4"];
        assert!(e2fs::mke2fs(&image, "32m", &arguments));
        let mounted = Mounted::new(&image, "allocate");
        let promised = promise(mounted.root());
        let (file, error, taken) = fill(&mounted.path("large"), 20 * 4);
        let error = error.expect("20 MiB do not fit below");
        assert_eq!(errno(&error), Some(Errno::NOSPC), "{error}");
        file.sync_all().expect("accepted data has its room");
        kept(mounted.root(), &promised);
        drop(file);
        below.grow();
        mounted.unmount();
        e2fsck(&image).expect("sound");
        let mounted = Mounted::new(&image, "ro");
        let large = std::fs::read(mounted.path("large")).expect("the file");
        let len = taken as usize * PIECE;
        assert!(taken > 8 && large[..len] == filled(len, 5, 0, 1));
        mounted.unmount();
        let overlay = format!(
            "allocate,overlay={}",
            below.image().with_extension("o").display()
        );
        let refused = Mounted::start(&image, &overlay)
            .err()
            .expect("no host promises that");
        assert!(refused.contains("cannot promise room"), "{refused}");
    }
}
