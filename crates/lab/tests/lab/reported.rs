//! `lab report`: what it writes and what it refuses.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::common::{ok, run};

/// A result like those of report 5: 40 rounds around a mean.
fn result(dir: &Path, name: &str, mean: f64) -> PathBuf {
    let machine = json!({
        "cpu": "Core 2 <Duo>", "cpus": 2, "memory_mib": 1968, "kernel": "4.0.0-rc1", "version": "0.1.0", "optimised": true,
    });
    let head = json!({
        "schema": 1, "name": "seqwr", "started": "2015-02-25T15:50:22Z", "machine": machine,
        "settings": {"command": "throughline lab run seqwr"},
    });
    let mut text = format!("{head}\n");
    for round in 1..=40 {
        let value = mean + f64::from(round * 7 % 11) * 0.1;
        let sample = json!({
            "kind": "sample", "series": "ext4", "quantity": "throughput", "unit": "MB/s", "better": "higher",
            "round": round, "value": value,
        });
        text.push_str(&format!("{sample}\n"));
    }
    text.push_str("{\"kind\":\"end\",\"why\":\"rounds\"}\n");
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_page_is_written_beside_the_first_result() {
    let dir = tempfile::tempdir().unwrap();
    let before = result(dir.path(), "before.jsonl", 135.7);
    let after = result(dir.path(), "after.jsonl", 131.0);
    let output = ok([
        "lab".as_ref(),
        "report".as_ref(),
        before.as_os_str(),
        after.as_os_str(),
    ]);
    let first = output.lines().next().unwrap_or_default();
    // One run per side does not prove anything: the change is shown without a verdict.
    assert!(
        first.starts_with("beside 'before': 1 not enough evidence"),
        "{output}"
    );
    let page = std::fs::read_to_string(dir.path().join("before.html")).unwrap();
    assert!(page.contains("<svg"));
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("default-src 'none'"));
    assert!(page.contains("Core 2 &lt;Duo&gt;") && !page.contains("Core 2 <Duo>"));
    assert!(
        !page.contains("src=") && !page.contains("href="),
        "the page loads nothing"
    );
    assert!(page.len() < 300_000, "{} bytes", page.len());
}

#[test]
fn a_result_is_never_written_over_and_what_is_none_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let result = result(dir.path(), "run.html", 131.0);
    let report = |more: &[&str]| run(["lab", "report"].iter().chain(more));
    let path = result.to_str().unwrap();
    assert_eq!(
        report(&[path]).code,
        Some(2),
        "the default output would overwrite the result"
    );
    let other = dir.path().join("other");
    std::os::unix::fs::symlink(&result, &other).unwrap();
    assert_eq!(report(&[path, "-o", other.to_str().unwrap()]).code, Some(2));
    let page = report(&[path, "-o", "-"]);
    assert!(
        page.code == Some(0) && page.text().ends_with("</html>"),
        "{}",
        page.stderr
    );
    assert!(std::fs::read_to_string(&result).unwrap().starts_with('{'));
    let nothing = dir.path().join("nothing");
    std::fs::write(&nothing, "hello\n").unwrap();
    let refused = report(&[nothing.to_str().unwrap()]);
    assert!(
        refused.code == Some(1) && refused.stderr.contains("not a result of 'lab run'"),
        "{}",
        refused.stderr
    );
    assert_eq!(report(&["/nowhere.jsonl"]).code, Some(1));
}
