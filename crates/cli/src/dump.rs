//! Parses the output of getfattr and getfacl to restore it. It consists of paragraphs, whose first line names
//! a file.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use throughline_forms::value::unescaped;

use crate::place::Place;
use crate::problem::{Doing, Failure, Problem};
use crate::text::quote;

/// Maximum size of a dump, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// The part of a dump about one file.
pub(crate) struct Paragraph {
    /// The file.
    pub(crate) place: Place,
    /// Comments without their `#`: `owner: ann`.
    pub(crate) comments: Vec<String>,
    /// The other lines, with their numbers in the dump.
    pub(crate) lines: Vec<(usize, Vec<u8>)>,
}

/// The text of a host file, or of standard input for `-`.
pub(crate) fn text(path: &Path) -> Result<Vec<u8>, Failure> {
    let cannot = || format!("cannot read {}", quote(path));
    let mut text = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().take(MAX_BYTES).read_to_end(&mut text),
        false => {
            std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut text))
        }
    };
    match read.doing(cannot)? as u64 {
        MAX_BYTES => Err(Problem::new("more than 1 GiB").met(cannot())),
        _ => Ok(text),
    }
}

/// Parses a dump. Names that are not places in an image are relative to the only element of `dirs`.
pub(crate) fn read(path: &Path, dirs: &[Place]) -> Result<Vec<Paragraph>, Failure> {
    if dirs.len() > 1 {
        return Err(Failure::Usage(
            "--restore takes one directory, to which the names in the dump are relative".into(),
        ));
    }
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    for (at, line) in text(path)?.split(|byte| *byte == b'\n').enumerate() {
        let number = at.saturating_add(1);
        let doing = || format!("cannot restore from {}", quote(path));
        let bad = |why: &str| Problem::new(format!("line {number}: {why}"));
        if let Some(name) = line.strip_prefix(b"# file: ") {
            let name = unescaped(name);
            let place = place(&name, dirs.first()).ok_or_else(|| {
                bad("the name is not in an image")
                    .with_next("name the directory to which the names in the dump are relative: IMAGE:/DIR")
                    .met(doing())
            })?;
            paragraphs.push(Paragraph {
                place,
                comments: Vec::new(),
                lines: Vec::new(),
            });
            continue;
        }
        let comment = line.strip_prefix(b"#");
        match (paragraphs.last_mut(), comment) {
            _ if line.trim_ascii().is_empty() => {}
            (Some(paragraph), Some(comment)) => {
                let comment = String::from_utf8_lossy(comment.trim_ascii());
                paragraph.comments.push(comment.into_owned());
            }
            (Some(paragraph), None) => paragraph.lines.push((number, line.to_vec())),
            (None, Some(_)) => {}
            (None, None) => {
                let why = "it must follow a line '# file: NAME'";
                return Err(bad(why).met(doing()));
            }
        }
    }
    Ok(paragraphs)
}

fn place(name: &[u8], dir: Option<&Place>) -> Option<Place> {
    let name = OsStr::from_bytes(name);
    match (Place::parse(name), dir) {
        (place @ Place::Image { .. }, _) => Some(place),
        (_, Some(Place::Image { image, path })) => Some(Place::Image {
            image: image.clone(),
            path: path.join(Path::new(name).strip_prefix("/").unwrap_or(name.as_ref())),
        }),
        _ => None,
    }
}
