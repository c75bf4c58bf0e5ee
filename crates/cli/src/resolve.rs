//! Resolves symbolic links, `.` and `..` in paths of an image, for `readlink -f` and `ln -r`.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use throughline::Volume;

use crate::problem::{Problem, Result};

/// Maximum number of symbolic links on one path, as in the kernel.
const MOST_LINKS: usize = 40;

/// Which components of a path may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Nothing.
    Nothing,
    /// The last component.
    Last,
    /// Any component.
    Anything,
}

/// The canonical form of a path.
pub(crate) fn canonical(volume: &Volume, path: &Path, missing: Missing) -> Result<PathBuf> {
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
        let meta = match volume.symlink_metadata(&next).map_err(Problem::from) {
            Ok(meta) => meta,
            Err(problem) if problem.errno == Some(Errno::NOENT) => {
                let is_allowed = match missing {
                    Missing::Nothing => false,
                    Missing::Last => rest.is_empty(),
                    Missing::Anything => true,
                };
                if !is_allowed {
                    return Err(problem);
                }
                done = next;
                continue;
            }
            Err(_) if missing == Missing::Anything => {
                done = next;
                continue;
            }
            Err(problem) => return Err(problem),
        };
        if !meta.is_symlink() {
            if !meta.is_dir() && !rest.is_empty() && missing != Missing::Anything {
                return Err(Problem::new("Not a directory"));
            }
            done = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Problem::new("Too many levels of symbolic links"));
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
pub(crate) fn relative(from: &Path, to: &Path) -> PathBuf {
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
}
