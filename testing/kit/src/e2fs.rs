//! The programs of e2fsprogs, which make, read, change and check images. They run in the C locale, are found
//! also where only root's `PATH` has them, and are killed after [`LIMIT`].

use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::program::{self, Ran};
use crate::seed;

/// Time limit for one program on one image; usually a second is enough.
pub const LIMIT: Duration = Duration::from_secs(300);

/// A program with the settings above, but no time limit of its own.
pub fn tool(name: &str) -> Command {
    let mut command = program::command(name);
    command
        .env("LC_ALL", "C")
        .env("PAGER", "cat")
        .env("DEBUGFS_PAGER", "cat");
    command
}

/// Whether e2fsprogs is installed; if not, prints that something is skipped.
///
/// # Panics
/// With `THROUGHLINE_REQUIRE_ALL=1`, if it is not.
#[track_caller]
pub fn is_there() -> bool {
    program::has(&["mke2fs", "e2fsck", "debugfs", "dumpe2fs", "tune2fs"])
}

/// Makes an image with `mke2fs -q -F`. `size` is in its own form, such as `8M`; if empty, the image has the
/// size of the existing file or device. Returns whether `mke2fs` is there; if not, prints that something is
/// skipped.
///
/// # Panics
/// If `mke2fs` fails; with `THROUGHLINE_REQUIRE_ALL=1`, if it is missing.
#[track_caller]
pub fn mke2fs(image: &Path, size: &str, arguments: &[&str]) -> bool {
    let made = try_mke2fs(image, size, arguments);
    made.map(|made| made.good(&format!("mke2fs {arguments:?} {}", image.display())))
        .is_some()
}

/// As [`mke2fs`], but also skips, by design, what this version of `mke2fs` does not support.
///
/// # Panics
/// As [`mke2fs`], except for options that `mke2fs` does not know.
#[track_caller]
pub fn mke2fs_if_supported(image: &Path, size: &str, arguments: &[&str]) -> bool {
    let Some(made) = try_mke2fs(image, size, arguments) else {
        return false;
    };
    let said = made.stderr.trim();
    if said.contains("Invalid filesystem option") || said.contains("invalid option") {
        crate::left_out!("mke2fs {arguments:?}: {said}");
        return false;
    }
    made.good(&format!("mke2fs {arguments:?} {}", image.display()));
    true
}

/// As [`mke2fs`], but returns the result, also of a failure. `None` if `mke2fs` is not there.
///
/// # Panics
/// With `THROUGHLINE_REQUIRE_ALL=1`, if it is missing.
#[track_caller]
pub fn try_mke2fs(image: &Path, size: &str, arguments: &[&str]) -> Option<Ran> {
    let mut make = tool("mke2fs");
    make.args(["-q", "-F"]).args(repeatable(arguments));
    make.arg(image).args((!size.is_empty()).then_some(size));
    program::has(&["mke2fs"]).then(|| program::run(&mut make, LIMIT))
}

/// The arguments, with a UUID and a seed of the directory hashes that come from the seed of the run, unless
/// they are given. Those of `mke2fs` itself would be others in each run.
fn repeatable(arguments: &[&str]) -> Vec<String> {
    let seed = seed::of_run(0)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let uuid = format!(
        "{:08x}-5eed-4eed-8eed-{:012x}",
        seed >> 32,
        seed & 0xffff_ffff_ffff
    );
    let mut all: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    if !arguments.contains(&"-U") {
        all.extend(["-U".to_owned(), uuid.clone()]);
    }
    // Of two options -E, mke2fs takes the last.
    match arguments.iter().rposition(|&word| word == "-E") {
        Some(at) if all[at + 1].contains("hash_seed=") => {}
        Some(at) => all[at + 1] = format!("hash_seed={uuid},{}", all[at + 1]),
        None => all.extend(["-E".to_owned(), format!("hash_seed={uuid}")]),
    }
    all
}

/// Lets a directory of a volume with `casefold` match names without case, and what is made in it.
///
/// # Panics
/// If `debugfs` fails.
#[track_caller]
pub fn set_casefold(image: &Path, directory: &str) {
    let about = debugfs(image, &format!("stat {directory}"));
    let flags = about
        .split("Flags: 0x")
        .nth(1)
        .and_then(|text| text.split_whitespace().next());
    let flags = flags.and_then(|text| u32::from_str_radix(text, 16).ok());
    let flags = flags.expect("debugfs prints the flags") | CASEFOLD;
    debugfs_write(
        image,
        &format!("set_inode_field {directory} flags {flags:#x}"),
    );
}

/// The inode's flag.
const CASEFOLD: u32 = 0x4000_0000;

/// Gives a volume without a journal one on a device of its own, in another file of `size`. `mke2fs` does that
/// for block devices only. Returns whether `mke2fs` is there.
///
/// # Panics
/// If it fails.
#[track_caller]
pub fn add_journal_device(image: &Path, journal: &Path, size: &str, block_bytes: u64) -> bool {
    let file = |path| File::options().read(true).write(true).open(path);
    let mut user = [0; 16];
    let volume = file(image).expect("the volume");
    volume
        .read_exact_at(&mut user, SUPERBLOCK_AT + UUID_AT)
        .expect("its superblock");
    let mut own = user;
    own[0] ^= 0xff;
    let hex: Vec<String> = own.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    let uuid = [
        part(0..4),
        part(4..6),
        part(6..8),
        part(8..10),
        part(10..16),
    ]
    .join("-");
    let block = block_bytes.to_string();
    if !mke2fs(
        journal,
        size,
        &["-b", &block, "-O", "journal_dev", "-U", &uuid],
    ) {
        return false;
    }
    debugfs_write(
        image,
        &format!("feature has_journal\nssv journal_uuid {uuid}"),
    );
    // The number of the journal's users, and the only one.
    let device = file(journal).expect("the journal");
    // The block behind that with the superblock of the device.
    let log = (SUPERBLOCK_AT / block_bytes + 1) * block_bytes;
    let written = device.write_all_at(&1_u32.to_be_bytes(), log + USERS_AT);
    let written = written.and_then(|()| device.write_all_at(&user, log + USER_AT));
    written.expect("written");
    true
}

/// In bytes: the superblock on its device, and the UUID in it.
const SUPERBLOCK_AT: u64 = 1024;
const UUID_AT: u64 = 0x68;
/// In the journal's superblock, in bytes: the number of users, and the UUID of the first one.
const USERS_AT: u64 = 0x40;
const USER_AT: u64 = 0x100;

/// Runs `e2fsck` on an image. The result is not judged.
///
/// # Panics
/// If it cannot be run.
#[track_caller]
pub fn e2fsck(image: &Path, arguments: &[&str]) -> Ran {
    program::run(tool("e2fsck").args(arguments).arg(image), LIMIT)
}

/// Checks with `e2fsck -fn` that an image has no error.
///
/// # Panics
/// If it has one, or `e2fsck` cannot be run.
#[track_caller]
pub fn assert_clean(image: &Path) {
    assert_clean_after(image, "e2fsck -fn");
}

/// As [`assert_clean`]. The message of a failure begins with `what`.
///
/// # Panics
/// As [`assert_clean`].
#[track_caller]
pub fn assert_clean_after(image: &Path, what: &str) {
    e2fsck(image, &["-fn"]).good(&format!("{what}: {}", image.display()));
}

/// Repairs an image with `e2fsck -fy`; returns its output.
///
/// # Panics
/// If errors are left, or `e2fsck` cannot be run.
#[track_caller]
pub fn repair(image: &Path) -> String {
    let ran = e2fsck(image, &["-fy"]);
    let is_repaired = (0..4).contains(&ran.code());
    assert!(is_repaired, "{}: {}", image.display(), ran.text());
    ran.stdout
}

/// The output of one request of `debugfs`. A request that fails prints its error elsewhere.
///
/// # Panics
/// If `debugfs` cannot be run or cannot open the image.
#[track_caller]
pub fn debugfs(image: &Path, request: &str) -> String {
    let ran = program::run(tool("debugfs").args(["-R", request]).arg(image), LIMIT);
    is_opened(ran, image, request).stdout
}

/// The output of requests of `debugfs`, one per line, which it repeats before each result.
///
/// # Panics
/// As [`debugfs`].
#[track_caller]
pub fn debugfs_all(image: &Path, requests: &str) -> String {
    script(image, &[], requests).stdout
}

/// Changes an image with requests of `debugfs`, one per line; returns the output.
///
/// # Panics
/// If a request fails, or `debugfs` cannot be run.
#[track_caller]
pub fn debugfs_write(image: &Path, requests: &str) -> String {
    let ran = script(image, &["-w"], requests);
    // The first line is its version.
    let errors = ran.stderr.lines().skip(1).collect::<Vec<_>>();
    let none: [&str; 0] = [];
    assert_eq!(errors, none, "debugfs -w {requests}: {}", image.display());
    ran.stdout
}

#[track_caller]
fn script(image: &Path, arguments: &[&str], requests: &str) -> Ran {
    let mut debugfs = tool("debugfs");
    debugfs.args(arguments).args(["-f", "-"]).arg(image);
    let mut input: File = tempfile::tempfile().expect("a place for temporary files");
    let written = input.write_all(requests.as_bytes());
    let written = written.and_then(|()| input.rewind());
    written.expect("requests are written");
    let ran = program::run_on(&mut debugfs, input.into(), LIMIT);
    is_opened(ran, image, requests)
}

/// Its exit status does not say that it could not open the image.
#[track_caller]
fn is_opened(ran: Ran, image: &Path, requests: &str) -> Ran {
    let ran = ran.good(&format!("debugfs {requests}: {}", image.display()));
    let is_opened = !ran.stderr.contains("Filesystem not open");
    assert!(is_opened, "debugfs {requests}: {}", ran.stderr);
    ran
}

/// The output of `dumpe2fs`.
///
/// # Panics
/// If it fails or cannot be run.
#[track_caller]
pub fn dumpe2fs(image: &Path, arguments: &[&str]) -> String {
    let ran = program::run(tool("dumpe2fs").args(arguments).arg(image), LIMIT);
    ran.good(&format!("dumpe2fs: {}", image.display())).stdout
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::path::PathBuf;

    use super::*;

    /// An image in a folder, with a directory.
    fn image() -> Option<(tempfile::TempDir, PathBuf)> {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        if !is_there() || !mke2fs(&image, "1M", &["-t", "ext2", "-b", "1024"]) {
            return None;
        }
        debugfs_write(&image, "mkdir /d\ncd /d\nmkdir e");
        Some((folder, image))
    }

    #[test]
    fn images_are_made_changed_and_read() {
        let Some((_folder, image)) = image() else {
            return;
        };
        assert_clean(&image);
        let len = image.metadata().expect("the image").len();
        assert_eq!(len, 1 << 20);
        assert!(debugfs(&image, "ls -p /d").contains("/040755/0/0/e//"));
        let listed = debugfs_all(&image, "cd /d\nls -p");
        assert!(listed.contains("/040755/0/0/e//"), "{listed}");
        assert!(dumpe2fs(&image, &["-h"]).contains("Block size:               1024"));
        // Without a size, the file keeps its own.
        assert!(mke2fs(&image, "", &["-t", "ext4", "-b", "2048"]));
        assert_eq!(image.metadata().expect("the image").len(), len);
        assert!(dumpe2fs(&image, &["-h"]).contains("Block size:               2048"));
    }

    #[test]
    fn failed_requests_are_errors() {
        let Some((_folder, image)) = image() else {
            return;
        };
        // It cannot be removed while it has entries.
        assert!(catch_unwind(|| debugfs_write(&image, "rmdir /d")).is_err());
        assert!(catch_unwind(|| debugfs_write(&image, "mkdir /f\nno-such-request")).is_err());
        let none = image.with_extension("none");
        assert!(catch_unwind(|| debugfs(&none, "ls")).is_err());
        assert!(catch_unwind(|| dumpe2fs(&none, &[])).is_err());
    }

    #[test]
    fn damage_is_found_and_repaired() {
        let Some((_folder, image)) = image() else {
            return;
        };
        debugfs_write(&image, "set_inode_field /d links_count 9");
        let found = catch_unwind(|| assert_clean_after(&image, "spoiled"));
        let message = found.expect_err("an error is found");
        let message = message.downcast_ref::<String>().expect("a text");
        assert!(message.starts_with("spoiled: "), "{message}");
        assert!(message.contains("ref count is 9, should be 3"), "{message}");
        assert_eq!(e2fsck(&image, &["-fn"]).code(), 4);
        assert!(repair(&image).contains("ref count is 9, should be 3"));
        assert_clean(&image);
        std::fs::write(&image, [0; 1 << 20]).expect("no volume");
        assert!(catch_unwind(|| repair(&image)).is_err());
    }

    #[test]
    fn images_have_the_same_uuid_and_hash_seed_in_each_run() {
        let plain = repeatable(&["-b", "1024"]);
        assert_eq!(plain, repeatable(&["-b", "1024"]));
        assert_eq!(plain[..3], ["-b", "1024", "-U"]);
        assert_eq!(
            plain[4..],
            ["-E".to_owned(), format!("hash_seed={}", plain[3])]
        );
        let extended = repeatable(&["-E", "offset=8"]);
        assert!(extended[1].starts_with("hash_seed=") && extended[1].ends_with(",offset=8"));
        let given = ["-U", "clear", "-E", "hash_seed=x"];
        assert_eq!(repeatable(&given), given);
    }

    #[test]
    fn unsupported_options_are_skipped_only_if_asked() {
        if !is_there() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        let unknown = ["-O", "no_such_feature"];
        assert!(!mke2fs_if_supported(&image, "1M", &unknown));
        assert!(catch_unwind(|| mke2fs(&image, "1M", &unknown)).is_err());
        let wrong = ["-b", "1"];
        assert!(catch_unwind(|| mke2fs_if_supported(&image, "1M", &wrong)).is_err());
        assert!(mke2fs_if_supported(&image, "1M", &[]));
        assert_clean(&image);
    }
}
