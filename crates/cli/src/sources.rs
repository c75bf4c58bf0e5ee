//! Sources of files for an image: directories, archives and container images, merged into one tree.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use regex::bytes::Regex;
use throughline::archive::{Error, Limits, Merge, Platform, Sources, Tree};

use crate::interrupt::Interrupt;
use crate::output::note;
use crate::precious;
use crate::problem::{Failure, Problem};
use crate::registry;
use crate::text::quote;

/// What is taken from the sources.
#[derive(Default)]
pub(crate) struct Wanted<'a> {
    /// Patterns of paths that are left out.
    pub(crate) exclude: &'a [String],
    /// The owner of everything.
    pub(crate) owner: Option<(u32, u32)>,
    /// The platform of images that are for several.
    pub(crate) platform: Option<&'a Platform>,
    /// Bytes of the image that is made. More data is refused when it is met.
    pub(crate) size_bytes: Option<u64>,
    /// Files that are made or checked: a directory may hold them, but not as a part of the image.
    pub(crate) without: Vec<&'a Path>,
    /// No notes are wanted.
    pub(crate) quiet: bool,
    /// A registry need not have TLS, nor a certificate that is trusted.
    pub(crate) is_tls_unverified: bool,
    /// Ends the fetching of an image.
    pub(crate) interrupt: Interrupt,
}

/// Forms of images that may be named in front of a source, as skopeo(1) names them.
const FORMS: [&str; 3] = ["oci", "oci-archive", "docker-archive"];
/// What a stream may hold beyond the data that is kept: headers, and what later members replace.
const MORE_TIMES: u64 = 8;
/// The same for small images.
const MORE_BYTES: u64 = 1 << 30;

/// Merges the sources, later ones over earlier ones.
pub(crate) fn merged(sources: &[PathBuf], wanted: &Wanted<'_>) -> Result<(Tree, Sources), Failure> {
    merged_onto(Merge::new(limits(wanted)), sources, wanted)
}

/// Merges the sources over what is there.
pub(crate) fn merged_onto(
    mut merge: Merge,
    sources: &[PathBuf],
    wanted: &Wanted<'_>,
) -> Result<(Tree, Sources), Failure> {
    let exclude = Arc::new(Exclude::new(wanted.exclude)?);
    let streams = sources.iter().filter(|source| is_stream(source)).count();
    if streams > 1 {
        return Err(Failure::Usage(
            "standard input (-) can be one source only".to_owned(),
        ));
    }
    if streams == 1 && std::io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "not reading an archive from a terminal: redirect standard input, or name a file"
                .to_owned(),
        ));
    }
    if let Some(platform) = wanted.platform {
        merge.set_platform(platform.clone());
    }
    let without = wanted
        .without
        .iter()
        .filter_map(|path| path.metadata().ok());
    for found in without.filter(|found| !found.is_dir()) {
        refuse_same(sources, &found)?;
        merge.leave_out(&found);
    }
    if !exclude.0.is_empty() {
        let exclude = Arc::clone(&exclude);
        merge.set_exclude(move |path| exclude.is_match(path));
    }
    for source in sources {
        let added = match (registry::name(source), named_image(source)) {
            (Some(name), _) => registry::add(&mut merge, name, wanted)?,
            (None, Some((path, image))) => merge.add_image(path, image.as_deref()),
            (None, None) => merge.add(source),
        };
        added.map_err(|error| {
            let problem = hinted(error, wanted.size_bytes, source);
            problem.met(format!("cannot read {}", quote(source)))
        })?;
    }
    if let Some(platform) = wanted.platform.filter(|_| !merge.platform_counted()) {
        return Err(Failure::Usage(format!(
            "--platform {platform} cannot be applied: no source is a container image"
        )));
    }
    let (mut tree, sources) = merge.finish();
    exclude.note_unused(wanted.quiet);
    if let Some((uid, gid)) = wanted.owner {
        tree.set_owner(uid, gid);
    }
    Ok((tree, sources))
}

/// Refuses a source that is the file which is made or checked.
fn refuse_same(sources: &[PathBuf], made: &std::fs::Metadata) -> Result<(), Failure> {
    let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
    for source in sources {
        let found = match is_stream(source) {
            true => rustix::fs::fstat(std::io::stdin())
                .ok()
                .map(|found| (found.st_dev, found.st_ino)),
            false => {
                let path = named_image(source).map_or(source.as_path(), |(path, _)| path);
                path.metadata().ok().map(identity)
            }
        };
        if found == Some((made.dev(), made.ino())) {
            return Err(Failure::Usage(format!(
                "{} is a source, and also the file that is made, changed or checked: name another file",
                quote(source)
            )));
        }
    }
    Ok(())
}

/// Removes what is left out from a tree.
pub(crate) fn exclude(tree: &mut Tree, globs: &[String], quiet: bool) -> Result<(), Failure> {
    let exclude = Exclude::new(globs)?;
    if !exclude.0.is_empty() {
        tree.remove_all(&|path| exclude.is_match(path));
    }
    exclude.note_unused(quiet);
    Ok(())
}

/// The patterns of `--exclude`.
struct Exclude(Vec<Pattern>);

struct Pattern {
    glob: String,
    regex: Regex,
    /// It has matched a path.
    is_used: AtomicBool,
}

impl Exclude {
    fn new(globs: &[String]) -> Result<Exclude, Failure> {
        let pattern = |glob: &String| {
            Ok(Pattern {
                glob: glob.clone(),
                regex: pattern(glob)?,
                is_used: AtomicBool::new(false),
            })
        };
        globs
            .iter()
            .map(pattern)
            .collect::<Result<_, _>>()
            .map(Exclude)
    }

    fn is_match(&self, path: &[u8]) -> bool {
        // All of them, because each is to be known as used.
        self.0.iter().fold(false, |any, pattern| {
            let matches = pattern.regex.is_match(path);
            if matches {
                pattern.is_used.store(true, Ordering::Relaxed);
            }
            any | matches
        })
    }

    /// A pattern with a mistake leaves in what was to be left out.
    fn note_unused(&self, quiet: bool) {
        let unused = self
            .0
            .iter()
            .filter(|pattern| !pattern.is_used.load(Ordering::Relaxed));
        for pattern in unused.filter(|_| !quiet) {
            note(&format!(
                "--exclude {} matches nothing",
                quote(&pattern.glob)
            ));
        }
    }
}

fn is_stream(source: &Path) -> bool {
    source == Path::new("-")
}

/// An image of a fixed size bounds what an archive may hold. What is left out again does not count for it.
pub(crate) fn limits(wanted: &Wanted<'_>) -> Limits {
    let mut limits = Limits::default();
    if let Some(bytes) = wanted.size_bytes.filter(|_| wanted.exclude.is_empty()) {
        let more = bytes.saturating_mul(MORE_TIMES).saturating_add(MORE_BYTES);
        limits.data_bytes = limits.data_bytes.min(bytes);
        limits.stream_bytes = limits.stream_bytes.min(more);
        limits.spool_bytes = limits.spool_bytes.min(more);
    }
    limits
}

/// `FORM:PATH` or `FORM:PATH:NAME`, unless there is a file of that name.
fn named_image(source: &Path) -> Option<(&Path, Option<String>)> {
    let bytes = source.as_os_str().as_bytes();
    let colon = bytes.iter().position(|&byte| byte == b':')?;
    let (form, rest) = (&bytes[..colon], &bytes[colon + 1..]);
    let is_form = FORMS.iter().any(|known| known.as_bytes() == form);
    if !is_form || rest.is_empty() || source.symlink_metadata().is_ok() {
        return None;
    }
    let path = |bytes| Path::new(OsStr::from_bytes(bytes));
    match rest.iter().position(|&byte| byte == b':') {
        None => Some((path(rest), None)),
        Some(at) => {
            let name = String::from_utf8_lossy(&rest[at + 1..]).into_owned();
            Some((
                path(&rest[..at]),
                Some(name).filter(|name| !name.is_empty()),
            ))
        }
    }
}

/// A problem with a source, and what to do next.
fn hinted(error: Error, size_bytes: Option<u64>, source: &Path) -> Problem {
    let path = named_image(source)
        .map_or(source, |(path, _)| path)
        .display();
    let next = match &error {
        Error::Limit { .. } if size_bytes.is_some() => {
            "it does not fit the size of the image: give more ('pack --size min' makes the smallest one)"
                .to_owned()
        }
        Error::Limit { .. } => {
            "this limit of 'throughline pack' protects from hostile archives and has no option; as a \
             library, archive::Limits has it"
                .to_owned()
        }
        Error::Invalid(why) if why.contains("so it cannot be taken for") => {
            "without --platform, it is taken as it is".to_owned()
        }
        Error::Invalid(why) if why.contains("name one of") => {
            format!("docker-archive:{path}:NAME, oci:{path}:NAME, oci-archive:{path}:NAME")
        }
        Error::Invalid(why) if why.contains("there are: ") => {
            "--platform OS/ARCHITECTURE takes another one".to_owned()
        }
        Error::Damaged { problem, .. }
            if problem.contains("this is not a tar archive")
                && precious::holds_ext(source, 0).is_some() =>
        {
            format!(
                "it holds an ext file system: 'throughline tar {}:/ | throughline pack -' packs the files in it",
                quote(source)
            )
        }
        Error::Damaged { problem, .. } if problem.contains("this is not a tar archive") => {
            "a source is a directory, a tar (plain, gzip, xz, zstd, bzip2) or a container image; - is \
             standard input, docker://NAME an image of a registry"
                .to_owned()
        }
        _ => String::new(),
    };
    let given = Problem::new("");
    let of_registry = registry::hinted(&error, source, given).next;
    let next = of_registry.unwrap_or(next);
    let mut problem = Problem::from(error);
    // The message says what was read.
    let rest = match registry::name(source) {
        Some(_) if problem.reason.starts_with("docker://") => {
            problem.reason.split_once(": ").map(|(_, rest)| rest)
        }
        _ => problem.reason.strip_prefix(&format!("{path}: ")),
    };
    if let Some(rest) = rest {
        problem.reason = rest.to_owned();
    }
    match next.is_empty() {
        true => problem,
        false => problem.with_next(next),
    }
}

/// Parses `OS/ARCHITECTURE` or `OS/ARCHITECTURE/VARIANT`.
pub(crate) fn platform(text: &str) -> Result<Platform, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let (os, architecture, variant) = match parts[..] {
        [os, architecture] => (os, architecture, None),
        [os, architecture, variant] => (os, architecture, Some(variant.to_owned())),
        _ => return Err(format!("{} is not OS/ARCHITECTURE[/VARIANT]", quote(text))),
    };
    Ok(Platform {
        os: os.to_owned(),
        architecture: architecture.to_owned(),
        variant,
    })
}

/// Parses `UID:GID`.
pub(crate) fn owner(text: &str) -> Result<(u32, u32), String> {
    let ids = text.split_once(':');
    let ids = ids.and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    ids.ok_or_else(|| format!("UID:GID are two numbers from 0 to {}", u32::MAX))
}

/// The regular expression of a pattern, for whole paths in the image. As for tar and rsync, a directory may
/// be given with a slash at its end, and a path with a slash or `./` at its start.
fn pattern(glob: &str) -> Result<Regex, Failure> {
    let given = glob;
    let glob = given.trim_end_matches('/');
    let start = if glob.contains('/') { "" } else { "(?:.*/)?" };
    let glob = glob
        .strip_prefix('.')
        .filter(|rest| rest.starts_with('/'))
        .unwrap_or(glob);
    let glob = glob.trim_start_matches('/');
    if glob.is_empty() {
        return Err(Failure::Usage(format!(
            "--exclude {} names no path",
            quote(given)
        )));
    }
    let mut text = format!("(?s-u)^{start}");
    let mut rest = glob.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            '*' if rest.next_if_eq(&'*').is_some() => text.push_str(".*"),
            '*' => text.push_str("[^/]*"),
            '?' => text.push_str("[^/]"),
            other => text.push_str(&regex::escape(&other.to_string())),
        }
    }
    text.push('$');
    Regex::new(&text).map_err(|error| Failure::Usage(format!("--exclude {}: {error}", quote(glob))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_paths() {
        let is_match = |glob: &str, path: &str| {
            let pattern = pattern(glob).expect("it is one");
            pattern.is_match(path.as_bytes())
        };
        assert!(is_match("*.o", "a.o") && is_match("*.o", "x/y/a.o"));
        assert!(!is_match("*.o", "a.oo") && !is_match("x/*.o", "x/y/a.o"));
        assert!(is_match("x/**.o", "x/y/a.o") && is_match("/x/?", "x/y"));
        assert!(!is_match("/x", "a/x/y") && is_match("x", "a/x"));
        assert!(is_match("x/", "a/x") && is_match("./x/y/", "x/y") && is_match("[", "a/["));
        for rooted in ["/x", "./x", "/x/"] {
            assert!(
                is_match(rooted, "x") && !is_match(rooted, "a/x"),
                "{rooted}"
            );
        }
        for nothing in ["", "/", "//"] {
            assert!(pattern(nothing).is_err(), "{nothing:?}");
        }
    }

    #[test]
    fn forms_of_images_are_prefixes() {
        let parse = |text: &'static str| named_image(Path::new(text));
        let name = || Some("a:b".to_owned());
        assert_eq!(parse("oci:dir"), Some((Path::new("dir"), None)));
        assert_eq!(parse("oci:dir:a:b"), Some((Path::new("dir"), name())));
        assert_eq!(
            parse("docker-archive:x:a:b"),
            Some((Path::new("x"), name()))
        );
        assert_eq!(parse("dir:a"), None);
        assert_eq!(parse("oci:"), None);
    }
}
