//! The server, its keeper, or the process that waits for it, is killed at any moment from its start on.
//! Nothing is left then: no process waits for ever, and programs that use the mount get an error.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal};
use throughline_testing::transport::{DEV_FUSE, IO_URING, io_uring_is_on};
use throughline_testkit::seed;

use super::*;
use crate::common::noise;

/// Moments of each kind of victim in the fast test, and in the long one.
const MOMENTS: u64 = 8;
const LONG_MOMENTS: u64 = 200;
/// Marks the processes of a mount: they inherit it.
const MARK: &str = "THROUGHLINE_TEST_KILLED";
const ROLE: &str = "THROUGHLINE_MOUNT_ROLE";
/// The latest moment, in the times that a start took.
const LATEST: f64 = 2.0;
/// The bytes of the file of the load.
const BYTES: usize = 1 << 20;
const PAGE: usize = 4096;
/// How long programs may take to end after the kill: not a measurement, but far less than for ever.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The process that a user starts. With `-f` it is the server.
    Start,
    Server,
    Keeper,
}

/// Who is killed, and how the mount was started.
const VICTIMS: [(&str, &[Part]); 6] = [
    ("-f", &[Part::Server]),
    ("-f", &[Part::Keeper]),
    ("-f", &[Part::Server, Part::Keeper]),
    ("", &[Part::Server]),
    ("", &[Part::Start]),
    ("", &[Part::Start, Part::Server, Part::Keeper]),
];

/// What the threads of a process that is left wait for.
fn described(pid: Pid) -> String {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()));
    let of_thread = |thread: std::fs::DirEntry| {
        let read = |name: &str| {
            let text = std::fs::read_to_string(thread.path().join(name));
            text.unwrap_or_default().trim().to_owned()
        };
        format!("{} in '{}'", read("comm"), read("wchan"))
    };
    let threads = threads.into_iter().flatten().flatten().map(of_thread);
    format!("{pid}: {}", threads.collect::<Vec<_>>().join(", "))
}

/// The environment of a process; empty for a zombie. During execve(2) the kernel shows none, so it is read
/// again.
fn environment(process: &Path) -> Vec<u8> {
    let program = Path::new(env!("CARGO_BIN_EXE_throughline"));
    loop {
        let all = std::fs::read(process.join("environ")).unwrap_or_default();
        let executes = || std::fs::read_link(process.join("exe")).is_ok_and(|exe| exe == program);
        if !all.is_empty() || !executes() {
            return all;
        }
        std::thread::yield_now();
    }
}

/// A mount that is being made.
struct Started<'a> {
    start: std::process::Child,
    foreground: bool,
    mark: String,
    point: &'a Point,
    /// Processes that were killed.
    killed: Vec<Pid>,
}

/// Whether a thread of the process lives. The first may be a zombie while another waits for ever.
fn lives(pid: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()));
    threads.into_iter().flatten().flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("X", |(_, rest)| rest);
        !state.starts_with(['Z', 'X'])
    })
}

impl Started<'_> {
    fn new<'a>(image: &Image, point: &'a Point, how: &str, transport: &str) -> Started<'a> {
        let mut command = throughline();
        command.arg("mount").args(how.split_whitespace());
        command
            .args(["-o", transport])
            .arg(image.path())
            .arg(&point.dir);
        let null = || Stdio::null();
        // The tests of the two transports run beside each other, and each kills only its own.
        let mark = point.str().to_owned();
        command.env(MARK, &mark).process_group(0);
        command.stdin(null()).stdout(null()).stderr(null());
        Started {
            start: command.spawn().unwrap(),
            foreground: how == "-f",
            mark,
            point,
            killed: Vec::new(),
        }
    }

    /// The processes that have their memory.
    fn processes(&self) -> Vec<(Pid, Part)> {
        let mut found = Vec::new();
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let pid = process
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let Some(pid) = pid.and_then(Pid::from_raw) else {
                continue;
            };
            let all = environment(&process.path());
            let all: HashMap<_, _> = String::from_utf8_lossy(&all)
                .split('\0')
                .filter_map(|one| one.split_once('='))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect();
            if all.get(MARK) == Some(&self.mark) {
                let part = match all.get(ROLE).map(String::as_str) {
                    Some("keeper") => Part::Keeper,
                    None if !self.foreground => Part::Start,
                    _ => Part::Server,
                };
                found.push((pid, part));
            }
        }
        found
    }

    /// Kills these, if they are there.
    /// Returns whether the server was among them.
    fn kill(&mut self, victims: &[Part]) -> bool {
        let mut found = self.processes();
        found.retain(|(_, part)| victims.contains(part));
        for (pid, _) in &found {
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
            self.killed.push(*pid);
        }
        found.iter().any(|(_, part)| *part == Part::Server)
    }

    /// What has not ended.
    fn left(&mut self) -> Vec<Pid> {
        let _ = self.start.try_wait();
        let found = self.processes().into_iter().map(|(pid, _)| pid);
        let mut left: Vec<Pid> = found.chain(self.killed.iter().copied()).collect();
        left.retain(|pid| lives(*pid));
        left
    }

    /// Whether nothing is left, waiting for at most so long.
    fn is_over(&mut self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        while !self.left().is_empty() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }

    fn force_off(&self) {
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        while rustix::mount::unmount(&self.point.dir, flags).is_ok() {}
    }
}

/// Programs that make the kernel fill its cache, and the server make it drop that, until they get an error.
fn load(point: &Point, over: &AtomicBool) {
    let path = point.path("file");
    let punch = || -> io::Result<()> {
        let file = File::options().write(true).open(&path)?;
        let at = (BYTES / 2) as u64;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, how, at, 64 << 10)?;
        file.write_all_at(&[7; PAGE], at)?;
        fallocate(&file, how, at, 4 << 10)?;
        Ok(())
    };
    let read = || -> io::Result<()> {
        let file = File::open(&path)?;
        let mut page = [0; PAGE];
        for at in (0..BYTES).step_by(PAGE) {
            file.read_at(&mut page, at as u64)?;
        }
        Ok(())
    };
    let look = || match std::fs::metadata(point.path("none")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => std::fs::metadata(&path).map(drop),
    };
    // Before the mount is there, and after it, the file is not.
    let until_over = |work: &(dyn Fn() -> io::Result<()> + Sync)| {
        while !over.load(Ordering::Relaxed) {
            if work().is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    };
    std::thread::scope(|scope| {
        let all: [&(dyn Fn() -> io::Result<()> + Sync); 5] = [&punch, &look, &read, &read, &read];
        for work in all {
            scope.spawn(move || until_over(work));
        }
    });
}

/// One mount, one kill. Returns what is left, if anything.
fn one(
    (image, point): (&Image, &Point),
    transport: &str,
    (how, victims): (&str, &[Part]),
    (moment, loaded): (Duration, bool),
) -> Result<(), Vec<String>> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if loaded {
            scope.spawn(|| load(point, &over));
        }
        let mut started = Started::new(image, point, how, transport);
        std::thread::sleep(moment);
        if !started.kill(victims) {
            // Whoever is left goes on: it is unmounted as usual, once it is mounted.
            let until = Instant::now() + PATIENCE;
            let mut is_gone = false;
            while !is_gone && Instant::now() < until {
                over.store(true, Ordering::Relaxed);
                let _ = rustix::mount::unmount(&point.dir, UnmountFlags::DETACH);
                is_gone = started.is_over(POLL);
            }
        }
        let result = match started.is_over(PATIENCE) {
            true => Ok(()),
            false => Err(started.left().into_iter().map(described).collect()),
        };
        // What the programs hang on, if the test fails.
        over.store(true, Ordering::Relaxed);
        started.force_off();
        result
    })
}

fn nothing_is_left_of_a_killed_mount(transport: &str) {
    if skipped() {
        return;
    }
    let image = image();
    let file = image.sibling("host");
    std::fs::write(&file, noise(BYTES, 1)).unwrap();
    ok(["cp", file.to_str().unwrap(), &image.at("/file")]);
    let point = Point::new(&image, "mnt");
    // How long a start takes here, now.
    let begun = Instant::now();
    ok(["mount", "-o", transport, image.str(), point.str()]);
    let latest = begun.elapsed().mul_f64(LATEST);
    ok(["umount", point.str()]);
    let moments = match throughline_testkit::tier::soak() {
        true => LONG_MOMENTS,
        false => MOMENTS,
    };
    let random = noise(2 * VICTIMS.len() * moments as usize, seed::of_run(11));
    for (number, random) in random.chunks_exact(2).enumerate() {
        let victims = VICTIMS[number % VICTIMS.len()];
        let moment = latest.mul_f64(f64::from(random[0]) / 255.0);
        // A thread that waits for the kernel to drop pages is left to the keeper, if that lives.
        let has_keeper = !victims.1.contains(&Part::Keeper);
        let loaded = random[1] % 2 == 0 && has_keeper;
        let left = one((&image, &point), transport, victims, (moment, loaded));
        assert_eq!(
            left,
            Ok(()),
            "kill {number}, {transport}, {victims:?} after {moment:?}, loaded: {loaded}"
        );
    }
}

#[test]
fn nothing_is_left_of_a_mount_that_is_killed_over_io_uring() {
    if io_uring_is_on() {
        nothing_is_left_of_a_killed_mount(IO_URING);
    }
}

#[test]
fn nothing_is_left_of_a_mount_that_is_killed_behind_dev_fuse() {
    nothing_is_left_of_a_killed_mount(DEV_FUSE);
}
