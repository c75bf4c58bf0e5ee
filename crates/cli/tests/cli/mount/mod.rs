//! Mounts made by the binary, as people, mount(8) and programs that know fuse2fs make them. A test that cannot have FUSE says
//! so, and passes. Nothing here depends on how long anything takes: what is waited for has a limit that only a hang reaches.

mod apptainer;
mod block_device;
mod ended;
mod explained;
mod fakeroot;
mod helper;
mod hosts;
mod libfuse;
mod like_fuse2fs;
mod refused;
mod remounted;
mod signals;
mod started;
mod user;
mod watched;

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use throughline_testing::program;

use crate::common::{Image, Ran, throughline, tools_are_missing};

/// Nothing takes so long.
const LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(5);

/// Why there is no mount to be had here; said on standard error.
fn skipped() -> bool {
    if tools_are_missing() {
        return true;
    }
    let device = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = device {
        eprintln!("skipped: /dev/fuse: {error}");
        return true;
    }
    if !crate::common::is_root() {
        eprintln!("skipped: needs root");
        return true;
    }
    false
}

/// A directory beside an image, and what is mounted there. It is unmounted on every way out.
struct Point {
    dir: PathBuf,
}

impl Point {
    fn new(image: &Image, name: &str) -> Point {
        let dir = image.beside(name);
        std::fs::create_dir(&dir).unwrap();
        Point { dir }
    }

    /// A path in it.
    fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    fn str(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    fn is_mounted(&self) -> bool {
        mounts().iter().any(|line| line.contains(self.str()))
    }

    /// Waits until something is mounted, or nothing is.
    #[track_caller]
    fn wait_mounted(&self, wanted: bool) {
        wait(&format!("{} is mounted: {wanted}", self.str()), || {
            self.is_mounted() == wanted
        });
    }

    /// As umount(8) does it, which waits for nobody.
    #[track_caller]
    fn unmount(&self) {
        // Somebody who looks at all mounts may be in it for a moment.
        wait(&format!("{} is unmounted", self.str()), || {
            rustix::mount::unmount(&self.dir, UnmountFlags::empty()).is_ok()
        });
    }

    /// What the server says of itself.
    #[track_caller]
    fn status(&self) -> serde_json::Value {
        run(["status", "--json", self.str()]).json()
    }

    #[track_caller]
    fn pid(&self) -> i32 {
        let pid = self.status()["pid"].as_i64().unwrap();
        i32::try_from(pid).unwrap()
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // A server that still runs ends with its connection.
        while rustix::mount::unmount(&self.dir, UnmountFlags::FORCE | UnmountFlags::DETACH).is_ok()
        {
        }
        // One in a mount namespace of its own, after a test that failed, does not: it is known by this directory's name.
        if std::thread::panicking() {
            for pid in users_of(&self.dir) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// Processes that have this path among their arguments.
fn users_of(path: &Path) -> Vec<rustix::process::Pid> {
    use std::os::unix::ffi::OsStrExt;
    let Ok(processes) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let numbers = processes
        .flatten()
        .filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|pid| {
            let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = arguments.split(|byte| *byte == 0);
            words.any(|word| word == path.as_os_str().as_bytes())
        })
        .filter_map(rustix::process::Pid::from_raw)
        .collect()
}

/// The list of mounts, as the kernel writes it.
fn mounts() -> Vec<String> {
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    list.lines().map(str::to_owned).collect()
}

#[track_caller]
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < until, "still not so: {what}");
        std::thread::sleep(POLL);
    }
}

/// Waits until a process that is no child of ours is gone.
#[track_caller]
fn wait_gone(pid: i32) {
    let proc = format!("/proc/{pid}");
    wait(&format!("process {pid} has ended"), || {
        !Path::new(&proc).exists()
            // Whoever should reap it may take its time.
            || std::fs::read_to_string(format!("{proc}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    });
}

/// Runs a command to its end.
#[track_caller]
fn program(command: &mut Command) -> Ran {
    program_on(command, Stdio::null())
}

/// The same, with this as its standard input.
#[track_caller]
fn program_on(command: &mut Command, stdin: Stdio) -> Ran {
    let ran = program::run_on(command, stdin, LIMIT);
    Ran {
        code: ran.status.code(),
        stdout: ran.stdout.into_bytes(),
        stderr: ran.stderr,
    }
}

/// Runs the binary to its end. What it leaves in the background is not waited for.
#[track_caller]
fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    program(throughline().args(arguments))
}

/// The same; it has to succeed.
#[track_caller]
fn ok<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    let ran = run(arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran
}

/// The same; it has to fail with this code, and to say this.
#[track_caller]
fn fails<S: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = S>,
    code: i32,
    texts: &[&str],
) -> Ran {
    let ran = run(arguments);
    assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    for text in texts {
        assert!(ran.stderr.contains(text), "no {text:?}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

/// An image that is mounted.
#[track_caller]
fn mounted(image: &Image, options: &str) -> Point {
    let point = Point::new(image, "mnt");
    let path = image.path();
    let mut arguments = vec!["mount", path.to_str().unwrap(), point.str()];
    if !options.is_empty() {
        arguments.extend(["-o", options]);
    }
    let ran = ok(arguments);
    assert_eq!(ran.stderr, "");
    assert!(point.is_mounted());
    point
}

/// A small image.
fn image() -> Image {
    Image::new("32M", &["-t", "ext4"])
}

/// The process is asked to end.
fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
