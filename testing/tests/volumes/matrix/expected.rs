//! The expected state: a tree in memory to which every step is applied too.

use std::collections::BTreeMap;

use throughline::{Fallocate, FileType, RenameMode};

use crate::matrix::fs::{FileSystem, Stat, Step, data};
use throughline_testing::model::Content;

#[derive(Clone)]
struct Node {
    kind: FileType,
    mode: u32,
    uid: u32,
    gid: u32,
    content: Content,
    target: String,
    device: Option<(u32, u32)>,
    /// Unknown after a change, until it is set.
    modified: Option<(i64, u32)>,
}

/// The tree. Several names may refer to one node.
#[derive(Clone)]
pub(crate) struct Expected {
    nodes: Vec<Node>,
    names: BTreeMap<String, usize>,
    /// Whether inodes have room for nanoseconds and two more bits of seconds.
    wide_times: bool,
    owner: (u32, u32),
}

impl Expected {
    /// An empty volume with inodes of `inode_bytes`. New files belong to `owner`.
    pub(crate) fn new(inode_bytes: u16, owner: (u32, u32)) -> Self {
        Self {
            nodes: Vec::new(),
            names: BTreeMap::new(),
            wide_times: inode_bytes > 128,
            owner,
        }
    }

    /// All paths under a directory, deepest last.
    pub(crate) fn under(&self, dir: &str) -> Vec<String> {
        let prefix = prefix(dir);
        let inside = self.names.range(prefix.clone()..).map(|(path, _)| path);
        inside
            .take_while(|path| path.starts_with(&prefix))
            .cloned()
            .collect()
    }

    /// Paths whose modification time is unknown since a change.
    pub(crate) fn without_time(&self) -> Vec<String> {
        let unknown = self
            .names
            .iter()
            .filter(|(_, node)| self.nodes[**node].modified.is_none());
        unknown.map(|(path, _)| path.clone()).collect()
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.names.contains_key(path)
    }

    pub(crate) fn stat_kind(&self, path: &str) -> FileType {
        self.nodes[self.id(path)].kind
    }

    /// Size of a regular file in bytes.
    pub(crate) fn stat_len(&self, path: &str) -> u64 {
        self.nodes[self.id(path)].content.len()
    }

    fn id(&self, path: &str) -> usize {
        *self
            .names
            .get(path)
            .unwrap_or_else(|| panic!("the test has no {path}"))
    }

    fn node(&mut self, path: &str) -> &mut Node {
        let id = self.id(path);
        &mut self.nodes[id]
    }

    fn content(&mut self, path: &str) -> &mut Content {
        let node = self.node(path);
        assert_eq!(
            node.kind,
            FileType::File,
            "the test takes {path} for a file"
        );
        node.modified = None;
        &mut node.content
    }

    fn make(&mut self, path: &str, kind: FileType, mode: u32) -> &mut Node {
        let (uid, gid) = self.owner;
        let node = Node {
            kind,
            mode,
            uid,
            gid,
            content: Content::default(),
            target: String::new(),
            device: None,
            modified: None,
        };
        self.nodes.push(node);
        self.enter(path, self.nodes.len() - 1);
        self.nodes.last_mut().expect("it was just pushed")
    }

    fn enter(&mut self, path: &str, id: usize) {
        let old = self.names.insert(path.to_owned(), id);
        assert!(old.is_none(), "the test makes {path} twice");
        self.touch_parent(path);
    }

    fn leave(&mut self, path: &str) -> usize {
        self.touch_parent(path);
        self.names
            .remove(path)
            .unwrap_or_else(|| panic!("the test has no {path}"))
    }

    fn touch_parent(&mut self, path: &str) {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !parent.is_empty() {
            self.node(parent).modified = None;
        }
    }

    /// Removes a path and everything below it.
    fn take(&mut self, path: &str) -> Vec<(String, usize)> {
        let below = self.under(path);
        let mut taken = vec![(String::new(), self.leave(path))];
        for inner in below {
            let id = self.names.remove(&inner).expect("it was just listed");
            taken.push((inner[path.len()..].to_owned(), id));
        }
        let moved = &mut self.nodes[taken[0].1];
        if moved.kind.is_dir() {
            moved.modified = None; // its `..` may change
        }
        taken
    }

    fn put(&mut self, path: &str, taken: Vec<(String, usize)>) {
        for (rest, id) in taken {
            let old = self.names.insert(format!("{path}{rest}"), id);
            assert!(old.is_none(), "the test moves onto {path}{rest}");
        }
        self.touch_parent(path);
    }

    fn rename(&mut self, from: &str, to: &str, mode: RenameMode) {
        let moved = self.take(from);
        let other = if self.exists(to) {
            Some(self.take(to))
        } else {
            None
        };
        if let (RenameMode::Exchange, Some(other)) = (mode, other) {
            self.put(from, other);
        }
        self.put(to, moved);
    }

    fn allocate(&mut self, path: &str, mode: Fallocate, offset: u64, len: u64) {
        let content = self.content(path);
        match mode {
            Fallocate::KeepSize => {}
            Fallocate::Collapse => return content.collapse(offset, len),
            Fallocate::Insert => return content.insert(offset, len),
            Fallocate::Allocate => {}
            Fallocate::PunchHole | Fallocate::ZeroRange | Fallocate::ZeroRangeKeepSize => {
                content.zero(offset, len)
            }
        }
        if matches!(mode, Fallocate::Allocate | Fallocate::ZeroRange)
            && content.len() < offset + len
        {
            content.set_len(offset + len);
        }
    }
}

fn prefix(dir: &str) -> String {
    format!("{}/", dir.trim_end_matches('/'))
}

impl FileSystem for Expected {
    fn list(&mut self, dir: &str) -> Vec<String> {
        let prefix = prefix(dir);
        let all = self.under(dir);
        all.iter()
            .map(|path| &path[prefix.len()..])
            .filter(|name| !name.contains('/'))
            .map(String::from)
            .collect()
    }

    fn stat(&mut self, path: &str) -> Stat {
        let id = self.id(path);
        let node = self.nodes[id].clone();
        let links = match node.kind {
            FileType::Directory => {
                let inside = self.list(path);
                2 + inside
                    .iter()
                    .filter(|name| self.nodes[self.id(&format!("{path}/{name}"))].kind.is_dir())
                    .count()
            }
            _ => self.names.values().filter(|other| **other == id).count(),
        };
        Stat {
            kind: node.kind,
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            links: links as u32,
            len: if node.kind.is_symlink() {
                node.target.len() as u64
            } else {
                node.content.len()
            },
            device: node.device,
            modified: node
                .modified
                .unwrap_or_else(|| panic!("the test did not settle {path}")),
        }
    }

    fn read(&mut self, path: &str, offset: u64, to: &mut [u8]) -> usize {
        self.nodes[self.id(path)].content.read(offset, to)
    }

    fn read_link(&mut self, path: &str) -> String {
        self.nodes[self.id(path)].target.clone()
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Dir(path) => drop(self.make(path, FileType::Directory, 0o755)),
            Step::File(path) => drop(self.make(path, FileType::File, 0o644)),
            Step::Write {
                path,
                offset,
                seed,
                len,
            } => self.content(path).write(*offset, &data(*seed, *len)),
            Step::Truncate(path, len) => self.content(path).set_len(*len),
            Step::Allocate(path, mode, offset, len) => self.allocate(path, *mode, *offset, *len),
            Step::Symlink { target, link } => {
                self.make(link, FileType::Symlink, 0o777).target = target.clone()
            }
            Step::Link { from, to } => self.enter(to, self.id(from)),
            Step::Node(path, kind, device) => {
                self.make(path, *kind, 0o644).device = Some(*device).filter(|_| kind.is_device());
            }
            Step::Unlink(path) | Step::Rmdir(path) => {
                assert!(
                    self.under(path).is_empty(),
                    "the test removes {path}, which is not empty"
                );
                self.leave(path);
            }
            Step::Rename(from, to, mode) => self.rename(from, to, *mode),
            Step::Attributes(path, mode, uid, gid) => {
                let node = self.node(path);
                if !node.kind.is_symlink() {
                    node.mode = *mode;
                }
                (node.uid, node.gid) = (*uid, *gid);
            }
            Step::Modified(path, (seconds, nanoseconds)) => {
                let time = match self.wide_times {
                    true => (*seconds, *nanoseconds),
                    false => ((*seconds).clamp(i32::MIN.into(), i32::MAX.into()), 0),
                };
                self.node(path).modified = Some(time);
            }
        }
    }
}
