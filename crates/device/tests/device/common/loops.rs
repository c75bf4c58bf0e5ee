//! Loop devices, detached when dropped.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output};

use throughline_device::kernel_holder;

pub const LEN: u64 = 16 << 20;

/// A loop device over its own file; detached when dropped.
pub struct Loop {
    pub node: String,
    pub folder: tempfile::TempDir,
}

impl Loop {
    /// One with this sector size; prints the reason if there is none.
    pub fn new(block_bytes: u32) -> Option<Loop> {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        File::create(&image).unwrap().set_len(LEN).unwrap();
        Loop::over(folder, block_bytes)
    }

    /// One over the file that [`Loop::detach`] returned.
    pub fn over(folder: tempfile::TempDir, block_bytes: u32) -> Option<Loop> {
        Loop::attach(folder, &["--sector-size", &block_bytes.to_string()])
    }

    /// One with a partition that starts at 1 MiB.
    pub fn partitioned() -> Option<Loop> {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = vec![0; LEN as usize];
        bytes[446 + 4] = 0x83;
        bytes[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
        bytes[446 + 12..446 + 16].copy_from_slice(&20480u32.to_le_bytes());
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        std::fs::write(folder.path().join("image"), bytes).unwrap();
        Loop::attach(folder, &["--partscan"])
    }

    fn attach(folder: tempfile::TempDir, options: &[&str]) -> Option<Loop> {
        let image = folder.path().join("image");
        let mut arguments = vec!["--find", "--show"];
        arguments.extend(options);
        arguments.push(image.to_str().unwrap());
        match run("losetup", &arguments) {
            Ok(output) if output.status.success() => {
                let node = String::from_utf8(output.stdout).unwrap().trim().to_owned();
                Some(Loop { node, folder })
            }
            Ok(output) => {
                throughline_testkit::missing!(
                    "losetup: {}",
                    String::from_utf8_lossy(&output.stderr).trim()
                );
                None
            }
            Err(error) => {
                throughline_testkit::missing!("losetup: {error}");
                None
            }
        }
    }

    /// Its backing file.
    pub fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Waits until it is not mounted anywhere: a concurrent test may have created a mount namespace, with a
    /// copy of every mount.
    pub fn wait_unmounted(&self) {
        while kernel_holder(self.node.as_ref()).is_some() {
            std::thread::yield_now();
        }
    }

    /// Detaches the loop device. Returns the directory of its file.
    pub fn detach(mut self) -> tempfile::TempDir {
        let elsewhere = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.folder, elsewhere)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", &self.node]);
    }
}

pub fn run(program: &str, arguments: &[&str]) -> std::io::Result<Output> {
    Command::new(program).args(arguments).output()
}
