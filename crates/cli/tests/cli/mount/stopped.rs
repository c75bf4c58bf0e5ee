//! Mounts whose server does not answer: it is stopped, or its device is.

use std::fs::{self, File};
use std::io::Write;
use std::process::Stdio;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::Signal;
use throughline_testkit::kernel::{Loop, may_use_loops};

use super::{mounted, signal, skipped, wait};
use crate::common::{Image, throughline};

/// The server of a mount, which is stopped until this is dropped.
pub(super) struct Stopped {
    server: i32,
}

impl Stopped {
    pub(super) fn new(server: i32) -> Stopped {
        signal(server, Signal::STOP);
        wait("all of its threads have stopped", || {
            let mut threads = fs::read_dir(format!("/proc/{server}/task")).unwrap();
            threads.all(|thread| {
                let stat = fs::read_to_string(thread.unwrap().path().join("stat"));
                // Threads of the kernel do not stop.
                stat.is_ok_and(|stat| stat.contains(") T ") || stat.contains(" (iou-"))
            })
        });
        Stopped { server }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.server, Signal::CONT);
    }
}

/// To find who uses an image, no server of another mount is asked: it may be stopped for ever, or be the one
/// that asks. Promise: a server that is killed ends, and no start of one waits for another mount. The files
/// that are looked at are those of all processes, and those behind loop devices.
#[test]
fn who_uses_an_image_is_found_beside_a_mount_that_does_not_answer() {
    if skipped() || !may_use_loops() {
        return;
    }
    let below = Image::new("64M", &["-t", "ext4"]);
    let host = mounted(&below, "");
    let path = host.path("file");
    fs::write(&path, vec![1; 4 << 20]).unwrap();
    let device = Loop::new(&path, &[]).unwrap();
    let mut in_mount = File::options().append(true).open(&path).unwrap();
    let image = Image::new("16M", &["-t", "ext4"]);
    let held = File::options()
        .read(true)
        .write(true)
        .open(image.path())
        .unwrap();
    fcntl_lock(&held, FlockOperation::LockExclusive).unwrap();
    // The kernel would have to ask for its attributes now.
    in_mount.write_all(b"x").unwrap();
    let stopped = Stopped::new(host.pid());
    let ended = || {
        let mut command = throughline();
        command
            .args(["mkdir", &image.at("/made")])
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        wait("the command has ended", || {
            child.try_wait().unwrap().is_some()
        });
        child.wait_with_output().unwrap()
    };
    let refused = ended();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(
        said.contains(&format!("in use by process {}", std::process::id())),
        "{said}"
    );
    drop(held);
    let done = ended();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    drop(stopped);
    drop(in_mount);
    drop(device);
    image.assert_clean();
}
