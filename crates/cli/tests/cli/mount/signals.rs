//! A signal arrives while programs are writing: the server ends, all accepted writes are in the image, and
//! the image is closed.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use rustix::thread::CpuSet;

use super::stopped::Stopped;
use super::{Point, image, mounted, mounts, ok, signal, skipped, wait, wait_gone};
use crate::common::{Image, noise, throughline};

const WRITERS: usize = 3;
const PIECE: usize = 4096;
/// Pieces written before the signal.
const PIECES: u64 = 400;

/// Byte `at` of a writer's file.
fn byte(writer: usize, at: usize) -> u8 {
    (at / 7 + writer * 31) as u8
}

/// Appends pieces until an error, with an occasional sync and changes of other names. Returns the number of
/// accepted bytes.
fn write(writer: usize, path: &Path, written: &AtomicU64) -> usize {
    let mut taken = 0;
    let Ok(mut file) = File::create(path) else {
        return 0;
    };
    for round in 0.. {
        let piece: Vec<u8> = (taken..taken + PIECE).map(|at| byte(writer, at)).collect();
        let synced = match round % 16 {
            7 => file.sync_all(),
            _ => Ok(()),
        };
        let name = path.with_extension((round % 8).to_string());
        let named = match round % 2 {
            0 => fs::write(&name, b"small"),
            _ => fs::remove_file(path.with_extension(((round - 1) % 8).to_string())),
        };
        if synced.is_err() || named.is_err() || file.write_all(&piece).is_err() {
            break;
        }
        taken += PIECE;
        written.fetch_add(1, Ordering::Relaxed);
    }
    taken
}

#[test]
fn a_signal_under_load_loses_nothing_that_was_written() {
    if skipped() {
        return;
    }
    for ending in [Signal::TERM, Signal::INT] {
        let image = image();
        let point = mounted(&image, "");
        let pid = point.pid();
        let written = AtomicU64::new(0);
        let paths: Vec<PathBuf> = (0..WRITERS)
            .map(|writer| point.path(&format!("file-{writer}")))
            .collect();
        let taken: Vec<usize> = std::thread::scope(|scope| {
            let writers: Vec<_> = paths
                .iter()
                .enumerate()
                .map(|(writer, path)| {
                    let written = &written;
                    scope.spawn(move || write(writer, path, written))
                })
                .collect();
            wait("the writers are at work", || {
                written.load(Ordering::Relaxed) >= PIECES
                    || writers.iter().all(|writer| writer.is_finished())
            });
            signal(pid, ending);
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .collect()
        });
        wait_gone(pid);
        assert!(!point.is_mounted());
        image.assert_clean();
        let features = image.debugfs("stats -h");
        assert!(!features.contains("needs_recovery"), "{features}");
        assert!(written.load(Ordering::Relaxed) >= PIECES);
        for (writer, taken) in taken.into_iter().enumerate() {
            let found = image.contents(&format!("/file-{writer}"));
            assert!(found.len() >= taken, "{} of {taken} bytes", found.len());
            let mut bytes = found.iter().enumerate();
            assert!(bytes.all(|(at, found)| *found == byte(writer, at)));
        }
    }
}

/// An image in the mount of another: the outer image, its mount with these options, the inner image, of this
/// size, and the path of its copy in the mount.
fn stacked(size: &str, options: &str) -> (Image, Point, Image, PathBuf) {
    let below = Image::new("128M", &["-t", "ext4"]);
    let host = mounted(&below, options);
    let upper = Image::new(size, &["-t", "ext4", "-b", "4096"]);
    let image = host.path("image");
    fs::copy(upper.path(), &image).unwrap();
    (below, host, upper, image)
}

/// The kernel's list of FUSE connections, mounted until this is dropped.
struct Connections {
    dir: PathBuf,
}

impl Connections {
    fn new(dir: PathBuf) -> Connections {
        fs::create_dir(&dir).unwrap();
        mount("none", &dir, "fusectl", MountFlags::empty(), None).unwrap();
        Connections { dir }
    }

    /// The number of requests that the server of a mount has not answered yet.
    fn waiting(&self, point: &Point) -> u64 {
        let list = mounts();
        let line = list
            .iter()
            .find(|line| line.contains(&format!(" {} ", point.str())));
        let minor = line.unwrap().split([' ', ':']).nth(3).unwrap();
        let waiting = fs::read_to_string(self.dir.join(minor).join("waiting"));
        waiting.unwrap().trim().parse().unwrap()
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let _ = unmount(&self.dir, UnmountFlags::DETACH);
    }
}

/// Stops the server of a mount while it has no request: one that it has taken and not answered cannot be
/// interrupted, not even by an exit.
fn stopped_while_idle(host: &Point, connections: &Connections) -> Stopped {
    let server = host.pid();
    let mut found = None;
    wait("the device is idle", || {
        let stopped = Stopped::new(server);
        found = (connections.waiting(host) == 0).then_some(stopped);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_server_whose_device_does_not_answer_ends_all_the_same() {
    if skipped() {
        return;
    }
    let (_below, host, upper, image) = stacked("32M", "");
    let point = Point::new(&upper, "upper");
    let arguments = ["mount", image.to_str().unwrap(), point.str()];
    ok(arguments);
    let synced = File::create(point.path("synced")).unwrap();
    (&synced).write_all(&[7; 100_000]).unwrap();
    synced.sync_all().unwrap();
    drop(synced);
    ok(["umount", point.str()]);
    ok(arguments);
    let pid = point.pid();
    let connections = Connections::new(upper.sibling("connections"));
    let below = host.pid();
    let stopped = Stopped::new(below);
    // Reads a file of which nothing is cached.
    let path = point.path("synced");
    let reader = std::thread::spawn(move || fs::read(path));
    wait("the device has a request", || {
        connections.waiting(&host) > 0
    });
    signal(pid, Signal::TERM);
    wait_gone(pid);
    let read = reader.join().unwrap();
    assert!(
        read.is_err(),
        "nothing could be read: {}",
        read.unwrap().len()
    );
    assert!(!point.is_mounted());
    drop(stopped);
    ok(arguments);
    assert!(fs::read(point.path("synced")).unwrap() == [7; 100_000]);
    ok(["umount", point.str()]);
    fs::copy(&image, upper.path()).unwrap();
    upper.assert_clean();
}

/// The device stops and continues several times before the server has ended.
#[test]
fn a_slow_device_is_waited_for() {
    if skipped() {
        return;
    }
    let (_below, host, upper, image) = stacked("64M", "");
    let point = Point::new(&upper, "upper");
    ok(["mount", image.to_str().unwrap(), point.str()]);
    let data = noise(8 << 20, 3);
    fs::write(point.path("file"), &data).unwrap();
    let (pid, below) = (point.pid(), host.pid());
    signal(pid, Signal::TERM);
    let is_there = || Path::new(&format!("/proc/{pid}")).exists();
    let completed = || {
        let state = host.status();
        let (requests, io) = (&state["requests"], &state["io"]);
        [&requests["reads"], &requests["writes"], &io["flushes"]].map(|count| count.as_u64())
    };
    for _ in 0..STOPS {
        let before = completed();
        if is_there() {
            let _stopped = Stopped::new(below);
            std::thread::sleep(STOP);
        }
        wait("a request has completed", || {
            completed() != before || !is_there()
        });
    }
    wait_gone(pid);
    fs::copy(&image, upper.path()).unwrap();
    upper.assert_clean();
    let features = upper.debugfs("stats -h");
    assert!(!features.contains("needs_recovery"), "{features}");
    assert!(upper.contents("/file") == data, "not all of it is there");
}

const STOPS: usize = 4;
/// Each stop is far shorter than the server's timeout for a device that completes nothing; together they are
/// longer.
const STOP: Duration = Duration::from_millis(1500);

/// The device does not respond. After a second request to end, the server does not wait for its timeout.
#[test]
fn a_second_signal_ends_a_server_at_once() {
    if skipped() {
        return;
    }
    // Over io_uring, the kernel hands a request to a free thread even while the server is stopped.
    let (_below, host, upper, image) = stacked("32M", "without=io_uring");
    let connections = Connections::new(upper.sibling("connections"));
    for guarded in [false, true] {
        let point = Point::new(&upper, &format!("upper-{guarded}"));
        let log = upper.sibling("log");
        let (image, log_file) = (image.to_str().unwrap(), log.to_str().unwrap());
        let mut server = throughline();
        match guarded {
            false => server.args(["mount", "-f", "--log-file", log_file, image, point.str()]),
            true => server.arg0("fuse2fs").args(["-f", "-o"]).args([
                &format!("log_file={log_file}"),
                image,
                point.str(),
            ]),
        };
        let mut server = server.spawn().unwrap();
        point.wait_mounted(true);
        let pid = point.pid();
        let synced = File::create(point.path("synced")).unwrap();
        (&synced).write_all(&[7; 100_000]).unwrap();
        synced.sync_all().unwrap();
        let stopped = stopped_while_idle(&host, &connections);
        (&synced).write_all(&[8; 100_000]).unwrap();
        let asked = i32::try_from(server.id()).unwrap();
        wait("the server has ended", || {
            signal(asked, Signal::INT);
            server.try_wait().unwrap().is_some()
        });
        wait_gone(pid);
        let output = fs::read_to_string(&log).unwrap();
        assert!(output.contains("a second time"), "{guarded}: {output}");
        assert!(!point.is_mounted());
        drop((stopped, synced));
        ok(["mount", image, point.str()]);
        let found = fs::read(point.path("synced")).unwrap();
        assert!(found.starts_with(&[7; 100_000]), "what was synced is gone");
        ok(["umount", point.str()]);
        fs::remove_file(&log).unwrap();
    }
    fs::copy(&image, upper.path()).unwrap();
    upper.assert_clean();
}

const READERS: usize = 6;

/// Binds the current thread, so that its requests go to one queue.
fn on_the_first_processor() {
    let mut only = CpuSet::new();
    only.set(0);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
}

/// More requests arrive than threads are free, and these wait for the device: those behind them are served.
#[test]
fn requests_behind_others_that_wait_for_the_device_are_served() {
    let make = |path: &Path| fs::write(path, [7; 4096]).unwrap();
    served_behind(make, |mut file: &File| {
        let mut byte = [0];
        file.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [7]);
    });
}

/// The same on a mount of which the kernel knows only directories.
#[test]
fn requests_behind_others_for_directories_are_served() {
    let make = |path: &Path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("file"), "").unwrap();
    };
    served_behind(make, |directory: &File| {
        let names = rustix::fs::Dir::read_from(directory).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().to_owned());
        assert!(names.into_iter().any(|name| name.to_bytes() == b"file"));
    });
}

/// Makes files with `make`, and then reads them all at once with `read` while the device is stopped. A
/// request after those does not need the device.
fn served_behind(make: impl Fn(&Path), read: impl Fn(&File) + Sync) {
    if skipped() {
        return;
    }
    let (below, host, upper, image) = stacked("32M", "");
    let point = Point::new(&upper, "upper");
    let arguments = ["mount", image.to_str().unwrap(), point.str()];
    ok(arguments);
    let paths: [PathBuf; READERS] =
        std::array::from_fn(|number| point.path(&format!("file-{number}")));
    for path in &paths {
        make(path);
    }
    ok(["umount", point.str()]);
    ok(arguments);
    let connections = Connections::new(upper.sibling("connections"));
    let files = paths.map(|path| File::open(path).unwrap());
    let device = stopped_while_idle(&host, &connections);
    let server = Stopped::new(point.pid());
    std::thread::scope(|scope| {
        let more = |before: u64| {
            wait("a request is queued", || {
                connections.waiting(&point) > before
            });
        };
        let readers = files.each_ref().map(|file| {
            let before = connections.waiting(&point);
            let read = &read;
            let reader = scope.spawn(move || {
                on_the_first_processor();
                read(file);
            });
            more(before);
            reader
        });
        let before = connections.waiting(&point);
        let asker = scope.spawn(|| {
            on_the_first_processor();
            rustix::fs::statfs(&point.dir)
        });
        more(before);
        drop(server);
        wait("the last request is answered", || asker.is_finished());
        asker.join().unwrap().unwrap();
        assert!(readers.iter().all(|reader| !reader.is_finished()));
        drop(device);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    drop(files);
    ok(["umount", point.str()]);
    ok(["umount", host.path("").to_str().unwrap()]);
    below.assert_clean();
}
