//! The texts of the workspace, for tests that judge them.

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below a folder whose names end in one of `endings`, such as `rs`, sorted. Hidden files and build
/// products are left out.
///
/// # Panics
/// If the folder cannot be read.
pub fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let ending = path.extension().and_then(|ending| ending.to_str());
            if name.starts_with('.') || name.starts_with("target") {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else if ending.is_some_and(|ending| endings.contains(&ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The text of a file.
///
/// # Panics
/// If it is not there, or no UTF-8.
pub fn text(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The name of the type in `impl<'a> some::Name<'a> {`; `None` for the `impl` of a trait.
pub fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        // Up to the bracket that closes the parameters.
        Some(parameters) => {
            let mut depth = 1;
            let end = parameters.char_indices().find(|(at, c)| {
                let is_arrow = *c == '>' && parameters[..*at].ends_with('-');
                depth += i32::from(*c == '<') - i32::from(*c == '>' && !is_arrow);
                depth == 0
            });
            &parameters[end?.0 + 1..]
        }
        None => rest,
    };
    if rest.contains(" for ") {
        return None;
    }
    let path = rest.trim_start().split(['<', ' ']).next()?;
    path.rsplit("::").next()
}

/// The name of the method or associated function that a line without its indent begins.
pub fn function(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or(line, |(_, rest)| rest),
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let line = line.strip_prefix("const ").unwrap_or(line);
    let line = line.strip_prefix("unsafe ").unwrap_or(line);
    line.strip_prefix("fn ")?.split(['(', '<']).next()
}
