//! What only root can ask of the kernel: loop devices and mounts, removed on drop.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::e2fs::{LIMIT, tool};
use crate::program::{self, Ran};

/// Time limit for an unmount that finds the mount busy.
const BUSY_LIMIT: Duration = Duration::from_secs(20);

/// Maximum lifetime of a test's mount namespace.
const RELEASED_LIMIT: Duration = Duration::from_secs(300);

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether this run uses loop devices: that of root, in the tiers that act as root.
pub fn may_use_loops() -> bool {
    crate::tier::as_root() && Path::new("/dev/loop-control").exists()
}

/// Prints that the kernel does not mount something: because root or loop devices are missing, or because this
/// kernel lacks a feature.
///
/// # Panics
/// With `THROUGHLINE_REQUIRE_ALL=1`, if root or loop devices are missing.
#[track_caller]
pub fn skip(why: &str) {
    match may_use_loops() {
        true => crate::left_out!("the kernel does not mount {why}"),
        false => crate::missing!("the kernel does not mount {why}"),
    }
}

/// A loop device over a file; detached on drop.
pub struct Loop {
    image: PathBuf,
    node: String,
}

impl Loop {
    /// Attaches a file, with further options of `losetup`. If there is no loop device, prints that something
    /// is skipped and returns `None`.
    ///
    /// # Panics
    /// With `THROUGHLINE_REQUIRE_ALL=1`, if there is none.
    #[track_caller]
    pub fn new(image: &Path, options: &[&str]) -> Option<Loop> {
        if !crate::tier::as_root() {
            crate::missing!("loop devices need root");
            return None;
        }
        if !program::has(&["losetup"]) {
            return None;
        }
        let mut attach = tool("losetup");
        attach.args(["--find", "--show"]).args(options).arg(image);
        let ran = program::run(&mut attach, LIMIT);
        if !ran.status.success() {
            crate::missing!("no loop device over {}: {}", image.display(), ran.stderr);
            return None;
        }
        Some(Loop {
            image: image.to_owned(),
            node: ran.stdout.trim().to_owned(),
        })
    }

    /// The path of the device.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Detaches the device. If it is in use, the kernel detaches it with its last user.
    ///
    /// # Panics
    /// If it cannot be detached.
    pub fn detach(self) {}
}

impl Drop for Loop {
    fn drop(&mut self) {
        let mut detach = tool("losetup");
        let ran = program::run(detach.args(["--detach", &self.node]), LIMIT);
        assert!(
            ran.status.success() || std::thread::panicking(),
            "{} over {}: {ran:?}",
            self.node,
            self.image.display()
        );
    }
}

/// A file system mounted by the kernel; unmounted on drop.
pub struct Mount {
    source: PathBuf,
    point: PathBuf,
    is_mounted: bool,
}

impl Mount {
    /// Runs `mount ARGUMENTS SOURCE POINT`.
    ///
    /// # Errors
    /// The output of `mount`, with the name of the source: no root, no loop devices, or a feature that the
    /// kernel does not support.
    pub fn new(source: &Path, point: &Path, arguments: &[&str]) -> Result<Mount, String> {
        if !crate::tier::as_root() {
            return Err(format!(
                "{}: only root mounts with the kernel",
                source.display()
            ));
        }
        if program::find("mount").is_none() {
            return Err("mount is not installed".into());
        }
        let mut mount = tool("mount");
        mount.args(arguments).arg(source).arg(point);
        let ran = program::run(&mut mount, LIMIT);
        match ran.status.success() {
            true => Ok(Mount {
                source: source.to_owned(),
                point: point.to_owned(),
                is_mounted: true,
            }),
            false => Err(format!("{}: {}", source.display(), ran.stderr.trim())),
        }
    }

    /// As [`Mount::new`]. On failure, prints what is skipped and why, and returns `None`.
    ///
    /// # Panics
    /// As [`skip`].
    #[track_caller]
    pub fn or_skip(source: &Path, point: &Path, arguments: &[&str]) -> Option<Mount> {
        let mounted = Mount::new(source, point, arguments);
        mounted.map_err(|why| skip(&why)).ok()
    }

    /// The mount point.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Unmounts. Afterwards all data is in the image, and no other process uses it.
    ///
    /// # Panics
    /// If that fails.
    pub fn unmount(mut self) {
        self.end();
    }

    /// Retries while the mount is busy: a process that another test just starts has a copy of our open files
    /// until it executes its program.
    fn end(&mut self) {
        if !std::mem::take(&mut self.is_mounted) {
            return;
        }
        let until = Instant::now() + BUSY_LIMIT;
        let umount = |options: &[&str]| -> Ran {
            program::run(tool("umount").args(options).arg(&self.point), LIMIT)
        };
        loop {
            let ran = umount(&[]);
            if ran.status.success() {
                return self.wait_released();
            }
            if Instant::now() > until || !ran.stderr.contains("busy") {
                umount(&["--lazy"]);
                let source = self.source.display();
                assert!(std::thread::panicking(), "umount of {source}: {ran:?}");
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Waits until no loop device is over the image: a mount namespace that another test started meanwhile
    /// has a copy of the mount until it ends.
    fn wait_released(&self) {
        let until = Instant::now() + RELEASED_LIMIT;
        while let Some(device) = loop_over(&self.source) {
            assert!(
                Instant::now() < until || std::thread::panicking(),
                "{} is still over {}",
                device.display(),
                self.source.display()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The loop device over a file, by its folder in `/sys`.
fn loop_over(file: &Path) -> Option<PathBuf> {
    let file = std::fs::canonicalize(file).ok()?;
    let devices = std::fs::read_dir("/sys/block").ok()?;
    devices
        .flatten()
        .map(|device| device.path())
        .find(|device| {
            let backing = std::fs::read_to_string(device.join("loop/backing_file"));
            backing.is_ok_and(|backing| Path::new(backing.trim_end()) == file)
        })
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::e2fs::{assert_clean, mke2fs};

    /// The file that a loop device is over, according to the kernel.
    fn backing_file(node: &str) -> Option<String> {
        let name = node.strip_prefix("/dev/").expect("a device");
        std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()
    }

    /// Whether this becomes true: a program that looks at new devices may keep one for a moment.
    fn is_soon(mut so: impl FnMut() -> bool) -> bool {
        let until = Instant::now() + BUSY_LIMIT;
        while !so() && Instant::now() < until {
            std::thread::yield_now();
        }
        so()
    }

    fn is_mounted(point: &Path) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        mounts.contains(&format!(" {} ", point.display()))
    }

    struct Place {
        _folder: tempfile::TempDir,
        image: PathBuf,
        point: PathBuf,
    }

    fn place() -> Option<Place> {
        let folder = tempfile::tempdir().expect("a folder");
        let [image, point] = ["image", "point"].map(|name| folder.path().join(name));
        std::fs::create_dir(&point).expect("a mount point");
        mke2fs(&image, "1M", &["-t", "ext2"]).then_some(Place {
            _folder: folder,
            image,
            point,
        })
    }

    #[test]
    fn loop_devices_are_detached_on_drop_and_on_panic() {
        let Some(place) = place() else { return };
        let name = place.image.to_str().expect("UTF-8");
        let is_ours = |node: &str| backing_file(node).is_some_and(|file| file.trim() == name);
        let Some(device) = Loop::new(&place.image, &["--read-only"]) else {
            return;
        };
        let node = device.node().to_owned();
        assert!(is_ours(&node));
        device.detach();
        assert!(is_soon(|| !is_ours(&node)));
        let mut node = String::new();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let device = Loop::new(&place.image, &[]).expect("as before");
            node = device.node().to_owned();
            assert!(is_ours(&node));
            panic!("on purpose");
        }));
        assert!(ended.is_err() && is_soon(|| !is_ours(&node)));
    }

    #[test]
    fn mounts_are_unmounted_on_drop_and_on_panic() {
        let Some(place) = place() else { return };
        let mount = || Mount::or_skip(&place.image, &place.point, &["-o", "loop"]);
        let Some(mounted) = mount() else { return };
        assert!(is_mounted(&place.point));
        std::fs::create_dir(mounted.point().join("made")).expect("it is writable");
        mounted.unmount();
        assert!(!is_mounted(&place.point));
        assert_clean(&place.image);
        let ended = catch_unwind(|| {
            let _mounted = mount().expect("as before");
            panic!("on purpose");
        });
        assert!(ended.is_err() && !is_mounted(&place.point));
    }

    #[test]
    fn a_busy_mount_is_unmounted_when_it_is_free() {
        let Some(place) = place() else { return };
        let Some(mounted) = Mount::or_skip(&place.image, &place.point, &["-o", "loop"]) else {
            return;
        };
        let open = std::fs::File::open(&place.point).expect("the root");
        let busy = program::run(tool("umount").arg(&place.point), LIMIT);
        assert!(busy.stderr.contains("busy"), "{busy:?}");
        std::thread::scope(|scope| {
            scope.spawn(|| mounted.unmount());
            drop(open);
        });
        assert!(!is_mounted(&place.point));
    }

    #[test]
    fn failures_name_the_image() {
        let folder = tempfile::tempdir().expect("a folder");
        let none = folder.path().join("none");
        let refused = Mount::new(&none, folder.path(), &["-o", "loop"]).err();
        let refused = refused.expect("there is no image");
        assert!(refused.contains(none.to_str().expect("UTF-8")), "{refused}");
    }
}
