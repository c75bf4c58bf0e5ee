//! Mounts made by the binary in the way that users, mount(8) and callers of fuse2fs make them, on the
//! transport that the environment chooses (those of `throughline mount`), or on the kernel's choice. Without
//! FUSE, a test reports that it is skipped. Nothing depends on timing: the time limits are reached only if
//! something hangs.

mod apptainer;
mod block_device;
mod elsewhere;
mod ended;
mod entered;
mod explained;
mod external;
mod fakeroot;
mod helper;
mod hosts;
mod in_use;
mod killed;
mod libfuse;
mod like_fuse2fs;
mod refused;
mod remounted;
mod sandboxed;
mod signals;
mod started;
mod stopped;
mod terminal;
mod user;
mod watched;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use throughline_testing::program;

use crate::common::{Image, Ran, throughline, tools_are_missing};

/// Far longer than any step takes.
const LIMIT: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(5);

/// Whether to skip because mounting is impossible here. Prints the reason on standard error.
pub(crate) fn skipped() -> bool {
    if tools_are_missing() {
        return true;
    }
    let device = File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = device {
        throughline_testkit::missing!("/dev/fuse: {error}");
        return true;
    }
    if !throughline_testkit::tier::as_root() {
        throughline_testkit::missing!("needs root");
        return true;
    }
    false
}

/// A directory beside an image, and its mount. Unmounted on drop.
struct Point {
    dir: PathBuf,
}

impl Point {
    fn new(image: &Image, name: &str) -> Point {
        let dir = image.sibling(name);
        std::fs::create_dir(&dir).unwrap();
        Point { dir }
    }

    /// A path in the directory.
    fn path(&self, path: &str) -> PathBuf {
        self.dir.join(path)
    }

    fn str(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    fn is_mounted(&self) -> bool {
        mounts().iter().any(|line| line.contains(self.str()))
    }

    /// Waits until the mount exists, or no longer exists.
    #[track_caller]
    fn wait_mounted(&self, wanted: bool) {
        wait(&format!("{} is mounted: {wanted}", self.str()), || {
            self.is_mounted() == wanted
        });
    }

    /// Unmounts as umount(8) does, without waiting for the server.
    #[track_caller]
    fn unmount(&self) {
        // A program that visits all mounts may be using it.
        wait(&format!("{} is unmounted", self.str()), || {
            rustix::mount::unmount(&self.dir, UnmountFlags::empty()).is_ok()
        });
    }

    /// The state reported by the server.
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
        // Aborting the connection ends a running server.
        while rustix::mount::unmount(&self.dir, UnmountFlags::FORCE | UnmountFlags::DETACH).is_ok()
        {
        }
        // If the test failed, the server may be in another mount namespace, where this does not end it. It is
        // found by this directory's name.
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

/// The list of mounts in the kernel's format.
fn mounts() -> Vec<String> {
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    list.lines().map(str::to_owned).collect()
}

#[track_caller]
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < until, "timed out waiting for: {what}");
        std::thread::sleep(POLL);
    }
}

/// Waits until a process that is not our child is gone.
#[track_caller]
fn wait_gone(pid: i32) {
    let proc = format!("/proc/{pid}");
    wait(&format!("process {pid} has ended"), || {
        !Path::new(&proc).exists()
            // It may be a zombie until its parent reaps it.
            || std::fs::read_to_string(format!("{proc}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    });
}

/// Runs a command to its end.
#[track_caller]
fn program(command: &mut Command) -> Ran {
    program_on(command, Stdio::null())
}

/// Runs a command to its end with this standard input.
#[track_caller]
fn program_on(command: &mut Command, stdin: Stdio) -> Ran {
    let ran = program::run_on(command, stdin, LIMIT);
    Ran {
        code: ran.status.code(),
        stdout: ran.stdout.into_bytes(),
        stderr: ran.stderr,
    }
}

/// Runs the binary to its end. Does not wait for processes in the background.
#[track_caller]
fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    program(throughline().args(on_transport(arguments)))
}

/// These arguments of the binary, with the mount option of the environment if they mount something.
fn on_transport<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Vec<OsString> {
    let mut all: Vec<OsString> = arguments
        .into_iter()
        .map(|one| one.as_ref().into())
        .collect();
    let remounts = all
        .iter()
        .any(|one| one.to_string_lossy().contains("remount"));
    if let Some(option) = throughline_testing::transport::chosen()
        && all.first().is_some_and(|one| one == "mount")
        && all.len() > 2
        && !remounts
    {
        all.splice(1..1, ["-o".into(), option.into()]);
    }
    all
}

/// Runs the binary, which must succeed.
#[track_caller]
fn ok<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    let ran = run(arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran
}

/// Runs the binary, which must fail with this exit code and print this text.
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

/// A mounted image.
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

/// Sends a signal to a process.
fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
