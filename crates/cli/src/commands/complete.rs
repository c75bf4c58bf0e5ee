//! `complete-place`, which shells call to complete a word in an image.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use throughline::Volume;

use crate::context::Context;
use crate::images::Access;
use crate::place::Place;
use crate::problem::Failure;

/// Arguments of `complete-place`.
#[derive(Args, Debug)]
pub(crate) struct CompleteArgs {
    /// The beginning of a path: IMAGE:/dir/na
    word: OsString,
}

/// Shell code that completes words containing `:/`. It supplements the code generated from the command line's
/// description.
pub(super) const BASH: &str = include_str!("complete/places.bash");
pub(super) const ZSH: &str = include_str!("complete/places.zsh");
pub(super) const FISH: &str = include_str!("complete/places.fish");

/// Maximum number of completions offered.
const MAX_NAMES: usize = 10_000;

/// Prints the places that start with the word, directories with a slash. Prints nothing for what cannot be
/// read.
pub(crate) fn run(args: &CompleteArgs, context: &mut Context) -> Result<(), Failure> {
    let place = Place::parse(&args.word);
    let Place::Image { path, .. } = &place else {
        return Ok(());
    };
    let path = path.as_os_str().as_bytes();
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (dir, start) = path.split_at(slash.saturating_add(1).min(path.len()));
    let Ok(opened) = context.open(&place, Access::Read) else {
        return Ok(());
    };
    let word = args.word.as_bytes();
    let before = &word[..word.len().saturating_sub(start.len())];
    for name in names_below(&opened.volume, OsStr::from_bytes(dir).as_ref(), start) {
        context.out.line([before, &name].concat())?;
    }
    Ok(())
}

/// The names in a directory that start with `start`, sorted, directories with a slash; none if it cannot be
/// read.
pub(super) fn names_below(volume: &Volume, dir: &Path, start: &[u8]) -> Vec<Vec<u8>> {
    let Ok(dir) = volume.open_dir(dir) else {
        return Vec::new();
    };
    let Ok(entries) = dir.entries() else {
        return Vec::new();
    };
    let mut found: Vec<Vec<u8>> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.as_bytes();
            let is_hidden = name.starts_with(b".") && !start.starts_with(b".");
            name.starts_with(start) && !is_hidden && !name.iter().any(u8::is_ascii_control)
        })
        .take(MAX_NAMES)
        .map(|entry| {
            let name = entry.file_name();
            let is_dir = dir.metadata(&name).is_ok_and(|meta| meta.is_dir());
            let end: &[u8] = if is_dir { b"/" } else { b"" };
            [name.as_bytes(), end].concat()
        })
        .collect();
    found.sort_unstable();
    found
}
