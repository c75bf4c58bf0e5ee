//! `./dev demo`, small and with the build under test: it is the first thing that a new user sees.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::tools_are_missing;

fn demo(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(root.join("scripts/demo"))
        .args(arguments)
        .env("THROUGHLINE", env!("CARGO_BIN_EXE_throughline"))
        .output()
        .unwrap()
}

#[test]
fn the_demo_copies_checks_and_compares() {
    if tools_are_missing() || throughline_testkit::tier::is_too_long("./dev demo") {
        return;
    }
    if !Path::new("/usr/bin/time").exists() {
        throughline_testkit::missing!("/usr/bin/time is missing (Debian package time)");
        return;
    }
    let ran = demo(&["24", "1"]);
    let (out, errors) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{out}\n{errors}");
    assert!(out.contains("cmp: the copy is identical"), "{out}");
    let checked = out.matches("diff and e2fsck find nothing").count();
    let refused = out.matches("is not available").count();
    assert!(checked >= 2 && checked + refused == 4, "{out}");
    assert_eq!(
        out.matches("throughline, an ext4 image").count(),
        2,
        "{out}"
    );
    assert!(out.contains("times as fast as dd with O_DIRECT"), "{out}");
    assert_eq!(errors, "");
}

#[test]
fn a_demo_of_nonsense_is_refused() {
    for wrong in ["x", "0", "-5"] {
        assert_eq!(demo(&[wrong]).status.code(), Some(2), "{wrong}");
    }
}
