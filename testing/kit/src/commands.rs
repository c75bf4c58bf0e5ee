//! Our programs, images for them, and independent tools to check both: for tests of commands.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use crate::e2fs::{assert_clean, tool};
pub use crate::kernel::is_root;
use crate::{e2fs, program};

/// One of our programs that was built with this test, or before. It lies beside the test's folder.
///
/// # Panics
/// If it was not built.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test's executable");
    let folder = test.parent().and_then(Path::parent).expect("two folders");
    let program = folder.join(name);
    assert!(
        program.exists(),
        "build {name} first: cargo build --bin {name}"
    );
    program
}

/// Whether the lab is missing, which only tests of the whole workspace build; prints a note if it is.
pub fn lab_is_missing() -> bool {
    let is_missing = !built("throughline")
        .with_file_name("throughline-lab")
        .exists();
    if is_missing {
        crate::missing!("throughline-lab is not built");
    }
    is_missing
}

/// A path, as an argument.
///
/// # Panics
/// If it is not UTF-8.
pub fn str(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An image in a temporary directory.
pub struct Image {
    dir: tempfile::TempDir,
    path: PathBuf,
}

/// Whether e2fsprogs is missing; prints a note if it is.
pub fn tools_are_missing() -> bool {
    !e2fs::is_there()
}

impl Image {
    /// Makes an image with `mkfs`. `size` (such as `64M`) and `options` are its own.
    pub fn new(size: &str, options: &[&str]) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let image = Image { dir, path };
        let mut mkfs = Command::new(built("throughline"));
        mkfs.args(["mkfs", "-q"]).args(options).arg(image.path());
        let made = Ran::from(mkfs.arg(size).output().unwrap());
        assert_eq!(made.code, Some(0), "mkfs {options:?}: {}", made.stderr);
        image
    }

    /// An ext4 image of 64 MiB.
    pub fn ext4() -> Image {
        Image::new("64M", &["-t", "ext4"])
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Its path, as an argument.
    pub fn str(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// A path on the host beside the image.
    pub fn sibling(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A place in the image, `IMAGE:/path`.
    pub fn at(&self, path: &str) -> String {
        assert!(path.starts_with('/'));
        format!("{}:{path}", self.path().display())
    }

    /// Asserts that `e2fsck -fn` finds no errors.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert_clean(&self.path());
    }

    /// The output of `debugfs` for a request.
    #[track_caller]
    pub fn debugfs(&self, request: &str) -> String {
        e2fs::debugfs(&self.path(), request)
    }

    /// Changes the image by `debugfs` requests, one per line.
    #[track_caller]
    pub fn debugfs_write(&self, requests: &str) {
        e2fs::debugfs_write(&self.path(), requests);
    }

    /// The contents of a file according to `debugfs`.
    #[track_caller]
    pub fn contents(&self, path: &str) -> Vec<u8> {
        let out = self.sibling("dumped");
        self.debugfs(&format!("dump {path} {}", out.display()));
        std::fs::read(out).unwrap()
    }

    /// Extracts the image's root or a directory with `debugfs`.
    #[track_caller]
    pub fn extracted(&self, path: &str) -> PathBuf {
        let out = self.sibling("extracted");
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir(&out).unwrap();
        self.debugfs(&format!("rdump {path} {}", out.display()));
        out
    }

    /// Changes bytes of the image file directly.
    pub fn patch(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = std::fs::read(self.path()).unwrap();
        change(&mut bytes);
        std::fs::write(self.path(), bytes).unwrap();
    }
}

/// The result of a run of the binary.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The binary, without arguments so far.
pub fn throughline() -> Command {
    // The tests expect modes under the usual umask, whatever the caller's umask is.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let mut command = Command::new(built("throughline"));
    command
        .stdin(Stdio::null())
        .env("TZ", "UTC")
        .env_remove("NO_COLOR");
    command
}

/// Runs the binary.
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    throughline().args(arguments).output().unwrap().into()
}

/// Runs a command, which must succeed.
#[track_caller]
pub fn good(command: &mut Command) -> Ran {
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{command:?}: {}", ran.stderr);
    ran
}

/// Whether a test of images of other formats has to be skipped.
pub fn qemu_is_missing() -> bool {
    let is_missing = !program::has(&["qemu-img"]);
    if is_missing {
        crate::missing!("qemu-img is not installed");
    }
    is_missing
}

/// What `qemu-img` says. It must succeed.
#[track_caller]
pub fn qemu(arguments: &[&str]) -> String {
    qemu_in(Path::new("."), arguments)
}

/// The same, with names relative to a folder.
#[track_caller]
pub fn qemu_in(folder: &Path, arguments: &[&str]) -> String {
    let mut command = program::command("qemu-img");
    let ran = command
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap();
    assert!(ran.status.success(), "qemu-img {arguments:?}: {ran:?}");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// `e2fsck -fn` of an image, which must be clean.
#[track_caller]
pub fn fsck(image: &Path) {
    let ran = program::command("e2fsck").arg("-fn").arg(image).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

/// Runs the binary, which must succeed without error output. Returns its output.
#[track_caller]
pub fn ok<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> String {
    let ran = run(arguments);
    assert!(
        ran.code == Some(0) && ran.stderr.is_empty(),
        "exit {:?}: {}",
        ran.code,
        ran.stderr
    );
    ran.text()
}

/// Runs the binary, which must fail with this exit code and print this text.
#[track_caller]
pub fn fails<S: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = S>,
    code: i32,
    text: &str,
) -> Ran {
    let ran = run(arguments);
    assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    assert!(
        ran.stderr.contains(text),
        "stderr has no {text:?}: {}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran
}

/// Runs the binary with this standard input.
pub fn run_with_input<S: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = S>,
    input: &[u8],
) -> Ran {
    let mut child = throughline()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // A program may close the pipe without reading all input. That is not an error here.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    output.into()
}

/// Incompressible bytes with a long period.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
