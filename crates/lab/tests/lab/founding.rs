//! `lab founding`: its output and record. No measured figure is asserted.

use serde_json::Value;

use crate::common::{fails, ok};

#[test]
fn a_founding_report_is_run_shown_and_kept() {
    // Not in /tmp, which may be a tmpfs without direct I/O.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let arguments = ["lab", "founding", "--only", "4", "--scale", "1"];
    let places = ["--rounds", "1", "--dir", &at(""), "--out", &at("out")];
    let text = ok(arguments.into_iter().chain(places));
    for wanted in [
        "report 4: a large direct read",
        "claimed  first submit 2 ms -> 100 us",
        "disk, 32 MiB read, MB/s",
        "model ufs-phone, first submit, us",
        "ours / whole request (19 / 17)",
        "of 13 limits met",
    ] {
        assert!(text.contains(wanted), "no {wanted} in {text}");
    }
    assert!(!text.contains("report 3"), "{text}");
    let kept = std::fs::read_to_string(at("out/founding-4.jsonl")).unwrap();
    let lines: Vec<Value> = kept
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["name"], "founding/4");
    assert_eq!(lines[0]["settings"]["scale"], 1);
    assert_eq!(lines.last().unwrap()["kind"], "end");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "only what was to be kept: {left:?}");
}

#[test]
fn an_invalid_report_is_refused() {
    fails(["lab", "founding", "--only", "6"], 2, "6 is not in 1..=5");
    fails(
        ["lab", "founding", "--scale", "0"],
        2,
        "0 is not in 1..=100",
    );
}
