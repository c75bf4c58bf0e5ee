//! Programs of the system, those of e2fsprogs among them.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::fs::{self, Access};

use crate::{Error, Result};

/// Whether this process may mount: it is root, and there are loop devices.
pub(crate) fn may_mount() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
}

/// Runs a program to its end; on failure the error includes its standard error.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = named(program);
    // Ctrl-C must end the lab, which then cleans up, but not the umount that it runs for that.
    command.args(arguments).process_group(0);
    let output = output(&mut command)?;
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
    let message = String::from_utf8_lossy(&output.stderr);
    let why = match message.trim() {
        "" => output.status.to_string(),
        message => message.to_owned(),
    };
    Err(Error::new(format!("{}: {why}", words.join(" "))))
}

/// `PATH`, extended by the system directories with `mke2fs`, which ordinary users often lack.
pub(crate) fn search_path() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}

/// A command for a program that is found in [`search_path`], with its full path. Without the path, the
/// standard library starts it by fork(2) if its `PATH` is not ours: the page tables of the lab's memory are
/// copied within the time that is measured. So clippy.toml forbids `Command::new` everywhere else in the lab,
/// except for our own binary. As in a shell, a name with a slash is not searched for.
pub(crate) fn named(program: &str) -> Command {
    let path = search_path();
    let mut files = path.split(':').map(|dir| Path::new(dir).join(program));
    let found = files
        .find(|file| file.is_file() && fs::access(file, Access::EXEC_OK).is_ok())
        .filter(|_| !program.contains('/'));
    #[expect(clippy::disallowed_methods, reason = "the full path, or an error")]
    Command::new(found.unwrap_or_else(|| program.into()))
}

/// Creates an image of `len_bytes` with `mke2fs` and these arguments.
pub(crate) fn mke2fs(image: &Path, len_bytes: u64, arguments: &[&str]) -> Result<()> {
    File::create(image)
        .and_then(|f| f.set_len(len_bytes))
        .map_err(|e| Error::new(format!("{}: {e}", image.display())))?;
    let mut all = vec!["-q", "-F"];
    all.extend_from_slice(arguments);
    let path = image.to_string_lossy();
    all.push(&path);
    run("mke2fs", &all).map(drop)
}

/// Makes a file system of this type on a fully written image, with these further arguments of `mkfs`. `mkfs`
/// runs without prompts, output or discards, and with no lazy initialization. Returns the command line.
pub(crate) fn mkfs(fs_type: &str, image: &Path, more: &[&str]) -> Result<String> {
    let usual = match fs_type {
        "ext2" | "ext3" | "ext4" => "-q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0",
        "xfs" | "btrfs" => "-q -f -K",
        _ => "",
    };
    let program = format!("mkfs.{fs_type}");
    let mut arguments: Vec<&str> = usual
        .split_whitespace()
        .chain(more.iter().copied())
        .collect();
    let command = format!("{program} {}", arguments.join(" "));
    let path = image.to_string_lossy();
    arguments.push(&path);
    let mut mkfs = named(&program);
    // Otherwise mke2fs zeroes the inode tables and the journal by punching holes, and the first write to them
    // makes the host allocate.
    mkfs.args(&arguments).env("UNIX_IO_NOZEROOUT", "1");
    output(mkfs.process_group(0))?;
    Ok(command)
}

/// Runs `e2fsck -fn`: an error if the image is not clean.
pub(crate) fn e2fsck(image: &Path) -> Result<()> {
    run("e2fsck", &["-fn", &image.to_string_lossy()]).map(drop)
}
