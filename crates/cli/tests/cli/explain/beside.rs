//! Stored explanations, compared by `lab compare` and `lab report`.

use std::fs;

use super::str;
use crate::common::{Image, fails, lab_is_missing, noise, ok, tools_are_missing};

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

    // An explanation has no samples that could be judged.
    fails(
        ["lab", "gate", "--max-regression", "3", small, large],
        65,
        "no samples",
    );
    fails(["lab", "compare", small, large], 1, "no samples");
    fails(["lab", "compare", small], 1, "no samples");

    let page = image.sibling("page.html");
    ok(["lab", "report", small, large, "-o", str(&page)]);
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("Account of the path") && html.contains("write bio sizes"));
    assert!(!html.contains("Not compared"), "it is");
}
