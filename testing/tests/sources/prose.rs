//! Comments and pages have lines of at most 110 columns, which rustfmt does not check. Tables and drawings
//! are not prose; a line with one long word, such as an address, cannot be broken.

use throughline_testkit::sources;

const MAX_COLUMNS: usize = 110;

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
    let root = sources::root();
    let mut found = Vec::new();
    for folder in ["crates", "testing", "docs", "fuzz"] {
        found.extend(sources::files(&root.join(folder), &["rs", "md"]));
    }
    found.extend(
        [
            "README.md",
            "ARCHITECTURE.md",
            "CHANGELOG.md",
            "TRUST.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
        ]
        .map(|name| root.join(name)),
    );
    assert!(found.len() > 300, "only {} files", found.len());
    let mut wrong = Vec::new();
    for file in found {
        let text = sources::text(&file);
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
