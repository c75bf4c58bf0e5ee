//! Stored explanations, compared by `lab compare` and `lab report`.

use std::fs;

use super::{sizes, str};
use crate::common::{Image, fails, lab_is_missing, noise, ok, run, tools_are_missing};

#[test]
fn kept_accounts_are_compared_and_reported() {
    if tools_are_missing() || lab_is_missing() {
        return;
    }
    let image = Image::ext4();
    let source = image.sibling("a.bin");
    fs::write(&source, noise(4 << 20, 1)).unwrap();
    let kept = ["small", "large"].map(|name| image.sibling(&format!("{name}.jsonl")));
    for (kept, target) in kept.iter().zip(["64k", "1m"]) {
        let explain = ["explain", "--to", "/dev/null", "--out", str(kept)];
        let copy = [
            "--direct",
            "--bio-target",
            target,
            "cp",
            str(&source),
            &image.at(&format!("/{target}")),
        ];
        ok(explain.iter().chain(&copy));
    }
    let [small, large] = kept.each_ref().map(|path| str(path));

    let ran = run(["lab", "compare", small, large]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let text = ran.text();
    let line = |start: &str| {
        let found = text
            .lines()
            .find(|line| line.trim_start().starts_with(start));
        found.unwrap_or_else(|| panic!("no {start}: {text}"))
    };
    assert!(
        line("base: image (throughline)").contains("new: image (throughline)"),
        "{text}"
    );
    for start in ["first bio", "depth", "size target", "write journal"] {
        line(start);
    }
    let json = run(["lab", "compare", "--json", small, large]).json();
    assert_eq!(json["rows"].as_array().map(Vec::len), Some(0));
    let accounts = json["accounts"].as_array().unwrap();
    assert_eq!(accounts.len(), 2);
    let bios = |account, bytes| {
        let sizes = sizes(account, "write").into_iter();
        sizes
            .filter(|size| size.0 == bytes)
            .map(|size| size.1)
            .sum::<u64>()
    };
    assert!(
        bios(&accounts[0], 64 << 10) >= 60 && bios(&accounts[0], 1 << 20) == 0,
        "{json}"
    );
    assert!(
        bios(&accounts[1], 64 << 10) <= 4 && bios(&accounts[1], 1 << 20) >= 3,
        "{json}"
    );
    // An explanation has no samples that a gate could judge, and no quantities to select.
    fails(
        ["lab", "gate", "--max-regression", "3", small, large],
        65,
        "no samples",
    );
    fails(
        ["lab", "compare", "--quantity", "throughput", small, large],
        1,
        "no samples",
    );
    fails(["lab", "compare", small], 1, "no samples");

    let page = image.sibling("page.html");
    ok(["lab", "report", small, large, "-o", str(&page)]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("Account of the path") && html.contains("write bio sizes"));
    assert!(!html.contains("Not compared"), "it is");
}
