//! The tree of the model: files by number, names in directories, and the answers of a correct file system.
//!
//! Each change returns the expected answer: `Ok`, or every refusal that would be correct, because the order
//! in which several errors are checked is unspecified.

use std::collections::BTreeMap;

use super::content::Content;
use super::subject::{FileKind, Refusal, RenameMode, SLOTS};

/// Number of a file in the model.
pub type Id = u32;

/// The expected result of a call.
pub type Expected<T> = Result<T, Vec<Refusal>>;

/// The root directory.
pub const ROOT: Id = 0;

/// A file of any type.
#[derive(Clone, Debug)]
pub struct Node {
    /// Type and contents.
    pub body: Body,
    /// The twelve permission bits.
    pub mode: u32,
    /// The owner, if it was set.
    pub owner: Option<(u32, u32)>,
    /// The time of the last change, while it is known.
    pub modified: Option<(i64, u32)>,
    /// Number of names.
    pub links: u32,
}

/// Contents of a file by type.
#[derive(Clone, Debug)]
pub enum Body {
    /// Content.
    File(Content),
    /// Names, and the parent directory.
    Dir(BTreeMap<Vec<u8>, Id>, Id),
    /// A target.
    Symlink(Vec<u8>),
    /// Type and device numbers.
    Special(FileKind, (u32, u32)),
}

impl Node {
    /// The file type.
    pub fn kind(&self) -> FileKind {
        match &self.body {
            Body::File(_) => FileKind::File,
            Body::Dir(..) => FileKind::Dir,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Special(kind, _) => *kind,
        }
    }

    fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(..))
    }

    fn entries(&self) -> Option<&BTreeMap<Vec<u8>, Id>> {
        match &self.body {
            Body::Dir(entries, _) => Some(entries),
            _ => None,
        }
    }
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<Id, Node>,
    next: Id,
    /// Open files, which remain without a name.
    pub kept: [Option<Id>; SLOTS],
}

impl Default for Tree {
    fn default() -> Self {
        let root = Node {
            body: Body::Dir(BTreeMap::new(), ROOT),
            mode: 0o755,
            owner: None,
            modified: None,
            links: 2,
        };
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            kept: [None; SLOTS],
        }
    }
}

/// The parent directory and the last name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    (&path[..at], &path[at + 1..])
}

impl Tree {
    /// A file by number.
    ///
    /// # Panics
    /// If there is none: a bug in the test.
    pub fn node(&self, id: Id) -> &Node {
        &self.nodes[&id]
    }

    /// A file by number, mutable.
    ///
    /// # Panics
    /// If there is none: a bug in the test.
    pub fn node_mut(&mut self, id: Id) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node of the model")
    }

    /// All directories.
    pub fn dirs(&self) -> Vec<Id> {
        self.nodes
            .iter()
            .filter(|(_, node)| node.is_dir())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is only the root.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// The names in a directory.
    pub fn entries(&self, dir: Id) -> &BTreeMap<Vec<u8>, Id> {
        self.node(dir).entries().expect("a directory of the model")
    }

    fn entries_mut(&mut self, dir: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match &mut self.node_mut(dir).body {
            Body::Dir(entries, _) => entries,
            _ => unreachable!("a directory of the model"),
        }
    }

    /// The path of a directory, without a trailing slash; empty for the root.
    pub fn path_of_dir(&self, dir: Id) -> Vec<u8> {
        let Body::Dir(_, parent) = &self.node(dir).body else {
            unreachable!("a directory of the model")
        };
        if dir == ROOT {
            return Vec::new();
        }
        let name = self
            .entries(*parent)
            .iter()
            .find(|(_, id)| **id == dir)
            .map(|(name, _)| name);
        let mut path = self.path_of_dir(*parent);
        path.push(b'/');
        path.extend(name.expect("a directory has a name"));
        path
    }

    /// The file at a path.
    pub fn find(&self, path: &[u8]) -> Expected<Id> {
        let mut at = ROOT;
        for name in path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            let Some(entries) = self.node(at).entries() else {
                return Err(vec![Refusal::NotDir]);
            };
            if name.len() > 255 {
                return Err(vec![Refusal::NameTooLong]);
            }
            at = *entries.get(name).ok_or_else(|| vec![Refusal::NotFound])?;
        }
        Ok(at)
    }

    /// The regular file at a path, as calls on contents find it.
    pub fn find_file(&self, path: &[u8]) -> Expected<Id> {
        let id = self.find(path)?;
        match self.node(id).kind() {
            FileKind::File => Ok(id),
            FileKind::Dir => Err(vec![Refusal::IsDir, Refusal::Invalid]),
            _ => Err(vec![Refusal::Invalid]),
        }
    }

    /// The content of a regular file.
    ///
    /// # Panics
    /// If it is not one: a bug in the test.
    pub fn content(&mut self, id: Id) -> &mut Content {
        match &mut self.node_mut(id).body {
            Body::File(content) => content,
            _ => unreachable!("a regular file of the model"),
        }
    }

    /// The parent directory and the free name at a path.
    fn place<'p>(&self, path: &'p [u8]) -> Expected<(Id, &'p [u8])> {
        let (parent, name) = split(path);
        let dir = self.find(parent)?;
        let Some(entries) = self.node(dir).entries() else {
            return Err(vec![Refusal::NotDir]);
        };
        if name.len() > 255 {
            return Err(vec![Refusal::NameTooLong]);
        }
        if entries.contains_key(name) {
            return Err(vec![Refusal::Exists]);
        }
        Ok((dir, name))
    }

    /// Creates a file.
    pub fn make(&mut self, path: &[u8], body: Body, mode: u32) -> Expected<Id> {
        let (dir, name) = self.place(path)?;
        let (body, links) = match body {
            Body::Dir(entries, _) => (Body::Dir(entries, dir), 2),
            other => (other, 1),
        };
        let id = self.next;
        self.next += 1;
        self.nodes.insert(
            id,
            Node {
                body,
                mode,
                owner: None,
                modified: None,
                links,
            },
        );
        self.enter(dir, name, id);
        Ok(id)
    }

    /// Adds a name.
    pub fn link(&mut self, from: &[u8], to: &[u8]) -> Expected<()> {
        let id = self.find(from)?;
        let place = self.place(to);
        if self.node(id).is_dir() {
            return Err([vec![Refusal::Permission], place.err().unwrap_or_default()].concat());
        }
        let (dir, name) = place?;
        self.enter(dir, name, id);
        self.node_mut(id).links += 1;
        Ok(())
    }

    /// Removes a name, except a directory's.
    pub fn unlink(&mut self, path: &[u8]) -> Expected<()> {
        let id = self.find(path)?;
        if self.node(id).is_dir() {
            return Err(vec![Refusal::IsDir, Refusal::Busy]);
        }
        let (parent, name) = split(path);
        let dir = self.find(parent)?;
        self.leave(dir, name);
        self.drop_link(id);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, path: &[u8]) -> Expected<()> {
        let id = self.find(path)?;
        match self.node(id).entries() {
            None => return Err(vec![Refusal::NotDir]),
            Some(_) if id == ROOT => return Err(vec![Refusal::Busy]),
            Some(entries) if !entries.is_empty() => return Err(vec![Refusal::NotEmpty]),
            Some(_) => {}
        }
        let (parent, name) = split(path);
        let dir = self.find(parent)?;
        self.leave(dir, name);
        self.nodes.remove(&id);
        Ok(())
    }

    /// Renames.
    pub fn rename(&mut self, from: &[u8], to: &[u8], mode: RenameMode) -> Expected<()> {
        let (to_parent, to_name) = split(to);
        let is_long = to_name.len() > 255;
        let source = self.find(from).map_err(|mut wrong| {
            // Both may be found first.
            wrong.extend(is_long.then_some(Refusal::NameTooLong));
            wrong
        })?;
        let to_dir = self.find(to_parent)?;
        if !self.node(to_dir).is_dir() {
            return Err(vec![Refusal::NotDir]);
        }
        if is_long {
            return Err(vec![Refusal::NameTooLong]);
        }
        let target = self.entries(to_dir).get(to_name).copied();
        let wrong = self.wrongs(source, to_dir, target, from, mode);
        if !wrong.is_empty() {
            return Err(wrong);
        }
        if Some(source) == target {
            return Ok(());
        }
        let (from_parent, from_name) = split(from);
        let from_dir = self.find(from_parent)?;
        self.leave(from_dir, from_name);
        if let Some(target) = target {
            self.leave(to_dir, to_name);
            match mode {
                RenameMode::Exchange => self.enter(from_dir, from_name, target),
                _ if self.node(target).is_dir() => drop(self.nodes.remove(&target)),
                _ => self.drop_link(target),
            }
        }
        self.enter(to_dir, to_name, source);
        Ok(())
    }

    /// All refusals that apply to a rename.
    fn wrongs(
        &self,
        source: Id,
        to_dir: Id,
        target: Option<Id>,
        from: &[u8],
        mode: RenameMode,
    ) -> Vec<Refusal> {
        let mut wrong = Vec::new();
        if self.is_below(to_dir, source) {
            wrong.push(Refusal::Invalid);
        }
        let Some(target) = target else {
            if mode == RenameMode::Exchange {
                wrong.push(Refusal::NotFound);
            }
            return wrong;
        };
        let from_dir = self.find(split(from).0).unwrap_or(ROOT);
        let above = self.is_below(from_dir, target);
        match mode {
            RenameMode::NoReplace => wrong.push(Refusal::Exists),
            RenameMode::Exchange if above => wrong.push(Refusal::Invalid),
            RenameMode::Exchange => {}
            RenameMode::Replace if source == target => {}
            RenameMode::Replace => {
                match (self.node(source).is_dir(), self.node(target).entries()) {
                    (true, None) => wrong.push(Refusal::NotDir),
                    (false, Some(entries)) => {
                        wrong.push(Refusal::IsDir);
                        if !entries.is_empty() {
                            wrong.push(Refusal::NotEmpty);
                        }
                    }
                    (true, Some(entries)) if !entries.is_empty() => wrong.push(Refusal::NotEmpty),
                    _ => {}
                }
            }
        }
        wrong
    }

    /// Whether `dir` is `top` or below it.
    fn is_below(&self, dir: Id, top: Id) -> bool {
        let mut at = dir;
        loop {
            if at == top {
                return true;
            }
            match &self.node(at).body {
                Body::Dir(_, parent) if at != ROOT => at = *parent,
                _ => return false,
            }
        }
    }

    /// Adds a name, and the link of a directory's `..`.
    fn enter(&mut self, dir: Id, name: &[u8], id: Id) {
        self.entries_mut(dir).insert(name.to_vec(), id);
        self.node_mut(dir).modified = None;
        if let Body::Dir(_, parent) = &mut self.node_mut(id).body {
            *parent = dir;
            self.node_mut(dir).links += 1;
        }
    }

    /// Removes a name, and the link of a directory's `..`.
    fn leave(&mut self, dir: Id, name: &[u8]) {
        let id = self
            .entries_mut(dir)
            .remove(name)
            .expect("a name of the model");
        self.node_mut(dir).modified = None;
        if self.node(id).is_dir() {
            self.node_mut(dir).links -= 1;
        }
    }

    fn drop_link(&mut self, id: Id) {
        let node = self.node_mut(id);
        node.links -= 1;
        if node.links == 0 && !self.kept.contains(&Some(id)) {
            self.nodes.remove(&id);
        }
    }

    /// Opens a regular file into a slot; closes the one that was there.
    pub fn keep(&mut self, slot: usize, path: &[u8]) -> Expected<()> {
        let id = self.find_file(path)?;
        // In this order: it may be the same file.
        let before = self.kept[slot].replace(id);
        self.closed(before);
        Ok(())
    }

    /// Closes a kept file. It is removed if it has no name.
    pub fn close_kept(&mut self, slot: usize) {
        let before = self.kept[slot].take();
        self.closed(before);
    }

    /// Closes all kept files.
    pub fn close_all_kept(&mut self) {
        (0..SLOTS).for_each(|slot| self.close_kept(slot));
    }

    fn closed(&mut self, id: Option<Id>) {
        if let Some(id) = id
            && self.node(id).links == 0
            && !self.kept.contains(&Some(id))
        {
            self.nodes.remove(&id);
        }
    }
}
