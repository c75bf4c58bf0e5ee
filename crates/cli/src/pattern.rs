//! Patterns in places of an image, such as `IMAGE:/a/*`. A shell expands only paths of the host, and removes
//! the quotes of others.
//!
//! If a file with exactly that name exists, the place refers to that file. Otherwise, a command that reads
//! expands a path with `*` or `?`, and a command that changes or removes files does so only with `--glob`. A
//! pattern without a match is kept unchanged.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use rustix::io::Errno;
use throughline::Volume;
use throughline_forms::paths::{is_pattern, matching};

use crate::images::{Access, Images};
use crate::place::Place;
use crate::problem::{Failure, Problem};

/// The option of the commands that change or remove files.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Glob {
    /// If there is no file of a given name, take it as a pattern: *, ? and […] as in a shell
    #[arg(long)]
    glob: bool,
}

impl Glob {
    /// For places whose files are changed.
    pub(crate) fn changes(self) -> Purpose {
        Purpose::Change { glob: self.glob }
    }
}

/// What a command does with the files that its places name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// It reads them.
    Read,
    /// It changes or removes them.
    Change {
        /// Whether it may expand patterns.
        glob: bool,
    },
}

impl Purpose {
    /// How the images are opened.
    pub(crate) fn access(self) -> Access {
        match self {
            Purpose::Read => Access::Read,
            Purpose::Change { .. } => Access::Write,
        }
    }

    fn expands(self, path: &Path) -> bool {
        match self {
            Purpose::Read => path
                .as_os_str()
                .as_bytes()
                .iter()
                .any(|byte| b"*?".contains(byte)),
            Purpose::Change { glob } => glob && is_pattern(path.as_os_str()),
        }
    }

    /// Says after a failure because of a missing file that the name would match others as a pattern.
    pub(crate) fn explain(self, failure: Failure, volume: &Volume, path: &Path) -> Failure {
        let is_name = matches!(self, Purpose::Change { glob: false });
        match failure {
            Failure::Failed { doing, problem }
                if is_name && problem.errno == Some(Errno::NOENT) =>
            {
                let next = unexpanded(volume, path).or(problem.next);
                Failure::Failed {
                    doing,
                    problem: Problem { next, ..problem },
                }
            }
            other => other,
        }
    }
}

/// That the path of a missing file would match others as a pattern.
pub(crate) fn unexpanded(volume: &Volume, path: &Path) -> Option<String> {
    let matches = matching(volume, path).filter(|_| is_pattern(path.as_os_str()))?;
    let names = match matches.as_slice() {
        [] => return None,
        // It is not missing.
        [only] if only == path => return None,
        [_] => "1 name".into(),
        many => format!("{} names", many.len()),
    };
    Some(format!(
        "as a pattern it matches {names}: --glob expands it"
    ))
}

/// The places that the arguments refer to.
pub(crate) fn expand(
    images: &mut Images,
    places: &[Place],
    purpose: Purpose,
) -> Result<Vec<Place>, Failure> {
    let mut expanded = Vec::with_capacity(places.len());
    for place in places {
        match place {
            Place::Image { image, path } if purpose.expands(path) => {
                // If the image does not open, the error is reported when the command opens it.
                let Ok(opened) = images.open(place, purpose.access()) else {
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
