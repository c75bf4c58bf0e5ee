//! Comments and pages have lines of at most 110 columns, which rustfmt does not check. Tables and drawings
//! are not prose; a line with one long word, such as an address, cannot be broken.

use std::path::{Path, PathBuf};

const MAX_COLUMNS: usize = 110;

/// Source files and pages below a folder, without build products and corpora.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str());
        let is_product =
            name.is_none_or(|name| name.starts_with('.') || name.starts_with("target"));
        if is_product {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else if matches!(
            path.extension().and_then(|end| end.to_str()),
            Some("rs" | "md")
        ) {
            found.push(path);
        }
    }
}

/// The text of a line of prose.
fn prose(line: &str, is_source: bool) -> Option<&str> {
    let text = match is_source {
        true => {
            let comment = line.trim_start().strip_prefix("//")?;
            comment.trim_start_matches(['/', '!'])
        }
        false => line,
    };
    let indented = text.starts_with("     ");
    (!indented && !text.trim_start().starts_with('|')).then_some(text)
}

#[test]
fn prose_has_at_most_110_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for folder in ["crates", "testing", "docs", "fuzz"] {
        files(&root.join(folder), &mut found);
    }
    found.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root.join(name)));
    assert!(found.len() > 300, "only {} files", found.len());
    let mut wrong = Vec::new();
    for file in found {
        let text = std::fs::read_to_string(&file).expect("a text");
        let is_source = file.extension().is_some_and(|end| end == "rs");
        let mut in_drawing = false;
        for (line, at) in text.lines().zip(1..) {
            in_drawing ^= line.trim_start().starts_with("```");
            let is_long = line.chars().count() > MAX_COLUMNS;
            let is_prose = prose(line, is_source).is_some_and(|text| {
                text.split_whitespace()
                    .all(|word| word.chars().count() < 80)
            });
            if is_long && is_prose && (is_source || !in_drawing) {
                wrong.push(format!("{}:{at}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "longer lines:\n{}", wrong.join("\n"));
}
