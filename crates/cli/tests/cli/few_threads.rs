//! Under a limit on processes (RLIMIT_NPROC), a command goes on with fewer threads, or says that it cannot:
//! it does not panic, and leaves nothing half done.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use throughline_testing::program::has;

use crate::common::{fsck, is_root, throughline, tools_are_missing};

/// A user who runs nothing else.
const USER: u32 = 61_234;

/// Runs the program as a user who may have so many threads.
fn limited(threads: u32, dir: &Path, arguments: &[&str]) -> Output {
    Command::new("prlimit")
        .arg(format!("--nproc={threads}"))
        .arg(dir.join("throughline"))
        .args(arguments)
        .uid(USER)
        .gid(USER)
        .current_dir(dir)
        .output()
        .unwrap()
}

#[test]
fn commands_under_a_limit_on_threads() {
    if tools_are_missing() || !has(&["prlimit"]) {
        return;
    }
    if !is_root() {
        return throughline_testkit::left_out!("only root runs programs as another user");
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // Where the user can reach it.
    fs::copy(throughline().get_program(), dir.join("throughline")).unwrap();
    fs::create_dir_all(dir.join("tree/below")).unwrap();
    for number in 0..40 {
        fs::write(dir.join(format!("tree/below/{number}")), vec![number; 9000]).unwrap();
    }
    fs::write(dir.join("tree/large"), vec![7; 12 << 20]).unwrap();
    let all = ["tree", "tree/below"].map(|name| dir.join(name));
    for path in all.iter().map(|path| &**path).chain([dir]) {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let mut done = [0; 3];
    for threads in 1..14 {
        let commands: [&[&str]; 3] = [
            &["pack", "-F", "tree", "-o", "packed"],
            &["mkfs", "-F", "made", "32M"],
            &["cp", "-r", "tree", "made:/"],
        ];
        for (command, done) in commands.iter().zip(&mut done) {
            let ran = limited(threads, dir, command);
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
