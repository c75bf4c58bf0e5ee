//! Paths in an image: canonical paths for `readlink -f` and `ln -r`, and the expansion of patterns as in a
//! shell.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use glob::{MatchOptions, Pattern};
use throughline::{Error, Reason, Result, Volume};

/// Maximum number of symbolic links on one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Which components of a path may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// None.
    Nothing,
    /// The last component.
    Last,
    /// Any component.
    Anything,
}

/// The canonical form of a path.
///
/// # Errors If a component is missing that must exist, if a file is used as a directory, or if there are too
/// many symbolic links; also errors of the volume.
pub fn canonical(volume: &Volume, path: &Path, missing: Missing) -> Result<PathBuf> {
    let mut rest: VecDeque<OsString> = VecDeque::new();
    push_front(&mut rest, path);
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            done.pop();
            continue;
        }
        let next = done.join(&name);
        let meta = match volume.symlink_metadata(&next) {
            Ok(meta) => meta,
            Err(error @ Error::Caller(Reason::NotFound)) => {
                let is_allowed = match missing {
                    Missing::Nothing => false,
                    Missing::Last => rest.is_empty(),
                    Missing::Anything => true,
                };
                if !is_allowed {
                    return Err(error);
                }
                done = next;
                continue;
            }
            Err(_) if missing == Missing::Anything => {
                done = next;
                continue;
            }
            Err(error) => return Err(error),
        };
        if !meta.is_symlink() {
            if !meta.is_dir() && !rest.is_empty() && missing != Missing::Anything {
                return Err(Reason::NotDir.into());
            }
            done = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Reason::Loop.into());
        }
        let target = volume.read_link(&next)?;
        if target.is_absolute() {
            done = PathBuf::from("/");
        }
        push_front(&mut rest, &target);
    }
    Ok(done)
}

fn push_front(rest: &mut VecDeque<OsString>, path: &Path) {
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => rest.push_front(name.to_owned()),
            Component::ParentDir => rest.push_front("..".into()),
            _ => {}
        }
    }
}

/// The relative path from a directory to a path, both canonical.
pub fn relative(from: &Path, to: &Path) -> PathBuf {
    let from: Vec<_> = from.components().collect();
    let to: Vec<_> = to.components().collect();
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(Component::ParentDir, from.len() - common);
    let way: PathBuf = up.chain(to[common..].iter().copied()).collect();
    match way.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => way,
    }
}

/// Maximum number of matches. A pattern with more is refused: the directories of a hostile image may form a
/// cycle.
const MAX_MATCHES: usize = 1 << 20;

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// Whether a text contains wildcards.
pub fn is_pattern(text: &OsStr) -> bool {
    text.as_bytes()
        .iter()
        .any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// The existing paths that match a pattern, sorted; `None` if there are too many. `*`, `?` and `[…]` match
/// within one component, but not a leading dot. If the pattern itself is an existing path, the result is that
/// path.
pub fn matching(volume: &Volume, path: &Path) -> Option<Vec<PathBuf>> {
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
        let Some(pattern) = name.to_str().and_then(pattern) else {
            return Some(Vec::new());
        };
        let mut next = Vec::new();
        for dir in &found {
            let names = names(volume, dir, &pattern);
            if next.len().saturating_add(names.len()) > MAX_MATCHES {
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

/// Compiles a pattern. `**` is the same as `*`, as in a POSIX shell. An invalid pattern matches only its own
/// text.
pub(crate) fn pattern(text: &str) -> Option<Pattern> {
    let mut text = text.to_owned();
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
        .take(MAX_MATCHES)
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_between_directories() {
        for (from, to, way) in [
            ("/a/b", "/a/c/d", "../c/d"),
            ("/", "/a", "a"),
            ("/a/b", "/", "../.."),
            ("/a", "/a", "."),
            ("/usr/lib", "/usr/lib/x", "x"),
        ] {
            assert_eq!(relative(Path::new(from), Path::new(to)), Path::new(way));
        }
    }

    fn matches(text: &str, name: &str) -> bool {
        pattern(text).unwrap().matches_with(name, OPTIONS)
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
