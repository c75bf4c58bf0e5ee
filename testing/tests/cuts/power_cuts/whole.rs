//! Files whose every version is known: a crash must leave one of the allowed versions, complete, and with
//! exactly the rights that it had.
//!
//! Without a journal, blocks are written in any order until a sync. Then two more states are allowed, of what
//! no sync has covered:
//! - A file that was moved to a free name has its old name, with what the file became at the new one.
//! - A partial version of a new file has holes: the inode was written, but not the block that maps them.

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
    moves: Vec<Move>,
}

/// The file at a path was moved to a name that was free.
struct Move {
    /// The version of the path that is no file any more.
    gone: usize,
    to: String,
    /// The version of `to` that it became.
    became: usize,
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

    /// The file at `from` is moved to `to`, where nothing is, from position `begun` on.
    pub fn is_moved(
        &mut self,
        (from, to): (&str, &str),
        begun: usize,
        content: Vec<u8>,
        rights: Rights,
    ) {
        self.may_be_with(to, begun, content, rights);
        self.may_be(from, begun, None);
        let last = |path: &str| self.0[path].versions.len() - 1;
        let (gone, became) = (last(from), last(to));
        let known = self.0.get_mut(from).expect("it has a version");
        known.moves.push(Move {
            gone,
            to: to.into(),
            became,
        });
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
    fn check(&self, recipe: &Recipe, at: usize, tree: &Tree) -> Result<(), String> {
        for (path, known) in &self.0 {
            let found = tree.get(path);
            let moved = || !recipe.journaled && self.is_at_old_name(known, at, found);
            known
                .check(recipe, at, found)
                .or_else(|what| if moved() { Ok(()) } else { Err(what) })
                .map_err(|what| format!("{path}: {what}"))?;
        }
        Ok(())
    }

    /// Whether a path still shows the file that was moved away from it, without a sync, as it is at its new
    /// name.
    fn is_at_old_name(&self, known: &Known, at: usize, found: Option<&Entry>) -> bool {
        let (least, most) = known.window(at);
        let mut moves = known.moves.iter();
        moves.any(|moved| {
            let to = &self.0[&moved.to];
            let (first, last) = to.window(at);
            let first = first.max(moved.became);
            let is_unsynced = least < moved.gone && moved.gone <= most;
            is_unsynced
                && found.is_some()
                && (first..=last).any(|index| to.versions[index].is(found))
        })
    }
}

impl Known {
    /// The first and the last version that a cut at `at` may leave. A sync covers the first.
    fn window(&self, at: usize) -> (usize, usize) {
        let sure = self.sure.iter().filter(|(done, _)| *done <= at);
        let least = sure.map(|(_, version)| *version).max().unwrap_or(0);
        let begun = self.versions.iter().rposition(|v| v.begun < at);
        (least, begun.unwrap_or(0).max(least))
    }

    fn check(&self, recipe: &Recipe, at: usize, found: Option<&Entry>) -> Result<(), String> {
        let (least, most) = self.window(at);
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
        let has_holes = |v: &Version| {
            let both = content.zip(v.content.as_deref());
            both.is_some_and(|(f, c)| is_part_with_holes(f, c, recipe.block_bytes() as usize))
        };
        if self.is_loose && !recipe.journaled && may_be[1..].iter().any(has_holes) {
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

/// The same, with zeros in place of some whole blocks.
fn is_part_with_holes(found: &[u8], content: &[u8], block_bytes: usize) -> bool {
    let mut filled = found.to_vec();
    for (now, was) in filled
        .chunks_mut(block_bytes)
        .zip(content.chunks(block_bytes))
    {
        if now.iter().all(|byte| *byte == 0) {
            let n = now.len().min(was.len());
            now[..n].copy_from_slice(&was[..n]);
        }
    }
    is_part(&filled, content)
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
    let checked = contents.check(recipe, at, &theirs);
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

/// Checks the judge: what is allowed only without a journal, and only of what no sync covers.
#[cfg(test)]
mod tests {
    use super::super::rights::tests::any;
    use super::*;

    const PLAIN: &str = "ext2 1k";
    const JOURNALED: &str = "ext4 1k";

    /// Whether this content, with the rights of number `mode`, is accepted at `path` after a cut at `at`.
    fn accepts(
        contents: &Contents,
        recipe: &str,
        (path, at): (&str, usize),
        found: &Entry,
    ) -> bool {
        let tree = Tree::from([(path.to_owned(), found.clone())]);
        contents.check(Recipe::named(recipe), at, &tree).is_ok()
    }

    #[test]
    fn holes_are_noticed_but_in_new_files_without_a_journal() {
        let content: Vec<u8> = (0..5000).map(|n| 1 + (n % 200) as u8).collect();
        let holed = |range: std::ops::Range<usize>| {
            let mut bytes = content.clone();
            bytes[range].fill(0);
            any(bytes, 0o600).0
        };
        let mut contents = Contents::default();
        contents.loose("/new");
        contents.may_be("/new", 0, None);
        contents.may_be("/new", 10, Some(content.clone()));
        let at = ("/new", 20);
        for range in [1024..2048, 0..1024, 4096..5000, 0..5000] {
            assert!(
                accepts(&contents, PLAIN, at, &holed(range.clone())),
                "{range:?}"
            );
            assert!(!accepts(&contents, JOURNALED, at, &holed(range)));
        }
        for range in [1024..2047, 1000..2048, 4096..4999] {
            assert!(
                !accepts(&contents, PLAIN, at, &holed(range)),
                "part of a block"
            );
        }
        let mut foreign = holed(1024..2048);
        foreign.content[3000] ^= 1;
        assert!(!accepts(&contents, PLAIN, at, &foreign));
        // Not before it was begun, nor of a file that replaces another, nor once it is synced.
        assert!(!accepts(&contents, PLAIN, ("/new", 5), &holed(1024..2048)));
        contents.is_sure("/new", 15);
        assert!(!accepts(&contents, PLAIN, at, &holed(1024..2048)));
        assert!(accepts(&contents, PLAIN, at, &holed(0..0)));
        let mut strict = Contents::default();
        strict.may_be("/old", 0, None);
        strict.may_be("/old", 10, Some(content.clone()));
        assert!(!accepts(&strict, PLAIN, ("/old", 20), &holed(1024..2048)));
    }

    #[test]
    fn an_old_name_is_noticed_but_without_a_journal_and_a_sync() {
        let old = any(vec![1; 10], 0o600);
        let (moved, rights) = any(vec![2; 10], 0o600);
        let (later, later_rights) = any(vec![2; 10], 0o644);
        let content = moved.content.clone();
        let mut contents = Contents::default();
        contents.may_be_with("/a", 0, old.0.content.clone(), old.1);
        contents.may_be_with("/a", 5, content.clone(), rights.clone());
        contents.may_be("/b", 0, None);
        contents.is_moved(("/a", "/b"), 10, content.clone(), rights);
        contents.may_be_with("/b", 20, content, later_rights);
        assert!(accepts(&contents, JOURNALED, ("/a", 30), &moved));
        assert!(!accepts(&contents, JOURNALED, ("/a", 30), &later));
        assert!(accepts(&contents, PLAIN, ("/a", 30), &later));
        assert!(!accepts(&contents, PLAIN, ("/a", 20), &later), "not yet");
        let mut wrong = later.clone();
        wrong.content = vec![3; 10];
        assert!(!accepts(&contents, PLAIN, ("/a", 30), &wrong));
        // What was there before the move is not shown by the new name.
        assert!(!accepts(&contents, PLAIN, ("/b", 30), &old.0));
        contents.is_sure("/a", 25);
        assert!(!accepts(&contents, PLAIN, ("/a", 30), &later));
    }
}
