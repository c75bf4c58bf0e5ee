//! Test support that every crate's tests share. It depends on no other crate of the workspace, so that the
//! lowest can use it.
//!
//! A test that cannot run says so, in one of two ways:
//!
//! | | because | with `THROUGHLINE_REQUIRE_ALL=1` |
//! | --- | --- | --- |
//! | [`missing!`] | the machine lacks what can be installed or granted: a program, root, a loop device, `/dev/fuse` | the test fails |
//! | [`left_out!`] | it is not asked for here: only with `THROUGHLINE_SOAK=1`, only without root, only on a kernel or a processor that has a feature | the same message |
#![forbid(unsafe_code)]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

pub mod bucket;
#[cfg(feature = "proptest")]
pub mod cases;
pub mod commands;
pub mod e2fs;
mod http;
pub mod kernel;
pub mod ledger;
pub mod limited;
pub mod objects;
pub mod program;
pub mod seed;
pub mod sources;
pub mod tier;

/// A test, or part of it, is skipped because something is missing on this machine. See the head of this
/// crate. The message is formatted like that of `format!`.
///
/// # Panics
/// With `THROUGHLINE_REQUIRE_ALL=1`.
#[macro_export]
macro_rules! missing {
    ($($message:tt)+) => { $crate::skip_missing(&::std::format!($($message)+)) };
}

/// A test, or part of it, is left out by design. See the head of this crate. The message is formatted like
/// that of `format!`.
#[macro_export]
macro_rules! left_out {
    ($($message:tt)+) => { ::std::eprintln!("left out: {}", ::std::format_args!($($message)+)) };
}

/// Whether a skip for something missing is an error: `THROUGHLINE_REQUIRE_ALL=1`. The quick tier is for
/// machines that lack much.
pub fn requires_all() -> bool {
    tier::all() && std::env::var("THROUGHLINE_REQUIRE_ALL").is_ok_and(|value| value == "1")
}

/// See [`missing!`].
///
/// # Panics
/// With `THROUGHLINE_REQUIRE_ALL=1`.
#[doc(hidden)]
#[track_caller]
pub fn skip_missing(why: &str) {
    assert!(
        !requires_all(),
        "THROUGHLINE_REQUIRE_ALL=1, and something is missing: {why}"
    );
    eprintln!("skipped: {why}");
    if let Some(file) = std::env::var_os("THROUGHLINE_SKIPPED") {
        // For a summary: a line that is missing there does no harm.
        let _ = note(Path::new(&file), why);
    }
}

/// Appends a line, in one write, so that those of tests that run at the same time stay whole.
fn note(file: &Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(file)?;
    file.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    /// Runs this test's own executable once more, with the given setting.
    fn skips_with(setting: &str) -> bool {
        let this = std::env::current_exe().expect("this executable");
        let mut command = Command::new(this);
        command.args(["--exact", "tests::skipping", "--ignored", "--nocapture"]);
        let ran = command
            .env("THROUGHLINE_ALL", "1")
            .env("THROUGHLINE_REQUIRE_ALL", setting)
            .output();
        let ran = ran.expect("the test ran");
        let text = String::from_utf8_lossy(&ran.stderr);
        assert!(text.contains("left out: on purpose"), "{text}");
        assert!(text.contains("a program 7"), "{text}");
        ran.status.success()
    }

    #[test]
    #[ignore = "run by the test below, in a process of its own"]
    fn skipping() {
        left_out!("on {}", "purpose");
        missing!("a program {}", 7);
    }

    #[test]
    fn missing_prerequisites_are_errors_where_all_is_required() {
        assert!(skips_with(""));
        assert!(skips_with("0"));
        assert!(!skips_with("1"));
    }
}
