//! Block devices mounted by root with the type `fuseblk`, where the kernel opens the device for the mount.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, fcntl_lock};
use throughline_testkit::e2fs;
use throughline_testkit::kernel::{Loop, Mount};

use super::{Point, run, skipped, throughline};
use crate::common::{Image, noise, ok, tool};

/// Waits until no process or mount holds the device, according to the kernel.
fn wait_free(device: &Loop, behind: &str) {
    super::wait(&format!("free behind {behind}"), || {
        let alone = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::open(device.node(), alone, Mode::empty()).is_ok()
    });
}

/// The type of the mount at a point.
fn kind(point: &Point) -> String {
    let line = super::mounts();
    let line = line.iter().find(|line| line.contains(point.str())).unwrap();
    line.split(" - ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .to_owned()
}

/// Whether sync(2) reaches the server: from this version of Linux on.
fn kernel_passes_on_sync() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(18))
}

#[test]
fn the_kernel_holds_a_block_device_and_syncs_it() {
    if skipped() {
        return;
    }
    let image = Image::new("32M", &["-t", "ext4", "-b", "4096"]);
    let Some(device) = Loop::new(&image.path(), &[]) else {
        return;
    };
    let point = Point::new(&image, "point");
    ok(["mount", "-o", "with=fuseblk", device.node(), point.str()]);
    assert_eq!(kind(&point), "fuseblk.throughline");
    let data = noise(300_000, 5);
    fs::write(point.path("a"), &data).unwrap();
    // We return block numbers to the kernel.
    let blocks = tool("filefrag")
        .args(["-B", "-e"])
        .arg(point.path("a"))
        .output()
        .unwrap();
    let blocks = String::from_utf8(blocks.stdout).unwrap();
    let first = blocks
        .lines()
        .find(|line| line.trim_start().starts_with("0:"));
    let first = first
        .unwrap()
        .split(':')
        .nth(2)
        .unwrap()
        .split("..")
        .next()
        .unwrap();
    let first: u64 = first.trim().parse().unwrap();
    // Syncs the file system, not this file.
    rustix::fs::syncfs(File::open(&point.dir).unwrap()).unwrap();
    if kernel_passes_on_sync() {
        let copy = image.sibling("copy");
        fs::copy(image.path(), &copy).unwrap();
        let place = format!("{}:/a", copy.display());
        let there = throughline().args(["cat", &place]).output().unwrap();
        assert!(
            there.stdout == data,
            "not all of it is there: {:?}",
            there.status
        );
    } else {
        throughline_testkit::left_out!("this kernel's fuseblk does not pass on sync(2)");
    }
    // The device is opened exclusively: the kernel, our program and e2fsck are refused.
    let other = Point::new(&image, "other");
    let mounted = Mount::new(Path::new(device.node()), &other.dir, &[]);
    assert!(mounted.is_err());
    let second = run(["mkdir", &format!("{}:/d", device.node())]);
    assert_eq!(second.code, Some(1), "{}", second.stderr);
    let repaired = e2fs::e2fsck(Path::new(device.node()), &["-fy"]);
    assert_eq!(repaired.code(), 8);
    // The image is closed when the kernel releases the device. Another test may have created a namespace
    // meanwhile, which then holds this mount too.
    point.unmount();
    wait_free(&device, "umount");
    let state = e2fs::dumpe2fs(Path::new(device.node()), &["-h"]);
    assert!(!state.contains("needs_recovery"), "{state}");
    e2fs::assert_clean(Path::new(device.node()));
    let found = e2fs::debugfs(Path::new(device.node()), "bmap a 0");
    let found: u64 = found.trim().parse().unwrap();
    assert_eq!(first, found);
}

/// A server that has just closed its device, but has not ended, holds only a lock. The next mount waits for
/// that, although its own claim of the device is in the list of mounts.
#[test]
fn a_mount_of_a_block_device_waits_for_the_server_of_the_last() {
    if skipped() {
        return;
    }
    let image = Image::new("32M", &["-t", "ext4", "-b", "1024"]);
    let Some(device) = Loop::new(&image.path(), &[]) else {
        return;
    };
    let point = Point::new(&image, "point");
    let mut both = File::options();
    let last = both.read(true).write(true).open(device.node()).unwrap();
    fcntl_lock(&last, FlockOperation::LockExclusive).unwrap();
    let log = image.sibling("log");
    let mut mount = throughline()
        .args(["mount", "-f", "--log", "info", "-o", "with=fuseblk"])
        .args([device.node(), point.str()])
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    super::wait("the mount waits, or has ended", || {
        said().contains("waiting for the image") || mount.try_wait().unwrap().is_some()
    });
    assert!(mount.try_wait().unwrap().is_none(), "{}", said());
    drop(last);
    super::wait("the mount is ready", || {
        said().contains("the mount is ready") || mount.try_wait().unwrap().is_some()
    });
    assert_eq!(kind(&point), "fuseblk.throughline", "{}", said());
    ok(["umount", point.str()]);
    assert!(mount.wait().unwrap().success(), "{}", said());
    wait_free(&device, "a mount that waited");
    image.assert_clean();
}

#[test]
fn a_block_device_is_free_again_whatever_ends_its_mount() {
    if skipped() {
        return;
    }
    let image = Image::new("32M", &["-t", "ext4", "-b", "1024"]);
    let Some(device) = Loop::new(&image.path(), &[]) else {
        return;
    };
    let point = Point::new(&image, "point");
    for ending in ["signal", "kill", "lazy", "umount"] {
        // The message says that the previous server was killed.
        let mounted = run(["mount", "-o", "with=fuseblk", device.node(), point.str()]);
        assert_eq!(mounted.code, Some(0), "{ending}: {}", mounted.stderr);
        assert_eq!(kind(&point), "fuseblk.throughline", "{ending}");
        let open = File::create(point.path(ending)).unwrap();
        let pid = rustix::process::Pid::from_raw(point.pid()).unwrap();
        match ending {
            "signal" => {
                rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
                point.wait_mounted(false);
            }
            "kill" => {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                drop(open);
                point.unmount();
                wait_free(&device, ending);
                continue;
            }
            "lazy" => ok(["umount", "--lazy", point.str()]).truncate(0),
            _ => {}
        }
        drop(open);
        if point.is_mounted() {
            ok(["umount", point.str()]);
        }
        wait_free(&device, ending);
        e2fs::assert_clean_after(Path::new(device.node()), ending);
    }
    ok(["mount", "-o", "ro,with=fuseblk", device.node(), point.str()]);
    assert!(fs::read_dir(&point.dir).unwrap().count() >= 4);
    assert!(fs::write(point.path("no"), b"").is_err());
    ok(["umount", point.str()]);
    wait_free(&device, "a mount that was read only");
    // Without the option, the server holds the device itself.
    ok(["mount", device.node(), point.str()]);
    assert_eq!(kind(&point), "fuse.throughline");
    let second = throughline()
        .args(["mkdir", &format!("{}:/d", device.node())])
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    ok(["umount", point.str()]);
    image.assert_clean();
    // A device without a volume is not mounted.
    drop(device);
    fs::write(image.path(), vec![0; 1 << 20]).unwrap();
    let device = Loop::new(&image.path(), &[]).unwrap();
    let failed = run(["mount", "-o", "with=fuseblk", device.node(), point.str()]);
    assert_eq!(failed.code, Some(32), "{}", failed.stderr);
    assert!(!point.is_mounted());
}

/// Opens the device exclusively as soon as the kernel releases it.
fn claim(device: &Loop) -> File {
    let alone = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let mut claimed = None;
    super::wait("the device can be claimed", || {
        claimed = rustix::fs::open(device.node(), alone, Mode::empty()).ok();
        claimed.is_some()
    });
    claimed.unwrap().into()
}

/// A signal ends a mount that is in use. Afterwards, only the next owner writes to the device.
#[test]
fn nothing_is_written_to_a_block_device_that_a_signal_has_freed() {
    if skipped() {
        return;
    }
    let image = Image::new("256M", &["-t", "ext4", "-b", "4096"]);
    let Some(device) = Loop::new(&image.path(), &[]) else {
        return;
    };
    let point = Point::new(&image, "point");
    ok([
        "mount",
        "-o",
        "with=fuseblk,cache_size=1G",
        device.node(),
        point.str(),
    ]);
    let pid = point.pid();
    let data = noise(100 << 20, 11);
    let file = File::create(point.path("file")).unwrap();
    file.write_all_at(&data, 0).unwrap();
    let nameless = File::create(point.path("nameless")).unwrap();
    nameless.write_all_at(&data[..1 << 20], 0).unwrap();
    fs::remove_file(point.path("nameless")).unwrap();
    super::signal(pid, rustix::process::Signal::TERM);
    // Write until it fails.
    let mut writes = 0u64;
    while file.write_all_at(&data[..4096], 0).is_ok() {
        writes += 1;
    }
    eprintln!("{writes} writes while the mount ended");
    drop((file, nameless));
    let claimed = claim(&device);
    let there = fs::read(image.path()).unwrap();
    super::wait_gone(pid);
    assert!(
        fs::read(image.path()).unwrap() == there,
        "the server wrote to a released device"
    );
    drop(claimed);
    let state = e2fs::dumpe2fs(Path::new(device.node()), &["-h"]);
    assert!(!state.contains("needs_recovery"), "{state}");
    drop(device);
    image.assert_clean();
    assert!(image.contents("/file") == data, "not all of it is there");
    assert!(!point.is_mounted());
}
