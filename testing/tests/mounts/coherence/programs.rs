//! The C programs: built once, run with a time limit.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;
use throughline_testing::program::{self, Ran};

/// Time limit for a build or a run.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// Directory of the programs.
pub(crate) struct Programs(TempDir);

/// The programs. `None` if there is no C compiler; then prints that to standard error.
pub(crate) fn programs() -> Option<&'static Programs> {
    static BUILT: OnceLock<Option<Programs>> = OnceLock::new();
    BUILT.get_or_init(build).as_ref()
}

fn build() -> Option<Programs> {
    if !cfg!(target_arch = "x86_64") {
        throughline_testkit::left_out!("the programs spin as x86-64 does");
        return None;
    }
    if !program::has(&["cc"]) {
        return None;
    }
    let place = tempfile::tempdir().expect("a directory for programs");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mounts/coherence");
    for (name, files) in [("two", &["two.c", "openers.c"][..]), ("step", &["step.c"])] {
        let mut command = Command::new("cc");
        command
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-pthread", "-o"])
            .arg(place.path().join(name))
            .args(files.iter().map(|file| sources.join(file)));
        program::run(&mut command, LIMIT).good("building");
    }
    Some(Programs(place))
}

impl Programs {
    /// Runs one of them.
    pub(crate) fn run(&self, name: &str, args: &[&str], paths: &[PathBuf]) -> Ran {
        let mut command = Command::new(self.0.path().join(name));
        program::run(command.args(paths).args(args), LIMIT)
    }
}
