//! Loads the page in a real browser, if one is installed: every plot must be drawn, without error messages
//! and without requests.
//!
//! Skipped with a message if Debian's chromium is missing or does not run, because that is no fault of the
//! page. With `THROUGHLINE_PAGES=DIR`, the pages are kept in that directory for inspection.

use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::testing::reports;
use crate::kernel::named;

/// Time limit. A browser on a busy machine may be slow, but not that slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// Kills the browser on drop, also if the test fails.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Browser {
    fn wait(&mut self) -> Option<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            match self.0.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(50)),
                ended => return ended.ok().flatten(),
            }
        }
        None
    }
}

/// The document after its scripts have run, and the browser's messages. `None`, with a message, if the
/// browser did not run.
fn shown(page: &Path, dir: &Path, width: u32) -> Option<(String, String)> {
    let (dom, log) = (dir.join("dom.html"), dir.join("said.txt"));
    let child = named("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ])
        .args([
            "--disable-extensions",
            "--disable-background-networking",
            "--enable-logging=stderr",
            "--v=0",
        ])
        .arg(format!("--user-data-dir={}", dir.join("profile").display()))
        .arg(format!("--window-size={width},900"))
        .args(["--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&dom).expect("a file"))
        .stderr(std::fs::File::create(&log).expect("a file"))
        .spawn();
    let mut browser = match child {
        Ok(child) => Browser(child),
        Err(error) => {
            throughline_testkit::missing!("chromium: {error} (Debian package chromium)");
            return None;
        }
    };
    let ended = browser.wait();
    let read = |path: &PathBuf| {
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    };
    let (dom, log) = (read(&dom), read(&log));
    if !ended.is_some_and(|ended| ended.success()) || !dom.contains("</html>") {
        throughline_testkit::missing!("chromium did not show a page ({ended:?}): {log}");
        return None;
    }
    Some((dom, log))
}

#[test]
fn a_browser_draws_every_plot_and_complains_of_nothing() {
    let scratch = tempfile::tempdir().expect("a folder");
    let dir =
        std::env::var_os("THROUGHLINE_PAGES").map_or(scratch.path().to_owned(), PathBuf::from);
    for (name, report, plots) in reports() {
        let page = dir.join(format!("{}.html", name.replace(' ', "-")));
        let page = std::path::absolute(page).expect("a path");
        std::fs::write(&page, report.html()).expect("written");
        std::fs::write(page.with_extension("md"), report.markdown()).expect("written");
        let width = if name == "whole" { 360 } else { 1280 };
        let Some((dom, log)) = shown(&page, scratch.path(), width) else {
            return;
        };
        assert!(!log.contains("CONSOLE"), "{name}: {log}");
        assert!(!dom.contains("data-failed"), "{name}: a plot failed");
        assert!(
            !dom.contains("<title>broken"),
            "{name}: a name ran as a script"
        );
        let drawn = format!("<html lang=\"en\" data-theme=\"light\" data-drawn=\"{plots}\">");
        let head: String = dom.chars().take(200).collect();
        assert!(dom.contains(&drawn), "{name}: not {drawn} but {head}");
        assert_eq!(
            dom.matches("role=\"group\"").count(),
            plots,
            "{name}: plots in the document"
        );
    }
}
