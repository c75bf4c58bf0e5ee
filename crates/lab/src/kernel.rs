//! The kernel's own file systems, for comparison: an image on a loop device with direct-io=on.
//!
//! Invariant: nothing is left behind. The mount is lazily detached as soon as its root is open, and the loop
//! device is set to detach with its last user, so even SIGKILL leaves neither.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::fs::{self, AtFlags, Mode, OFlags};

use crate::{Error, Result};

/// Whether this process may mount: it is root and there are loop devices.
pub fn may_mount() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
}

/// Runs a program to its end; on failure the error includes its standard error.
pub fn run(program: &str, arguments: &[&str]) -> Result<String> {
    run_with(program, arguments, &[])
}

/// Like [`run`], with these environment variables.
pub fn run_with(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Result<String> {
    let mut command = Command::new(program);
    // Ctrl-C is for the lab, which then cleans up: it must not kill the umount that does so.
    command.args(arguments).process_group(0);
    let output = output(command.envs(variables.iter().copied()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command to its end with empty input; on failure the error includes its standard error.
pub(crate) fn output(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .env("PATH", search_path())
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::new(format!("cannot run {program}: {e}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let said = String::from_utf8_lossy(&output.stderr);
    let why = match said.trim() {
        "" => output.status.to_string(),
        said => said.to_owned(),
    };
    Err(Error::new(format!("{}: {why}", words.join(" "))))
}

/// `PATH` with the system directories where `mke2fs` is, which ordinary users often lack.
pub fn search_path() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

/// Creates an image of `len_bytes` with `mke2fs` and these arguments.
pub fn mke2fs(image: &Path, len_bytes: u64, arguments: &[&str]) -> Result<()> {
    File::create(image)
        .and_then(|f| f.set_len(len_bytes))
        .map_err(|e| Error::new(format!("{}: {e}", image.display())))?;
    let mut all = vec!["-q", "-F"];
    all.extend_from_slice(arguments);
    let path = image.to_string_lossy();
    all.push(&path);
    run("mke2fs", &all).map(drop)
}

/// `e2fsck -fn`: an error unless the image is clean.
pub fn e2fsck(image: &Path) -> Result<()> {
    run("e2fsck", &["-fn", &image.to_string_lossy()]).map(drop)
}

/// A file system of the kernel on an image, not visible in the mount tree. It lives as long as this value and
/// the files opened through it.
pub struct LoopMount {
    root: OwnedFd,
    /// The loop device's name in sysfs, such as `loop0`.
    name: String,
}

/// What a loop device was asked to do since it was set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopCounts {
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes of its cache.
    pub flushes: u64,
    /// Transactions committed by its journal; 0 without a journal.
    pub commits: u64,
}

impl LoopMount {
    /// Mounts the file system of this type on `image`.
    pub fn new(image: &Path, fs_type: &str) -> Result<LoopMount> {
        LoopMount::with_options(image, fs_type, None)
    }

    /// Like [`LoopMount::new`], with these options of `mount`.
    pub fn with_options(image: &Path, fs_type: &str, options: Option<&str>) -> Result<LoopMount> {
        let device = run(
            "losetup",
            &[
                "--find",
                "--show",
                "--direct-io=on",
                &image.to_string_lossy(),
            ],
        )?
        .trim()
        .to_owned();
        let mounted = LoopMount::on_device(&device, fs_type, options);
        // With a user left, this marks the loop device to detach with the last one; without, it detaches at
        // once.
        let detached = run("losetup", &["--detach", &device]);
        let mounted = mounted?;
        detached.map(|_| mounted)
    }

    fn on_device(device: &str, fs_type: &str, options: Option<&str>) -> Result<LoopMount> {
        let point = tempfile::tempdir()
            .map_err(|e| Error::new(format!("cannot make a mount point: {e}")))?;
        let point_path = point.path().to_string_lossy().into_owned();
        let mut arguments = vec!["-t", fs_type];
        arguments.extend(options.iter().flat_map(|options| ["-o", options]));
        arguments.extend([device, &point_path]);
        run("mount", &arguments)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = fs::open(point.path(), flags, Mode::empty())
            .map_err(|e| Error::new(format!("the root of {device}: {e}")));
        run("umount", &["--lazy", &point_path])?;
        Ok(LoopMount {
            root: root?,
            name: device.trim_start_matches("/dev/").to_owned(),
        })
    }

    /// The loop device's counts, from `/sys/block/*/stat` and `/proc/fs/jbd2/*/info`. Values the kernel does
    /// not report are 0.
    pub fn counts(&self) -> LoopCounts {
        let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let stat = read(format!("/sys/block/{}/stat", self.name));
        let field = |at: usize| {
            let word = stat.split_whitespace().nth(at);
            word.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
        };
        // A line such as "17 transactions (9 requested), each up to 2048 blocks".
        let info = read(format!("/proc/fs/jbd2/{}-8/info", self.name));
        let commits = info.split_whitespace().next();
        LoopCounts {
            written_bytes: field(6) * 512,
            flushes: field(15),
            commits: commits.and_then(|word| word.parse().ok()).unwrap_or(0),
        }
    }

    /// The root of the file system.
    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens `name` in the root, creating it if needed, for direct I/O or through the kernel's cache.
    pub fn open(&self, name: &str, direct: bool) -> Result<File> {
        let mut flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        flags.set(OFlags::DIRECT, direct);
        fs::openat(&self.root, name, flags, Mode::from_raw_mode(0o644))
            .map(File::from)
            .map_err(|e| Error::new(format!("{name} on the kernel's file system: {e}")))
    }

    /// Removes `name` from the root.
    pub fn remove(&self, name: &str) -> Result<()> {
        fs::unlinkat(&self.root, name, AtFlags::empty())
            .map_err(|e| Error::new(format!("{name} on the kernel's file system: {e}")))
    }

    /// Writes back the dirty data of this file system only.
    pub fn sync(&self) -> Result<()> {
        fs::syncfs(&self.root).map_err(|e| Error::new(format!("syncfs: {e}")))
    }
}

/// Opens `name` for direct I/O, creating it if needed, in the file system on `image`, as served by the
/// kernel.
///
/// Only the returned file keeps the file system mounted.
pub fn open_on_loop(image: &Path, fs_type: &str, name: &str) -> Result<File> {
    LoopMount::new(image, fs_type)?.open(name, true)
}
