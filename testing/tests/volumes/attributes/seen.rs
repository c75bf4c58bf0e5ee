//! The visible state of a tree, and the comparison of two of them.

use std::collections::BTreeMap;

use crate::attributes::op::Path;

/// The kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Dir,
    Symlink,
    Fifo,
    Device,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] = [
        Kind::File,
        Kind::Dir,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Device,
    ];
    pub(crate) const NO_LINK: [Kind; 4] = [Kind::File, Kind::Dir, Kind::Fifo, Kind::Device];
    /// The kinds whose flags programs can access.
    pub(crate) const FLAGGED: [Kind; 2] = [Kind::File, Kind::Dir];
}

/// Access, modification and change time: seconds and nanoseconds.
pub(crate) type Times = [(i64, u32); 3];

/// One inode, as both sides must show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) links: u32,
    /// For a file.
    pub(crate) size: Option<u64>,
    pub(crate) device: Option<(u32, u32)>,
    /// For a file or directory.
    pub(crate) flags: Option<u32>,
}

/// The inode at each existing path.
#[derive(Default)]
pub(crate) struct World(pub(crate) BTreeMap<Path, (u64, Node, Times)>);

impl World {
    pub(crate) fn paths(&self, kinds: &[Kind]) -> impl Iterator<Item = &Path> {
        let fit = move |(path, (_, node, _)): (_, &(u64, Node, Times))| {
            kinds.contains(&node.kind).then_some(path)
        };
        self.0.iter().filter_map(fit)
    }

    fn times_by_inode(&self) -> BTreeMap<u64, Times> {
        let times = self.0.values().map(|(ino, _, times)| (*ino, *times));
        times.collect()
    }

    /// For each path, the first path with the same inode.
    fn links(&self) -> Vec<(&Path, &Path)> {
        let first = |ino| self.0.iter().find(|(_, (other, ..))| *other == ino);
        let pairs = self
            .0
            .iter()
            .map(|(path, (ino, ..))| (path, first(*ino).expect("itself").0));
        pairs.collect()
    }
}

/// Checks that the kernel's state and ours are equal, and that the same times changed since they were last
/// seen. Differences in times are added to `wrong`.
///
/// # Panics
/// If anything else differs.
pub(crate) fn compare(
    before: &(World, World),
    now: &(World, World),
    what: &str,
    wrong: &mut Vec<String>,
) {
    let (theirs, ours) = now;
    let nodes = |world: &World| -> Vec<(Path, Node)> {
        let all = world
            .0
            .iter()
            .map(|(path, (_, node, _))| (path.clone(), node.clone()));
        all.collect()
    };
    assert_eq!(nodes(ours), nodes(theirs), "{what}: left ours");
    assert_eq!(ours.links(), theirs.links(), "{what}: left ours");
    let (their_times, our_times) = (before.0.times_by_inode(), before.1.times_by_inode());
    for (path, (ino, _, times)) in &ours.0 {
        let (their_ino, _, theirs) = &theirs.0[path];
        let set = |which: usize| {
            our_times
                .get(ino)
                .is_none_or(|old| old[which] != times[which])
        };
        let given =
            |which: &usize| set(*which) && (is_given(times[*which]) || is_given(theirs[*which]));
        if let Some(which) = (0..3).filter(given).find(|n| times[*n] != theirs[*n]) {
            let (own, other) = (times[which], theirs[which]);
            wrong.push(format!(
                "{what}: {}: time {which} is {own:?}, the kernel's {other:?}",
                path.text()
            ));
        }
        // A new inode has no earlier times.
        let (Some(old), Some(their_old)) = (our_times.get(ino), their_times.get(their_ino)) else {
            continue;
        };
        let changed = |now: &Times, old: &Times| [0, 1, 2].map(|which| now[which] != old[which]);
        let (own, other) = (changed(times, old), changed(theirs, their_old));
        if own != other {
            let path = path.text();
            wrong.push(format!(
                "{what}: {path}: access, modification, change set: {own:?}, the kernel's {other:?}"
            ));
        }
    }
}

/// Whether a program set this time: it is not in this century.
fn is_given((seconds, _): (i64, u32)) -> bool {
    !(900_000_000..3_900_000_000).contains(&seconds)
}
