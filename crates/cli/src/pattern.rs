//! Expands patterns in places of an image, `IMAGE:/a/*`. A shell can only expand those of the host.
//!
//! `*`, `?` and `[…]` match within one component, but not a leading dot. If a file with exactly that name
//! exists, the place stands for it. A pattern without a match stays as it is. Matches are sorted.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern};
use throughline::Volume;

use crate::images::{Access, Images};
use crate::place::Place;
use crate::problem::{Failure, Problem};

/// A pattern with more matches is refused: the directories of a hostile image may form a cycle.
const MOST_MATCHES: usize = 1 << 20;

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The places that the arguments stand for. Images are opened with `access`.
pub(crate) fn expand(
    images: &mut Images,
    places: &[Place],
    access: Access,
) -> Result<Vec<Place>, Failure> {
    let mut expanded = Vec::with_capacity(places.len());
    for place in places {
        match place {
            Place::Image { image, path } if is_pattern(path.as_os_str()) => {
                // If the image does not open, the error is reported when the command opens it.
                let Ok(opened) = images.open(place, access) else {
                    expanded.push(place.clone());
                    continue;
                };
                let matches = matching(&opened.volume, path)
                    .ok_or_else(|| Problem::new("too many files match").met(place.to_string()))?;
                if matches.is_empty() {
                    expanded.push(place.clone());
                }
                let image = image.clone();
                expanded.extend(matches.into_iter().map(|path| Place::Image {
                    image: image.clone(),
                    path,
                }));
            }
            _ => expanded.push(place.clone()),
        }
    }
    Ok(expanded)
}

fn is_pattern(text: &OsStr) -> bool {
    text.as_bytes()
        .iter()
        .any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// The matching paths; `None` if there are too many.
fn matching(volume: &Volume, path: &Path) -> Option<Vec<PathBuf>> {
    if volume.symlink_metadata(path).is_ok() {
        return Some(vec![path.to_owned()]);
    }
    let only_dirs = path.as_os_str().as_bytes().ends_with(b"/");
    let mut found = vec![PathBuf::from("/")];
    for component in path.components() {
        let Component::Normal(name) = component else {
            if component == Component::ParentDir {
                found.iter_mut().for_each(|path| path.push(".."));
            }
            continue;
        };
        if !is_pattern(name) {
            found.iter_mut().for_each(|path| path.push(name));
            continue;
        }
        let Some(pattern) = pattern(name) else {
            return Some(Vec::new());
        };
        let mut next = Vec::new();
        for dir in &found {
            let names = names(volume, dir, &pattern);
            if next.len().saturating_add(names.len()) > MOST_MATCHES {
                return None;
            }
            next.extend(names.into_iter().map(|name| dir.join(name)));
        }
        found = next;
    }
    found.retain(|path| volume.symlink_metadata(path).is_ok());
    if only_dirs {
        found.retain(|path| volume.metadata(path).is_ok_and(|meta| meta.is_dir()));
        found.iter_mut().for_each(|path| path.push(""));
    }
    Some(found)
}

/// `**` is the same as `*`, as in a POSIX shell. Text that is not a valid pattern stands for itself.
fn pattern(name: &OsStr) -> Option<Pattern> {
    let mut text = name.to_str()?.to_owned();
    while text.contains("**") {
        text = text.replace("**", "*");
    }
    let escaped = || Pattern::new(&Pattern::escape(&text));
    Pattern::new(&text).or_else(|_| escaped()).ok()
}

/// The matching names in a directory, sorted; none if it cannot be read.
fn names(volume: &Volume, dir: &Path, pattern: &Pattern) -> Vec<OsString> {
    let Ok(entries) = volume.read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<OsString> = entries
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| pattern.matches_with(&name.to_string_lossy(), OPTIONS))
        .take(MOST_MATCHES)
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, name: &str) -> bool {
        pattern(OsStr::new(text))
            .unwrap()
            .matches_with(name, OPTIONS)
    }

    #[test]
    fn names_match_as_in_a_shell() {
        for (text, name, does) in [
            ("*", "a", true),
            ("*", ".hidden", false),
            (".*", ".hidden", true),
            ("**", "abc", true),
            ("a?c", "abc", true),
            ("[!a]*", "abc", false),
            ("[a-c]*", "abc", true),
            ("[", "[", true),
        ] {
            assert_eq!(matches(text, name), does, "{text} {name}");
        }
        assert!(!is_pattern(OsStr::new("plain")));
    }
}
