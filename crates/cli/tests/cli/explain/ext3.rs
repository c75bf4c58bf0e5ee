//! The kernel's ext3 on a loop device, and the workload of report 1 on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use throughline_testkit::kernel::{self, Mount};

use crate::common::{Image, tools_are_missing};

/// An ext3 image on a loop device, mounted if requested; removed on drop, in this order.
pub(super) struct Loop {
    mounted: Option<Mount>,
    pub(super) device: kernel::Loop,
    pub(super) image: Image,
}

impl Loop {
    /// Sets it up. Returns `None` if there are no loop devices.
    pub(super) fn new(mount: bool) -> Option<Loop> {
        if tools_are_missing() {
            return None;
        }
        let image = Image::new("128M", &["-t", "ext3", "-b", "4096"]);
        let device = kernel::Loop::new(&image.path(), &[])?;
        let mut mounted = None;
        if mount {
            let point = image.sibling("mnt");
            fs::create_dir(&point).unwrap();
            let made = Mount::new(Path::new(device.node()), &point, &["-t", "ext3"]);
            let made = made.map_err(|why| throughline_testkit::left_out!("ext3: {why}"));
            mounted = Some(made.ok()?);
        }
        Some(Loop {
            mounted,
            device,
            image,
        })
    }

    pub(super) fn file(&self) -> PathBuf {
        self.mounted.as_ref().unwrap().point().join("f")
    }

    /// The device number as the tracepoints show it.
    pub(super) fn number(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let number = fs::metadata(self.device.node()).unwrap().rdev();
        u64::from(rustix::fs::major(number)) << 20 | u64::from(rustix::fs::minor(number))
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
