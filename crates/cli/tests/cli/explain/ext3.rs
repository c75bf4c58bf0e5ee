//! The kernel's ext3 on a loop device, and the workload of report 1 on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Image, tool, tools_are_missing};

/// An ext3 image on a loop device, mounted if requested; removed on drop.
pub(super) struct Loop {
    pub(super) image: Image,
    pub(super) device: String,
    mounted: Option<PathBuf>,
}

impl Loop {
    /// Sets it up. Returns `None` if there are no loop devices.
    pub(super) fn new(mount: bool) -> Option<Loop> {
        if tools_are_missing() {
            return None;
        }
        let image = Image::new("128M", &["-t", "ext3", "-b", "4096"]);
        let output = tool("losetup")
            .args(["--find", "--show"])
            .arg(image.path())
            .output()
            .unwrap();
        if !output.status.success() {
            throughline_testkit::missing!(
                "no loop device: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            return None;
        }
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let mut it = Loop {
            image,
            device,
            mounted: None,
        };
        if mount {
            let point = it.image.sibling("mnt");
            fs::create_dir(&point).unwrap();
            let mounted = tool("mount")
                .args(["-t", "ext3", &it.device])
                .arg(&point)
                .status()
                .unwrap();
            if !mounted.success() {
                throughline_testkit::left_out!("ext3 cannot be mounted here");
                return None;
            }
            it.mounted = Some(point);
        }
        Some(it)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.mounted.as_ref().unwrap().join("f")
    }

    /// The device number as the tracepoints show it.
    pub(super) fn number(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let number = fs::metadata(&self.device).unwrap().rdev();
        u64::from(rustix::fs::major(number)) << 20 | u64::from(rustix::fs::minor(number))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(point) = &self.mounted {
            let _ = tool("umount").arg(point).status();
        }
        let _ = tool("losetup").args(["--detach", &self.device]).status();
    }
}

/// Report 1's workload: 4 MiB of direct I/O after the first 48 KiB of a file, mapped by indirect blocks.
pub(super) fn report_1(file: &Path) -> Vec<String> {
    let head = Command::new("dd")
        .args([
            "if=/dev/zero",
            "bs=48K",
            "count=1",
            "conv=fsync",
            "status=none",
        ])
        .arg(format!("of={}", file.display()))
        .status()
        .unwrap();
    assert!(head.success());
    let words = [
        "dd",
        "if=/dev/zero",
        "bs=4096K",
        "count=1",
        "oflag=direct,seek_bytes",
        "seek=49152",
        "conv=notrunc",
        "status=none",
    ];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    words.push(format!("of={}", file.display()));
    words
}
