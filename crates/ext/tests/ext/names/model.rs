//! A tree of names in memory, with the same operations as on a volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use throughline_ext::{Fs, Inode, InodeImage, Last, NewInode, NewKind, RenameMode};

use crate::names::image::{Image, Random};

/// The type of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory: parent and names.
    Dir(usize, BTreeMap<String, usize>),
    /// A file.
    File,
    /// A fifo.
    Fifo,
    /// A symbolic link.
    Link(String),
}

/// An inode of the model.
#[derive(Clone, Debug)]
struct Node {
    kind: Kind,
    /// Number of its names (1 for directories).
    links: u16,
}

/// The tree; node 0 is the root.
pub(crate) struct Model {
    nodes: Vec<Option<Node>>,
    /// Names for which this is equal are one name.
    form: fn(&str) -> String,
}

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 1000,
    gid: 1000,
    umask: 0,
};

/// A random operation.
#[derive(Debug)]
enum Op {
    Create(usize, String, Kind),
    Remove(usize, String),
    RemoveDir(usize, String),
    Link(usize, usize, String),
    Rename(usize, String, usize, String, RenameMode),
}

impl Model {
    /// A volume with an empty root.
    pub(crate) fn new() -> Self {
        Self::with_form(str::to_owned)
    }

    /// As [`Model::new`], where names with the same `form` are one name.
    pub(crate) fn with_form(form: fn(&str) -> String) -> Self {
        Self {
            form,
            nodes: vec![Some(Node {
                kind: Kind::Dir(0, BTreeMap::new()),
                links: 1,
            })],
        }
    }

    fn node(&self, id: usize) -> &Node {
        self.nodes[id].as_ref().expect("a node in use")
    }

    fn node_mut(&mut self, id: usize) -> &mut Node {
        self.nodes[id].as_mut().expect("a node in use")
    }

    fn names(&self, dir: usize) -> &BTreeMap<String, usize> {
        match &self.node(dir).kind {
            Kind::Dir(_, names) => names,
            other => panic!("{other:?} is no directory"),
        }
    }

    fn names_mut(&mut self, dir: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.node_mut(dir).kind {
            Kind::Dir(_, names) => names,
            other => panic!("{other:?} is no directory"),
        }
    }

    fn is_dir(&self, id: usize) -> bool {
        matches!(self.node(id).kind, Kind::Dir(..))
    }

    fn pick(&self, random: &mut Random, want: impl Fn(&Node) -> bool) -> Option<usize> {
        let all: Vec<_> = (0..self.nodes.len())
            .filter(|&id| self.nodes[id].as_ref().is_some_and(&want))
            .collect();
        (!all.is_empty()).then(|| all[random.below(all.len())])
    }

    /// The path of a directory.
    fn path(&self, dir: usize) -> String {
        if dir == 0 {
            return String::new();
        }
        let Kind::Dir(parent, _) = self.node(dir).kind else {
            panic!("no directory")
        };
        let (name, _) = self
            .names(parent)
            .iter()
            .find(|(_, id)| **id == dir)
            .expect("a name");
        format!("{}/{name}", self.path(parent))
    }

    fn is_inside(&self, mut dir: usize, ancestor: usize) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            match self.node(dir).kind {
                Kind::Dir(parent, _) if dir != 0 => dir = parent,
                _ => return false,
            }
        }
    }

    fn forget(&mut self, id: usize) {
        let node = self.node_mut(id);
        node.links -= 1;
        if node.links == 0 {
            self.nodes[id] = None;
        }
    }

    /// The name under which `dir` has `name`, or would have it.
    fn stored(&self, dir: usize, name: &str) -> String {
        let form = (self.form)(name);
        let mut names = self.names(dir).keys();
        let there = names.find(|other| (self.form)(other) == form);
        there.cloned().unwrap_or_else(|| name.to_owned())
    }

    /// The operation with the names that the directories have.
    fn resolved(&self, op: &Op) -> Op {
        match op {
            Op::Create(dir, name, kind) => Op::Create(*dir, self.stored(*dir, name), kind.clone()),
            Op::Remove(dir, name) => Op::Remove(*dir, self.stored(*dir, name)),
            Op::RemoveDir(dir, name) => Op::RemoveDir(*dir, self.stored(*dir, name)),
            Op::Link(id, dir, name) => Op::Link(*id, *dir, self.stored(*dir, name)),
            Op::Rename(old, from, new, to, mode) => {
                let (from, to) = (self.stored(*old, from), self.stored(*new, to));
                Op::Rename(*old, from, *new, to, *mode)
            }
        }
    }

    /// Performs an operation; returns whether it is allowed.
    fn apply(&mut self, op: &Op) -> bool {
        match &self.resolved(op) {
            Op::Create(dir, name, kind) => {
                if self.names(*dir).contains_key(name) {
                    return false;
                }
                let id = self.nodes.len();
                self.nodes.push(Some(Node {
                    kind: kind.clone(),
                    links: 1,
                }));
                self.names_mut(*dir).insert(name.clone(), id);
                true
            }
            Op::Remove(dir, name) => match self.names(*dir).get(name).copied() {
                Some(id) if !self.is_dir(id) => {
                    self.names_mut(*dir).remove(name);
                    self.forget(id);
                    true
                }
                _ => false,
            },
            Op::RemoveDir(dir, name) => match self.names(*dir).get(name).copied() {
                Some(id) if self.is_dir(id) && self.names(id).is_empty() => {
                    self.names_mut(*dir).remove(name);
                    self.forget(id);
                    true
                }
                _ => false,
            },
            Op::Link(id, dir, name) => {
                if self.is_dir(*id) || self.names(*dir).contains_key(name) {
                    return false;
                }
                self.node_mut(*id).links += 1;
                self.names_mut(*dir).insert(name.clone(), *id);
                true
            }
            Op::Rename(old, from, new, to, mode) => self.rename((*old, from), (*new, to), *mode),
        }
    }

    fn rename(
        &mut self,
        (old, from): (usize, &String),
        (new, to): (usize, &String),
        mode: RenameMode,
    ) -> bool {
        let Some(source) = self.names(old).get(from).copied() else {
            return false;
        };
        let target = self.names(new).get(to).copied();
        if self.is_dir(source) && self.is_inside(new, source) {
            // A rename onto itself changes nothing.
            return old == new && target == Some(source) && mode != RenameMode::NoReplace;
        }
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) | (RenameMode::Exchange, None) => return false,
            (RenameMode::Exchange, Some(target)) => {
                if self.is_dir(target) && self.is_inside(old, target) {
                    return false;
                }
                self.names_mut(old).insert(from.clone(), target);
                self.names_mut(new).insert(to.clone(), source);
                self.set_parent(target, old);
                self.set_parent(source, new);
                return true;
            }
            (_, Some(target)) if target == source => return true,
            (_, Some(target)) => {
                if self.is_dir(source) != self.is_dir(target)
                    || self.is_dir(target) && !self.names(target).is_empty()
                {
                    return false;
                }
                self.forget(target);
            }
            (_, None) => {}
        }
        self.names_mut(old).remove(from);
        self.names_mut(new).insert(to.clone(), source);
        self.set_parent(source, new);
        true
    }

    fn set_parent(&mut self, id: usize, new: usize) {
        if let Kind::Dir(parent, _) = &mut self.node_mut(id).kind {
            *parent = new;
        }
    }

    fn random_op(&self, random: &mut Random, names: &[String]) -> Op {
        let dir = |random: &mut Random| {
            self.pick(random, |node| matches!(node.kind, Kind::Dir(..)))
                .expect("the root")
        };
        let at = dir(random);
        // Half of the time, an existing name.
        let name = |random: &mut Random, at: usize| {
            let there = self.names(at);
            match random.below(2) {
                0 if !there.is_empty() => there
                    .keys()
                    .nth(random.below(there.len()))
                    .expect("a name")
                    .clone(),
                _ => names[random.below(names.len())].clone(),
            }
        };
        let fresh = |random: &mut Random| names[random.below(names.len())].clone();
        match random.below(20) {
            0..8 => Op::Create(at, fresh(random), Kind::File),
            8 => Op::Create(at, fresh(random), Kind::Fifo),
            9 => Op::Create(
                at,
                fresh(random),
                Kind::Link("t".repeat(1 + random.below(200))),
            ),
            10 => Op::Create(at, fresh(random), Kind::Dir(at, BTreeMap::new())),
            11..14 => Op::Remove(at, name(random, at)),
            14 => Op::RemoveDir(at, name(random, at)),
            15 => match self.pick(random, |node| !matches!(node.kind, Kind::Dir(..))) {
                Some(id) => Op::Link(id, at, fresh(random)),
                None => Op::Create(at, fresh(random), Kind::File),
            },
            _ => {
                let new = if random.below(2) == 0 {
                    at
                } else {
                    dir(random)
                };
                let mode = match random.below(4) {
                    0 => RenameMode::NoReplace,
                    1 => RenameMode::Exchange,
                    _ => RenameMode::Replace,
                };
                Op::Rename(at, name(random, at), new, name(random, new), mode)
            }
        }
    }

    /// The inode of a node.
    fn inode(&self, fs: &Fs, id: usize) -> Arc<Inode> {
        let path = if self.is_dir(id) {
            format!("/{}", self.path(id))
        } else {
            let (dir, name) = (0..self.nodes.len())
                .filter(|&dir| {
                    self.nodes[dir]
                        .as_ref()
                        .is_some_and(|n| matches!(n.kind, Kind::Dir(..)))
                })
                .find_map(|dir| Some((dir, self.names(dir).iter().find(|(_, of)| **of == id)?.0)))
                .expect("a name");
            format!("{}/{name}", self.path(dir))
        };
        fs.resolve(path.as_bytes(), Last::NoFollow)
            .unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    fn apply_to(&self, fs: &Fs, op: &Op) -> throughline_ext::Result<()> {
        match op {
            Op::Create(dir, name, kind) => {
                let kind = match kind {
                    Kind::Dir(..) => NewKind::Dir,
                    Kind::File => NewKind::File,
                    Kind::Fifo => NewKind::Fifo,
                    Kind::Link(target) => NewKind::Symlink(target.as_bytes()),
                };
                fs.create(&self.inode(fs, *dir), name.as_bytes(), kind, OWNER)
                    .map(drop)
            }
            Op::Remove(dir, name) => fs.unlink(&self.inode(fs, *dir), name.as_bytes()),
            Op::RemoveDir(dir, name) => fs.rmdir(&self.inode(fs, *dir), name.as_bytes()),
            Op::Link(id, dir, name) => {
                fs.link(&self.inode(fs, *id), &self.inode(fs, *dir), name.as_bytes())
            }
            Op::Rename(old, from, new, to, mode) => {
                let (old, new) = (self.inode(fs, *old), self.inode(fs, *new));
                fs.rename(&old, from.as_bytes(), &new, to.as_bytes(), *mode)
            }
        }
    }

    /// Performs random operations on both, and compares the result of each.
    pub(crate) fn play(&mut self, fs: &Fs, random: &mut Random, names: &[String], count: usize) {
        for step in 0..count {
            let op = self.random_op(random, names);
            let done = self.apply_to(fs, &op);
            let expected = self.apply(&op);
            assert!(
                matches!(done, Ok(()) | Err(throughline_ext::Error::Caller(_)))
                    && done.is_ok() == expected,
                "step {step}: {op:?} should {}, but {done:?}",
                if expected { "succeed" } else { "be refused" }
            );
        }
    }

    /// Compares every directory of the volume with the model.
    pub(crate) fn compare(&self, fs: &Fs) {
        let mut inodes = BTreeMap::new();
        for dir in 0..self.nodes.len() {
            let Some(Node {
                kind: Kind::Dir(parent, names),
                ..
            }) = &self.nodes[dir]
            else {
                continue;
            };
            let inode = self.inode(fs, dir);
            let path = self.path(dir);
            let listed: Vec<_> = fs
                .read_dir(&inode)
                .collect::<Result<_, _>>()
                .expect("a sound directory");
            let mut seen: Vec<_> = listed.iter().map(|entry| entry.name.as_slice()).collect();
            seen.sort_unstable();
            let own = |name: &&[u8]| !(dir == 0 && *name == b"lost+found");
            let seen: Vec<_> = seen.into_iter().filter(own).collect();
            let expected: Vec<_> = names.keys().map(|name| name.as_bytes()).collect();
            assert_eq!(seen, expected, "names of {path}");
            for entry in listed.iter().filter(|entry| own(&entry.name.as_slice())) {
                let name = String::from_utf8(entry.name.clone()).expect("UTF-8");
                let id = names[&name];
                assert_eq!(
                    *inodes.entry(id).or_insert(entry.ino),
                    entry.ino,
                    "inode of {path}/{name}"
                );
                self.compare_inode(fs, &inode, &name, id);
            }
            let subdirs =
                names.values().filter(|&&id| self.is_dir(id)).count() + usize::from(dir == 0);
            assert_eq!(
                usize::from(links(&inode.image())),
                2 + subdirs,
                "links of {path}"
            );
            assert_eq!(
                fs.parent(&inode).expect("..").ino,
                self.inode(fs, *parent).ino,
                ".. of {path}"
            );
        }
    }

    fn compare_inode(&self, fs: &Fs, dir: &Arc<Inode>, name: &str, id: usize) {
        let inode = fs
            .lookup(dir, name.as_bytes())
            .expect("a name that was listed");
        let node = self.node(id);
        if !self.is_dir(id) {
            assert_eq!(links(&inode.image()), node.links, "links of {name}");
        }
        match &node.kind {
            Kind::Link(target) => {
                assert_eq!(fs.read_link(&inode).expect("a link"), target.as_bytes())
            }
            Kind::Dir(..) => assert!(inode.is_dir()),
            _ => assert!(!inode.is_dir() && !inode.is_symlink()),
        }
    }

    /// Compares the model with the names that `debugfs` finds.
    pub(crate) fn compare_with_debugfs(&self, image: &Image) {
        for dir in 0..self.nodes.len().min(2000) {
            let Some(Node {
                kind: Kind::Dir(_, names),
                ..
            }) = &self.nodes[dir]
            else {
                continue;
            };
            let path = self.path(dir);
            let mut seen = image.names(if dir == 0 { "/" } else { path.as_str() });
            for extra in [".", ".."] {
                assert!(seen.remove(extra).is_some());
            }
            if dir == 0 {
                seen.remove("lost+found");
            }
            let seen: Vec<_> = seen.keys().collect();
            assert_eq!(seen, names.keys().collect::<Vec<_>>(), "names of {path}");
        }
    }

    /// Removes everything, deepest first.
    pub(crate) fn clear(&mut self, fs: &Fs) {
        self.clear_dir(fs, 0);
    }

    fn clear_dir(&mut self, fs: &Fs, dir: usize) {
        let inode = self.inode(fs, dir);
        for (name, id) in self.names(dir).clone() {
            if self.is_dir(id) {
                self.clear_dir(fs, id);
                fs.rmdir(&inode, name.as_bytes())
                    .expect("an empty directory");
            } else {
                fs.unlink(&inode, name.as_bytes()).expect("a file");
            }
            self.names_mut(dir).remove(&name);
            self.forget(id);
        }
    }
}

fn links(image: &InodeImage) -> u16 {
    image.links_count()
}
