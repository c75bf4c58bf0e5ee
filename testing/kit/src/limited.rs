//! Runs a test under a limit on processes (RLIMIT_NPROC).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A user whom limits concern: root has none.
const NOBODY: u32 = 65534;

/// Runs `test` of the calling program again, as a user who may have no other thread. `variable` is set there,
/// to the path of a file that the user may make. Skips if there is no `prlimit`.
///
/// # Panics
/// If the test fails there.
pub fn run_again(test: &str, variable: &str) {
    // The user can reach the program and the file.
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("permissions");
    let program = dir.path().join("test");
    let this = std::env::current_exe().expect("this program");
    fs::copy(this, &program).expect("a copy of this program");
    let mut again = Command::new("prlimit");
    if rustix::process::geteuid().is_root() {
        again.uid(NOBODY).gid(NOBODY);
    }
    let run = again
        .args(["--nproc=1".as_ref(), program.as_os_str()])
        .args(["--exact", "--nocapture", "--test-threads=1", test])
        .env(variable, dir.path().join("file"))
        .current_dir("/")
        .output();
    let Ok(run) = run else {
        return crate::missing!("no prlimit");
    };
    let said = [run.stdout, run.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
}
