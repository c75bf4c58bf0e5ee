//! Under a limit on processes (RLIMIT_NPROC), a command or a mount goes on with fewer threads, or says that it
//! cannot: it does not panic, and leaves nothing half done.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use throughline_testing::program::has;

use crate::common::{fsck, is_root, throughline, tools_are_missing};
use crate::mount;

/// Users who run nothing else: the limit counts all processes of a user.
const USER: u32 = 61_234;
const MOUNT_USER: u32 = 61_235;

/// A command by a user, in `dir`.
fn by(user: u32, dir: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.uid(user).gid(user).current_dir(dir);
    command
}

/// The program by a user who may have so many threads.
fn limited(threads: u32, user: u32, dir: &Path, arguments: &[&str]) -> Command {
    let mut command = by(user, dir, "prlimit");
    command
        .arg(format!("--nproc={threads}"))
        .arg(dir.join("throughline"))
        .args(arguments);
    command
}

/// A directory with the program, which every user can reach and write to.
fn shared() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("throughline");
    fs::copy(throughline().get_program(), program).unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    dir
}

#[test]
fn commands_under_a_limit_on_threads() {
    if tools_are_missing() || !has(&["prlimit"]) {
        return;
    }
    if !is_root() {
        return throughline_testkit::left_out!("only root runs programs as another user");
    }
    let dir = shared();
    let dir = dir.path();
    fs::create_dir_all(dir.join("tree/below")).unwrap();
    for number in 0..40 {
        fs::write(dir.join(format!("tree/below/{number}")), vec![number; 9000]).unwrap();
    }
    fs::write(dir.join("tree/large"), vec![7; 12 << 20]).unwrap();
    for name in ["tree", "tree/below"] {
        fs::set_permissions(dir.join(name), Permissions::from_mode(0o777)).unwrap();
    }
    let mut done = [0; 3];
    for threads in 1..14 {
        let commands: [&[&str]; 3] = [
            &["pack", "-F", "tree", "-o", "packed"],
            &["mkfs", "-F", "made", "32M"],
            &["cp", "-r", "tree", "made:/"],
        ];
        for (command, done) in commands.iter().zip(&mut done) {
            let ran = limited(threads, USER, dir, command).output().unwrap();
            let said = String::from_utf8_lossy(&ran.stderr);
            assert!(!said.contains("panicked"), "{threads}, {command:?}: {said}");
            assert!(
                ran.status.code().is_some(),
                "{threads}, {command:?}: {ran:?}"
            );
            match ran.status.success() {
                true => *done += 1,
                false => assert!(!said.is_empty(), "{threads}, {command:?}"),
            }
        }
        for image in ["packed", "made"].map(|name| dir.join(name)) {
            if image.exists() {
                fsck(&image);
            }
        }
    }
    assert!(done.iter().all(|done| *done > 2), "{done:?}");
    assert!(done.iter().any(|done| *done < 13), "nothing was limited");
}

/// A mount of `made` at `mnt` that was asked for, in the foreground.
struct Served {
    server: Child,
    dir: PathBuf,
}

impl Served {
    fn start(threads: u32, dir: &Path) -> Served {
        let server = limited(threads, MOUNT_USER, dir, &["mount", "-f", "made", "mnt"])
            .stdout(Stdio::null())
            .stderr(File::create(dir.join("log")).unwrap())
            .spawn()
            .unwrap();
        let dir = dir.to_owned();
        Served { server, dir }
    }

    /// What it has said so far. It has not panicked.
    fn said(&self) -> String {
        let said = String::from_utf8_lossy(&fs::read(self.dir.join("log")).unwrap()).into_owned();
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// Waits until it serves, and returns true, or until it has ended with a failure.
    fn serves(&mut self) -> bool {
        wait(|| {
            let ended = self.server.try_wait().unwrap();
            if let Some(status) = ended {
                assert!(!status.success() && !self.said().is_empty());
            }
            ended
                .map(|_| false)
                .or_else(|| self.said().contains("the mount is ready").then_some(true))
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = rustix::mount::unmount(self.dir.join("mnt"), UnmountFlags::DETACH);
            let _ = self.server.kill();
            let _ = self.server.wait();
        }
    }
}

/// Waits for an answer.
fn wait<T>(mut answer: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(Instant::now() < end, "nothing happens");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn mounts_under_a_limit_on_threads() {
    if mount::skipped() || !has(&["prlimit", "fusermount3"]) {
        return;
    }
    if !is_root() {
        return throughline_testkit::left_out!("only root runs programs as another user");
    }
    let dir = shared();
    let dir = dir.path();
    let program = dir.join("throughline");
    let good = |command: &mut Command| {
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
    };
    fs::create_dir(dir.join("mnt")).unwrap();
    std::os::unix::fs::chown(dir.join("mnt"), Some(MOUNT_USER), None).unwrap();
    let (mut served, mut refused) = (0, 0);
    for threads in (1..36).step_by(2) {
        good(by(MOUNT_USER, dir, &program).args(["mkfs", "-qF", "made", "32M"]));
        let mut mount = Served::start(threads, dir);
        if !mount.serves() {
            refused += 1;
            continue;
        }
        served += 1;
        let write =
            "mkdir mnt/dir && cp throughline mnt/dir/ && cmp throughline mnt/dir/throughline";
        good(by(MOUNT_USER, dir, "sh").args(["-c", write]));
        // By umount(8) of the user, or by a signal, which the server's own threads serve.
        match threads % 4 {
            1 => good(by(MOUNT_USER, dir, &program).args(["umount", "mnt"])),
            _ => rustix::process::kill_process(
                rustix::process::Pid::from_child(&mount.server),
                rustix::process::Signal::TERM,
            )
            .unwrap(),
        }
        let status = wait(|| mount.server.try_wait().unwrap());
        assert!(status.success(), "{threads}: {status}, {}", mount.said());
        fsck(&dir.join("made"));
        let read = by(MOUNT_USER, dir, &program)
            .args(["cat", "made:/dir/throughline"])
            .output();
        assert!(
            read.unwrap().stdout == fs::read(&program).unwrap(),
            "{threads}"
        );
    }
    assert!(
        served > 2 && refused > 0,
        "{served} served, {refused} refused"
    );
}
