//! Files whose every version is known: a crash must leave one of the allowed versions, complete, and with
//! exactly the rights that it had.

use std::collections::BTreeMap;
use std::fs::File;

use throughline_testing::Image;

use super::fsck::{Fsck, repairs};
use super::judge::recover;
use super::recipes::Recipe;
use super::rights::Rights;
use super::tree::{self, Entry, Tree};

/// The version of a path from a moment on; `None`: the name did not exist.
struct Version {
    /// Position in the device's record at which it began.
    begun: usize,
    content: Option<Vec<u8>>,
    /// Unless any are allowed.
    rights: Option<Rights>,
}

/// A path and all its versions.
#[derive(Default)]
pub struct Known {
    versions: Vec<Version>,
    /// Positions from which a version, or a later one, is durable.
    sure: Vec<(usize, usize)>,
    /// A partial version, or none, is allowed too: there is no promise about it.
    is_loose: bool,
}

/// All paths to check.
#[derive(Default)]
pub struct Contents(BTreeMap<String, Known>);

impl Contents {
    /// Allows a path to be partial.
    pub fn loose(&mut self, path: &str) {
        self.0.entry(path.into()).or_default().is_loose = true;
    }

    /// From position `begun` on, a crash may leave this.
    pub fn may_be(&mut self, path: &str, begun: usize, content: Option<Vec<u8>>) {
        self.push(path, begun, content, None);
    }

    /// From position `begun` on, a crash may leave this content with these rights, and not with others.
    pub fn may_be_with(&mut self, path: &str, begun: usize, content: Vec<u8>, rights: Rights) {
        self.push(path, begun, Some(content), Some(rights));
    }

    fn push(&mut self, path: &str, begun: usize, content: Option<Vec<u8>>, rights: Option<Rights>) {
        let known = self.0.entry(path.into()).or_default();
        known.versions.push(Version {
            begun,
            content,
            rights,
        });
    }

    /// The current version of a path.
    pub fn now(&self, path: &str) -> Option<&[u8]> {
        self.0.get(path)?.versions.last()?.content.as_deref()
    }

    /// The current version of a path is durable if power fails at `done` or later.
    pub fn is_sure(&mut self, path: &str, done: usize) {
        let counts = self.counts().into_iter();
        self.are_sure(counts.filter(|(own, _)| own == path).collect(), done);
    }

    /// Number of versions of each path: for [`Contents::are_sure`].
    pub fn counts(&self) -> Vec<(String, usize)> {
        let last = |(path, known): (&String, &Known)| (path.clone(), known.versions.len() - 1);
        self.0.iter().map(last).collect()
    }

    /// What [`Contents::counts`] returned is durable if power fails at `done` or later.
    pub fn are_sure(&mut self, counts: Vec<(String, usize)>, done: usize) {
        for (path, version) in counts {
            if let Some(known) = self.0.get_mut(&path) {
                known.sure.push((done, version));
            }
        }
    }

    /// Whether each path has an allowed version after a cut at `at`.
    fn check(&self, at: usize, tree: &Tree) -> Result<(), String> {
        for (path, known) in &self.0 {
            known
                .check(at, tree.get(path))
                .map_err(|what| format!("{path}: {what}"))?;
        }
        Ok(())
    }
}

impl Known {
    fn check(&self, at: usize, found: Option<&Entry>) -> Result<(), String> {
        let sure = self.sure.iter().filter(|(done, _)| *done <= at);
        let least = sure.map(|(_, version)| *version).max().unwrap_or(0);
        let begun = self.versions.iter().rposition(|v| v.begun < at);
        let most = begun.unwrap_or(0).max(least);
        let may_be = &self.versions[least..=most];
        if may_be.iter().any(|version| version.is(found)) {
            return Ok(());
        }
        let content = found.map(|entry| entry.content.as_slice());
        let begins =
            |v: &Version| content.is_none_or(|f| v.content.as_ref().is_some_and(|c| is_part(f, c)));
        if self.is_loose && may_be.iter().any(begins) {
            return Ok(());
        }
        let versions: Vec<_> = may_be
            .iter()
            .map(|v| (v.content.as_ref().map(Vec::len), &v.rights))
            .collect();
        let same = |v: &Version| v.content.as_deref() == content;
        Err(format!(
            "{:?} bytes, the content of version {:?}, with {:?}; not one of {least} to {most}: {versions:?}",
            content.map(<[u8]>::len),
            self.versions.iter().position(same),
            found.map(Rights::found),
        ))
    }
}

/// Whether this may be a part of some content: without a journal, `e2fsck` may extend a file to the end of
/// its last block.
fn is_part(found: &[u8], content: &[u8]) -> bool {
    let is_extended = found.len() - found.len().min(content.len()) < 4096;
    content.starts_with(found) || is_extended && found.starts_with(content)
}

impl Version {
    fn is(&self, found: Option<&Entry>) -> bool {
        match (found, &self.rights) {
            (Some(entry), Some(rights)) if Rights::found(entry) != *rights => false,
            _ => self.content.as_deref() == found.map(|entry| entry.content.as_slice()),
        }
    }
}

/// Checks a crash state with both recoveries: the contents must be allowed.
///
/// # Errors
/// What is wrong, and where the state is saved.
pub fn judge(
    recipe: &Recipe,
    contents: &Contents,
    at: usize,
    state: &Image,
    fsck: &mut Fsck,
) -> Result<(), String> {
    look(recipe, contents, at, state, fsck).map_err(|what| format!("{what}; {}", keep(state)))
}

fn look(
    recipe: &Recipe,
    contents: &Contents,
    at: usize,
    state: &Image,
    fsck: &mut Fsck,
) -> Result<(), String> {
    let (repaired, output) = fsck.repair(state)?;
    fsck.check(&repaired)
        .map_err(|what| format!("after e2fsck -fy, which said {output}: {what}"))?;
    let theirs = tree::read(&repaired).map_err(|what| format!("after e2fsck -fy: {what}"))?;
    let checked = contents.check(at, &theirs);
    checked.map_err(|what| {
        format!(
            "after e2fsck -fy: {what}; it mended {:?}",
            repairs(&output).join("\n")
        )
    })?;
    if !recipe.journaled {
        return Ok(());
    }
    let more = repairs(&output);
    if !more.is_empty() {
        return Err(format!("e2fsck -fy had to repair: {}", more.join("\n")));
    }
    let recovered = recover(state)?.contents();
    fsck.check(&recovered)
        .map_err(|what| format!("after our recovery: {what}"))?;
    let ours = tree::read(&recovered).map_err(|what| format!("after our recovery: {what}"))?;
    match tree::difference(&ours, &theirs) {
        Some(what) => Err(format!("the recoveries differ, ours and e2fsck's: {what}")),
        None => Ok(()),
    }
}

fn keep(state: &Image) -> String {
    let kept = (|| -> std::io::Result<_> {
        let file = tempfile::Builder::new()
            .prefix("throughline-whole-")
            .disable_cleanup(true)
            .tempfile()?;
        state.write_file(&File::create(file.path())?, None)?;
        Ok(file.path().display().to_string())
    })();
    match kept {
        Ok(path) => format!("the state is in {path}"),
        Err(error) => format!("the image could not be saved: {error}"),
    }
}
