//! Programs whose requests are with a server when it is killed get an error: none waits for ever, on either
//! transport. And requests that wait for a device do not stop those that need none.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use throughline_device::AlignedBuf;
use throughline_testing::sectors::filled;
use throughline_testing::transport::{DEV_FUSE, IO_URING, io_uring_is_on};
use throughline_testing::{DiskImage, Mounted};
use throughline_testkit::e2fs;

use crate::mount_robust::{kills, work};
use crate::oracle::seeds::{Deadline, soak};

/// Kills in the fast test, and in the long one.
const KILLS: u64 = 3;
const LONG_KILLS: u64 = 100;
/// How often each program has done its work when the server is killed.
const WARM: u64 = 5;

/// One turn of a program, on a directory of its own. It makes requests that the kernel's caches cannot
/// answer, so it fails once the server is dead.
type Turn = fn(&Path, u64) -> io::Result<()>;
const PROGRAMS: [Turn; 6] = [
    write_anew,
    write_and_sync,
    read_direct,
    look_for_nothing,
    make_and_list,
    rename_back_and_forth,
];
/// The file that a program finds in its directory.
const FILE: &str = "file";

#[test]
fn no_program_waits_for_a_killed_server_over_io_uring() {
    if io_uring_is_on() {
        no_program_waits_for_a_killed_server(IO_URING);
    }
}

#[test]
fn no_program_waits_for_a_killed_server_behind_dev_fuse() {
    no_program_waits_for_a_killed_server(DEV_FUSE);
}

fn no_program_waits_for_a_killed_server(transport: &str) {
    let possible = Mounted::possible();
    let Some(image) = possible
        .then(|| DiskImage::make("-t ext4", "256m"))
        .flatten()
    else {
        return;
    };
    for kill in 0..if soak() { LONG_KILLS } else { KILLS } {
        let _deadline = Deadline::new(format!("{transport}: a program, after kill {kill},"));
        let mut mounted = Mounted::new(image.path(), transport);
        let root = mounted.path(&format!("kill-{kill}"));
        fs::create_dir(&root).expect("a directory");
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            for (number, program) in PROGRAMS.into_iter().enumerate() {
                let (dir, tell) = (root.join(number.to_string()), tell.clone());
                scope.spawn(move || {
                    fs::create_dir(&dir).expect("a directory");
                    fs::write(dir.join(FILE), filled(100_000, kill, 0, 1)).expect("a file");
                    // It returns if the connection ends.
                    let mut turn = 0;
                    while program(&dir, turn).is_ok() {
                        turn += 1;
                        if turn == WARM {
                            let _ = tell.send(());
                        }
                    }
                    assert!(turn >= WARM, "program {number} failed in turn {turn}");
                });
            }
            for _ in PROGRAMS {
                told.recv().expect("a program at work");
            }
            mounted.kill();
        });
        drop(mounted);
        kills::wait_for_io_of_dead_process(image.path()).expect("the lock");
        let mounted = Mounted::new(image.path(), "");
        fs::remove_dir_all(mounted.path(&format!("kill-{kill}"))).expect("removed");
        mounted.unmount();
    }
    work::e2fsck(image.path()).expect("sound");
}

/// Requests that wait for a device that does not respond.
const WAITING: usize = 200;
/// Look-ups beside them.
const LOOKS: u64 = 100;

/// Stops a process for as long as it lives.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: u32) -> Stopped {
        let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
        kill_process(pid, Signal::STOP).expect("stopped");
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn look_ups_are_answered_beside_requests_that_wait_for_the_device_over_io_uring() {
    if io_uring_is_on() {
        look_ups_are_answered(IO_URING);
    }
}

#[test]
fn look_ups_are_answered_beside_requests_that_wait_for_the_device_behind_dev_fuse() {
    look_ups_are_answered(DEV_FUSE);
}

/// The device is a file on another mount, whose server is stopped.
fn look_ups_are_answered(transport: &str) {
    let possible = Mounted::possible();
    let Some(outer) = possible
        .then(|| DiskImage::make("-t ext4", "256m"))
        .flatten()
    else {
        return;
    };
    let below = Mounted::new(outer.path(), "");
    let image = below.path("image");
    if !e2fs::mke2fs_if_supported(&image, "64m", &["-t", "ext4"]) {
        return;
    }
    let mounted = Mounted::new(&image, transport);
    let name = |number: usize| mounted.path(&format!("file-{number}"));
    let bytes = |number: usize| filled(4096, number as u64, 0, 1);
    for number in 0..WAITING {
        fs::write(name(number), bytes(number)).expect("a file");
    }
    mounted.unmount();
    let mounted = Mounted::new(&image, transport);
    let name = |number: usize| mounted.path(&format!("file-{number}"));
    let direct = OFlags::DIRECT.bits().cast_signed();
    let mut options = File::options();
    options.read(true).custom_flags(direct);
    let files: Vec<File> = (0..WAITING)
        .map(|number| options.open(name(number)).expect("a file"))
        .collect();
    let _deadline = Deadline::new(format!("{transport}: a look-up beside requests that wait,"));
    std::thread::scope(|scope| {
        let stopped = Stopped::new(below.pid());
        let readers: Vec<_> = (files.iter().enumerate())
            .map(|(number, file)| {
                scope.spawn(move || {
                    let mut page = AlignedBuf::zeroed(4096, 4096);
                    file.read_at(&mut page, 0).expect("read");
                    assert!(page[..] == bytes(number)[..], "file {number}");
                })
            })
            .collect();
        for turn in 0..LOOKS {
            look_for_nothing(mounted.root(), turn).expect("no such name");
            fs::metadata(name(turn as usize % WAITING)).expect("a file");
            // More and more of the others wait.
            std::thread::sleep(Duration::from_millis(10));
        }
        let waiting = readers.iter().filter(|reader| !reader.is_finished());
        // What was read ahead needs no device.
        assert!(waiting.count() > WAITING / 2);
        drop(stopped);
    });
    drop(files);
    mounted.unmount();
    below.unmount();
}

fn write_anew(dir: &Path, turn: u64) -> io::Result<()> {
    fs::write(dir.join("anew"), filled(100_000, turn, 0, 1))
}

fn write_and_sync(dir: &Path, turn: u64) -> io::Result<()> {
    let file = File::options().write(true).open(dir.join(FILE))?;
    file.write_all_at(&filled(5000, turn, 0, 1), turn % 7 * 5000)?;
    file.sync_all()
}

fn read_direct(dir: &Path, _turn: u64) -> io::Result<()> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(direct)
        .open(dir.join(FILE))?;
    file.read_at(&mut AlignedBuf::zeroed(64 << 10, 4096), 0)
        .map(drop)
}

fn look_for_nothing(dir: &Path, turn: u64) -> io::Result<()> {
    match fs::metadata(dir.join(format!("none-{turn}"))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other("what was never made is there")),
    }
}

fn make_and_list(dir: &Path, turn: u64) -> io::Result<()> {
    let made = dir.join(format!("dir-{}", turn % 50));
    fs::create_dir(&made)?;
    for entry in fs::read_dir(dir)? {
        entry?;
    }
    fs::remove_dir(made)
}

fn rename_back_and_forth(dir: &Path, _turn: u64) -> io::Result<()> {
    fs::rename(dir.join(FILE), dir.join("renamed"))?;
    fs::rename(dir.join("renamed"), dir.join(FILE))
}
