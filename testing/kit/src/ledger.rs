//! How many cases each judge has judged, for the ledger of the long tests (`scripts/soak`,
//! `docs/ledger.tsv`).
//!
//! A test says how many cases it has judged, and of what, with [`judged`]: after it has judged them, whatever
//! it found. With `THROUGHLINE_LEDGER=FILE`, a line is appended to that file: the number, a tab, the words.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

/// Prints and records that `cases` of `what` were judged, such as `crash states`. The words of one test are
/// always the same: the ledger adds up numbers with the same words.
///
/// # Panics
/// If the file cannot be written.
pub fn judged(cases: u64, what: &str) {
    println!("{cases} {what}");
    if let Some(file) = std::env::var_os("THROUGHLINE_LEDGER") {
        append(Path::new(&file), cases, what);
    }
}

/// In one write, so that the lines of tests that run at the same time stay whole.
fn append(file: &Path, cases: u64, what: &str) {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    let line = format!("{cases}\t{what}\n");
    let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot write {}: {error}", file.display());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn lines_are_appended() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("ledger");
        super::append(&file, 3, "kills");
        super::append(&file, 40, "crash states");
        let text = std::fs::read_to_string(&file).expect("the ledger");
        assert_eq!(text, "3\tkills\n40\tcrash states\n");
    }
}
